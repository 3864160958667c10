"""Unhealthy partitions: which, since when, and which of them for too long. Pure: time comes in.

Goals: what an operator has to look at is known the moment it is asked for; while all is well it costs nothing, however
many partitions there are; when a tenth of 100,000 partitions is in trouble at once, each costs what its change costs.

Algorithm: every change of the picture names the partitions that it changed, and only these are looked at. A book holds
those in trouble, for each trouble in the order in which they came to it; so what has lasted for too long is at the
front, and a turn takes it from there into a second book. A partition that is well again leaves both.

Example: 3 brokers, 10,000 partitions of 3 replicas, min.insync.replicas 2. A broker dies: 10,000 partitions are
UNDER_REPLICATED, none is anything else. After the limit they are ``long``. The broker comes back, and each leaves the
book with the ISR write that makes it whole.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, compress, islice, product
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_model.topic_filter import Trouble

from regnum_election.decisions.cluster import Partition

WORST_FIRST: Final = (Trouble.OFFLINE, Trouble.UNDER_MIN_ISR, Trouble.NOT_WRITABLE, Trouble.UNDER_REPLICATED)
"""What may be wrong with a partition; it may be more than one of these."""

Troubles = tuple[Trouble, ...]
"""Of one partition, the worst first; empty when it is well."""

OFFLINE_ONLY: Final = (Trouble.OFFLINE,)

_TROUBLES: Final[Mapping[tuple[bool, ...], Troubles]] = {
    there: tuple(compress(WORST_FIRST, there)) for there in product((False, True), repeat=len(WORST_FIRST))
}
"""By which of them, the worst first, there are: looked up for each partition that a failover moves."""


def troubles_of(
    partition: Partition,
    min_insync: Callable[[], int],
    *,
    refusing: Collection[BrokerId] = (),
    waits: bool = False,
) -> Troubles:
    """What is wrong with a partition. While it moves, it is to have as many replicas in sync as it had before.

    Args:
        partition: as the picture has it.
        min_insync: gives its effective min.insync.replicas; asked only for a partition that is not whole, or while
            brokers refuse.
        refusing: brokers that append no records.
        waits: whether records wait in it, and nothing was committed for seconds, as its leader says.
    """
    held = partition.held
    if held is None or partition.trouble is not None:
        return OFFLINE_ONLY
    isr, led = held.state.isr, held.state.leader != NO_LEADER
    move = partition.reassignment
    missing = len(isr) < len(partition.replicas if move is None else move.origin)
    if led and not (missing or refusing or waits):
        return ()
    under = missing and len(isr) < min_insync()
    stuck = led and (
        waits or held.state.leader in refusing or (not under and _too_few_store(isr, refusing, min_insync))
    )
    return _TROUBLES[not led, under, stuck, missing]


def _too_few_store(isr: Collection[BrokerId], refusing: Collection[BrokerId], min_insync: Callable[[], int]) -> bool:
    """Whether so many members refuse that those left are fewer than min.insync.replicas."""
    storing = sum(id not in refusing for id in isr)
    return storing < len(isr) and storing < min_insync()


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """An unhealthy partition."""

    key: PartitionKey
    troubles: Troubles
    """What is wrong with it."""
    since_s: float
    """Since when the worst of it; the book's clock."""


class TroubleBook:
    """The unhealthy partitions. The counts may be read by any thread; all else belongs to one loop."""

    def __init__(self) -> None:
        self._known: Final[dict[PartitionKey, Troubles]] = {}
        self._topics: Final[dict[TopicId, dict[PartitionKey, None]]] = {}
        self._fresh: Final[dict[Trouble, dict[PartitionKey, float]]] = {trouble: {} for trouble in WORST_FIRST}
        self._long: Final[dict[Trouble, dict[PartitionKey, float]]] = {trouble: {} for trouble in WORST_FIRST}

    def note(self, key: PartitionKey, troubles: Troubles, now_s: float) -> None:
        """A partition was looked at."""
        known = self._known.get(key, ())
        if troubles == known:
            return
        for trouble in known:
            if trouble not in troubles:
                self._fresh[trouble].pop(key, None)
                self._long[trouble].pop(key, None)
        for trouble in troubles:
            if trouble not in known:
                self._fresh[trouble][key] = now_s
        if troubles:
            self._known[key] = troubles
            self._topics.setdefault(key.topic_id, {})[key] = None
            return
        del self._known[key]
        siblings = self._topics[key.topic_id]
        del siblings[key]
        if not siblings:
            del self._topics[key.topic_id]

    def forget(self, topic_id: TopicId) -> None:
        """A topic is gone."""
        for key in tuple(self._topics.get(topic_id, ())):
            self.note(key, (), 0.0)

    def turn(self, now_s: float, after_s: float, *, most: int) -> list[tuple[Trouble, PartitionKey, float]]:
        """Take note of what has lasted for ``after_s``: at most ``most`` that had not until now, with since when.

        What cannot be written has lasted by the time that it is known.
        """
        lasted: list[tuple[Trouble, PartitionKey, float]] = []
        for trouble, fresh in self._fresh.items():
            limit_s = 0.0 if trouble is Trouble.NOT_WRITABLE else after_s
            due = [
                (trouble, key, since_s)
                for key, since_s in islice(fresh.items(), most - len(lasted))
                if now_s - since_s >= limit_s
            ]
            for _, key, since_s in due:
                del fresh[key]
                self._long[trouble][key] = since_s
            lasted.extend(due)
        return lasted

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        """All unhealthy partitions."""
        return tuple(self._known)

    def count(self, trouble: Trouble) -> int:
        """Partitions with that trouble."""
        return len(self._fresh[trouble]) + len(self._long[trouble])

    def count_long(self, trouble: Trouble) -> int:
        """Those of them that have had it for too long."""
        return len(self._long[trouble])

    def first(self, most: int) -> list[Troubled]:
        """Some unhealthy partitions, each once: the worst trouble first, of it the longest."""
        found: dict[PartitionKey, Troubled] = {}
        for trouble in WORST_FIRST:
            for key, since_s in self._of(trouble):
                if len(found) >= most:
                    return list(found.values())
                if key not in found:
                    found[key] = Troubled(key=key, troubles=self._known[key], since_s=since_s)
        return list(found.values())

    def _of(self, trouble: Trouble) -> Iterator[tuple[PartitionKey, float]]:
        return chain(self._long[trouble].items(), self._fresh[trouble].items())
