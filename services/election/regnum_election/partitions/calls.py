"""CreatePartitions and DeletePartitions as callers meet them: admitted first, then queued, then waited for.

Admission is that of topics (``topics.calls``): what adds partitions is charged with the new ones, what removes them
with those that go; what is only checked, what was done before and what is refused anyway costs nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from regnum_model.ids import PartitionKey, TopicId
from regnum_service.slices import Turns
from regnum_telemetry import tracing

from regnum_election.admission.admissions import Admissions, Cost
from regnum_election.admission.stand_in import Account
from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import CREATION, DELETION
from regnum_election.partitions.addition import (
    AdditionCall,
    AdditionOutcome,
    add_partitions,
    added,
    on_its_way_out,
    still_adding,
)
from regnum_election.partitions.giving_up import GivingUp
from regnum_election.partitions.removal import PartitionRemover, RemovalCall, RemovalOutcome, Removed
from regnum_election.partitions.requests import (
    Addition,
    AdditionRequest,
    Done,
    RemovalPlan,
    RemovalRequest,
    plan_addition,
    plan_removal,
)
from regnum_election.reign.request_queue import RequestQueue, beside
from regnum_election.state.context import ControllerContext
from regnum_election.topics.calls import METADATA_PATIENCE_S, NOT_ADMITTED_IN_TIME, TOPICS_PER_TURN
from regnum_election.topics.charging import Answered, Charged, Charging, Kind, Mark, mark_of, throttled
from regnum_election.topics.requests import PARTITIONS_MAX, repeated_names

T = TypeVar("T")

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions that are placed, or looked at, between two turns of the event loop (safety rule S22)."""

ANSWER_S: Final = 0.5
"""What is kept back of a caller's time when it waits for removed partitions to be gone: it is told so in time."""

OTHERS_PATIENCE_S: Final = 1.0
"""How long a call of several topics waits for removed partitions of any of them."""


