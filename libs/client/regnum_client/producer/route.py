"""A partition in the sender: its lane, and the trouble on the way to its leader; and all of them. Pure.

Goals: what a producer holds grows with the partitions that it writes to, and not with all that it ever wrote to; a
record is in the log once and in order also where its partition was idle for hours.

Constraints: a broker knows the last batches of a producer id in a partition, for a day without any
(``producer_id_expiration_ms``). Numbers that begin again under the same id are refused, or taken for a repeat, and the
record is lost. Another id each time would cost brokers the memory of one more producer each time.

Algorithm: the route of an idle partition goes, and where its numbers go on stays (it *rests*): its identity and one
number. A partition that is used again goes on from there. After a day that goes too, once routes without an identity
are given another one than that: it is had beforehand, so nobody waits for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, NamedTuple

from regnum_client.cluster.questions import IDLE_MAX_S
from regnum_client.cluster.view import ClusterView
from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.lane import Identity, Lane
from regnum_client.producer.outcomes import Receipt
from regnum_client.producer.trouble import Trouble
from regnum_client.records import TopicPartition

RESTS_S: Final = 86_400.0
"""For so long it is kept where the numbers of a partition go on: brokers do as well, unless told otherwise."""


class Route:
    """State of one partition in the sender."""

    __slots__ = ("broken_because", "identity_spent", "lane", "trouble", "used_s", "was_there")

    def __init__(self, *, idempotent: bool) -> None:
        self.lane: Final[Lane[Receipt]] = Lane(idempotent=idempotent)
        self.trouble: Final = Trouble()
        self.broken_because = ""
        """Why a batch with sequence numbers was not written, the last time that there was one."""
        self.identity_spent: Identity | None = None
        """The identity the lane has or had: a broken sequence needs another one."""
        self.was_there = False
        """Whether a leader of the partition has been known."""
        self.used_s = float("-inf")
        """When a batch came last, monotonic seconds."""


class _Rest(NamedTuple):
    """What is kept of a partition."""

    spent: Identity
    """The identity that it has or had."""
    next_sequence: int
    """Where its numbers go on; -1: they are broken, and it needs another identity."""
    since_s: float
    """Monotonic time at which its route went."""


class Routes:
    """Of one producer."""

    def __init__(
        self,
        keep: Callable[[str], object],
        has_another: Callable[[Identity], bool],
        busy: Sequence[Container[TopicPartition]],
        *,
        forget: Callable[[TopicPartition], None],
        idempotent: bool,
    ) -> None:
        """Only assigns.

        Args:
            keep: hears of topics that are in use.
            has_another: whether a route that lacks an identity is given another one than this; if not, one is had.
            busy: where partitions stand whose records are not all in their lanes, or that are to be looked at.
            forget: hears of partitions that are not written to any more.
            idempotent: whether batches are numbered.
        """
        self._keep: Final = keep
        self._has_another: Final = has_another
        self._busy: Final = busy
        self._forget: Final = forget
        self._idempotent: Final = idempotent
        self.known: Final[dict[TopicPartition, Route]] = {}
        """Those in use."""
        self._by_topic: Final[dict[str, list[TopicPartition]]] = {}
        self._resting: Final = OrderedDict[TopicPartition, _Rest]()
        """Those that were, the longest idle first."""

    def take(self, partition: TopicPartition, now_s: float) -> Route:
        """The route of a partition that a batch came for."""
        route = self.known.get(partition)
        if route is None:
            route = self._begin(partition)
        route.used_s = now_s
        return route

    def _begin(self, partition: TopicPartition) -> Route:
        route = self.known[partition] = Route(idempotent=self._idempotent)
        self._by_topic.setdefault(partition.topic, []).append(partition)
        self._keep(partition.topic)
        rest = self._resting.pop(partition, None)
        if rest is not None:
            route.identity_spent = rest.spent
            if rest.next_sequence >= 0:
                route.lane.take_identity(rest.spent, next_sequence=rest.next_sequence)
        return route

    def release(self, topics: Sequence[str], now_s: float) -> dict[str, float]:
        """As ``cluster.questions.Release``."""
        used: dict[str, float] = {}
        for topic in topics:
            used_s = self._used_s(topic, now_s)
            if used_s > now_s - IDLE_MAX_S:
                used[topic] = used_s
                continue
            for partition in self._by_topic.pop(topic, ()):
                self._rest(partition, self.known.pop(partition), now_s)
                self._forget(partition)
        self._forget_rested(now_s)
        return used

    def _used_s(self, topic: str, now_s: float) -> float:
        last_s = float("-inf")
        for partition in self._by_topic.get(topic, ()):
            route = self.known[partition]
            if not route.lane.empty or any(partition in place for place in self._busy):
                return now_s
            last_s = max(last_s, route.used_s)
        return last_s

    def _rest(self, partition: TopicPartition, route: Route, now_s: float) -> None:
        spent = route.identity_spent
        if spent is not None:
            whole = route.lane.identity == spent
            self._resting[partition] = _Rest(spent, route.lane.next_sequence if whole else -1, now_s)

    def _forget_rested(self, now_s: float) -> None:
        while self._resting:
            partition, rest = next(iter(self._resting.items()))
            if rest.since_s > now_s - RESTS_S:
                return
            if not self._has_another(rest.spent):
                # Its numbers would begin again under the same identity.
                return
            del self._resting[partition]


def longest_in_trouble(
    routes: Mapping[TopicPartition, Route], now_s: float, view: ClusterView, accumulator: Accumulator[Receipt]
) -> TopicPartition | None:
    """The partition whose records have waited longest for a leader that takes them; None: they wait for their turn."""
    waiting = {
        partition: now_s if view.leader_term(*partition) is None else route.trouble.lasted_s(now_s)
        for partition, route in routes.items()
        if next(route.lane.batches(), None) is not None or accumulator.is_ready(partition)
    }
    worst = max(waiting, key=waiting.__getitem__, default=None)
    return worst if worst is not None and waiting[worst] > 0 else None
