"""Columns of the tables, and a change as one row of Arrow: what leaves Python."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from regnum_insight.attribution.changes import Change
from regnum_insight.reporting.rows import chains_of, started, summary_of

from regnum_failover.compression import compressed, decompressed

FAILOVER: Final = {
    "trace_id": "STRING", "kind": "STRING", "cause": "STRING", "evidence": "STRING", "victim": "STRING",
    "controller": "STRING", "partitions": "BIGINT", "started": "STRING", "start_ns": "BIGINT", "complete": "BOOLEAN",
    "planned": "BOOLEAN", "unfinished": "BOOLEAN", "total_ms": "DOUBLE", "stages_ms": "MAP<STRING, DOUBLE>",
    "unexplained_ms": "DOUBLE", "missing": "ARRAY<STRING>", "before_root_ms": "DOUBLE", "outage_ms": "DOUBLE",
    "outage_partitions": "BIGINT", "worst": "STRING", "links": "ARRAY<STRING>",
}  # fmt: skip
"""A row for each change."""
STAGE: Final = {
    "trace_id": "STRING", "kind": "STRING", "victim": "STRING", "started": "STRING", "partition": "STRING",
    "leader": "STRING", "client": "STRING", "seen_by": "STRING", "position": "INT", "stage": "STRING",
    "until": "STRING", "ms": "DOUBLE", "raw_ms": "DOUBLE", "bound_ms": "DOUBLE", "process": "STRING",
}  # fmt: skip
"""A row for each step of each chain."""
PACKED: Final = "STRUCT<change: BINARY, repeated: BIGINT>"
"""Of one trace its change, packed, where it has one, and its repeated spans."""
_TYPES: Final = {
    "STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
    "ARRAY<STRING>": pa.list_(pa.string()), "MAP<STRING, DOUBLE>": pa.map_(pa.string(), pa.float64()),
}  # fmt: skip


def ddl(columns: Mapping[str, str]) -> str:
    """Columns as Spark writes them in a struct."""
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())


ATTRIBUTED: Final = (
    f"STRUCT<failover: STRUCT<{ddl(FAILOVER)}>, stages: ARRAY<STRUCT<{ddl(STAGE)}>>, change: BINARY, repeated: BIGINT>"
)
"""Result of one trace: its change, as rows of the tables and pickled, where it has one, and its repeated spans."""


def attributed(changes: Sequence[tuple[Change | None, int]]) -> pa.Array:
    """Changes of traces, and how many spans of each came again, as ``ATTRIBUTED``."""
    found = [change for change, _ in changes]
    none = pa.array([change is None for change in found], pa.bool_())
    stages: list[tuple[Any, ...]] = []
    ends = [0]
    for change in found:
        stages += () if change is None else stages_of(change)
        ends.append(len(stages))
    columns = {
        "failover": _structs(FAILOVER, [*map(_failover, found)], none),
        "stages": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _structs(STAGE, stages), mask=none),
        "change": pa.array([None if change is None else pickle.dumps(change) for change in found], pa.binary()),
        "repeated": pa.array([repeated for _, repeated in changes], pa.int64()),
    }
    return pa.StructArray.from_arrays([*columns.values()], [*columns])


def packed(changes: Sequence[tuple[Change | None, int]]) -> pa.Array:
    """The same as ``PACKED``."""
    packs = [None if change is None else compressed(pickle.dumps(change)) for change, _ in changes]
    repeated = [repeated for _, repeated in changes]
    return pa.StructArray.from_arrays(
        [pa.array(packs, pa.binary()), pa.array(repeated, pa.int64())], ["change", "repeated"]
    )


def unpacked(change: bytes) -> Change:
    """The change of ``PACKED``."""
    made: Change = pickle.loads(decompressed(change))  # noqa: S301 - of this job's own workers
    return made


def failovers_in(changes: Iterable[Change]) -> pa.RecordBatch:
    """A row of ``FAILOVER`` for each change."""
    return pa.RecordBatch.from_struct_array(_structs(FAILOVER, [*map(_failover, changes)]))


def stages_in(changes: Iterable[Change]) -> pa.RecordBatch:
    """Their rows of ``STAGE``."""
    return pa.RecordBatch.from_struct_array(_structs(STAGE, [row for change in changes for row in stages_of(change)]))


def _structs(columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]], none: pa.Array | None = None) -> pa.Array:
    """By columns: of a dictionary for each row Arrow made them at three times the cost."""
    fields = [pa.field(name, _TYPES[kind]) for name, kind in columns.items()]
    values = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(of, field.type) for of, field in zip(values, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=none)


def _failover(change: Change | None) -> tuple[Any, ...]:
    """The row of ``FAILOVER``; of no change one that is masked."""
    if change is None:
        return (None,) * len(FAILOVER)
    row = summary_of(change)
    row["stages_ms"] = [*row["stages_ms"].items()]
    return tuple(map(row.__getitem__, FAILOVER))


def stages_of(change: Change) -> Iterator[tuple[Any, ...]]:
    """The rows of ``STAGE``."""
    for chain in chains_of(change):
        about = (change.trace_id, change.kind, change.victim or None, started(change), chain.name)
        of = (chain.leader or None, chain.client or None, chain.seen_by)
        for position, segment in enumerate(chain.segments):
            lengths = (segment.ms, segment.raw_ms, segment.bound_ms)
            yield (*about, *of, position, segment.step, segment.until, *lengths, segment.process)
