"""Which topics a caller wants to see, and what is wrong with a partition. Pure.

Used by whoever answers and by whoever asks, so that both mean the same. The three troubles are those of Kafka's
``kafka-topics --unavailable-partitions | --under-replicated-partitions | --under-min-isr-partitions``.
"""

import enum
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from regnum_model.ids import NO_LEADER
from regnum_model.topics import MAX_NAME_LENGTH

INTERNAL_PREFIX: Final = "__"
"""How names of Regnum's own topics begin, as Kafka's do."""

GLOB_LENGTH_MAX: Final = 2 * MAX_NAME_LENGTH
"""Characters of a glob, at most."""

_GLOB: Final = re.compile(r"[a-zA-Z0-9._*?-]*", re.ASCII)
_WILDCARD: Final = re.compile(r"[*?]")


class Trouble(enum.Enum):
    """What may be wrong with a partition.

    >>> chosen = TopicFilter(prefix="orders", troubles=frozenset({Trouble.OFFLINE}))
    >>> list(admin.describe_topics(chosen=chosen))
    []
    """

    OFFLINE = "offline"
    """It has no leader."""
    UNDER_REPLICATED = "under-replicated"
    """Fewer replicas are in sync than it has, without those that an open reassignment brings in."""
    UNDER_MIN_ISR = "under-min-isr"
    """Fewer replicas are in sync than min.insync.replicas asks for."""
    NOT_WRITABLE = "not-writable"
    """It is led, and no write with acks=all can succeed: a disk is full, or nothing is committed. Only the controller
    knows, so no topic is chosen by it."""


class InvalidTopicFilterError(ValueError):
    """The filter makes no sense; the message says what is allowed."""


class PartitionLike(Protocol):
    """A partition as the wire has it."""

    @property
    def leader(self) -> int:
        """Broker id; NO_LEADER when there is none."""

    @property
    def isr(self) -> Sequence[int]:
        """In-sync replicas."""

    @property
    def replicas(self) -> Sequence[int]:
        """All replicas."""

    @property
    def adding_replicas(self) -> Sequence[int]:
        """Those of them that an open reassignment brings in."""

    @property
    def min_insync_replicas(self) -> int:
        """Effective min.insync.replicas; 0 when it is not known."""


def troubles_of(partition: PartitionLike) -> tuple[Trouble, ...]:
    """What is wrong with a partition."""
    in_sync = len(partition.isr)
    troubles: list[Trouble] = []
    if partition.leader == NO_LEADER:
        troubles.append(Trouble.OFFLINE)
    if in_sync < len(partition.replicas) - len(partition.adding_replicas):
        troubles.append(Trouble.UNDER_REPLICATED)
    if in_sync < partition.min_insync_replicas:
        troubles.append(Trouble.UNDER_MIN_ISR)
    return tuple(troubles)


@dataclass(slots=True)
class TroubleCounts:
    """How many partitions of one topic are in which trouble."""

    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    replication_factor: int = 0
    """Replicas of the partition that has the most, without those that an open reassignment brings in."""

    def add(self, partitions: Iterable[PartitionLike]) -> None:
        """Count these, too; as ``troubles_of`` judges them, and three times as fast, for whole clusters."""
        for partition in partitions:
            in_sync, replicas = len(partition.isr), len(partition.replicas) - len(partition.adding_replicas)
            if in_sync < replicas:
                self.under_replicated += 1
            if in_sync < partition.min_insync_replicas:
                self.under_min_isr += 1
            if partition.leader == NO_LEADER:
                self.offline += 1
            self.replication_factor = max(self.replication_factor, replicas)

    def has(self, trouble: Trouble) -> bool:
        """Whether any partition is in it."""
        match trouble:
            case Trouble.OFFLINE:
                return self.offline > 0
            case Trouble.UNDER_REPLICATED:
                return self.under_replicated > 0
            case Trouble.UNDER_MIN_ISR:
                return self.under_min_isr > 0
            case Trouble.NOT_WRITABLE:
                return False
            case _:
                assert_never(trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """Chooses topics: those that fit everything that is set.

    >>> [topic.name for topic in admin.describe_topics(chosen=TopicFilter(prefix="ord"))]
    ['orders']
    """

    prefix: str = ""
    """How the name begins; empty: any way."""
    glob: str = ""
    """The name with ``*`` for any characters and ``?`` for any one; empty: any name."""
    internal: bool | None = None
    """Whether it is one of Regnum's own topics; None: both."""
    troubles: frozenset[Trouble] = frozenset()
    """Only partitions in any of these, and only topics that have one; empty: all."""

    def check(self) -> None:
        """Raise InvalidTopicFilterError unless topics can be chosen by it."""
        if len(self.prefix) > MAX_NAME_LENGTH:
            raise InvalidTopicFilterError(f"a prefix has at most {MAX_NAME_LENGTH} characters, as names have")
        if len(self.glob) > GLOB_LENGTH_MAX:
            raise InvalidTopicFilterError(f"a glob has at most {GLOB_LENGTH_MAX} characters")
        if Trouble.NOT_WRITABLE in self.troubles:
            raise InvalidTopicFilterError(
                "which partitions take no writes only the controller knows: see `regnum status`, and choose by another "
                "trouble"
            )
        if _GLOB.fullmatch(self.glob) is None:
            raise InvalidTopicFilterError(
                f"glob {self.glob!r} has characters that no topic name has; use [a-zA-Z0-9._-], * for any characters "
                "and ? for any one"
            )

    @property
    def start(self) -> str:
        """How every name that fits begins."""
        return max(self.prefix, _WILDCARD.split(self.glob, maxsplit=1)[0], key=len)

    def matcher(self) -> Callable[[str], bool]:
        """Whether a name fits."""
        glob = re.compile(fnmatch.translate(self.glob), re.ASCII).match if self.glob else None
        prefix, internal = self.prefix, self.internal

        def fits(name: str) -> bool:
            if internal is not None and name.startswith(INTERNAL_PREFIX) is not internal:
                return False
            return name.startswith(prefix) and (glob is None or glob(name) is not None)

        return fits
