"""A consumer group as its coordinator holds it: frozen values. Pure.

The states are those of Kafka's classic protocol::

    Empty                no member; offsets may be there
    PreparingRebalance   members are asked to join again; each JoinGroup is held until all have, or the time is over
    CompletingRebalance  a generation has begun, and its leader's assignment is awaited
    Stable               every member may have its assignment
    Dead                 no such group (never stored)
"""

import enum
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map


class GroupState(enum.Enum):
    """Where a group is; the values are Kafka's words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupError(enum.IntEnum):
    """Why a call about a group is refused; the numbers are those of the Kafka protocol."""

    OFFSET_METADATA_TOO_LARGE = 12
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    INVALID_REQUEST = 42
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNKNOWN_TOPIC_ID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What a group may be like."""

    session_timeout_s_min: float = 6.0
    """Shortest session time-out; a member heartbeats about three times within it."""
    session_timeout_s_max: float = 1800.0
    """Longest session time-out: how long a dead member can keep its partitions."""
    rebalance_timeout_s_max: float = 3600.0
    """Longest rebalance time-out: how long one slow member can keep a group waiting."""
    members_max: int = 1_000
    """Members, those that were only given an id included."""
    name_bytes_max: int = 255
    """Bytes of the kind of members, and of the name of a protocol."""
    protocols_max: int = 16
    """Assignment protocols that one member may offer."""
    new_member_bytes_max: int = 256 * 1024
    """Bytes that a new member may bring: names, ids and the subscriptions of all its protocols."""
    member_bytes_max: int = 512 * 1024
    """Bytes that one may bring who is in the group: by the cooperative protocol it says then what it owns, which names
    its topics once more (KIP-429)."""
    assignment_bytes_max: int = 1024 * 1024
    """Bytes of one member's assignment."""
    new_group_bytes_max: int = 4 * 1024 * 1024
    """Bytes that all members bring, with a new one among them."""
    group_bytes_max: int = 8 * 1024 * 1024
    """Bytes that they bring when they come back."""
    assigned_bytes_max: int = 4 * 1024 * 1024
    """Bytes of all assignments. A group is one record, and the internal topic takes batches of 16 MiB."""
    pending_s_max: float = 45.0
    """How long an id that was given waits for its first use, at most; its session time-out where that is shorter."""
    initial_rebalance_delay_s: float = 3.0
    """How long the first rebalance of an empty group waits for more members (group.initial.rebalance.delay.ms)."""


MEMBER_BYTES: Final = 64
"""What a member takes in the group's record besides what it brought: tags, lengths, time-outs."""
PROTOCOL_BYTES: Final = 20
"""What a protocol takes besides its name and its subscription."""


