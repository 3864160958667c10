"""How clients that exceed a quota are slowed down (KIP-13, KIP-124, KIP-219): told to wait, and held if they do not.

What was asked is done and answered at once; the answer says how long to wait, and for so long further calls of the same
kind of that connection are held before they are read (``regnum_service.muting``). A Consume stream waits by itself. A
fetch keeps the records that were read for it (Kafka throws them away and has them asked for again): what it took
counts, and makes the next one wait for longer.

Nobody gets around it by hanging up: what was sent counts when its sender does, what goes out on a Consume stream counts
before it does, and a stream whose account is over its quota waits before it reads.
"""

from collections.abc import Awaitable
from typing import Any, Final

from regnum_model.quotas import (
    CONSUMER_BYTE_RATE,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from regnum_service.access.identity import caller
from regnum_service.clock import Clock
from regnum_service.gates import Gate
from regnum_service.muting import Muting

from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.loop_time import Timed

LOG_SERVICE: Final = "/regnum.broker.v1.LogService/"
METHODS: Final = {
    PRODUCER_BYTE_RATE: frozenset({f"{LOG_SERVICE}Produce", f"{LOG_SERVICE}ProduceStream"}),
    CONSUMER_BYTE_RATE: frozenset({f"{LOG_SERVICE}Fetch", f"{LOG_SERVICE}Consume"}),
}
"""Calls that are held for a rate; for the time of the loop it is all of them."""
CLIENT_ID_LENGTH_MAX: Final = NAME_LENGTH_MAX + 1
"""Characters that are kept of a client id: longer ones than a quota may name fall under the defaults, cut or not."""
TIME_WAIT_S_MAX: Final = 1.0
"""Whoever took too much of the loop's time waits for one window at most at a time (as in Kafka)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class Throttling:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, quotas: ClientQuotas, *, clock: Clock) -> None:
        """Only assigns. The user of a call is its caller's principal (``access.identity``)."""
        self._quotas: Final = quotas
        self._clock: Final = clock
        self._mutings: Final = {
            PRODUCER_BYTE_RATE: Muting(clock, applies=METHODS[PRODUCER_BYTE_RATE].__contains__),
            CONSUMER_BYTE_RATE: Muting(clock, applies=METHODS[CONSUMER_BYTE_RATE].__contains__),
            REQUEST_PERCENTAGE: Muting(clock),
        }

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What holds calls."""
        return tuple(self._mutings.values())

    @property
    def held(self) -> int:
        """Calls that are held."""
        return sum(muting.held for muting in self._mutings.values())

    def limits(self, rate: str) -> bool:
        """Whether anybody has such a quota."""
        return self._quotas.limits(rate)

    def note(self, rate: str, context: Context, client_id: str, value: float) -> int:
        """A call has done so much; holds its connection if that is too much.

        Returns how long its caller is to wait, in milliseconds, for the answer.
        """
        wait_s = self.wait_s(rate, client_id, value)
        if not wait_s:
            return 0
        if rate == REQUEST_PERCENTAGE:
            wait_s = min(wait_s, TIME_WAIT_S_MAX)
        self._mutings[rate].mute(context.peer(), wait_s)
        return max(1, round(wait_s * 1000))

    def wait_s(self, rate: str, client_id: str, value: float) -> float:
        """The same for a call that waits by itself."""
        if not self._quotas.limits(rate):
            return 0.0
        user = caller().principal.name
        return self._quotas.wait_s(rate, user, client_id[:CLIENT_ID_LENGTH_MAX], value, self._clock.monotonic())

    def until_s(self, rate: str, client_id: str, value: float) -> float:
        """The same as a moment, for ``pause_until``: what is done before it comes does not have to be waited for."""
        return self._clock.monotonic() + self.wait_s(rate, client_id, value)

    @property
    def is_on(self) -> bool:
        """Whether the time of calls is to be measured."""
        return self._quotas.limits(REQUEST_PERCENTAGE)

    async def measured(self, context: Context, request: Any, call: Awaitable[Any]) -> Any:
        """The answer to a call; its throttle time is at least what the time of the loop asks for."""
        timed = Timed(call, self._clock.monotonic)
        client_id = getattr(getattr(request, "header", None), "client_id", "")
        try:
            answer = await timed
        except BaseException:
            # A call that is refused, or that its caller gives up, took its time too.
            self.note(REQUEST_PERCENTAGE, context, client_id, 100.0 * timed.spent_s)
            raise
        wait_ms = self.note(REQUEST_PERCENTAGE, context, client_id, 100.0 * timed.spent_s)
        if wait_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = max(answer.throttle_time_ms, wait_ms)
        return answer

    def is_over(self, until_s: float) -> bool:
        """Whether that moment has come."""
        return until_s <= self._clock.monotonic()

    async def pause_until(self, until_s: float) -> None:
        """Wait for that moment."""
        await self._clock.sleep(max(0.0, until_s - self._clock.monotonic()))
