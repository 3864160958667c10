"""Columns of the tables, and a change as one row of Arrow: what leaves Python."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from regnum_insight.attribution.changes import Change
from regnum_insight.reporting.rows import chains_of, started, summary_of

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


def _struct(columns: Mapping[str, str]) -> pa.DataType:
    return pa.struct([pa.field(name, _TYPES[kind]) for name, kind in columns.items()])


_ARROW: Final = pa.struct([
    pa.field("failover", _struct(FAILOVER)),
    pa.field("stages", pa.list_(_struct(STAGE))),
    pa.field("change", pa.binary()),
    pa.field("repeated", pa.int64()),
])  # fmt: skip


def attributed(changes: Sequence[tuple[Change | None, int]]) -> pa.Array:
    """Changes of traces, and how many spans of each came again, as ``ATTRIBUTED``."""
    return pa.array([_row(change, repeated) for change, repeated in changes], _ARROW)


def _row(change: Change | None, repeated: int) -> dict[str, Any]:
    if change is None:
        return {"repeated": repeated}
    row = summary_of(change)
    return {
        "failover": {**row, "stages_ms": list(row["stages_ms"].items())},
        "stages": [dict(zip(STAGE, stage, strict=True)) for stage in stages_of(change)],
        "change": pickle.dumps(change),
        "repeated": repeated,
    }


def stages_of(change: Change) -> Iterator[tuple[Any, ...]]:
    """The rows of ``STAGE``."""
    for chain in chains_of(change):
        about = (change.trace_id, change.kind, change.victim or None, started(change), chain.name)
        of = (chain.leader or None, chain.client or None, chain.seen_by)
        for position, segment in enumerate(chain.segments):
            lengths = (segment.ms, segment.raw_ms, segment.bound_ms)
            yield (*about, *of, position, segment.step, segment.until, *lengths, segment.process)
