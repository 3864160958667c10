"""Rows of tables as files of Parquet, with the version of the tables in their metadata."""

import io
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from regnum_insight.tables.columns import TABLES, VERSION, Type
from regnum_insight.tables.rows import Row

from regnum_failover.objects.store import ObjectGoneError, ObjectStore, StoreError

VERSION_KEY: Final = b"regnum.tables.version"
_TYPES: Final = {
    Type.STRING: pa.string(), Type.BIGINT: pa.int64(), Type.INT: pa.int32(), Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(), Type.TIMESTAMP: pa.timestamp("us", tz="UTC"), Type.STRINGS: pa.list_(pa.string()),
    Type.LENGTHS: pa.map_(pa.string(), pa.float64()), Type.TEXTS: pa.map_(pa.string(), pa.string()),
}  # fmt: skip


@cache
def schema_of(name: str) -> pa.Schema:
    """The columns of a table."""
    fields = [pa.field(column.name, _TYPES[column.type]) for column in TABLES[name].columns]
    return pa.schema(fields, metadata={VERSION_KEY: str(VERSION)})


def table_of(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of Arrow."""
    schema = schema_of(name)
    if not rows:
        return schema.empty_table()
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [_array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column; a number that its type does not hold is null: what an attribute says is whatever wrote it."""
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid:
        if not pa.types.is_integer(kind):
            raise
        limit = 1 << kind.bit_width - 1
        return pa.array([one if one is not None and -limit <= one < limit else None for one in values], kind)


def write(store: ObjectStore, key: str, table: pa.Table) -> None:
    """A file, in the place of what is there. Raises StoreError."""
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd")
    store.write(key, written.getvalue())


def read(store: ObjectStore, key: str) -> pa.Table | None:
    """A file of this version; None: there is none. Raises StoreError."""
    content = content_of(store, key)
    if content is None:
        return None
    table = pq.read_table(io.BytesIO(content))
    version = (table.schema.metadata or {}).get(VERSION_KEY, b"?").decode()
    if version != str(VERSION):
        raise StoreError(f"{key} is of version {version} of the tables, and this is {VERSION}; write into a new place")
    return table


def content_of(store: ObjectStore, key: str) -> bytes | None:
    """All of an object; None: there is none. Raises StoreError."""
    try:
        return b"".join(store.read(key))
    except ObjectGoneError:
        return None


def key_of(place: Iterable[str]) -> str:
    """Path of names, each with a slash before the next."""
    return "/".join(name for name in place if name)