class PartitionCalls:
    """Partitions of topics on behalf of callers; one for each reign."""

    def __init__(
        self, context: ControllerContext, *, remover: PartitionRemover, requests: RequestQueue, admissions: Admissions
    ) -> None:
        """Only assigns."""
        self.giving_up: Final = GivingUp(context, remover, requests)
        """Partitions of which what is recorded cannot be read, and that a person gives up."""
        self._context: Final = context
        self._remover: Final = remover
        self._requests: Final = requests
        self._charging: Final = Charging(context, admissions)

    async def add(
        self,
        requests: Sequence[AdditionRequest],
        *,
        validate_only: bool,
        wait_s: float,
        account: Account,
        who: str = "",
    ) -> Answered[AdditionOutcome]:
        """Add partitions and wait until they are led, at most ``wait_s``. Raises RegnumError.

        Numbers of removed partitions are waited for until every broker has deleted these. ``who`` is for the event log.
        """
        deadline_s = self._context.clock.monotonic() + wait_s
        result: asyncio.Future[tuple[AdditionOutcome, ...]] = asyncio.get_running_loop().create_future()
        reason = CREATION.asked_by(who, tracing.current())
        call = AdditionCall(requests=requests, validate_only=validate_only, result=result, reason=reason)
        marks: list[Mark] = []
        wait_until_s = self._context.clock.monotonic()
        try:
            if not validate_only:
                # Of several topics one must not use up the time of the others: whoever calls repeats what is left open.
                patience_s = wait_s - ANSWER_S if len(requests) == 1 else min(wait_s - ANSWER_S, OTHERS_PATIENCE_S)
                await self._wait_until_free(requests, patience_s)
                left_s = self._left_s(deadline_s)
                wait_until_s = await beside(self._admit(call, account, marks), left_s, late=NOT_ADMITTED_IN_TIME)
                if len(call.outcomes) == len(requests):
                    return self._answered(_in_order(call.outcomes, len(requests)), wait_until_s)
            steps = self._charging.releasing(add_partitions(self._context, call), tuple(marks))
            self._requests.submit("add partitions", steps, result, begun=lambda: call.begun)
            marks.clear()
        finally:
            self._charging.leave(marks)
        try:
            outcomes = await self._requests.answer(result, self._left_s(deadline_s))
            await self._wait_led(call.keys, self._left_s(deadline_s))
            unled = {key.topic_id for key in call.keys if not self._context.dispatch.is_led(key)}
            named = zip(requests, outcomes, strict=True)
            return self._answered(tuple(self._still(unled, request, one) for request, one in named), wait_until_s)
        finally:
            self._context.dispatch.forget(call.keys)

    async def remove(
        self, requests: Sequence[RemovalRequest], *, validate_only: bool, wait_s: float, account: Account, who: str = ""
    ) -> Answered[RemovalOutcome]:
        """Remove partitions and wait until nobody can write to them, at most ``wait_s``. Raises RegnumError.

        Brokers delete their files after that. ``who`` is for the event log.
        """
        deadline_s = self._context.clock.monotonic() + wait_s
        result: asyncio.Future[tuple[RemovalOutcome, ...]] = asyncio.get_running_loop().create_future()
        reason = DELETION.asked_by(who, tracing.current())
        call = RemovalCall(requests=requests, validate_only=validate_only, result=result, reason=reason)
        marks: list[Mark] = []
        wait_until_s = self._context.clock.monotonic()
        try:
            if not validate_only:
                wait_until_s = await beside(
                    self._admit_removal(call, account, marks), wait_s, late=NOT_ADMITTED_IN_TIME
                )
                if len(call.outcomes) == len(requests):
                    return self._answered(_in_order(call.outcomes, len(requests)), wait_until_s)
            steps = self._charging.releasing(self._remover.remove_partitions(call), tuple(marks))
            self._requests.submit("remove partitions", steps, result, begun=lambda: call.begun)
            marks.clear()
        finally:
            self._charging.leave(marks)
        outcomes = await self._requests.answer(result, self._left_s(deadline_s))
        return self._answered(outcomes, wait_until_s)

    async def _wait_until_free(self, requests: Sequence[AdditionRequest], wait_s: float) -> None:
        """Until removed partitions of these numbers are gone everywhere, if that is soon."""
        turns = Turns(TOPICS_PER_TURN)
        try:
            async with asyncio.timeout(max(wait_s, 0.0)):
                for request in requests:
                    topic = self._context.picture.topic_named(request.name)
                    if topic is not None:
                        total = request.total or len(topic.partitions) + len(request.assignment)
                        await self._context.removals.wait_closed(topic.id, range(len(topic.partitions), total))
                    await turns.took()
        except TimeoutError:
            # It is refused with the names of those who have not confirmed.
            return

    async def _admit(self, call: AdditionCall, account: Account, marks: list[Mark]) -> float:
        """Settle what needs no work and what is refused; returns the time until which the caller should wait."""
        context = self._context
        self._requests.require_room()
        await context.store.until_connected()
        if not await self._charging.applies_to(account):
            return context.clock.monotonic()
        repeated = repeated_names([request.name for request in call.requests])
        charged: list[Charged] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for i, request in enumerate(call.requests):
            await turns.took(1 + min(max(request.total, len(request.assignment)), PARTITIONS_MAX))
            planned = plan_addition(
                request, context.picture, repeated=repeated, clearing=context.clearing, refused=context.refused
            )
            match planned:
                case Rejection():
                    call.outcomes[i] = planned
                case Done(topic=topic):
                    call.outcomes[i] = added(context, topic)
                    await turns.took(len(topic.partitions))
                case Addition() if (refusal := on_its_way_out(context, planned)) is not None:
                    call.outcomes[i] = refusal
                case Addition():
                    cost = Cost(name=request.name, permits=len(planned.assignment))
                    mark = mark_of(Kind.ADDITION, cost, request.mutation, account)
                    if not self._charging.is_paid(mark, marks):
                        charged.append(Charged(index=i, cost=cost, mark=mark))
        refused, verdict = await self._charging.judge(charged, account, marks)
        for one in refused:
            call.outcomes[one.index] = throttled(f"topic {one.cost.name} got no partitions", account, verdict)
        return context.clock.monotonic() + verdict.throttle_ms / 1000

    async def _admit_removal(self, call: RemovalCall, account: Account, marks: list[Mark]) -> float:
        context = self._context
        self._requests.require_room()
        await context.store.until_connected()
        if not await self._charging.applies_to(account):
            return context.clock.monotonic()
        repeated = repeated_names([request.name for request in call.requests])
        charged: list[Charged] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for i, request in enumerate(call.requests):
            await turns.took(1 + len(request.partitions))
            planned = plan_removal(
                request, context.picture, repeated=repeated, clearing=context.clearing, refused=context.refused
            )
            match planned:
                case Rejection():
                    call.outcomes[i] = planned
                case Done(topic=topic):
                    call.outcomes[i] = Removed(total=len(topic.partitions))
                case RemovalPlan():
                    cost = Cost(name=request.name, permits=len(planned.brokers))
                    mark = mark_of(Kind.REMOVAL, cost, request.mutation, account)
                    if not self._charging.is_paid(mark, marks):
                        charged.append(Charged(index=i, cost=cost, mark=mark))
        refused, verdict = await self._charging.judge(charged, account, marks)
        for one in refused:
            call.outcomes[one.index] = throttled(f"topic {one.cost.name} keeps its partitions", account, verdict)
        return context.clock.monotonic() + verdict.throttle_ms / 1000

    def _still(self, unled: set[TopicId], request: AdditionRequest, outcome: AdditionOutcome) -> AdditionOutcome:
        id = self._context.picture.names.get(request.name)
        if isinstance(outcome, Rejection) or id not in unled:
            return outcome
        return still_adding(request.name)

    async def _wait_led(self, keys: Sequence[PartitionKey], left_s: float) -> None:
        try:
            async with asyncio.timeout(left_s):
                await self._context.dispatch.led(keys)
                if keys:
                    # A courtesy to the caller's next request; the leaders know already.
                    metadata = self._context.metadata
                    await metadata.everywhere(metadata.version, METADATA_PATIENCE_S)
        except TimeoutError:
            return

    def _left_s(self, deadline_s: float) -> float:
        return max(deadline_s - self._context.clock.monotonic(), 0.0)

    def _answered(self, outcomes: tuple[T, ...], wait_until_s: float) -> Answered[T]:
        return Answered(outcomes=outcomes, throttle_ms=self._charging.left_ms(wait_until_s))


def _in_order(outcomes: dict[int, T], count: int) -> tuple[T, ...]:
    return tuple(outcomes[i] for i in range(count))