def _brought_bytes(names: tuple[str, ...], protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Bytes as they are encoded (a character has up to four), or a few more."""
    return (
        MEMBER_BYTES
        + sum(len(name.encode()) for name in names)
        + sum(PROTOCOL_BYTES + len(name.encode()) + len(metadata) for name, metadata in protocols)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member."""

    member_id: str
    """Given by the coordinator; nobody else has it or had it."""
    instance_id: str = ""
    """Name that a static member (KIP-345) keeps over restarts. Empty: a dynamic member."""
    client_id: str = ""
    """What the client calls itself."""
    client_host: str = ""
    """Where it called from, for people."""
    session_timeout_s: float
    """Silence after which it is removed."""
    rebalance_timeout_s: float
    """How long a rebalance waits for it to join again."""
    protocols: tuple[tuple[str, bytes], ...]
    """Assignment protocols that it offers, the preferred first, each with its subscription: bytes that the coordinator
    passes to the group's leader and does not read."""
    assignment: bytes = b""
    """What the leader assigned to it in the present generation."""
    joined: bool = False
    """Whether it has joined the rebalance that is being prepared."""
    synced: bool = False
    """Whether it has asked for its assignment in the present generation."""
    call: int | None = None
    """Its JoinGroup or SyncGroup that is held; while there is one it is alive."""
    deadline_s: float
    """When it is removed unless it is heard of, monotonic seconds; counts while no call is held."""

    @property
    def brought_bytes(self) -> int:
        """Bytes that its place in the group's record takes at most, without the assignment."""
        return _brought_bytes((self.member_id, self.instance_id, self.client_id, self.client_host), self.protocols)

    def metadata_of(self, protocol: str) -> bytes:
        """Its subscription under a protocol; empty when it does not offer that."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group."""

    group_id: str
    """Its name."""
    state: GroupState = GroupState.EMPTY
    """Where it is."""
    protocol_type: str = ""
    """Kind of its members, ``consumer`` for consumers. Empty: never had members."""
    generation: int = 0
    """Grows by one with every rebalance. 0: there was none."""
    protocol: str = ""
    """Assignment protocol of the present generation. Empty: none."""
    leader: str = ""
    """Member that assigns in the present generation. Empty: none."""
    members: Map[str, Member] = field(default_factory=Map)
    """Members by id."""
    instances: Map[str, str] = field(default_factory=Map)
    """Ids of static members by instance id."""
    pending: Map[str, float] = field(default_factory=Map)
    """Member ids that were given and not used yet (KIP-394), and when they are forgotten, monotonic seconds."""
    joined: int = 0
    """Members that have joined the rebalance that is being prepared."""
    offered: Map[str, int] = field(default_factory=Map)
    """How many members offer each assignment protocol."""
    brought_bytes: int = 0
    """Bytes that its members brought, all together."""
    assigned_bytes: int = 0
    """Bytes of their assignments."""
    began_s: float = 0.0
    """When the rebalance that is being prepared began."""
    settled_s: float = 0.0
    """The first rebalance of an empty group ends no earlier."""
    rebalance_deadline_s: float | None = None
    """Preparing: when those that have not joined are left behind. Later: when those that have not asked for their
    assignment are removed. None: nobody is waited for."""
    emptied_ms: int = 0
    """Since when it has no members, milliseconds since 1970; its offsets expire from then on."""

    @property
    def is_vacant(self) -> bool:
        """Whether there is nothing to remember but, perhaps, offsets."""
        return self.state is GroupState.EMPTY and not self.pending and self.generation == 0


# What a call asks for.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup."""

    member_id: str = ""
    """Empty: none was given yet."""
    instance_id: str = ""
    """Empty: a dynamic member."""
    client_id: str = ""
    """What the client calls itself."""
    client_host: str = ""
    """Where it called from."""
    session_timeout_s: float
    """Silence after which it is removed."""
    rebalance_timeout_s: float
    """How long a rebalance waits for it."""
    protocol_type: str
    """Kind of member."""
    protocols: tuple[tuple[str, bytes], ...]
    """Protocols with metadata."""
    new_member_id: str
    """The id that it gets if it needs one."""

    @property
    def brought_bytes(self) -> int:
        """Bytes that its place in the group's record would take at most."""
        names = (self.member_id or self.new_member_id, self.instance_id, self.client_id, self.client_host)
        return _brought_bytes(names, self.protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """As what a member speaks."""

    member_id: str
    """Its id."""
    instance_id: str = ""
    """Its instance id. Empty: a dynamic member."""
    generation: int = -1
    """The generation that it believes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup."""

    identity: Identity
    """Who asks."""
    protocol_type: str = ""
    """Empty: not checked."""
    protocol: str = ""
    """Empty: not checked."""
    assignments: tuple[tuple[str, bytes], ...] = ()
    """From the leader: what each member gets."""


# What is answered.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call is refused; nothing changed by it."""

    error: GroupError
    """Why."""
    message: str
    """What to do next."""


@dataclass(frozen=True, slots=True)
class Again:
    """The same call is to be sent again, with that member id.

    It has just been given (KIP-394), or the caller had no more time.
    """

    member_id: str
    """The member's id. Empty: a static member that has none yet comes again without one."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A JoinGroup is done."""

    generation: int
    """Which of its generations has begun."""
    protocol_type: str
    """Kind of members."""
    protocol: str
    """The protocol that all members offer."""
    leader: str
    """Who assigns."""
    member_id: str
    """Id of the member that is answered."""
    members: tuple[JoinedMember, ...] = ()
    """For the leader: everybody."""
    skip_assignment: bool = False
    """For a leader that came back as the same static member (KIP-814): the assignment stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """A SyncGroup is done."""

    protocol_type: str
    """Kind of members."""
    protocol: str
    """Protocol of the generation."""
    assignment: bytes
    """What the member got."""


@dataclass(frozen=True, slots=True)
class Done:
    """A Heartbeat is taken."""


@dataclass(frozen=True, slots=True)
class Left:
    """A LeaveGroup is done: for each member that was to leave, None or why not."""

    outcomes: tuple[Refusal | None, ...]
    """In the order of the request."""


Answer = Refusal | Again | Joined | Synced | Done | Left


# What is to be done.


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a call."""

    call: int
    """Which."""
    answer: Answer
    """With what."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the group, as the step leaves it, to the log.

    No answer of this or a later step goes out before the record is committed.
    """


Effect = Reply | Persist


class Step(NamedTuple):
    """What an event makes of a group."""

    group: Group
    """The group from now on."""
    effects: tuple[Effect, ...]
    """What is to be done, in order."""
