"""Calls as gRPC brings them."""

from collections.abc import Callable
from typing import Any, Final

from regnum_service.access.identity import caller
from regnum_service.clock import Clock, SystemClock
from regnum_service.limits.call import DEADLINE_NONE, Call

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


def _unpaid(*, peer: str, **who: Any) -> Call:
    return Call(peer=peer, **who)


class GrpcCalls:
    """Makes them, for one listener."""

    def __init__(self, make: Callable[..., Call] = _unpaid, clock: Clock | None = None) -> None:
        """Only assigns.

        Args:
            make: of whoever pays for them (``Budget.call``).
            clock: deadlines are times of it; None: the machine's.
        """
        self._make: Final = make
        self._clock: Final = clock or SystemClock()

    def of(self, context: Context, client_id: str = "") -> Call:
        """The call that is being served, which ends with its context. ``client_id``: as its request says."""
        remaining_s = context.time_remaining()
        call = self._make(
            peer=context.peer(),
            principal=caller().principal,
            client_id=client_id,
            deadline_s=DEADLINE_NONE if remaining_s is None else self._clock.monotonic() + remaining_s,
        )
        context.add_done_callback(lambda _: call.leave())
        return call
