"""Stopping in order: ask the controller first, serve on until it lets the broker go, then close the logs.

Goals: no partition falls below min.insync.replicas because a broker stops; what is led here is led elsewhere before
this broker is gone; whoever stops a broker need not wait longer than it said it would.

Constraints
    - Until the controller has answered, nothing is given up: what is followed here acknowledges, what is led is served.
    - A broker that has let go must not enter an in-sync set again (defect D11). Leaders know nothing of who is leaving.
      So what it led it does not follow while it asks; and when it may go, it stops following, and then asks once more:
      what it had entered again in between it leaves for good.
    - Nothing depends on all this. A broker that is killed, or whose network is gone, is found out by its lifeline.

Algorithm: while there is time, ask to go with ``can_wait``. The controller refuses, and takes nothing, while a
partition would have too few in-sync replicas; it is asked again in a second. When the time is over, or a second signal
comes, ask without ``can_wait``: leadership moves where it can. Whichever controller there is is asked, and asked again.
Where none answers and no process is registered that could become one, and that for ``DESERTED_S``, everything is being
stopped: then it goes too. A store that does not say so says nothing.

Example: three brokers, min.insync.replicas 2. 1 has been restarted and copies a backlog; 2 gets SIGTERM. The controller
names the partitions that would be left with 3 alone, so 2 serves on. 1 catches up; 2 is let go.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of

from regnum_broker.cluster.controller import CALL_TIMEOUT_S, ControllerCalls
from regnum_broker.cluster.fence import Fence
from regnum_broker.replication.fetchers import Fetchers

T = TypeVar("T")

KEPT_GRACE_S: Final = 20.0
"""What is kept of the time until the broker is killed: for leadership that moves after all, and for flushing logs."""

HAND_OVER_TIMEOUT_S: Final = 6.0
"""How long to wait for a controller when the broker goes in any case."""

REMAINING_PATIENCE_S: Final = 1.0
"""How long to wait for replicas that may lead what nobody else could."""

REMAINING_INTERVAL_S: Final = 0.2

ASK_INTERVAL_S: Final = 1.0
"""Time between two questions whether the broker may go."""

ASK_TIMEOUT_S: Final = 2 * CALL_TIMEOUT_S
"""How long to look for a controller before it is asked anew, and whether there will be one."""

DESERTED_S: Final = 30.0
"""How long neither a controller nor any election process was there before nobody is waited for: a single one that is
restarted, or was killed with its Pod, is back by then. No other broker goes meanwhile in a rolling restart: without a
controller none becomes ready.
"""


class ControlledShutdown:
    """Moves leadership away from a broker that stops."""

    def __init__(
        self,
        *,
        broker: BrokerId,
        fence: Fence,
        calls: ControllerCalls,
        fetchers: Fetchers,
        clock: Clock,
        grace_s: float,
        hurried: asyncio.Event,
        is_deserted: Callable[[], Awaitable[bool]],
    ) -> None:
        """Only assigns.

        Args:
            broker: this one.
            fence: its registration.
            calls: to the controller.
            fetchers: what it follows.
            clock: source of time.
            grace_s: time from the beginning of ``run`` until the broker is killed; 0: it does not wait.
            hurried: set when the broker is to go at once.
            is_deserted: whether the store says that no election process is registered; False also when nobody knows.
        """
        self._broker: Final = broker
        self._fence: Final = fence
        self._calls: Final = calls
        self._fetchers: Final = fetchers
        self._clock: Final = clock
        self._wait_s: Final = max(grace_s - KEPT_GRACE_S, 0.0)
        self._hurried: Final = hurried
        self._is_deserted: Final = is_deserted
        self._log: Final = structlog.get_logger("shutdown")

    @property
    def timeout_s(self) -> float:
        """Time after which ``run`` has ended, whatever the controller does."""
        return self._wait_s + HAND_OVER_TIMEOUT_S + REMAINING_PATIENCE_S + 3 * CALL_TIMEOUT_S

    async def run(self) -> None:
        """Ask until the broker may go, or its time is over; then give everything up."""
        try:
            if not await self._may_go():
                self._fetchers.hold()
                hurried = self._hurried.is_set()
                await self._hand_over(
                    timeout_s=CALL_TIMEOUT_S if hurried else HAND_OVER_TIMEOUT_S,
                    patience_s=0.0 if hurried else REMAINING_PATIENCE_S,
                )
            await self._fetchers.stop()
            await self._hand_over(timeout_s=CALL_TIMEOUT_S, patience_s=0.0)
        except RegnumError as error:
            self._log.warning("stopping without handing leadership over", reason=str(error))
        finally:
            await self._fetchers.stop()

    async def _may_go(self) -> bool:
        """Whether the controller has let the broker go; False when it was asked no more."""
        began_s = self._clock.monotonic()
        held: tuple[int, tuple[str, ...]] | None = None
        deserted = _Deserted(self._is_deserted, self._clock)
        while (left_s := began_s + self._wait_s - self._clock.monotonic()) > 0 and not self._hurried.is_set():
            self._fetchers.hold()
            try:
                answer = await self._unless_hurried(self._ask(can_wait=True, timeout_s=min(left_s, ASK_TIMEOUT_S)))
            except RegnumError as error:
                if not error.traits.retriable or await self._unless_hurried(deserted.unheard(error)):
                    self._log.warning("going: no controller will say whether this broker may", reason=str(error))
                    return False
                await self._unless_hurried(self._clock.sleep(min(ASK_INTERVAL_S, left_s)))
                continue
            if answer is None:
                break
            deserted.heard()
            if answer.error_code == errors_pb2.ERROR_CODE_NONE:
                if not answer.below_min_isr:
                    waited_s = self._clock.monotonic() - began_s
                    self._log.info("the controller lets this broker go", waited_s=round(waited_s, 1))
                    return True
                now_held = answer.below_min_isr, tuple(f"{one.topic}/{one.partition}" for one in answer.held)
                if held is None or held[0] != now_held[0]:
                    self._log.info("serving on: partitions would fall below min ISR", **_named(now_held))
                held = now_held
            self._fetchers.release()
            await self._unless_hurried(self._clock.sleep(min(ASK_INTERVAL_S, left_s)))
        if held is not None:
            self._log.warning(
                "going though partitions fall below min ISR", hurried=self._hurried.is_set(), **_named(held)
            )
        return False

    async def _hand_over(self, *, timeout_s: float, patience_s: float) -> None:
        """Have led elsewhere what can be, in any case. Raises RegnumError."""
        deadline_s = self._clock.monotonic() + patience_s
        while True:
            answer = await self._ask(can_wait=False, timeout_s=timeout_s)
            if answer is None:
                return
            if answer.error_code != errors_pb2.ERROR_CODE_NONE:
                self._log.warning("controlled shutdown refused", reason=reason_of(answer.error_code))
                return
            if not answer.remaining_partitions or self._clock.monotonic() >= deadline_s:
                self._log.info("leadership handed over", remaining=answer.remaining_partitions)
                return
            await self._clock.sleep(REMAINING_INTERVAL_S)

    async def _ask(self, *, can_wait: bool, timeout_s: float) -> controller_pb2.ControlledShutdownResponse | None:
        """Ask whoever is the controller; None: this broker is not registered, and in no in-sync set for long."""
        identity = self._fence.identity
        if identity is None:
            return None
        request = controller_pb2.ControlledShutdownRequest(
            broker_id=self._broker, broker_epoch=identity.broker_epoch, can_wait=can_wait
        )
        return await self._calls.call(
            lambda stub: stub.ControlledShutdown(request, timeout=CALL_TIMEOUT_S), timeout_s=timeout_s
        )

    async def _unless_hurried(self, waiting: Awaitable[T]) -> T | None:
        """What is waited for; None when a second signal comes first."""
        waited, hurried = asyncio.ensure_future(waiting), asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait((waited, hurried), return_when=asyncio.FIRST_COMPLETED)
            return await waited if waited.done() else None
        finally:
            for task in (waited, hurried):
                task.cancel()
            await asyncio.gather(waited, hurried, return_exceptions=True)


class _Deserted:
    """For how long nobody has been there who could let the broker go."""

    def __init__(self, is_deserted: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._is_deserted: Final = is_deserted
        self._clock: Final = clock
        self._since_s: float | None = None
        self._unheard = False
        self._log: Final = structlog.get_logger("shutdown")

    def heard(self) -> None:
        """A controller answered."""
        self._unheard, self._since_s = False, None

    async def unheard(self, error: RegnumError) -> bool:
        """No controller answered: whether it has been so for long, with nobody in the store at any look."""
        if not self._unheard:
            self._log.warning("no controller says whether this broker may go", reason=str(error))
        self._unheard = True
        now_s = self._clock.monotonic()
        if not await self._is_deserted():
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        return self._since_s is not None and now_s - self._since_s >= DESERTED_S


def _named(held: tuple[int, tuple[str, ...]]) -> dict[str, object]:
    return {"partitions": held[0], "first": list(held[1])}
