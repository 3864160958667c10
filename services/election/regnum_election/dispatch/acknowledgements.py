"""Who waits for brokers to have taken up what they were told. Belongs to the controller's loop."""

import asyncio
from collections.abc import Iterable, Sequence

from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey

from regnum_election.decisions.cluster import Cluster
from regnum_election.traces.change_trace import ChangeTrace


class Acknowledgements:
    """Of one reign: partitions whose leaders somebody waits for, and traces that have not ended."""

    def __init__(self) -> None:
        self._awaited: dict[PartitionKey, asyncio.Event] = {}
        self._cut_off: set[PartitionKey] = set()
        """Those of them of which nothing more will be heard in this reign."""
        self._traces: list[ChangeTrace] = []

    def tell(self, trace: ChangeTrace) -> None:
        """A trace hears, until it is written, whose leaderships, full sets and first records are acknowledged."""
        self._traces = [known for known in self._traces if not known.written]
        self._traces.append(trace)

    def is_change(self, context: str) -> bool:
        """Whether that is the place of a change of leadership that is not over."""
        return any(trace.context == context for trace in self._traces if not trace.written)

    def expect(self, keys: Iterable[PartitionKey]) -> None:
        """Remember when the leaders of these partitions have taken them up; ask before they are told."""
        for key in keys:
            self._awaited.setdefault(key, asyncio.Event())

    def gone(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions were deleted or removed: there is nothing left to wait for."""
        for key in keys:
            if (event := self._awaited.get(key)) is not None:
                event.set()

    def close(self) -> None:
        """The reign is over: whoever still waits hears that these have no leader yet."""
        for key, event in self._awaited.items():
            if not event.is_set():
                self._cut_off.add(key)
                event.set()

    async def led(self, keys: Sequence[PartitionKey]) -> None:
        """Return when the leaders of all expected partitions have acknowledged, or gone, or the reign is over.

        Perhaps never: use a deadline.
        """
        for key in keys:
            event = self._awaited.get(key)
            if event is not None:
                await event.wait()

    def is_led(self, key: PartitionKey) -> bool:
        """Whether an expected partition's leader has acknowledged; True for others."""
        event = self._awaited.get(key)
        return event is None or (event.is_set() and key not in self._cut_off)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Nobody waits for these partitions any more."""
        for key in keys:
            self._awaited.pop(key, None)
            self._cut_off.discard(key)

    def applied(self, picture: Cluster, id: BrokerId, key: PartitionKey, *, reports: bool = False) -> None:
        """A broker acknowledged the newest state of a partition; ``reports`` as in ``ChangeTrace.acknowledged``."""
        event = self._awaited.get(key)
        if event is None and not self._traces:
            return
        partition = picture.partitions.get(key)
        if partition is not None and partition.held is not None and partition.held.state.leader == id:
            if event is not None:
                event.set()
            for trace in self._traces:
                trace.acknowledged(key, reports=reports)

    def full_set_taken(self, id: BrokerId) -> None:
        """A broker acknowledged the last part of its full set."""
        for trace in self._traces:
            trace.acknowledged(id)

    def broker_gone(self, id: BrokerId) -> None:
        """Nothing more is delivered to this life of a broker: traces do not wait for it."""
        for trace in self._traces:
            trace.gone(id)

    def first_acknowledged(self, acknowledged: Iterable[tuple[PartitionKey, LeaderEpoch, int]]) -> None:
        """New leaders have acknowledged their first records to producers: partitions, epochs, moments."""
        for trace in self._traces:
            if not trace.written:
                for key, epoch, unix_nano in acknowledged:
                    trace.first_acknowledged(key, epoch, unix_nano)
