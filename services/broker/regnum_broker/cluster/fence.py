"""Who may order this broker about: epochs of controllers and of the broker itself."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.epochs import is_plausible
from regnum_model.ids import BrokerEpoch, ControllerEpoch
from regnum_service.errors import RegnumError

from regnum_broker.identity import Identity

REGISTRATION_PATIENCE_S: Final = 5.0
"""How long an order waits for a registration under way: only then is it known for which life of the broker it is
meant.
"""


async def near_the_first(epoch: ControllerEpoch) -> bool:
    """Whom to believe where nobody can look into the store: epochs near the first."""
    return is_plausible(epoch, 0)


class Fence:
    """The highest controller epoch seen, and the broker's registration. Belongs to the event loop."""

    def __init__(self, believes: Callable[[ControllerEpoch], Awaitable[bool]] = near_the_first) -> None:
        self._believes: Final = believes
        self.controller_epoch = ControllerEpoch(0)
        """Highest controller epoch seen in any order; kept for the life of the process."""
        self._identity: Identity | None = None
        self._settled: Final = asyncio.Event()

    @property
    def identity(self) -> Identity | None:
        """The registration this broker believes in; None before the first and while a new one is being made."""
        return self._identity

    def begin_registration(self) -> None:
        """A new registration is being made: from here on nobody knows which epoch is the broker's own."""
        self._identity = None
        self._settled.clear()

    def registered(self, identity: Identity) -> None:
        """The registration stands."""
        self._identity = identity
        self._settled.set()

    async def wait_registered(self) -> Identity:
        """The registration, as soon as there is one."""
        while self._identity is None:
            await self._settled.wait()
        return self._identity

    async def admit_controller(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced or cannot be; remember a newer one.

        Raises:
            RegnumError: STALE_CONTROLLER_EPOCH, with the highest epoch seen; INVALID_REQUEST for one so far above what
                the store says that nobody can have been elected with it.
        """
        if epoch > self.controller_epoch and not await self._believes(epoch):
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"controller epoch {epoch} is far above the one in the store; whoever sent it is no controller",
            )
        self.check_controller(epoch)

    def check_controller(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced; remember a newer one, which has been admitted.

        Raises:
            RegnumError: STALE_CONTROLLER_EPOCH, with the highest epoch seen.
        """
        if epoch < self.controller_epoch:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
                f"controller epoch {epoch} is past; {self.controller_epoch} has been seen: resign",
                metadata={"controller_epoch": str(self.controller_epoch)},
            )
        self.controller_epoch = epoch

    async def check_broker(self, epoch: BrokerEpoch) -> None:
        """Refuse an order that is meant for an earlier life of this broker.

        A newer epoch than its own is accepted: the controller may hear of a registration first (defect D20).

        Raises:
            RegnumError: STALE_BROKER_EPOCH.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTRATION_PATIENCE_S):
                await self.wait_registered()
        # Looked at anew: it may have registered in the very turn of the loop in which the time was over.
        identity = self._identity
        if identity is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                "this broker is not registered at the moment; it will be under a new broker epoch",
            )
        if epoch < identity.broker_epoch:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                f"the order is for broker epoch {epoch}; this is {identity.broker_epoch}",
                metadata={"broker_epoch": str(identity.broker_epoch)},
            )
