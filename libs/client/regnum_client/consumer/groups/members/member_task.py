"""Carries a member of a group through its life: ``membership`` decides, this calls, waits and reports back."""

import asyncio
import logging
import random
from collections import deque
from typing import Final

from regnum.broker.v1 import group_pb2
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.pace import may_pass
from regnum_client.consumer.groups.assignors import is_cooperative
from regnum_client.consumer.groups.coordinator import CoordinatorCalls
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.handover import Handover
from regnum_client.consumer.groups.leading import Leading
from regnum_client.consumer.groups.members.member import Member, Phase
from regnum_client.consumer.groups.members.member_calls import AGAIN_S, MemberCalls
from regnum_client.consumer.groups.members.member_events import (
    Action,
    Closed,
    Event,
    GiveUp,
    Join,
    Leave,
    PartitionsChanged,
    PollExpired,
    Refused,
    Sync,
    TakeUp,
)
from regnum_client.consumer.groups.members.membership import action_of, after
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.errors import MaxPollIntervalExceededError
from regnum_client.tasks import Tasks

_LOG: Final = logging.getLogger("regnum_client")


class MemberTask:
    """Of one consumer. Three tasks at most, besides what a listener does."""

    def __init__(
        self,
        calls: CoordinatorCalls,
        *,
        instance_id: str,
        gate: Gate,
        handover: Handover,
        leading: Leading,
        settings: ConsumerSettings,
        clock: Clock,
        chance: random.Random,
        tasks: Tasks,
    ) -> None:
        """Only assigns."""
        self._parts: Final = tasks
        self._calls: Final = calls
        self._instance_id: Final = instance_id
        self._gate: Final = gate
        self._handover: Final = handover
        self._leading: Final = leading
        self._member_calls: Final = MemberCalls(
            calls, instance_id=instance_id, leading=leading, settings=settings, clock=clock, chance=chance
        )
        self._settings: Final = settings
        self._clock: Final = clock
        self._chance: Final = chance
        self.member = Member(
            cooperative=is_cooperative(settings.partition_assignment_strategy), static=bool(instance_id)
        )
        """As it is now."""
        self._events: Final[deque[Event]] = deque()
        self._woken: Final = asyncio.Event()
        self._going_on: tuple[Action, asyncio.Task[Event]] | None = None
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._is_silent = False

    def start(self) -> None:
        """Begin."""
        self._tasks.append(self._parts.start("group-member", self._run()))
        self._tasks.append(self._parts.start("group-heartbeat", self._beat()))
        if self._settings.enable_auto_commit:
            self._tasks.append(self._parts.start("group-auto-commit", self._commit_often()))

    def tell(self, event: Event) -> None:
        """Something happened; what is known to wait is not said twice."""
        if event not in self._events:
            self._events.append(event)
            self._woken.set()
            if isinstance(event, Refused | PollExpired) and self._tasks and not self._tasks[0].done():
                # While partitions change hands it waits, and what it says holds all the same.
                self._gate.hold()

    def look(self) -> None:
        """There may be news of topics."""
        if self._leading.is_outdated:
            self.tell(PartitionsChanged())

    async def leave(self) -> None:
        """Give everything up, and leave the group, as far as its coordinator answers in time."""
        if self._tasks:
            self._gate.end()
            self.tell(Closed())
            settings = self._settings
            await asyncio.wait(self._tasks[:1], timeout=settings.commit_timeout_s + settings.request_timeout_s)

    async def close(self) -> None:
        """End what goes on, whether it has left or not."""
        tasks: list[asyncio.Task[None] | asyncio.Task[Event]] = [*self._tasks]
        if self._going_on is not None:
            tasks.append(self._going_on[1])
        self._tasks.clear()
        self._handover.keep(frozenset())
        await self._parts.end(*tasks)

    # What the state asks for.

    async def _run(self) -> None:
        try:
            while self.member.phase is not Phase.ENDED:
                await self._keep_going()
                self._set(after(self.member, await self._next_event()))
        finally:
            self._gate.settle()

    def _set(self, member: Member) -> None:
        if member.phase is not self.member.phase:
            _LOG.debug(
                "group %s: %s -> %s, generation %d",
                self._calls.group_id,
                self.member.phase.value,
                member.phase.value,
                member.generation,
            )
        self.member = member
        self._handover.keep(member.readable)
        if member.phase is Phase.ENDED and member.failure is not None:
            self._gate.fail(RegnumError(member.failure.code, member.failure.message))  # type: ignore[arg-type]

    async def _keep_going(self) -> None:
        """Let go on what the state asks for, and nothing else."""
        action = action_of(self.member)
        if self._going_on is not None:
            if self._going_on[0] == action:
                return
            _, task = self._going_on
            self._going_on = None
            await self._parts.end(task)
            # It may just have been done.
            self._handover.keep(self.member.readable)
        if action is not None:
            task = self._parts.start(f"group-{type(action).__name__.lower()}", self._carry_out(action))
            task.add_done_callback(lambda _: self._woken.set())
            self._going_on = (action, task)

    async def _next_event(self) -> Event:
        """What has happened; the end of what goes on comes first, and partitions change hands without interruption."""
        while True:
            if self._going_on is not None and self._going_on[1].done():
                task = self._going_on[1]
                self._going_on = None
                return task.result()
            if self._events and not self._gate.acting:
                return self._events.popleft()
            if not self._events:
                self._gate.settle()
            self._woken.clear()
            await self._woken.wait()

    async def _carry_out(self, action: Action) -> Event:
        generation = self.member.generation
        try:
            match action:
                case Join():
                    return await self._member_calls.join(action)
                case Sync():
                    return await self._member_calls.sync(action)
                case GiveUp():
                    return await self._handover.give_up(action)
                case TakeUp():
                    return await self._handover.take_up(action)
                case Leave():
                    return await self._member_calls.leave(action)
        except RegnumError as error:
            await self._clock.sleep(AGAIN_S * (0.5 + self._chance.random()))
            return Refused(code=error.code, message=error.message, generation=generation)

    # What goes on beside.

    async def _beat(self) -> None:
        settings = self._settings
        expired = False
        while True:
            await self._clock.sleep(min(settings.heartbeat_interval_s, settings.session_timeout_s / 3))
            away_s = self._gate.away_s
            if away_s <= settings.max_poll_interval_s:
                expired = False
            elif not expired:
                expired = True
                self._expire(away_s)
            self._note_silence()
            member = self.member
            if not member.beats or expired:
                continue
            request = group_pb2.HeartbeatRequest(
                header=self._calls.header,
                group_id=self._calls.group_id,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=self._instance_id,
            )
            try:
                await self._calls.ask(lambda stub: stub.Heartbeat, request, timeout_s=settings.session_timeout_s)
            except RegnumError as error:
                if not may_pass(error):
                    self.tell(
                        Refused(
                            code=error.code,
                            message=error.message,
                            generation=member.generation,
                            aside=True,
                            member_id=member.member_id,
                        )
                    )

    def _note_silence(self) -> None:
        """Say once that a coordinator is away for long.

        Reading goes on, as in Kafka: it may be away for everybody, and where others were given this member's partitions
        meanwhile, that is a generation in which this one commits nothing.
        """
        silent_s, limit_s = self._clock.monotonic() - self._calls.heard_s, self._settings.session_timeout_s
        if silent_s <= limit_s or self.member.is_held:
            self._is_silent = False
        elif not self._is_silent and self.member.owned:
            self._is_silent = True
            _LOG.warning(
                "group %s: nothing was heard of a coordinator for %.0f s; reading goes on, others may read the same",
                self._calls.group_id,
                limit_s,
            )

    def _expire(self, away_s: float) -> None:
        if self.member.phase is Phase.ENDED:
            return
        error = MaxPollIntervalExceededError(
            group_id=self._calls.group_id, away_s=away_s, limit_s=self._settings.max_poll_interval_s
        )
        _LOG.warning("%s", error.message)
        self._gate.report(error)
        self.tell(PollExpired())

    async def _commit_often(self) -> None:
        while True:
            await self._clock.sleep(self._settings.auto_commit_interval_s)
            if self.member.owned and not (self.member.lost or self._gate.acting):
                await self._handover.commit_finished(self.member.readable)
