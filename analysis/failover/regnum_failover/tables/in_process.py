"""A run over little, without Spark.

Most runs have the traces of a night, and Spark costs twenty seconds of processors before it has read one. Rows, ledger
and counts are those that Spark gives. Memory has a bound: what is more is left to Spark.
"""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from regnum_insight.spans.intake import Tally
from regnum_insight.tables.rows import Place

from regnum_failover.tables.ledger import Shelf
from regnum_failover.tables.merging import Merged, merge
from regnum_failover.tables.placing import KEPT, TOLD, marked, placed
from regnum_failover.traces.packs import bytes_of

BYTES_MAX: Final = 32 * 2**20
"""Packed spans that a run holds: some 130,000. Of what is compressed only reading tells how many there are."""


@dataclass(slots=True)
class Trace:
    """One trace, as it is gathered."""

    packs: list[bytes] = field(default_factory=list)
    """Its spans, packed."""
    ended_us: int = 0
    """The latest of their ends, in microseconds since 1970."""


def gather(batches: Iterable[pa.RecordBatch], *, bytes_max: int) -> Mapping[str | None, Trace] | None:
    """Rows of ``TracesSource`` by trace; None: they are more than ``bytes_max``. Raises what the batches raise."""
    traces: dict[str | None, Trace] = defaultdict(Trace)
    size = 0
    for batch in batches:
        ended = batch.column("ended").cast(pa.int64())
        columns = (batch.column("trace_id"), ended, batch.column("span"))
        for trace_id, ended_us, pack in zip(*(column.to_pylist() for column in columns), strict=True):
            trace = traces[trace_id]
            trace.packs.append(pack)
            trace.ended_us = max(trace.ended_us, ended_us or 0)
            size += bytes_of(pack)
        if size > bytes_max:
            return None
    return traces


class TracesHere:
    """Traces of a run that this process holds (``growing.Traces``)."""

    def __init__(self, traces: Mapping[str | None, Trace], shelf: Shelf, run: int, *, with_spans: bool) -> None:
        """Only assigns."""
        self._tallies: Final = traces.get(None, Trace()).packs
        self._traces: Final = {trace_id: of for trace_id, of in traces.items() if trace_id is not None}
        self._shelf: Final = shelf
        self._run: Final = run
        self._with_spans: Final = with_spans
        self._changes: Final[set[str]] = set()

    def newest_us(self) -> int:
        """End of the latest span, in microseconds since 1970."""
        return max((of.ended_us for of in self._traces.values()), default=0)

    def merged(self) -> list[Merged]:
        """Put all rows into their places. Raises StoreError."""
        told: dict[Place, list[bytes]] = defaultdict(list)
        for trace_id, of in self._traces.items():
            for one in placed(trace_id, of.packs, self._run, with_spans=self._with_spans):
                told[Place(one["cluster"], one["date"])].append(one["told"])
                if one["is_change"]:
                    self._changes.add(trace_id)
        return [merge(self._shelf, place, told.pop(place), self._run) for place in sorted(told)]

    def tally(self) -> Tally:
        """What was read."""
        tally = Tally()
        for told in self._tallies:
            tally.add(pickle.loads(told))  # noqa: S301 - made in this process
        return tally

    def kept(self, settled_us: int) -> tuple[list[tuple[str, int, bytes]], int]:
        """What the ledger keeps of traces that are ``merged``, and of how many more came too late."""
        found, late = [], 0
        for trace_id, of in self._traces.items():
            is_told = TOLD in of.packs
            is_open = of.ended_us > settled_us and not is_told
            is_change = trace_id in self._changes or any(pack.startswith(KEPT) for pack in of.packs)
            if is_open or is_told or is_change:
                late += is_told and len(of.packs) > 1
                packs = marked(of.packs if is_open else None, is_change=is_change)
                found += [(trace_id, of.ended_us, pack) for pack in packs]
        return found, late
