"""What a run tells, put into the files of one partition of the tables.

Goals: a run that is repeated, also after it was killed in its middle, leaves what one run leaves; a file is whole or
not there; nothing is read but the files of the partition.

Algorithm: there is one file for each table and partition. It is read, rows of the traces that are told anew are left
out, the new ones put in, and it is replaced at once. Which rows are replaced is told by their trace and their run:
those of traces whose spans are all known (the ledger keeps them while more may come), and those of this run, which
an attempt of it left that did not come to its end. A trace that was told before, and whose spans are not kept, has
come too late: its row stays.
"""

import marshal
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from regnum_insight.tables import columns
from regnum_insight.tables.rows import UNKNOWN_CLUSTER, Place, Rows, percentiles_of

from regnum_failover.compression import compressed, decompressed
from regnum_failover.objects.store import ObjectStore
from regnum_failover.tables.ledger import Shelf
from regnum_failover.tables.parquet import key_of, read, table_of, write

FILE: Final = "part-0.parquet"
"""The one file of a partition."""
CLUSTER_BYTES_MAX: Final = 200
"""Of the name of a cluster as it is quoted in the name of a folder, which has 255 bytes at most."""
_CHUNK: Final = 2_000
"""Traces whose rows are Python's at a time."""


class Told(NamedTuple):
    """One trace, as far as one partition goes."""

    trace_id: str
    """Its id."""
    known: bool
    """Whether its earlier spans are among those it is told from."""
    rows: Rows
    """Its rows here; none: they are elsewhere, or it is no change."""


class Merged(NamedTuple):
    """What came of one partition."""

    told: int
    """Traces that have rows in it."""
    late: int
    """Traces that came too late."""


def packed(told: Told) -> bytes:
    """As bytes, between machines."""
    rows: Any = (told.trace_id, told.known, dict(told.rows))
    return compressed(marshal.dumps(rows))


def unpacked(text: bytes) -> Told:
    """Of ``packed``."""
    return Told(*marshal.loads(decompressed(text)))  # noqa: S302 - of this job's own workers


def file_of(table: str, place: Place, prefix: str = "", file: str = FILE) -> str:
    """Key of a file of a partition, as Hive names folders."""
    return key_of((prefix, table, *(f"{name}={quote(of, safe='')}" for name, of in place._asdict().items()), file))


def fit(place: Place) -> Place:
    """A place that can be a folder: a cluster whose name is too long counts as unknown."""
    fits = len(quote(place.cluster, safe="")) <= CLUSTER_BYTES_MAX
    return place if fits else place._replace(cluster=UNKNOWN_CLUSTER)


def merge(shelf: Shelf, place: Place, told: Sequence[bytes], run: int) -> Merged:
    """Put ``packed`` traces in their files. Raises StoreError."""
    store, prefix = shelf
    there = {table.name: read(store, file_of(table.name, place, prefix)) for table in columns.OF_TRACES}
    of_before = _told_before(there.values(), run)
    accepted: list[str] = []
    told_n = late = 0
    chunks: dict[str, list[pa.Table]] = {table.name: [] for table in columns.OF_TRACES}
    for begin in range(0, len(told), _CHUNK):
        new: dict[str, list[Any]] = {name: [] for name in chunks}
        for one in map(unpacked, told[begin : begin + _CHUNK]):
            if one.trace_id in of_before and not one.known:
                late += bool(one.rows)
                continue
            accepted.append(one.trace_id)
            told_n += bool(one.rows)
            for name, rows in one.rows.items():
                new[name] += rows
        for name, rows in new.items():
            if rows:
                chunks[name].append(table_of(name, rows))
    replaced = pa.array(sorted(accepted), pa.string())
    for name, old in there.items():
        kept = None if old is None else old.filter(pc.invert(pc.is_in(old["trace_id"], value_set=replaced)))
        if not chunks[name] and (old is None or (kept is not None and len(kept) == len(old))):
            continue
        table = _sorted(pa.concat_tables([*([] if kept is None else [kept]), *chunks[name]]))
        if name == columns.CHANGES.name:
            # Before them: whatever is killed in between finds the old changes, and does both again.
            rows = percentiles_of(zip(*(column.to_pylist() for column in table.columns), strict=True))
            hours = columns.PERCENTILES.name
            _replace(store, file_of(hours, place, prefix), table_of(hours, rows))
        _replace(store, file_of(name, place, prefix), table)
    return Merged(told_n, late)


def _told_before(tables: Iterable[pa.Table | None], run: int) -> set[str]:
    """Traces that have rows of another run."""
    found: set[str] = set()
    for table in tables:
        if table is not None:
            found.update(table.filter(pc.not_equal(table["run"], run))["trace_id"].to_pylist())
    return found


def _sorted(table: pa.Table) -> pa.Table:
    """By time; of one trace rows stay in their order."""
    places = pa.array(range(len(table)), pa.int64())
    keys = {"start_ns": table["start_ns"], "trace_id": table["trace_id"], "place": places}
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))


def _replace(store: ObjectStore, key: str, table: pa.Table) -> None:
    if len(table):
        write(store, key, table)
    else:
        store.remove(key)
