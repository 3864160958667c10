"""What the tables were told from so far: files and how far they were read, and spans that more may come to.

It is replaced at once, when everything else of a run is written. A run that finds it unchanged does the same again.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from regnum_failover.objects.store import ObjectStore, StoreError
from regnum_failover.tables.parquet import content_of, key_of

FOLDER: Final = "_ledger"
"""Below the tables: readers of tables leave out what begins with a line."""
VERSION: Final = 1
_FILE: Final = "ledger.json"
_SCHEMA: Final = pa.schema([
    pa.field("trace_id", pa.string()), pa.field("ended", pa.timestamp("us", tz="UTC")), pa.field("span", pa.binary()),
])  # fmt: skip
_ROWS: Final = 10_000
_KEPT: Final = "kept-"


class Shelf(NamedTuple):
    """Where tables lie."""

    store: ObjectStore
    """Folder or bucket."""
    prefix: str
    """What keys begin with; empty in a folder."""

    def key(self, *names: str) -> str:
        """Key of something below."""
        return key_of((self.prefix, *names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known after a run."""

    run: int = 0
    """Runs that came to their end."""
    files: Mapping[str, int] = field(default_factory=dict)
    """How far each file was read, by its identity (``growth``), or the size of an object by its key."""
    newest_us: int = 0
    """End of the latest span, in microseconds since 1970."""
    kept: str = ""
    """Name of the spans that are kept, below FOLDER; empty: none."""
    late: int = 0
    """Traces of which spans came after their change was told for good."""


def read_ledger(shelf: Shelf) -> Ledger:
    """What the last run left. Raises StoreError."""
    content = content_of(shelf.store, shelf.key(FOLDER, _FILE))
    if content is None:
        return Ledger()
    told = json.loads(content)
    if told.pop("version", None) != VERSION:
        raise StoreError(f"{shelf.key(FOLDER, _FILE)} is of another version; write into a new place")
    return Ledger(**told)


def write_ledger(shelf: Shelf, ledger: Ledger) -> None:
    """End a run. Raises StoreError, also where another run came to its end meanwhile."""
    before = read_ledger(shelf)
    if before.run != ledger.run - 1:
        raise StoreError(f"another run wrote into {shelf.key(FOLDER)} at the same time; run it again")
    shelf.store.write(shelf.key(FOLDER, _FILE), json.dumps({"version": VERSION, **asdict(ledger)}).encode())
    for found in list(shelf.store.objects(shelf.key(FOLDER))):
        name = found.key.rpartition("/")[2]
        if name.startswith(_KEPT) and name != ledger.kept:
            shelf.store.remove(found.key)


def write_kept(shelf: Shelf, run: int, rows: Iterable[tuple[str, int, bytes]]) -> str:
    """Keep spans (trace, end in microseconds, packed); returns their name. Raises StoreError."""
    values = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    columns = [pa.array(of, one.type) for of, one in zip(values, _SCHEMA, strict=True)]
    written = io.BytesIO()
    pq.write_table(pa.table(columns, schema=_SCHEMA), written, compression="zstd")
    name = f"{_KEPT}{run}.parquet"
    shelf.store.write(shelf.key(FOLDER, name), written.getvalue())
    return name


def read_kept(shelf: Shelf, name: str) -> Iterator[pa.RecordBatch]:
    """What ``write_kept`` left, in the columns of ``format("regnum_traces")``. Raises StoreError."""
    content = content_of(shelf.store, shelf.key(FOLDER, name))
    if content is None:
        raise StoreError(f"{shelf.key(FOLDER, name)} is not there, and the ledger names it; write into a new place")
    yield from pq.ParquetFile(io.BytesIO(content)).iter_batches(_ROWS)
