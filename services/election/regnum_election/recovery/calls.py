"""RecoverPartitions: partitions that nobody may lead, looked at beside the controller's task and recovered within it.

Goals: what is shown is what would be done; nothing is done where a leader comes without loss; a broker that does not
answer costs a deadline once, however many partitions there are; other work of the controller waits for one step.

Algorithm: the nodes are read and the assigned brokers asked, all at once, in the coroutine of the caller. With
``accept_loss`` the choice is then queued: in its turn every node is read and judged again, what differs from what was
looked at is refused, and what is written names the versions seen and the registration of the chosen replica
(``recovery_nodes.group_for``), so of two calls one wins. Where the guard of the topic is missing, the last of the
writes makes it, and until then nothing that was written means anything.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2, events_pb2
from regnum_coordination.port import Group, Refused, Written
from regnum_model.ids import NO_EPOCH, NO_LEADER, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns, slices
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Broker, HeldState, Topic
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.history.events import PartitionRow, Reason
from regnum_election.recovery.decisions import (
    Answer,
    Assessment,
    NoLog,
    ReplicaLog,
    is_missing,
    recovered_epoch,
    recovered_state,
)
from regnum_election.recovery.nodes import Recoverable, group_for
from regnum_election.recovery.survey import Survey, is_of
from regnum_election.reign.request_queue import RequestQueue, beside
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied
from regnum_election.state.telling import tell
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_MAX: Final = 1_000
"""Partitions of one call; there are further pages for the rest."""

PARTITIONS_PER_STEP: Final = 250
"""Partitions that are recovered between two looks at the controller's queue."""

