"""The committed offsets of a partition's groups, and which of them are being written. Belongs to the event loop."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from regnum_broker.groups.decisions.offsets import CommittedOffset, Place

OFFSET_BYTES: Final = 350
"""About what an offset takes in memory besides its texts: its note, and the name and id of its topic."""
LIFE_BYTES: Final = 400
"""About what is kept of one life of a topic, for all its offsets."""

_NONE: Final[Mapping[Place, CommittedOffset]] = MappingProxyType({})


class Life(NamedTuple):
    """A topic, and no other one that has or had the same name."""

    topic: str
    topic_id: str


@dataclass(slots=True)
class Use:
    """Where there are offsets of one life of a topic."""

    groups: dict[str, int] = field(default_factory=dict)
    """How many, by group."""
    version: int = 0
    """Newest version of metadata that is known to have had it."""


class OffsetBook:
    """Offsets by group; every call costs what it is about, not what there is."""

    def __init__(self) -> None:
        self.by_group: Final[dict[str, dict[Place, CommittedOffset]]] = {}
        """Committed ones."""
        self.size_bytes = 0
        """About what they take in memory."""
        self.uses: Final[dict[Life, Use]] = {}
        """What they are offsets of; those whose topic was not known are left out."""
        self._writing: Final[dict[str, dict[Place, int]]] = {}
        self._fresh: Final[dict[str, set[Place]]] = {}
        """Places that are being written for the first time."""

    def of(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        """Those of one group."""
        return self.by_group.get(group_id, _NONE)

    def put(self, group_id: str, place: Place, offset: CommittedOffset) -> None:
        """An offset is committed."""
        offsets = self.by_group.setdefault(group_id, {})
        former = offsets.get(place)
        self.size_bytes += weight_of(place, offset) - (0 if former is None else weight_of(place, former))
        offsets[place] = offset
        if former is None or former.topic_id != offset.topic_id:
            self._unlist(group_id, place, former)
            self._list(group_id, place, offset)
        elif offset.topic_id and offset.metadata_version > former.metadata_version:
            use = self.uses[Life(place.topic, offset.topic_id)]
            use.version = max(use.version, offset.metadata_version)
        if former is None and group_id in self._fresh:
            self._fresh[group_id].discard(place)

    def forget(self, group_id: str, place: Place) -> None:
        """An offset is over; nothing if there is none."""
        offsets = self.by_group.get(group_id)
        former = None if offsets is None else offsets.pop(place, None)
        if offsets is None or former is None:
            return
        self.size_bytes -= weight_of(place, former)
        self._unlist(group_id, place, former)
        if not offsets:
            del self.by_group[group_id]

    def _list(self, group_id: str, place: Place, offset: CommittedOffset) -> None:
        if not offset.topic_id:
            return
        life = Life(place.topic, offset.topic_id)
        use = self.uses.get(life)
        if use is None:
            use = self.uses[life] = Use()
            self.size_bytes += LIFE_BYTES
        use.groups[group_id] = use.groups.get(group_id, 0) + 1
        use.version = max(use.version, offset.metadata_version)

    def _unlist(self, group_id: str, place: Place, offset: CommittedOffset | None) -> None:
        if offset is not None and offset.topic_id:
            life = Life(place.topic, offset.topic_id)
            use = self.uses[life]
            use.groups[group_id] -= 1
            if not use.groups[group_id]:
                del use.groups[group_id]
            if not use.groups:
                del self.uses[life]
                self.size_bytes -= LIFE_BYTES

    # What is on its way to the log.

    def begin(self, group_id: str, places: Iterable[Place]) -> None:
        """Offsets of those places are handed to the log; ``done`` follows, or the end of everything."""
        present = self.of(group_id)
        writing = self._writing.setdefault(group_id, {})
        fresh = self._fresh.setdefault(group_id, set())
        for place in places:
            writing[place] = writing.get(place, 0) + 1
            if place not in present:
                fresh.add(place)

    def done(self, group_id: str, places: Iterable[Place]) -> None:
        """They are written."""
        writing, fresh = self._writing[group_id], self._fresh[group_id]
        for place in places:
            left = writing[place] - 1
            if left:
                writing[place] = left
            else:
                del writing[place]
                fresh.discard(place)
        if not writing:
            del self._writing[group_id], self._fresh[group_id]

    def is_written(self, group_id: str, place: Place) -> bool:
        """Whether an offset for that place is on its way."""
        return place in self._writing.get(group_id, ())

    def count_with(self, group_id: str, places: Collection[Place]) -> tuple[int, int]:
        """How many of those places are new, and how many the group would have then, with what is on its way."""
        present, fresh = self.of(group_id), self._fresh.get(group_id, ())
        new = sum(place not in present and place not in fresh for place in places)
        return new, new + len(present) + len(fresh)

    def growth(self, group_id: str, offsets: Iterable[tuple[Place, CommittedOffset]]) -> int:
        """By how many bytes it would grow if these were committed, besides their topics' lives; at least 0."""
        present = self.of(group_id)
        grown = 0
        for place, offset in offsets:
            former = present.get(place)
            grown += weight_of(place, offset) - (0 if former is None else weight_of(place, former))
        return max(grown, 0)


def weight_of(place: Place, offset: CommittedOffset) -> int:
    """About what an offset takes in memory, in bytes."""
    return OFFSET_BYTES + _text_bytes(place.topic) + _text_bytes(offset.topic_id) + _text_bytes(offset.metadata)


def _text_bytes(text: str) -> int:
    """What its characters take at most: one that is beyond the basic plane makes all of them as wide."""
    return len(text) if text.isascii() else 4 * len(text)
