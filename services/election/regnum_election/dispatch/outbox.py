"""What is still to be told to one broker, and in which order.

Goals: the newest state of every partition reaches the broker, whatever gets lost on the way; a broker that is slow
costs memory for each partition once and not for each change; one call is in flight at a time, so nothing overtakes.

Algorithm: the outbox holds *names* of partitions, never states: what is sent is looked up when it is sent, so the
latest state wins. An order keeps a mark; an acknowledgement removes it only if it was not marked again meanwhile. A
full set (INIT, safety rule S12) goes first, in numbered parts over a fixed list of names; if any part fails, all of
it starts again. Orders that come while a full set is under way wait for its end, since they may repeat a part that
has been sent.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId

PARTITIONS_PER_MESSAGE = 500
"""Partitions in one LeaderAndIsr message at most."""

REPLICAS_PER_STOP = 500
"""About how many replicas one StopReplica message is about at most, unless one topic has more: while a broker removes
their files it takes no other order. A message of so many topics has 150 kB at most, since a name has 249 characters."""


StopPlace = tuple[TopicId, int]
"""Topic id and partition number; -1 for all of the topic id."""


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to stop replicas."""

    topic_id: TopicId
    partition: int
    """Partition number; -1 for all of the topic id."""
    topic: str
    """Topic name."""
    leader_epoch: LeaderEpoch
    """Leader epoch of the order; TOPIC_DELETED_EPOCH for a deleted topic."""
    delete: bool
    """Whether files go as well."""
    weight: int = 1
    """About how many replicas it is about."""
    reassigned: bool = False
    """Whether the partition went to other brokers; the receiver looks for itself whether that still holds."""

    @property
    def place(self) -> StopPlace:
        """What it is about, whatever it says of it."""
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesCall:
    """A LeaderAndIsr to send."""

    keys: tuple[PartitionKey, ...]
    """Partitions in it."""
    marks: tuple[int, ...]
    """Mark of each when the call was made; empty for a part of a full set."""
    init: bool
    """Whether it is a part of a full set."""
    part: int
    """Number of the part."""
    parts: int
    """Number of parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopsCall:
    """A StopReplica to send."""

    stops: tuple[Stop, ...]
    """Orders in it."""


Call = StatesCall | StopsCall


class Outbox:
    """Orders for one incarnation of one broker. Not shared between tasks without their loop."""

    def __init__(self, *, limit: int = PARTITIONS_PER_MESSAGE, replicas_per_stop: int = REPLICAS_PER_STOP) -> None:
        self._limit = limit
        self._replicas_per_stop = replicas_per_stop
        self._next_mark = 1
        self._pending: dict[PartitionKey, int] = {}
        self._stops: dict[tuple[TopicId, int], Stop] = {}
        self._full: tuple[tuple[PartitionKey, ...], ...] | None = None
        self._part = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to tell."""
        return self._full is None and not self._pending and not self._stops

    @property
    def full_left(self) -> int:
        """Partitions in the parts of the full set that are not acknowledged; 1 at least while any part is not."""
        return 0 if self._full is None else max(1, sum(map(len, self._full[self._part :])))

    def full_keys(self, most: int) -> Iterable[PartitionKey]:
        """The first of these partitions."""
        parts = () if self._full is None else self._full[self._part :]
        return islice(chain.from_iterable(parts), most)

    def pending_of(self, keys: Iterable[PartitionKey]) -> Collection[PartitionKey]:
        """Those of which the newest state is still to be told, apart from a full set."""
        return [key for key in keys if key in self._pending] if self._pending else ()

    def is_stopping(self, place: StopPlace) -> bool:
        """Whether a stop is still to be told."""
        return place in self._stops

    def order_full(self, keys: Sequence[PartitionKey]) -> None:
        """The full set; replaces one that is under way."""
        chunks = [tuple(keys[i : i + self._limit]) for i in range(0, len(keys), self._limit)]
        self._full = tuple(chunks) or ((),)
        self._part = 0
        for key in keys:
            self._pending.pop(key, None)

    def order_states(self, keys: Iterable[PartitionKey]) -> None:
        """The newest state of these partitions."""
        for key in keys:
            self._pending[key] = self._next_mark
            self._next_mark += 1

    def order_stops(self, stops: Iterable[Stop]) -> None:
        """Stop these replicas. An order to delete is not weakened by a later one that only stops."""
        for stop in stops:
            place = (stop.topic_id, stop.partition)
            known = self._stops.get(place)
            if stop.reassigned and known is not None and not known.reassigned:
                # Whatever else is to be stopped of the partition is more than that.
                continue
            if known is None or stop.delete or not known.delete:
                self._stops[place] = stop

    def next_call(self) -> Call | None:
        """What to send next; None when nothing is left."""
        if self._full is not None:
            chunk = self._full[self._part]
            return StatesCall(keys=chunk, marks=(), init=True, part=self._part, parts=len(self._full))
        if self._pending:
            keys = tuple(islice(self._pending, self._limit))
            marks = tuple(self._pending[key] for key in keys)
            return StatesCall(keys=keys, marks=marks, init=False, part=0, parts=1)
        if self._stops:
            return StopsCall(stops=self._next_stops())
        return None

    def _next_stops(self) -> tuple[Stop, ...]:
        stops: list[Stop] = []
        replicas = 0
        for stop in self._stops.values():
            replicas += stop.weight
            if stops and replicas > self._replicas_per_stop:
                break
            stops.append(stop)
        return tuple(stops)

    def acknowledge(self, call: Call) -> None:
        """The broker carried the call out."""
        match call:
            case StatesCall(init=True):
                # A newer full set may have replaced the one this part belongs to.
                if self._full is None or call.part != self._part or call.keys != self._full[self._part]:
                    return
                self._part += 1
                if self._part == len(self._full):
                    self._full, self._part = None, 0
            case StatesCall():
                for key, mark in zip(call.keys, call.marks, strict=True):
                    if self._pending.get(key) == mark:
                        del self._pending[key]
            case StopsCall():
                for stop in call.stops:
                    if self._stops.get((stop.topic_id, stop.partition)) == stop:
                        del self._stops[stop.topic_id, stop.partition]

    def fail(self, call: Call) -> None:
        """The call got no answer or was refused as a whole; a full set starts again."""
        if isinstance(call, StatesCall) and call.init:
            self._part = 0
