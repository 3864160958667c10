"""One reign of one controller, and the ways it ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from regnum_coordination.port import Check
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, ElectionId

from regnum_election.reign.witnesses import NO_WITNESSES, Earlier, Witnesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """The controller before, and how its end was seen here; for traces. Moments are wall time in nanoseconds."""

    id: ElectionId
    """Its election id."""
    cause: str
    """Kind of the evidence (``regnum_telemetry.conventions.CAUSE``)."""
    noticed_unix_nano: int
    """First sign of its end."""
    detected_unix_nano: int
    """Decision to fence it, or the same as noticed."""
    fenced_unix_nano: int
    """Its node was gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """What the winner of an election holds."""

    controller_id: ElectionId
    """Election id of the winner."""
    epoch: ControllerEpoch
    epoch_version: int
    """Version of ``/controller_epoch`` that belongs to it."""
    elected_at: int = 0
    """Creation id of the ``/controller`` node that was won: whoever registered before it is known to the reign, or
    gone."""
    went_back: str = ""
    """What proves that the store went back to an earlier state; empty: nothing does. Such a reign writes and orders
    nothing: it shows what there is (trace T9)."""
    access_warnings: tuple[str, ...] = field(default=(), compare=False)
    """Why callers are believed more than they should be, by the settings of this process."""
    store_warnings: tuple[str, ...] = field(default=(), compare=False)
    """Why access rules in the store are not to be relied on, as this process found at its start."""
    before_deciding: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)
    """For tests: what is waited for before partitions are decided about; None: nothing."""
    tell_misdirected: Callable[[frozenset[BrokerId]], None] = field(default=lambda _: None, compare=False)
    """Told which brokers' addresses stand for other processes, whenever these are others; at first there are none."""
    predecessor: Predecessor | None = field(default=None, compare=False)
    """Whom it succeeds, if this process saw it; None: nobody."""
    won_unix_nano: int = field(default=0, compare=False)
    """When it was won; for traces."""
    witnesses: Witnesses = field(default=NO_WITNESSES, compare=False)
    """What processes saw of others that failed; for traces."""
    earlier: tuple[Earlier, ...] = field(default=(), compare=False)
    """Changes of leadership that a reign before may not have ended; for traces."""

    @property
    def fence(self) -> Check:
        """The check that every write of the reign carries (safety rule S3)."""
        return Check(paths.CONTROLLER_EPOCH, self.epoch_version)


class DeposedError(Exception):
    """The reign is over: nothing more may be written or sent in its name."""

    def __init__(self, reason: str, *, seen: ControllerEpoch | None = None) -> None:
        super().__init__(reason)
        self.seen = seen
        """Highest controller epoch seen elsewhere; the next win takes one more (safety rule S7). None: no news."""


class ResignedError(DeposedError):
    """The reign is over because somebody asked for that: another candidate goes first."""
