"""Calls as gRPC brings them, for the budget."""

import math
from typing import Any

from regnum_service.access.identity import caller
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


def call_of(budget: Budget, context: Context, client_id: str, now_s: float) -> Call:
    """The call that is being served, which ends with its context.

    Args:
        budget: pays for it.
        context: of gRPC.
        client_id: as its request says.
        now_s: monotonic time.
    """
    remaining_s = context.time_remaining()
    call = budget.call(
        peer=context.peer(),
        principal=caller().principal,
        client_id=client_id,
        deadline_s=math.inf if remaining_s is None else now_s + remaining_s,
    )
    context.add_done_callback(lambda _: call.leave())
    return call
