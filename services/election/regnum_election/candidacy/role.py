"""Who is controller, as this process knows it: itself, somebody else, or nobody."""

import asyncio
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import ControllerEpoch
from regnum_service.errors import RegnumError

from regnum_election.candidacy.candidacy import KnownController
from regnum_election.controller import Controller
from regnum_election.reign.events import (
    AwaitsInSync,
    ClusterEvent,
    FirstAcknowledgements,
    HealthSaid,
    Hint,
    ReplicasMoving,
)

READY_PATIENCE_S: Final = 5.0
"""How long a call waits for a reign that has just begun to have read everything."""


class ControllerRole:
    """Shared by candidacy and servicers; used on the main loop only."""

    def __init__(self) -> None:
        self._controller: Controller | None = None
        self._known: KnownController | None = None

    @property
    def reigning(self) -> Controller | None:
        """The controller of this process; None while it does not reign. Any thread."""
        return self._controller

    def hold(self, controller: Controller) -> None:
        """This process reigns."""
        self._controller = controller

    def leave(self) -> None:
        """This process does not reign any more."""
        self._controller = None

    def heard_of(self, known: KnownController | None) -> None:
        """Somebody else reigns, or nobody."""
        self._known = known

    def report(self, epoch: ControllerEpoch, event: ClusterEvent | Hint) -> None:
        """An event for the controller of that reign; dropped when the reign is over."""
        if self._controller is None or self._controller.reign.epoch != epoch:
            return
        if isinstance(event, ReplicasMoving):
            self._controller.reassignments.heard_of(event)
        elif isinstance(event, AwaitsInSync):
            self._controller.brokers.in_sync.heard_of(event)
        elif isinstance(event, FirstAcknowledgements):
            self._controller.brokers.first_acknowledged(event)
        elif isinstance(event, HealthSaid):
            self._controller.health.heard_of(event)
        else:
            self._controller.queue.put(event)

    async def controller(self) -> Controller:
        """The controller, once its reign has begun. Raises RegnumError NOT_CONTROLLER, which names the right one."""
        controller = self._controller
        if controller is not None:
            try:
                async with asyncio.timeout(READY_PATIENCE_S):
                    await controller.wait_ready()
            except TimeoutError:
                pass
            else:
                if self._controller is controller:
                    return controller
        raise self._not_controller()

    def _not_controller(self) -> RegnumError:
        known = self._known
        if known is None:
            return RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER, "no controller is known at the moment; try again shortly"
            )
        metadata = {"controller_id": str(known.id), "controller_epoch": str(known.epoch)}
        if known.client is not None:
            metadata["controller_address"] = str(known.client)
        return RegnumError(
            errors_pb2.ERROR_CODE_NOT_CONTROLLER,
            f"election process {known.id} is the controller (epoch {known.epoch}); ask it at {known.client}",
            metadata=metadata,
        )
