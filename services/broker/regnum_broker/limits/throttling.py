"""How clients that exceed a quota are slowed down (KIP-13, KIP-124, KIP-219): told to wait, and held if they do not.

The first request beyond a quota is done and answered at once; the answer says how long to wait, and for so long further
calls of the same kind of that connection are held before they are read (``regnum_service.muting``). A fetch keeps the
records that were read for it (Kafka throws them away and has them asked for again): what it took counts, and makes the
next one wait for longer.

Nobody gets around it on another connection, or by hanging up. While an entity owes time (``ClientQuotas.debt``), a
Fetch is answered without records, whichever connection it came by, and a Consume stream waits; nothing is read for
either. What is sent counts before it is appended, and is refused where its entity owes for more than it is large:
so two requests may be beyond the quota, and the one that comes while the first is on its way is not sent twice. What
goes out on a Consume stream counts before it does.

Example, 1 MiB/s: a fetch of 20 MiB on a new connection is answered, and nobody of that entity reads anything for the
next 10 s, nor is forgiven when the windows have passed.

Connections of an entity that owes for what it sent share what comes free (``connection_shares``): each waits for what
came by itself, and who sends little gets in beside who sends much.
"""

from collections.abc import Awaitable, Collection, Mapping
from typing import Any, Final

from regnum.types.v1 import errors_pb2
from regnum_model.api_versions import ADMIN_SERVICE
from regnum_model.quotas import (
    CONSUMER_BYTE_RATE,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from regnum_model.quotas import RATE_KEY as MUTATION_RATE
from regnum_service.clock import Clock
from regnum_service.connections import incarnations
from regnum_service.errors import RegnumError
from regnum_service.gates import Gate
from regnum_service.limits.call import Call
from regnum_service.muting import Muting, forget_departed

from regnum_broker.limits.client_quotas import ClientQuotas, Debt
from regnum_broker.limits.loop_time import Timed

LOG_SERVICE: Final = "/regnum.broker.v1.LogService/"
METHODS: Final = {
    PRODUCER_BYTE_RATE: frozenset({f"{LOG_SERVICE}Produce", f"{LOG_SERVICE}ProduceStream"}),
    CONSUMER_BYTE_RATE: frozenset({f"{LOG_SERVICE}Fetch", f"{LOG_SERVICE}Consume"}),
}
"""Calls that are held for a rate; for the time of threads it is all of them."""
CLIENT_ID_LENGTH_MAX: Final = NAME_LENGTH_MAX + 1
"""Characters that are kept of a client id: longer ones than a quota may name fall under the defaults, cut or not."""
TIME_WAIT_S_MAX: Final = 1.0
"""Whoever took too much of the broker's time waits for one window at most at a time (as in Kafka)."""


def _entity(call: Call) -> tuple[str, str]:
    """User and client id, as quotas name them."""
    return call.principal.name, call.client_id[:CLIENT_ID_LENGTH_MAX]


class Throttling:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, quotas: ClientQuotas, *, clock: Clock) -> None:
        """Only assigns. The user of a call is its principal."""
        self._quotas: Final = quotas
        self._clock: Final = clock
        self._mutings: Final = {
            PRODUCER_BYTE_RATE: Muting(clock, applies=METHODS[PRODUCER_BYTE_RATE].__contains__),
            CONSUMER_BYTE_RATE: Muting(clock, applies=METHODS[CONSUMER_BYTE_RATE].__contains__),
            REQUEST_PERCENTAGE: Muting(clock),
            MUTATION_RATE: Muting(clock, applies=lambda method: method.startswith(ADMIN_SERVICE)),
        }

    def mute_mutations(self, call: Call, wait_ms: int) -> None:
        """The controller says that this connection has to wait before its next call of administration."""
        self._mutings[MUTATION_RATE].mute(call.peer, wait_ms / 1000)

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What holds calls."""
        return tuple(self._mutings.values())

    @property
    def held(self) -> int:
        """Calls that are held."""
        return sum(muting.held for muting in self._mutings.values())

    async def watch(self, *ports: int) -> None:
        """Forget connections at these ports that are gone, for ever; a task of the supervisor."""

        def look(names: Collection[str]) -> Mapping[str, int] | None:
            found: dict[str, int] = {}
            for port in ports:
                at_port = incarnations(port, names)
                if at_port is None:
                    return None
                found.update(at_port)
            return found

        await forget_departed((*self._mutings.values(), self._quotas), look, self._clock)

    def limits(self, rate: str) -> bool:
        """Whether anybody has such a quota."""
        return self._quotas.limits(rate)

    def note(self, rate: str, call: Call, value: float) -> int:
        """A call has done so much; holds its connection if that is too much.

        Returns how long its caller is to wait, in milliseconds, for the answer.
        """
        wait_s = self.wait_s(rate, call, value)
        if rate == REQUEST_PERCENTAGE:
            wait_s = min(wait_s, TIME_WAIT_S_MAX)
        return self.hold(rate, call, wait_s)

    def charge_thread(self, call: Call, seconds: float) -> None:
        """A thread has worked so long for a call, which may be over; holds its connection as ``note`` does.

        An answer that is still to come says so (``measured``).
        """
        if not self.is_on:
            return
        wait_s = self._quotas.wait_s(REQUEST_PERCENTAGE, *_entity(call), 100.0 * seconds, self._clock.monotonic())
        if wait_s:
            self._mutings[REQUEST_PERCENTAGE].mute(call.peer, min(wait_s, TIME_WAIT_S_MAX))

    def wait_s(self, rate: str, call: Call, value: float) -> float:
        """The same for a call that waits by itself."""
        if not self._quotas.limits(rate):
            return 0.0
        return self._quotas.wait_s(rate, *_entity(call), value, self._clock.monotonic())

    def debt(self, rate: str, call: Call) -> Debt:
        """What the entity of a call owes already."""
        return self._quotas.debt(rate, *_entity(call), self._clock.monotonic())

    def sent(self, call: Call, size_bytes: int) -> int:
        """A call has sent so much; holds its connection if that is too much, as ``note`` does."""
        wait_s = self._quotas.sent_s(*_entity(call), call.peer, size_bytes, self._clock.monotonic())
        return self.hold(PRODUCER_BYTE_RATE, call, wait_s)

    def refused_s(self, call: Call, size_bytes: int) -> float:
        """How long the connection of a call has to wait before it sends so much; 0: it may."""
        return self._quotas.refused_s(*_entity(call), call.peer, size_bytes, self._clock.monotonic())

    def reading(self, call: Call) -> "ReadQuota":
        """The quota of a call that reads."""
        return ReadQuota(self, call)

    def writing(self, call: Call) -> "WriteQuota":
        """The quotas of a call that writes."""
        return WriteQuota(self, call)

    def most(self, rate: str, call: Call) -> float:
        """As much as the quota of a call's entity allows in all its windows; infinite without one."""
        return self._quotas.most(rate, *_entity(call))

    def time_owed_s(self, call: Call) -> float:
        """For so long the connection of a call is held because too much time was taken for it."""
        return self._mutings[REQUEST_PERCENTAGE].left_s(call.peer)

    def hold(self, rate: str, call: Call, wait_s: float) -> int:
        """Hold the connection of a call whose entity owes that much time; the same in milliseconds, for the answer."""
        if not wait_s:
            return 0
        self._mutings[rate].mute(call.peer, wait_s)
        return max(1, round(wait_s * 1000))

    @property
    def clock(self) -> Clock:
        """By which quotas go."""
        return self._clock

    def monotonic(self) -> float:
        """Seconds of that clock."""
        return self._clock.monotonic()

    @property
    def is_on(self) -> bool:
        """Whether the time of calls is to be measured."""
        return self._quotas.limits(REQUEST_PERCENTAGE)

    async def measured(self, call: Call, request: Any, answering: Awaitable[Any]) -> Any:
        """The answer to a call; its throttle time is at least what the time that was taken for it asks for."""
        timed = Timed(answering, self._clock.monotonic)
        client_id = getattr(getattr(request, "header", None), "client_id", call.client_id)
        # (Its handler may be done with it long before the answer is there.)
        del request
        try:
            answer = await timed
        finally:
            # A call that is refused, or that its caller gives up, took its time too.
            wait_ms = self.note(REQUEST_PERCENTAGE, call.named(client_id), 100.0 * timed.spent_s)
        if wait_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = max(answer.throttle_time_ms, wait_ms)
        return answer

    async def pause_until(self, until_s: float) -> None:
        """Wait for that moment."""
        await self._clock.sleep(max(0.0, until_s - self._clock.monotonic()))