PARTITIONS_PER_TURN: Final = 100
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRequest:
    """What a caller wants."""

    topic: str
    """Name of the topic."""
    partitions: Sequence[int]
    """Partition numbers as given; empty: all without a leader."""
    first_partition: int
    """Partitions below it are left out."""
    accept_loss: bool
    """Whether the chosen replicas are elected."""
    who: str
    """Who asks, for the log: user, client id, address."""
    cause: str = conventions.CAUSE_REQUEST
    """What began it, for traces."""
    recorded_only: bool = False
    """Whether partitions whose state or guard is not whole are left alone: what those had, only a person may give up
    (safety rule S14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found of one partition, and what was done."""

    partition: int
    """Partition number."""
    found: Recoverable | None
    """As it was found; None: it cannot be recovered."""
    assessment: Assessment | None
    """What can be had back; None: it was not looked for."""
    rejection: Rejection | None
    """What stands against it."""
    leader_epoch: LeaderEpoch
    """Leader epoch in which the chosen replica was elected; NO_EPOCH: it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The answer to a call."""

    recoveries: tuple[Recovery, ...]
    """Partitions, ascending."""
    next_partition: int
    """Where the next page begins; 0: nowhere."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """Partitions on their way to being recovered."""

    topic: Topic
    who: str
    found: dict[int, tuple[Recoverable, Assessment]]
    done: dict[int, Rejection | LeaderEpoch] = field(default_factory=dict)
    begun: bool = False
    loses: bool = True
    """Whether a person accepted a loss; otherwise there is none."""
    trace: ChangeTrace
    """Of the change that it makes, if it makes one."""


class PartitionRecoveries:
    """Recoveries on behalf of callers; one for each reign."""

    def __init__(self, context: ControllerContext, requests: RequestQueue) -> None:
        self._context = context
        self._requests = requests
        self._survey = Survey(context)

    async def recover(self, request: RecoveryRequest, *, wait_s: float) -> Recovered:
        """Look, and with ``accept_loss`` elect. Raises RegnumError for the call as a whole."""
        clock, asked_unix_nano = self._context.clock, tracing.now_unix_nano()
        deadline_s = clock.monotonic() + wait_s
        topic = self._topic(request)
        if request.accept_loss:
            self._requests.require_room()
        late = "not all could be looked at in time and nothing was changed; try again, or name fewer partitions"
        numbers, next_partition = await self._numbers(topic, request)
        rejected, found = await beside(self._survey.look(topic, numbers, wait_s), wait_s, late=late)
        if request.recorded_only:
            rejected, found = _recorded_only(rejected, found)
        done: Mapping[int, Rejection | LeaderEpoch] = {}
        chosen = {number: one for number, one in found.items() if one[1].chosen is not None}
        if request.accept_loss and chosen:
            kind = conventions.KIND_UNCLEAN if request.recorded_only else conventions.KIND_RECOVERY
            trace = self._trace(kind, topic, request.who, asked_unix_nano, request.cause)
            call = _Call(topic=topic, who=request.who, found=chosen, trace=trace)
            result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests.submit("recover partitions", self._steps(call, result), result, begun=lambda: call.begun)
            await self._requests.answer(result, max(deadline_s - clock.monotonic(), 0.0))
            done = call.done
        recoveries = tuple(_recovery(number, rejected, found, done) for number in numbers)
        return Recovered(recoveries=recoveries, next_partition=next_partition)

    async def elect_restored(
        self, topic: Topic, found: Mapping[int, tuple[Recoverable, Assessment]], *, wait_s: float
    ) -> Mapping[int, Rejection | LeaderEpoch]:
        """Let the newest logs of restored partitions lead, which every broker's report has shown to be that.

        What became of each partition; the same conditions hold for the writes as for those that a person asks for.
        Raises RegnumError for all of them.
        """
        trace = self._trace(
            conventions.KIND_RECOVERY, topic, "nobody", tracing.now_unix_nano(), conventions.CAUSE_DECISION
        )
        call = _Call(topic=topic, who="nobody", found=dict(found), loses=False, trace=trace)
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.submit("elect after a restore", self._steps(call, result), result, begun=lambda: call.begun)
        await self._requests.answer(result, wait_s)
        return call.done

    def _topic(self, request: RecoveryRequest) -> Topic:
        topic = self._context.picture.topic_named(request.topic)
        if topic is None and request.topic in self._context.refused:
            damaged = node_damaged(request.topic)
            raise RegnumError(damaged.code, damaged.message)
        if topic is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {request.topic[:249]}; list the topics to see the names",
            )
        if len(request.partitions) > PARTITIONS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{len(request.partitions)} partitions in one call; name at most {PARTITIONS_MAX}",
            )
        return topic

    async def _numbers(self, topic: Topic, request: RecoveryRequest) -> tuple[list[int], int]:
        """Partitions of this page, and where the next one begins."""
        first = request.first_partition
        if request.partitions:
            return sorted({number for number in request.partitions if number >= first}), 0
        return await self._survey.without_leader(topic, first=first, limit=PARTITIONS_MAX)

    async def _steps(self, call: _Call, result: "asyncio.Future[None]") -> AsyncGenerator[None, None]:
        """In the controller's task."""
        numbers = list(call.found)
        # Without the guard nothing counts before the last write: then there is one step.
        guarded = all(one.nodes.guard is not None for one, _ in call.found.values())
        size = PARTITIONS_PER_STEP if guarded else len(numbers)
        try:
            for start in range(0, len(numbers), size):
                if result.done():
                    # The caller gave up; what is left was not accepted by anybody who still waits.
                    return
                with self._context.traced(call.trace):
                    await self._recover(call, numbers[start : start + size])
                yield
        finally:
            call.trace.seal()
        if not result.done():
            result.set_result(None)

    def _trace(self, kind: str, topic: Topic, who: str, asked_unix_nano: int, cause: str) -> ChangeTrace:
        return self._context.changes.plan(
            kind,
            asked_unix_nano=asked_unix_nano,
            cause=cause,
            attributes={conventions.TOPIC: topic.name, conventions.CLIENT: who},
            legacy_name=conventions.RECOVERY,
            link=tracing.current(),
        )

    async def _recover(self, call: _Call, numbers: Sequence[int]) -> None:
        context = self._context
        rejected, recoverable = await self._survey.judge(call.topic, numbers)
        call.done.update(rejected)
        writes: list[_Write] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for number, one in recoverable.items():
            await turns.took()
            decided = self._decide(one, *call.found[number])
            if isinstance(decided, Rejection):
                call.done[number] = decided
            else:
                writes.append(decided)
        call.begun = call.begun or bool(writes)
        if writes:
            former = (write.found.state.leader for write in writes if write.found.state is not None)
            context.decided((id for id in former if id != NO_LEADER), leaders=True)
        written: dict[PartitionKey, HeldState] = {}
        rows: list[PartitionRow] = []
        for write, outcome in zip(writes, await self._write(call.topic, writes), strict=True):
            stat = outcome.results[-1].stat if isinstance(outcome, Written) else None
            if stat is None:
                call.done[write.found.key.partition] = _CHANGED
                continue
            written[write.found.key] = HeldState(state=write.state, version=stat.version)
            rows.append(PartitionRow(write.found.key, write.found.state, write.state, stat.version))
            call.done[write.found.key.partition] = write.state.leader_epoch
            # What else there may have been is given up: it leads with what it has, also if that is nothing.
            context.dispatch.newborn.add(write.found.key, (write.state.leader,))
            context.picture = context.picture.with_usable(write.state.leader, (write.found.key,))
        words = f"loss accepted by {call.who}" if call.loses else "restored from a backup: the newest log of all leads"
        reason = Reason(events_pb2.EVENT_CAUSE_RECOVERY, words)
        context.events.partitions(rows, context.picture.topics, reason)
        context.picture = context.picture.with_recovered(written)
        context.reached(conventions.WRITTEN_UNIX_NANO, again=True)
        context.tally.recovered(len(written))
        await self._note(call, written)
        await tell(context, Applied(leader_changes=set(written)))

    def _decide(self, one: Recoverable, looked_at: Recoverable, assessment: Assessment) -> "_Write | Rejection":
        """What is to be written, if the partition and the chosen replica are still as they were looked at."""
        chosen = assessment.chosen
        if chosen is None or (one.nodes, one.state) != (looked_at.nodes, looked_at.state):
            return _CHANGED
        log, broker = assessment.answers[chosen], self._context.picture.brokers.get(chosen)
        if not isinstance(log, ReplicaLog) or broker is None or not is_of(broker, log):
            return _CHANGED
        if chosen in self._context.picture.offline_at(one.key) and not is_missing(log):
            return _CHANGED
        epoch = recovered_epoch(one.known_epoch, assessment.answers.values(), certain=one.is_certain)
        if epoch is None:
            return Rejection(
                code=errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE,
                message="no leader epoch is left above those that its replicas know; delete the topic",
            )
        state = recovered_state(one.key.topic_id, chosen, log, epoch, self._context.reign.epoch)
        return _Write(found=one, state=state, broker=broker)

    async def _write(self, topic: Topic, writes: "Sequence[_Write]") -> Sequence[Written | Refused]:
        if not writes:
            return ()
        without_guard = writes[-1].found.nodes.guard is None
        groups: list[Group] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for write in writes:
            await turns.took()
            make_guard = without_guard and write is writes[-1]
            groups.append(group_for(topic, write.found, write.broker, write.state, make_guard=make_guard))
        if not without_guard:
            return await self._context.store.write_batch(groups)
        # A guard that is made here records nothing yet.
        self._context.unrecorded[topic.id] = None
        before: list[Written | Refused] = []
        async for part in slices(groups[:-1], PARTITIONS_PER_STEP):
            before += await self._context.store.write_batch(part)
        (outcome,) = await self._context.store.write_guards(groups[-1:])
        # Without the guard none of them counts.
        return (*before, outcome) if isinstance(outcome, Written) else [outcome] * len(writes)

    async def _note(self, call: _Call, written: Mapping[PartitionKey, HeldState]) -> None:
        """What was done, by whom, over what: the log keeps it."""
        turns = Turns(PARTITIONS_PER_TURN)
        for key, held in written.items():
            await turns.took()
            found, assessment = call.found[key.partition]
            self._context.log.warning(
                "partition recovered, loss accepted" if call.loses else "restored partition led by its newest log",
                topic=call.topic.name,
                topic_id=key.topic_id,
                partition=key.partition,
                who=call.who,
                reason=found.reason,
                leader=held.state.leader,
                leader_epoch=held.state.leader_epoch,
                replicas={str(id): _in_short(answer) for id, answer in assessment.answers.items()},
                may_be_lost=assessment.may_be_lost if call.loses else "",
            )


