"""What a member of a group is at one moment. Pure."""

from dataclasses import dataclass
from enum import Enum

from regnum_client.consumer.groups.consumer_protocol import NO_GENERATION
from regnum_client.consumer.groups.members.member_events import NONE, Partitions


class Phase(Enum):
    """Where a member is."""

    UNJOINED = "unjoined"
    """It wants nothing yet."""
    JOINING = "joining"
    """It waits for the others."""
    SYNCING = "syncing"
    """It is in a generation and waits for what its leader assigns."""
    REVOKING = "revoking"
    """The application gives partitions up."""
    ASSIGNING = "assigning"
    """The application is given partitions."""
    STABLE = "stable"
    """It reads what it was assigned, and takes the rest up when that can be read."""
    LEAVING = "leaving"
    """It tells the coordinator that it goes."""
    ENDED = "ended"
    """It has left for good, or cannot be a member."""


class Then(Enum):
    """What follows when partitions are given up."""

    JOIN = "join"
    ASSIGN = "assign"
    LEAVE = "leave"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a member cannot be one."""

    code: int
    """An error code of the wire."""
    message: str
    """What the coordinator said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member."""

    cooperative: bool
    """It keeps what it has while the group rebalances."""
    static: bool = False
    """It has a name of its own, and its place is kept when it goes."""
    phase: Phase = Phase.UNJOINED
    """Where it is."""
    topics: frozenset[str] = frozenset()
    """What it wants."""
    member_id: str = ""
    """Given by the coordinator; empty: not yet, or it is known there no more."""
    generation: int = NO_GENERATION
    """The one that it is in."""
    protocol: str = ""
    """Assignor of that generation."""
    roll: tuple[tuple[str, str, bytes], ...] | None = None
    """Leader only, while it syncs: id, name and subscription of each member. None: another one assigns."""
    owned: Partitions = NONE
    """What the application reads."""
    assigned: Partitions = NONE
    """What the present generation gives it."""
    giving_up: Partitions = NONE
    """What it is about to lose, of ``owned``."""
    lost: bool = False
    """It is no member any more: nothing of ``giving_up`` can be committed."""
    then: Then = Then.JOIN
    """What follows."""
    again: bool = False
    """Something has changed since it joined: another rebalance is due."""
    failure: Failure | None = None
    """Why it has ended, where nobody asked it to."""

    @property
    def beats(self) -> bool:
        """It has to say that it lives; while a call of it is held, that says so."""
        waits = self.phase in {Phase.ASSIGNING, Phase.STABLE} or (self.phase is Phase.REVOKING and not self.lost)
        # A leader that still assigns has no call there.
        assigns = self.phase is Phase.SYNCING and self.roll is not None
        return (waits or assigns) and self.generation != NO_GENERATION

    @property
    def is_held(self) -> bool:
        """A call of it is held at the coordinator, until its caller would give up."""
        return self.phase is Phase.JOINING or (self.phase is Phase.SYNCING and self.roll is None)

    @property
    def closes(self) -> bool:
        """It does not join again."""
        return self.then in {Then.LEAVE, Then.END}

    @property
    def readable(self) -> Partitions:
        """What may be handed to the application: not what was lost, from that moment on."""
        return self.owned - self.giving_up if self.lost else self.owned

    @property
    def committable(self) -> Partitions:
        """Of what it may commit, if it reads it: also what the application is being given."""
        return self.readable | self.assigned if self.phase in {Phase.ASSIGNING, Phase.STABLE} else self.readable

    @property
    def holds_up(self) -> bool:
        """The others wait for its assignment, and it goes: until then no commit of the generation is taken."""
        return self.closes and self.roll is not None
