"""Where partitions wait for their departure to a leader. Pure. All times are monotonic seconds.

Goals: a turn of the sender or the fetcher costs what goes and what changed, and not what waits: thousands of
partitions may wait for an answer, a leader or a pause while a few others come and go.

Algorithm: a partition with something to send or to ask for stands at exactly one place: in the *line* of its leader, or
it waits for a pause to end, for news of its topic, for a picture asked for after its failure, for a producer id, or for
an answer that concerns it. It is *looked at* when that happens, and then says itself where it stands from now on. A
leader that can take no call keeps its line waiting unseen. Whoever looks may look too often, never too seldom, so what
goes out is decided anew at the head of the line.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

from regnum_model.ids import BrokerId

from regnum_client.cluster.view import ClusterView
from regnum_client.records import TopicPartition

W = TypeVar("W")
"""What is known of a partition that waits."""
Place = OrderedDict[TopicPartition, W]
"""Partitions at one place, first come first. (A dict goes through all that were taken from it to find its first.)"""


class Alarms:
    """A moment for each partition, at most."""

    def __init__(self) -> None:
        self._order: Final = count()
        self._heap: list[tuple[float, int, TopicPartition]] = []
        self._at_s: dict[TopicPartition, float] = {}

    @property
    def next_s(self) -> float:
        """The first moment; infinity when there is none."""
        while self._heap and self._at_s.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def __contains__(self, partition: object) -> bool:
        """It has a moment."""
        return partition in self._at_s

    def set(self, partition: TopicPartition, at_s: float) -> None:
        """The moment of a partition, in place of the one that it had; infinity: it has none."""
        if at_s == float("inf"):
            self._at_s.pop(partition, None)
            return
        self._at_s[partition] = at_s
        heapq.heappush(self._heap, (at_s, next(self._order), partition))

    def take(self, now_s: float) -> Iterator[TopicPartition]:
        """Partitions whose moment has come, and that have none from now on."""
        while self.next_s <= now_s:
            partition = heapq.heappop(self._heap)[2]
            del self._at_s[partition]
            yield partition


class Departures(Generic[W]):
    """Of one producer or consumer."""

    def __init__(self) -> None:
        self._place: dict[TopicPartition, Place[W]] = {}
        self._by_topic: dict[str, dict[TopicPartition, W]] = {}
        self._to_look_at: Final = Place[W]()
        self._lines: dict[BrokerId, Place[W]] = {}
        self._without_news: Final = Place[W]()
        self._without_picture: Final = Place[W]()
        self._without_identity: Final = Place[W]()
        self._unanswered: Final = Place[W]()
        self._paused: Final = Place[W]()
        self._pauses: Final = Alarms()
        self._view = ClusterView()

    def __len__(self) -> int:
        """Partitions that are here."""
        return len(self._place)

    def __contains__(self, partition: object) -> bool:
        """It is here."""
        return partition in self._place

    @property
    def topics(self) -> Iterable[str]:
        """Their topics."""
        return self._by_topic.keys()

    @property
    def lack_picture(self) -> bool:
        """Somebody waits for a picture that was asked for later than the one there is."""
        return bool(self._without_picture)

    def lacks_news(self, topic: str) -> bool:
        """A partition of that topic waits for another leader, or for one at all."""
        return any(self._place[partition] is self._without_news for partition in self._by_topic.get(topic, ()))

    @property
    def next_pause_s(self) -> float:
        """When a pause ends; infinity when there is none."""
        return self._pauses.next_s

    def enter(self, partition: TopicPartition, waiting: W, *, answered: bool = False) -> None:
        """It has something to send; looked at, unless it waits for something else than an answer.

        ``answered``: what it waited for has come to an end, so it is looked at wherever it stands.
        """
        place = self._place.get(partition)
        if place is None:
            self._by_topic.setdefault(partition.topic, {})[partition] = waiting
        if place is None or answered or place is self._unanswered:
            self._put(partition, waiting, self._to_look_at)

    def leave(self, partition: TopicPartition) -> None:
        """It has none any more; nothing happens when it is not here."""
        place = self._place.pop(partition, None)
        if place is None:
            return
        del place[partition]
        of_topic = self._by_topic[partition.topic]
        del of_topic[partition]
        if not of_topic:
            del self._by_topic[partition.topic]

    def line_up(self, partition: TopicPartition, waiting: W, leader: BrokerId) -> None:
        """It goes when it is its turn; at the end of the line."""
        line = self._lines.get(leader)
        if not line:
            # A line that was emptied begins anew behind those that were not: where room is scarce, leaders take turns.
            self._lines.pop(leader, None)
            line = self._lines[leader] = Place[W]()
        self._put(partition, waiting, line)

    def wait_for_pause(self, partition: TopicPartition, waiting: W, until_s: float) -> None:
        """It goes later."""
        self._put(partition, waiting, self._paused)
        self._pauses.set(partition, until_s)

    def wait_for_news(self, partition: TopicPartition, waiting: W) -> None:
        """It goes when another leader is known, or one at all."""
        self._put(partition, waiting, self._without_news)

    def wait_for_picture(self, partition: TopicPartition, waiting: W) -> None:
        """It goes when there is a picture asked for later than the one there is, or news of its topic."""
        self._put(partition, waiting, self._without_picture)

    def wait_for_identity(self, partition: TopicPartition, waiting: W) -> None:
        """It goes under a producer id that it has not had."""
        self._put(partition, waiting, self._without_identity)

    def wait_for_answer(self, partition: TopicPartition, waiting: W) -> None:
        """It goes when something of its own has come to an end, or joined."""
        self._put(partition, waiting, self._unanswered)

    def look_at(self, view: ClusterView, now_s: float, *, identity: bool) -> Iterator[tuple[TopicPartition, W]]:
        """Partitions for which something may have happened. Put each somewhere before the next.

        Args:
            view: the picture of the cluster.
            now_s: the moment.
            identity: whether those that wait for a producer id are to be looked at.
        """
        if view is not self._view:
            self._news(view)
        for partition in self._pauses.take(now_s):
            if partition in self._paused:
                self._put(partition, self._paused[partition], self._to_look_at)
        if identity:
            self._look_at_all(self._without_identity)
        while self._to_look_at:
            yield next(iter(self._to_look_at.items()))

    def lines(self) -> list[tuple[BrokerId, Place[W]]]:
        """Leaders that somebody stands in line for, and who, first come first."""
        self._lines = {leader: line for leader, line in self._lines.items() if line}
        return list(self._lines.items())

    def _news(self, view: ClusterView) -> None:
        before, self._view = self._view, view
        if view.as_of_s != before.as_of_s:
            self._look_at_all(self._without_picture)
        for topic, of_topic in self._by_topic.items():
            if view.topics.get(topic) is not before.topics.get(topic):
                for partition, waiting in of_topic.items():
                    if self._place[partition] is not self._unanswered:
                        self._put(partition, waiting, self._to_look_at)

    def _look_at_all(self, place: Place[W]) -> None:
        for partition, waiting in tuple(place.items()):
            self._put(partition, waiting, self._to_look_at)

    def _put(self, partition: TopicPartition, waiting: W, place: Place[W]) -> None:
        before = self._place.get(partition)
        if before is not None:
            del before[partition]
        self._place[partition] = place
        place[partition] = waiting
