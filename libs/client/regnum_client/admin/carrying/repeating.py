"""Calls that may be sent again until they are answered, and answers that have to belong to what was asked."""

import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from regnum.types.v1 import errors_pb2
from regnum_model.ids import encode_id
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.topic_mutation import CALL_S_MAX

A = TypeVar("A")
R = TypeVar("R")
W = TypeVar("W")


class Searching(Protocol):
    """Finds the controller (see ControllerSearch)."""

    @property
    def left_s(self) -> float:
        """Seconds until the time is up."""

    async def address(self) -> Address:
        """Where the controller is believed to be."""

    async def failed(self, address: Address, error: RegnumError, /) -> None:
        """The call failed as a whole; raises when no repeat can help."""


def mutation_id(chance: random.Random) -> str:
    """One that nothing else has: of one change, the same in every repeat of it (safety rule S20)."""
    return encode_id(uuid.UUID(int=chance.getrandbits(128), version=4))


async def until_answered(search: Searching, ask: Callable[[Address, float], Awaitable[A]], *, look: str = "") -> A:
    """Ask whoever is the controller, again and again until there is an answer or the time is up; raises RegnumError.

    Args:
        search: finds the controller; knows the deadline.
        ask: sends the request, which a repeat does no harm to: it has a mutation id, or changes nothing.
        look: for a change, where its caller sees whether it was made, when no answer came in time.
    """
    unknown = False
    while True:
        address = await search.address()
        try:
            return await ask(address, max(0.001, min(search.left_s, CALL_S_MAX)))
        except RegnumError as error:
            unknown = unknown or not error.traits.outcome_known
            try:
                await search.failed(address, error)
            except RegnumError as last:
                if not unknown or not look:
                    raise
                message = f"{last.message}. It may have been changed all the same: see `{look}`"
                raise RegnumError(last.code, message, metadata=last.metadata) from last


def matched(wanted: Sequence[W], results: Sequence[R], named: Callable[[W, R], bool]) -> list[tuple[W, R]]:
    """Each thing that was asked for with its result; raises UNKNOWN_SERVER_ERROR for results of something else."""
    if len(wanted) != len(results) or not all(map(named, wanted, results)):
        raise RegnumError(
            errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
            "the answer names other things than the request; what became of it is not known: look before trying again",
        )
    return list(zip(wanted, results, strict=True))
