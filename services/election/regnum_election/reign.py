"""One reign of one controller, and the ways it ends."""

from dataclasses import dataclass

from regnum_coordination.port import Check
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, ElectionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """What the winner of an election holds."""

    controller_id: ElectionId
    """Election id of the winner."""
    epoch: ControllerEpoch
    """Controller epoch."""
    epoch_version: int
    """Version of ``/controller_epoch`` that belongs to it."""

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