class ReadQuota:
    """What a call of Fetch or Consume may read. Belongs to the event loop."""

    __slots__ = ("_call", "_throttling")

    def __init__(self, throttling: Throttling, call: Call) -> None:
        """Only assigns."""
        self._throttling: Final = throttling
        self._call: Final = call

    @property
    def most_bytes(self) -> float:
        """No answer is to be larger: it would only have to be waited for."""
        return self._throttling.most(CONSUMER_BYTE_RATE, self._call)

    @property
    def owed_s(self) -> float:
        """For so long nothing is to be read."""
        return self._throttling.debt(CONSUMER_BYTE_RATE, self._call).wait_s

    async def wait(self) -> None:
        """Return when something may be read, whatever others of the entity read meanwhile.

        What a stream's own threads have taken too much of is waited for as well: no gate holds what it sends.
        """
        while wait_s := max(self.owed_s, self._throttling.time_owed_s(self._call)):
            await self._throttling.pause_until(self._throttling.monotonic() + wait_s)

    def charge(self, size_bytes: int) -> None:
        """So much goes out; for streams, which wait by themselves."""
        if size_bytes:
            self._throttling.wait_s(CONSUMER_BYTE_RATE, self._call, size_bytes)

    def answered(self, size_bytes: int) -> int:
        """So much goes out as the answer to a call; returns for how long to wait, in milliseconds, and holds it."""
        self.charge(size_bytes)
        return self._throttling.hold(CONSUMER_BYTE_RATE, self._call, self.owed_s)


