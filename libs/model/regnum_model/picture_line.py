"""Which names changed between two versions of the metadata picture (safety rule S17).

Goals: whoever lags costs one newer change and not a queue of old ones; nothing is skipped; memory grows with partitions
and never with receivers or with changes; a reign that goes on from the one before is on the same line.

Constraints: a change says what differs by *name*; values are taken from the newest picture when it is put into words.
A superset is therefore always right: a receiver that is told a value that it has is told nothing new.

Algorithm: a list of changes, oldest first, each with the version after it. What a receiver lacks is the union of all
that end above its version. When there are too many names, or changes, the older half becomes one change, the union of
them; a name that is changed twice is then held once. Nothing is said of more names than can be put together at a
stretch (safety rule S22), deleted topics among them, which no picture bounds: when there are more, the oldest changes
are dropped, and versions before them are out of reach. Whoever is so far behind gets everything.

A version is a controller epoch and a number, and each is published once. The line has, for each epoch, the numbers
that it passed through. A receiver at another number of that epoch (beyond the last one that the next reign knew of) is
not on the line, and neither is one of an epoch that it never saw: both need everything.

Example: epoch 4 published 7 and 8; epoch 5 goes on from 8 with 9 and 10. A receiver at (4, 7) lacks what changed in 8,
9 and 10; one at (4, 9), which its controller published before it was replaced, needs everything.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from regnum_model.ids import BrokerId, ControllerEpoch, TopicId

CHANGES_KEPT: Final = 512
"""Changes kept apart, at most."""

NAMES_KEPT: Final = 20_000
"""Names kept apart, at most, beyond twice those that are held once."""

NAMES_MAX: Final = 50_000
"""Names held, at most: about 30 ms for the union of all."""


class PictureVersion(NamedTuple):
    """A version of the picture: numbers grow within a controller epoch, and epochs before numbers."""

    epoch: ControllerEpoch
    number: int


NO_PICTURE: Final = PictureVersion(ControllerEpoch(0), 0)
"""Version of nothing."""


class TopicNews(NamedTuple):
    """What is news of a topic."""

    name: str
    """Its name; empty where whoever asks finds it by id."""
    partitions: frozenset[int]
    """Partitions whose state or existence is news; none where only the topic is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Names of what changed."""

    topics: Mapping[TopicId, TopicNews] = field(default_factory=dict)
    """Topics that exist, or did when it was said."""
    deleted: Mapping[TopicId, str] = field(default_factory=dict)
    """Names of topics that are gone."""
    brokers: frozenset[BrokerId] = frozenset()
    """Brokers that came, changed or went."""
    traceparent: str = ""
    """W3C traceparent of the first cause; empty when nothing that is traced was one."""

    @property
    def names(self) -> int:
        """How many names it holds."""
        topics = sum(1 + len(item.partitions) for item in self.topics.values())
        return topics + len(self.deleted) + len(self.brokers)


def union(changes: Iterable[News]) -> News:
    """All of these, oldest first, as one."""
    topics: dict[TopicId, TopicNews] = {}
    grown: dict[TopicId, set[int]] = {}
    deleted: dict[TopicId, str] = {}
    brokers: set[BrokerId] = set()
    traceparent = ""
    for change in changes:
        for id in change.deleted:
            topics.pop(id, None)
            grown.pop(id, None)
        deleted.update(change.deleted)
        for id, item in change.topics.items():
            known = topics.get(id)
            if known is None:
                topics[id] = item
            elif id in grown:
                grown[id] |= item.partitions
            else:
                grown[id] = set(known.partitions | item.partitions)
        brokers |= change.brokers
        traceparent = traceparent or change.traceparent
    for id, numbers in grown.items():
        topics[id] = TopicNews(topics[id].name, frozenset(numbers))
    return News(topics=topics, deleted=deleted, brokers=frozenset(brokers), traceparent=traceparent)


@dataclass(frozen=True, slots=True)
class _Change:
    to: PictureVersion
    news: News
    names: int


class PictureLine:
    """The line of one picture. Changed in place, by its owner only."""

    def __init__(self, start: PictureVersion = NO_PICTURE) -> None:
        self._passed: dict[ControllerEpoch, tuple[int, int]] = {}
        self._changes: list[_Change] = []
        self._names = 0
        self._floor = NO_PICTURE
        self._head = start
        self.restart(start)

    @property
    def head(self) -> PictureVersion:
        """Version of the picture."""
        return self._head

    @property
    def names(self) -> int:
        """Names held."""
        return self._names

    @property
    def changes(self) -> int:
        """Changes held apart."""
        return len(self._changes)

    def restart(self, at: PictureVersion) -> None:
        """The picture is another one; nothing is known of how others differ from it."""
        self._head = self._floor = at
        self._passed = {at.epoch: (at.number, at.number)}
        self._changes.clear()
        self._names = 0

    def extend(self, to: PictureVersion, news: News, *, base: int | None = None) -> None:
        """The picture changed.

        Args:
            to: version after the change, above ``head``.
            news: names of all that differs from the picture before.
            base: where ``to`` is of another epoch that counts on from the present one, the last number of the present
                epoch that it knows of: ``news`` then names what changed in all numbers after ``head``. None: it does
                not count on, and ``news`` is only the difference between two pictures.
        """
        if to <= self._head:
            raise ValueError(f"{to} does not come after {self._head}")
        if to.epoch == self._head.epoch:
            self._passed[to.epoch] = (self._passed[to.epoch][0], to.number)
        elif base is None:
            self._passed[to.epoch] = (to.number, to.number)
        else:
            first, last = self._passed[self._head.epoch]
            self._passed[self._head.epoch] = (first, max(last, base))
            self._passed[to.epoch] = (base + 1, to.number)
        self._head = to
        change = _Change(to, news, news.names)
        self._changes.append(change)
        self._names += change.names
        if self._names > NAMES_MAX:
            self._drop_oldest()
        elif len(self._changes) > CHANGES_KEPT or self._names > NAMES_KEPT + 2 * self._changes[0].names:
            self._shorten()

    def first_of(self, epoch: ControllerEpoch) -> int:
        """The first number of an epoch that the line passed through; 0 when it did not."""
        return self._passed.get(epoch, (0, 0))[0]

    def last_of(self, epoch: ControllerEpoch) -> int:
        """The last number of an epoch that the line passed through; 0 when it did not."""
        return self._passed.get(epoch, (0, 0))[1]

    def reaches(self, version: PictureVersion) -> bool:
        """Whether a version is on the line, as far back as it goes."""
        first, last = self._passed.get(version.epoch, (1, 0))
        return first <= version.number <= last and version >= self._floor

    def rounded(self, version: PictureVersion) -> PictureVersion:
        """Where the farthest stands of those that lag by a similar distance: told from there, all get the same bytes.

        For each head there are as many such places as the distance has binary digits, and what is told from one of them
        is at most twice as long as it had to be.

        Example: at version 1000, 996 for 996 and 997, and 998 for 998.
        """
        distance = self._head.number - version.number
        if version.epoch != self._head.epoch or distance < 2 or not self.reaches(version):
            return version
        step = 1 << (distance.bit_length() - 1)
        farthest = max(version.number // step * step, self.first_of(version.epoch))
        rounded = PictureVersion(version.epoch, farthest)
        return rounded if self.reaches(rounded) else version

    def shared(self, version: PictureVersion) -> PictureVersion:
        """As ``rounded``, and in earlier epochs by changes in place of numbers: from a few places for the whole line.

        It may lie in an epoch before the version's. Whoever says his version himself can have no more made than that.
        """
        if version.epoch == self._head.epoch or not self.reaches(version):
            return self.rounded(version)
        lacking = len(self._changes) - bisect_right(self._changes, version, key=lambda change: change.to)
        before = len(self._changes) - (1 << max(lacking - 1, 0).bit_length()) - 1
        return self._changes[before].to if before >= 0 else self._floor

    def since(self, version: PictureVersion) -> News | None:
        """What a receiver at this version lacks; None when the version is not on the line."""
        if not self.reaches(version):
            return None
        lacking: list[News] = []
        for change in reversed(self._changes):
            if change.to <= version:
                break
            lacking.append(change.news)
        return lacking[0] if len(lacking) == 1 else union(reversed(lacking))

    def _shorten(self) -> None:
        count = max(len(self._changes) // 2, 2)
        older, self._changes[:count] = self._changes[:count], []
        merged = union(change.news for change in older)
        self._changes.insert(0, _Change(older[-1].to, merged, merged.names))
        self._names = sum(change.names for change in self._changes)

    def _drop_oldest(self) -> None:
        """Down to half of what may be held, so that it is not at its limit again with the next change."""
        dropped = 0
        while self._names > NAMES_MAX // 2:
            self._names -= self._changes[dropped].names
            dropped += 1
        self._floor = self._changes[dropped - 1].to
        self._passed = {epoch: ends for epoch, ends in self._passed.items() if epoch >= self._floor.epoch}
        del self._changes[:dropped]
