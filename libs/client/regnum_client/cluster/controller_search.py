"""Finds the controller, again and again until the time is up."""

import random
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address, MalformedNodeError
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, UnansweredError

from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.cluster.view import ControllerView
from regnum_client.errors import NoControllerError

ID: Final = "controller_id"
"""Where a NOT_CONTROLLER answer names the controller's election id."""
ADDRESS: Final = "controller_address"
"""Where a NOT_CONTROLLER answer names the controller's client listener."""
EPOCH: Final = "controller_epoch"
"""Where it names the controller's epoch."""

AT_ONCE_MAX: Final = 5
"""Controllers that one search tries at once when it is told of them; with more, somebody is not to be believed."""


class ControllerSearch:
    """One search, for one request and its repeats."""

    def __init__(self, metadata: Metadata, *, clock: Clock, chance: random.Random, timeout_s: float) -> None:
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._chance: Final = chance
        self._began_s: Final = clock.monotonic()
        self._timeout_s: Final = timeout_s
        self._hint: tuple[int, Address] | None = None
        self._followed: set[tuple[int, Address]] = set()
        self._last_error: RegnumError | None = None
        self._told = False

    @property
    def left_s(self) -> float:
        """Seconds until the time is up."""
        return self._began_s + self._timeout_s - self._clock.monotonic()

    async def address(self) -> Address:
        """Where the controller is believed to be. Raises when nobody knows one in time."""
        while True:
            controller = self._metadata.view.controller
            if self._hint is not None and (controller is None or controller.epoch < self._hint[0]):
                return self._hint[1]
            if controller is not None:
                return controller.address
            if self.left_s <= 0:
                raise self._nobody()
            await self._refresh()

    async def failed(self, address: Address, error: RegnumError) -> None:
        """The call failed as a whole. Raises the error when no repeat can help, or when the time is up."""
        self._last_error = error
        if not error.traits.retriable or self.left_s <= 0:
            raise self.explained(address, error)
        hint = _hint(error) if error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER else None
        if hint is not None and hint[1] != address and (self._hint is None or hint[0] >= self._hint[0]):
            self._hint = hint
            if hint in self._followed or len(self._followed) >= AT_ONCE_MAX:
                # Two who name one another, or one who has not won yet: not as fast as they answer.
                await self.pause()
            self._followed.add(hint)
            return
        self._hint = None
        await self._refresh()

    def explained(self, address: Address | None, error: RegnumError) -> RegnumError:
        """The error as its reader understands it, who never gave the address.

        What the controller itself answered is said as it is; where nobody answered as controller, that is said.

        Args:
            address: where the call went; None: nobody was known.
            error: how it failed.
        """
        if not isinstance(error, UnansweredError) and error.code != errors_pb2.ERROR_CODE_NOT_CONTROLLER:
            return error
        return no_controller(self._metadata.view.controller, error, asked=address)

    async def pause(self) -> None:
        """Wait before a repeat."""
        trouble_ms = (self._clock.monotonic() - self._began_s) * 1000
        await self._clock.sleep(retry_delay_ms(trouble_ms, self._chance.random()) / 1000)

    def _nobody(self) -> RegnumError:
        nobody = f"no controller was elected within {self._timeout_s:g} s"
        return self.explained(None, self._last_error or RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, nobody))

    async def _refresh(self) -> None:
        if not self._told:
            from regnum_client.cluster.reach.told import tell  # noqa: PLC0415 - where all is well it is not needed

            self._told = tell(self._nobody().message, self._timeout_s - self.left_s)
        await self.pause()
        await self._metadata.newer_than(self._clock.monotonic(), timeout_s=max(1.0, self.left_s))


def no_controller(
    known: ControllerView | None, error: RegnumError, *, asked: Address | None = None
) -> NoControllerError:
    """Nobody answers as controller.

    Args:
        known: the controller that the brokers name.
        error: how the last call failed.
        asked: where it went; None: to the one that is known.
    """
    if known is None or (asked is not None and asked != known.address):
        facts = {} if asked is None else {ADDRESS: str(asked)}
        return NoControllerError(error, known="" if asked is None else f"an election process at {asked}", facts=facts)
    return NoControllerError(
        error,
        known=f"election process {known.id} at {known.address}, epoch {known.epoch}",
        facts={ID: str(known.id), EPOCH: str(known.epoch), ADDRESS: str(known.address)},
    )


def _hint(error: RegnumError) -> tuple[int, Address] | None:
    try:
        return int(error.metadata[EPOCH]), Address.parse(error.metadata[ADDRESS])
    except (KeyError, ValueError, MalformedNodeError):
        return None