class WriteQuota:
    """What a call of Produce or ProduceStream may send. Belongs to the event loop."""

    __slots__ = ("_call", "_throttling")

    def __init__(self, throttling: Throttling, call: Call) -> None:
        """Only assigns."""
        self._throttling: Final = throttling
        self._call: Final = call

    @property
    def is_on(self) -> bool:
        """Whether there is anything to measure: to find out how large a message is takes as long as to copy it."""
        return self._throttling.limits(PRODUCER_BYTE_RATE)

    def check(self, client_id: str, size_bytes: int) -> None:
        """Let a message of that size in. Raises RegnumError where it has to wait: THROTTLING.

        That is where its entity owes for more than the message, and its connection has used up its share.
        """
        if not self.is_on:
            return
        wait_s = self._throttling.refused_s(self._call.named(client_id), size_bytes)
        if wait_s:
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                "what clients under this quota of producer_byte_rate have sent, by this connection and others, is to be"
                " waited for first; nothing of this was appended: wait, and send it again",
                retry_after_ms=self._throttling.hold(PRODUCER_BYTE_RATE, self._call, wait_s),
            )

    def charge(self, client_id: str, size_bytes: int) -> float:
        """So much has come; returns until when its sender is to wait, for ``left_ms``, and holds its connection."""
        if not self.is_on or not size_bytes:
            return 0.0
        wait_ms = self._throttling.sent(self._call.named(client_id), size_bytes)
        return self._throttling.monotonic() + wait_ms / 1000 if wait_ms else 0.0

    def left_ms(self, until_s: float) -> int:
        """How much of that is left when the answer goes out, or of what was taken too much of time, in milliseconds."""
        left_s = until_s - self._throttling.monotonic() if until_s else 0.0
        return max(0, round(max(left_s, self._throttling.time_owed_s(self._call)) * 1000))
