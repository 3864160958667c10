"""AdminService with an audit log: every call that changes something passes here, direct or in an envelope.

The one funnel. It stands around the servicer and not in an interceptor, because a call that a broker passed on reaches
its handler without gRPC; and who made it is then whom ``identity.caller()`` names.

A call that its client gave up may have been carried out, and one whose process was killed has no line at all: the line
is written when the outcome is known.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message
from regnum.types.v1 import errors_pb2
from regnum_service.access.audit import AuditLog, Mutated
from regnum_service.access.authorization import FAILED
from regnum_service.access.identity import caller
from regnum_service.errors import RegnumError, reason_of
from regnum_service.slices import slices

from regnum_election.auditing.changes import is_change, outcomes

ITEMS_PER_TURN: Final = 2_000
"""Items put into words between two turns of the event loop (safety rule S22)."""

CANCELLED: Final = "CANCELLED"
"""Result of what a call named whose client gave it up."""

_DENIED: Final = frozenset(reason_of(code) for code in FAILED.values())
"""Results that the authorizer has written down itself, with the rule that decided."""

Handler = Callable[[Any, Any], Awaitable[Any]]


class AuditedServicer:
    """A servicer of AdminService whose changes are written down. Has the methods of the one within."""

    def __init__(self, servicer: object, audit: AuditLog) -> None:
        """Only assigns."""
        self._servicer: Final = servicer
        self._audit: Final = audit

    def __getattr__(self, name: str) -> Any:
        """A call of the servicer within."""
        handler: Handler = getattr(self._servicer, name)
        return partial(self._call, name, handler)

    async def _call(self, name: str, handler: Handler, request: Any, context: Any) -> Any:
        if not is_change(name, request):
            return await handler(request, context)
        try:
            answer = await handler(request, context)
        except RegnumError as error:
            # Who is no controller has changed nothing; whoever is asked next writes its own line.
            if error.code != errors_pb2.ERROR_CODE_NOT_CONTROLLER:
                await self._write(name, request, None, result=reason_of(error.code))
            raise
        except TimeoutError:
            await self._write(name, request, None, result=reason_of(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT))
            raise
        except asyncio.CancelledError:
            # Without a further turn of the loop: this task has none left.
            self._take_down(name, request, tuple(_with(CANCELLED, outcomes(name, request, None))))
            raise
        await self._write(name, request, answer)
        return answer

    async def _write(self, name: str, request: Any, answer: Message | None, *, result: str = "") -> None:
        items = outcomes(name, request, answer)
        async for some in slices(_with(result, items) if result else items, ITEMS_PER_TURN):
            self._take_down(name, request, tuple(item for item in some if item.result not in _DENIED))

    def _take_down(self, name: str, request: Any, items: tuple[Mutated, ...]) -> None:
        if items:
            self._audit.mutated(caller(), f"AdminService/{name}", items, client_id=request.header.client_id)


def _with(result: str, items: Any) -> Any:
    return (replace(item, result=result) for item in items)
