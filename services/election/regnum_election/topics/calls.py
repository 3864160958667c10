"""CreateTopics and DeleteTopics as callers meet them: admitted first, then queued, then waited for.

Admission happens in the caller's own coroutine, so that the controller's task never waits for the quota process. What
would be refused anyway, what was done before and what is only checked costs nothing; what is admitted is checked again
when its turn comes. What was not charged is not queued: it could be possible by then.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar, assert_never

from regnum.types.v1 import errors_pb2
from regnum_model.ids import PartitionKey, TopicId
from regnum_service.slices import Turns

from regnum_election.admission.admissions import Admissions, Cost
from regnum_election.admission.stand_in import Account
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.request_queue import RequestQueue, beside
from regnum_election.state.context import ControllerContext
from regnum_election.topics.charging import Answered, Charged, Charging, Kind, Mark, mark_of, throttled
from regnum_election.topics.creation import (
    PARTITIONS_PER_TURN,
    Created,
    Creation,
    CreationOutcome,
    create_topics,
    created,
    still_creating,
)
from regnum_election.topics.deletion import Deleted, DeletionCall, DeletionOutcome, TopicDeleter
from regnum_election.topics.requests import (
    DeletionRequest,
    Repeated,
    TopicRequest,
    find_topic,
    repeated_names,
    weigh_topic,
)

T = TypeVar("T")

METADATA_PATIENCE_S: Final = 0.5
"""How long an answer waits for metadata to reach every broker."""

TOPICS_PER_TURN: Final = 50
"""Topics that are looked at between two turns of the event loop (safety rule S22)."""

NOT_ADMITTED_IN_TIME: Final = "the request was not admitted in time and nothing was changed; try again"


class TopicCalls:
    """Topics on behalf of callers; one for each reign."""

    def __init__(
        self, context: ControllerContext, *, deleter: TopicDeleter, requests: RequestQueue, admissions: Admissions
    ) -> None:
        self._context = context
        self._deleter = deleter
        self._requests = requests
        self._charging: Final = Charging(context, admissions)

    async def create(
        self, requests: Sequence[TopicRequest], *, validate_only: bool, wait_s: float, account: Account
    ) -> Answered[CreationOutcome]:
        """Create topics and wait until they are led, at most ``wait_s``. Raises RegnumError.

        A topic that is written and not led everywhere by then is in the answer as REQUEST_TIMED_OUT.
        """
        deadline_s = self._context.clock.monotonic() + wait_s
        result: asyncio.Future[tuple[CreationOutcome, ...]] = asyncio.get_running_loop().create_future()
        creation = Creation(requests=requests, validate_only=validate_only, result=result)
        marks: list[Mark] = []
        wait_until_s = self._context.clock.monotonic()
        try:
            if not validate_only:
                admitting = self._admit_creation(creation, account, marks)
                wait_until_s = await beside(admitting, wait_s, late=NOT_ADMITTED_IN_TIME)
                if len(creation.outcomes) == len(requests):
                    return Answered(
                        outcomes=_in_order(creation.outcomes), throttle_ms=self._charging.left_ms(wait_until_s)
                    )
            steps = self._charging.releasing(create_topics(self._context, creation), tuple(marks))
            self._requests.submit(
                "create topics",
                steps,
                result,
                begun=lambda: creation.begun,
                gives_way_of=(account.user, account.client_id),
            )
            marks.clear()
        finally:
            self._charging.leave(marks)
        try:
            outcomes = await self._requests.answer(result, max(deadline_s - self._context.clock.monotonic(), 0.0))
            await self._wait_led(creation.keys, max(deadline_s - self._context.clock.monotonic(), 0.0))
            unled = {key.topic_id for key in creation.keys if not self._context.dispatch.is_led(key)}
            return Answered(
                outcomes=tuple(_still_creating(outcome, unled) for outcome in outcomes),
                throttle_ms=self._charging.left_ms(wait_until_s),
            )
        finally:
            self._context.dispatch.forget(creation.keys)

    async def delete(
        self, requests: Sequence[DeletionRequest], *, wait_s: float, account: Account
    ) -> Answered[DeletionOutcome]:
        """Delete topics and wait until their names are free, at most ``wait_s``. Raises RegnumError."""
        deadline_s = self._context.clock.monotonic() + wait_s
        result: asyncio.Future[tuple[DeletionOutcome, ...]] = asyncio.get_running_loop().create_future()
        call = DeletionCall(requests=requests, result=result)
        marks: list[Mark] = []
        try:
            wait_until_s = await beside(self._admit_deletion(call, account, marks), wait_s, late=NOT_ADMITTED_IN_TIME)
            if len(call.outcomes) == len(requests):
                return Answered(outcomes=_in_order(call.outcomes), throttle_ms=self._charging.left_ms(wait_until_s))
            steps = self._charging.releasing(self._deleter.delete_topics(call), tuple(marks))
            self._requests.submit(
                "delete topics", steps, result, begun=lambda: call.begun, gives_way_of=(account.user, account.client_id)
            )
            marks.clear()
        finally:
            self._charging.leave(marks)
        outcomes = await self._requests.answer(result, max(deadline_s - self._context.clock.monotonic(), 0.0))
        return Answered(outcomes=outcomes, throttle_ms=self._charging.left_ms(wait_until_s))

    async def _admit_creation(self, creation: Creation, account: Account, marks: list[Mark]) -> float:
        """Settle what needs no work and what is refused; returns the time until which the caller should wait."""
        context = self._context
        # Before anything is charged.
        self._requests.require_room()
        await context.store.until_connected()
        if not await self._charging.applies_to(account):
            return context.clock.monotonic()
        repeated = repeated_names([request.name for request in creation.requests])
        charged: list[Charged] = []
        turns, turns_of_partitions = Turns(TOPICS_PER_TURN), Turns(PARTITIONS_PER_TURN)
        for i, request in enumerate(creation.requests):
            await turns.took()
            weighed = weigh_topic(request, context.picture, repeated=repeated, clearing=context.clearing)
            match weighed:
                case Rejection():
                    creation.outcomes[i] = weighed
                case Repeated(topic_id=id):
                    creation.outcomes[i] = await created(context, id, turns_of_partitions)
                case int():
                    cost = Cost(name=request.name, permits=weighed)
                    mark = mark_of(Kind.CREATION, cost, request.mutation, account)
                    if not self._charging.is_paid(mark, marks):
                        charged.append(Charged(index=i, cost=cost, mark=mark))
                case _:
                    assert_never(weighed)
        refused, verdict = await self._charging.judge(charged, account, marks)
        for one in refused:
            creation.outcomes[one.index] = throttled(f"topic {one.cost.name} was not created", account, verdict)
        return self._context.clock.monotonic() + verdict.throttle_ms / 1000

    async def _admit_deletion(self, call: DeletionCall, account: Account, marks: list[Mark]) -> float:
        context = self._context
        self._requests.require_room()
        await context.store.until_connected()
        await self._deleter.answer_earlier(call)
        if not await self._charging.applies_to(account):
            return context.clock.monotonic()
        charged: list[Charged] = []
        turns = Turns(TOPICS_PER_TURN)
        seen: set[TopicId] = set()
        for i, request in enumerate(call.requests):
            await turns.took()
            if i in call.outcomes:
                continue
            found = self._deleter.answered_before(request) or find_topic(
                request, context.picture, refused=context.refused
            )
            match found:
                case Rejection() | Deleted():
                    call.outcomes[i] = found
                case str():
                    topic = context.picture.topics[found]
                    cost = Cost(name=topic.name, permits=len(topic.partitions))
                    mark = mark_of(Kind.DELETION, cost, request.mutation, account)
                    if found in seen:
                        call.outcomes[i] = Rejection(
                            code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                            message=f"topic {topic.name} stands twice in the request; give it once",
                        )
                    elif not self._charging.is_paid(mark, marks):
                        charged.append(Charged(index=i, cost=cost, mark=mark))
                    seen.add(found)
        refused, verdict = await self._charging.judge(charged, account, marks)
        for one in refused:
            call.outcomes[one.index] = throttled(f"topic {one.cost.name} was not deleted", account, verdict)
        return self._context.clock.monotonic() + verdict.throttle_ms / 1000

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


def _in_order(outcomes: dict[int, T]) -> tuple[T, ...]:
    return tuple(outcomes[i] for i in range(len(outcomes)))


def _still_creating(outcome: CreationOutcome, unled: set[TopicId]) -> CreationOutcome:
    match outcome:
        case Created(topic_id=id) if id in unled:
            return still_creating(id)
        case _:
            return outcome
