"""What happens to a member of a group, and what it has to do. Pure: values of ``membership``."""

from dataclasses import dataclass
from typing import Final

from regnum_client.consumer.groups.consumer_protocol import Subscription
from regnum_client.records import TopicPartition

Partitions = frozenset[TopicPartition]
NONE: Final[Partitions] = frozenset()


# Events.


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application wants these topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Topics of the group have other partitions than those that were assigned."""


@dataclass(frozen=True, slots=True)
class JoinAgain:
    """Not joined yet; this is the member's id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A generation has begun."""

    member_id: str
    generation: int
    protocol: str
    roll: tuple[tuple[str, str, bytes], ...] | None
    """As ``Member.roll``."""


@dataclass(frozen=True, slots=True)
class SyncAgain:
    """The leader has not assigned yet."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What the leader assigned."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The coordinator refused a call of a member."""

    code: int
    message: str
    generation: int
    """The one that the call spoke of; a member that is in another one by now is not meant."""
    aside: bool = False
    """It was a heartbeat or a commit: while the member joins, the coordinator may be in the next generation already."""
    member_id: str = ""
    """As whom the call spoke, where it was said aside: one that is unknown is so in every generation."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The application gave up what it was to."""


@dataclass(frozen=True, slots=True)
class TakenUp:
    """The application reads what it was assigned, but for partitions that nobody here knows, or that have no leader."""

    missing: Partitions = NONE


@dataclass(frozen=True, slots=True)
class PollExpired:
    """The application has not asked for records for too long."""


@dataclass(frozen=True, slots=True)
class Left:
    """The coordinator knows that the member went, or cannot be told."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The application ends."""


Event = (
    Subscribed
    | PartitionsChanged
    | JoinAgain
    | Joined
    | SyncAgain
    | Synced
    | Refused
    | GivenUp
    | TakenUp
    | PollExpired
    | Left
    | Closed
)


# What has to be going on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Call JoinGroup."""

    member_id: str
    subscription: Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Call SyncGroup, with everybody's assignment where this member leads."""

    member_id: str
    generation: int
    protocol: str
    roll: tuple[tuple[str, str, bytes], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Let the application give partitions up: when it asks for records again, for then it is done with those it has."""

    partitions: Partitions
    lost: bool
    """They are another one's by now: there is nothing to commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeUp:
    """Let the application read partitions that it did not read."""

    partitions: Partitions
    generation: int
    """In which they were assigned."""
    late: bool = False
    """They could not be taken up at once: wait until some can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Call LeaveGroup."""

    member_id: str


Action = Join | Sync | GiveUp | TakeUp | Leave
