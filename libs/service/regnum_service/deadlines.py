"""How long a call may wait for something to happen, so that its caller still hears that nothing did."""

import math
from typing import Final, Protocol

ANSWER_MARGIN: Final = 0.1
"""Share of the time that is left which is kept back for the answer and both ways of the network: gRPC's deadline goes
by the caller's clock, and a server counts only from the arrival of the call."""
ANSWER_MARGIN_S_MIN: Final = 0.1
ANSWER_MARGIN_S_MAX: Final = 1.0


class TimedCall(Protocol):
    """What knows the deadline of a call: ``grpc.aio.ServicerContext``."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up; None: never."""


def waitable_s(call: TimedCall) -> float:
    """Seconds that a call may wait and still be answered in time: infinite without a deadline, and never negative.

    A tenth of the time left is kept back, at least 100 ms and at most a second, and never more than half of it.
    """
    remaining_s = call.time_remaining()
    return waitable_of(math.inf if remaining_s is None else remaining_s)


def waitable_of(remaining_s: float) -> float:
    """The same of the seconds until a caller gives up; infinite: it never does."""
    if math.isinf(remaining_s):
        return math.inf
    margin_s = min(max(remaining_s * ANSWER_MARGIN, ANSWER_MARGIN_S_MIN), ANSWER_MARGIN_S_MAX)
    return max(0.0, remaining_s - min(margin_s, remaining_s / 2))