def _recorded_only(
    rejected: Mapping[int, Rejection], found: Mapping[int, tuple[Recoverable, Assessment]]
) -> tuple[dict[int, Rejection], dict[int, tuple[Recoverable, Assessment]]]:
    """Without partitions whose state or guard is not whole, and those whose older replicas did not answer."""
    left: dict[int, Rejection] = {}
    for number, (one, assessment) in found.items():
        if not one.is_recorded:
            reason = f"{one.reason}: what it had is for a person to give up; see regnum partitions recover"
        elif assessment.unheard:
            reason = (
                f"only broker {assessment.chosen} could lead, which was still being filled; brokers "
                f"{list(assessment.unheard)} are live, have had it for longer, and did not say what they have: try "
                "again, or see regnum partitions recover to give that up"
            )
        else:
            continue
        left[number] = Rejection(code=errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE, message=reason)
    return {**rejected, **left}, {number: one for number, one in found.items() if number not in left}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    found: Recoverable
    state: LeaderAndIsr
    broker: Broker


_CHANGED: Final = Rejection(
    code=errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE,
    message="it changed while it was looked at, and was left as it is; look at it again",
)


def _in_short(answer: Answer) -> str:
    if isinstance(answer, NoLog):
        return answer.message
    span = f"{answer.log_start_offset} to {answer.log_end_offset}"
    return f"last epoch {answer.last_written_epoch}, {span}, log {answer.log_id}"


def _recovery(
    number: int,
    rejected: Mapping[int, Rejection],
    found: Mapping[int, tuple[Recoverable, Assessment]],
    done: Mapping[int, Rejection | LeaderEpoch],
) -> Recovery:
    if number in rejected:
        return Recovery(
            partition=number, found=None, assessment=None, rejection=rejected[number], leader_epoch=NO_EPOCH
        )
    one, assessment = found[number]
    outcome = done.get(number, NO_EPOCH)
    rejection = outcome if isinstance(outcome, Rejection) else None
    if assessment.chosen is None:
        rejection = Rejection(
            code=errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE,
            message="no assigned replica answers with a log that can be read; start one of its brokers; where its "
            "state is damaged and they never come back, `regnum partitions remove-damaged` removes it",
        )
    return Recovery(
        partition=number,
        found=one,
        assessment=assessment,
        rejection=rejection,
        leader_epoch=NO_EPOCH if isinstance(outcome, Rejection) else outcome,
    )
