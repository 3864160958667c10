"""What to send to a broker that has a given version (safety rule S17).

Recent changes are kept as they were sent, one after another without gaps. A broker within their reach gets the change
that joins on to its version; one that is further behind, or that has nothing of this controller epoch, gets a full
picture and then what follows it. A full picture is used again as long as the changes after it are kept.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from regnum_model.ids import BrokerEpoch, ControllerEpoch

from regnum_metadata.image import NO_EPOCH
from regnum_metadata.payload import Payload

CHANGES_KEPT: Final = 512
"""Changes kept for brokers that lag, at most."""

CHANGES_KEPT_BYTES: Final = 16 * 1024 * 1024
"""And their size, at most."""


class Wanted(enum.Enum):
    """What has to be made before it can be sent."""

    FULL = "full"
    """A full picture of the present version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Payloads of one controller epoch."""

    controller_epoch: ControllerEpoch = NO_EPOCH
    """The epoch; 0 before the first image."""
    version: int = 0
    """Version after the last change."""
    changes: tuple[Payload, ...] = ()
    """Changes, oldest first; each begins at or below the end of the one before."""
    full: Payload | None = None
    """The latest full picture that the kept changes lead on from."""

    def with_change(self, payload: Payload) -> Self:
        """A change was published."""
        changes = (*self.changes, payload)[-CHANGES_KEPT:]
        size = sum(change.size_bytes for change in changes)
        while size > CHANGES_KEPT_BYTES and len(changes) > 1:
            size -= changes[0].size_bytes
            changes = changes[1:]
        full = self.full
        if full is not None and changes[0].from_version > full.to_version:
            full = None
        return replace(self, version=payload.to_version, changes=changes, full=full)

    def with_full(self, payload: Payload) -> Self:
        """A full picture was made for brokers that need one; the changes stay."""
        if payload.controller_epoch != self.controller_epoch:
            return self
        return replace(self, full=payload) if self._reaches_back_to(payload.to_version) else self

    def next_for(
        self, receiver: BrokerEpoch, epoch: ControllerEpoch, version: int
    ) -> Payload | Literal[Wanted.FULL] | None:
        """What a broker needs next that has this version under that epoch; None when it has everything.

        What was made before the broker registered does not count: it would refuse that (safety rule S18).
        """
        own = version if epoch == self.controller_epoch else 0
        if own >= self.version:
            return None
        if own:
            joining = next((change for change in self.changes if change.to_version > own), None)
            if joining is not None and joining.from_version <= own and joining.max_broker_epoch >= receiver:
                return joining
        full = self.full
        return full if full is not None and full.max_broker_epoch >= receiver else Wanted.FULL

    def _reaches_back_to(self, version: int) -> bool:
        return version >= self.version or (bool(self.changes) and self.changes[0].from_version <= version)


def after_full(payload: Payload) -> History:
    """The history that begins with a full image of the controller."""
    return History(controller_epoch=payload.controller_epoch, version=payload.to_version, full=payload)
