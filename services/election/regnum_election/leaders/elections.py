"""ElectLeaders as callers meet it: preferred leaders by the ordinary decision, others by what their logs hold.

Goals: each partition is answered on its own, with Kafka's errors; nothing is lost by a preferred election; an unclean
one never goes before an in-sync or an eligible replica, whatever the caller says.

Constraints: the answer and the request are bounded. Who names no partition means all that need it: as many as fit are
treated, and how many are left is said.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final, assert_never

from regnum.types.v1 import errors_pb2, events_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, PartitionKey
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller
from regnum_service.slices import Turns, slices
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.leadership import Change, Decision, Refusal, Surroundings, prefer
from regnum_election.decisions.partitions import why_offline
from regnum_election.decisions.rejection import node_damaged
from regnum_election.history.events import Reason
from regnum_election.leaders.unclean import Loss, UncleanElections
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_MAX: Final = 10_000
"""Partitions of one call."""

PARTITIONS_PER_STEP: Final = 300
"""Partitions that one step moves; a failover waits for one step at most."""

PARTITIONS_PER_TURN: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


class ElectionType(Enum):
    """How a leader is elected."""

    PREFERRED = "preferred"
    """The first of the assignment, if it is in sync."""
    UNCLEAN = "unclean"
    """Where nobody may lead without loss, the best log that answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRequest:
    """What a caller wants."""

    type: ElectionType
    """How."""
    topics: Sequence[tuple[str, Sequence[int]]]
    """Topics and partition numbers as given; no numbers: all of the topic. Empty: every partition that needs it."""
    validate_only: bool
    """Look only."""
    who: str
    """Who asks, for the log."""
    asked_unix_nano: int = field(default_factory=tracing.now_unix_nano)
    """When it arrived, for traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """What became of one partition."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    code: ErrorCode.ValueType = errors_pb2.ERROR_CODE_NONE
    """NONE: elected, or would be."""
    message: str = ""
    """What stands against it."""
    leader: BrokerId = NO_LEADER
    """Who was, or would be, elected."""
    leader_epoch: LeaderEpoch = NO_EPOCH
    """In which leader epoch; NO_EPOCH: it was not."""
    loss: Loss | None = None
    """What an unclean election costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The answer to a call."""

    elections: tuple[Election, ...]
    """In the order of the request; where none were named, by topic and number."""
    left: int
    """Partitions that there was no room or no time for."""


@dataclass(slots=True, kw_only=True)
class _Preferred:
    """Preferred elections of one call."""

    keys: Sequence[PartitionKey]
    reason: Reason
    trace: ChangeTrace
    begun: bool = False
    done: dict[PartitionKey, Election] = field(default_factory=dict)


def not_preferred(picture: Cluster, surroundings: Surroundings) -> tuple[list[PartitionKey], list[PartitionKey]]:
    """Partitions that others than their preferred replicas lead: those that these could lead, and the rest."""
    ready: list[PartitionKey] = []
    other: list[PartitionKey] = []
    for key, partition in picture.partitions.items():
        held = partition.held
        if held is None or not partition.is_led or held.state.leader == partition.replicas[0]:
            continue
        offline = picture.offline_at(key)
        around = replace(surroundings, offline=offline) if offline else surroundings
        match prefer(held.state, partition.replicas, around):
            case Change():
                ready.append(key)
            case _:
                other.append(key)
    return ready, other


class LeaderElections:
    """ElectLeaders calls of one reign."""

    def __init__(self, context: ControllerContext, requests: RequestQueue, unclean: UncleanElections) -> None:
        """Only assigns."""
        self._context: Final = context
        self._requests: Final = requests
        self._unclean: Final = unclean

    async def elect(self, request: ElectionRequest, *, wait_s: float) -> Elected:
        """Elect, or look. Raises RegnumError for the call as a whole.

        INVALID_REQUEST: a topic or a partition stands twice, or there are too many.
        """
        named, unknown = await self._named(request)
        if not request.topics:
            return await self._elect_all(request, wait_s)
        if request.type is ElectionType.PREFERRED:
            done = await self._prefer(named, request, wait_s)
        else:
            done = await self._elect_uncleanly(named, request, wait_s)
        return Elected(elections=(*unknown, *(done[key] for key in named)), left=0)

    async def _elect_all(self, request: ElectionRequest, wait_s: float) -> Elected:
        picture = self._context.picture
        if request.type is ElectionType.PREFERRED:
            # Beside the loop: it looks at every partition there is (safety rule S22).
            ready, other = await for_caller(partial(not_preferred, picture, self._context.surroundings))
            some = ready[:PARTITIONS_MAX]
            done = await self._prefer(some, request, wait_s)
            for key in other[: PARTITIONS_MAX - len(some)]:
                done[key] = self._judged(picture, key, Refusal.PREFERRED_NOT_IN_SYNC)
            left = len(ready) - len(some)
        else:
            unled: list[PartitionKey] = []
            async for part in slices(picture.unled, PARTITIONS_PER_TURN):
                unled.extend(key for key in part if picture.partitions[key].held is not None)
            some = unled[:PARTITIONS_MAX]
            done = await self._elect_uncleanly(some, request, wait_s)
            left = len(unled) - len(some)
        elections = sorted(done.values(), key=lambda one: (one.topic, one.partition))
        return Elected(elections=tuple(elections), left=left)

    async def _named(self, request: ElectionRequest) -> tuple[list[PartitionKey], list[Election]]:
        """Partitions of a request that there are, and answers for the others."""
        keys: dict[PartitionKey, None] = {}
        unknown: list[Election] = []
        seen: set[str] = set()
        turns = Turns(PARTITIONS_PER_TURN)
        for name, numbers in request.topics:
            if name in seen:
                raise _invalid(f"topic {name[:249]} stands twice in the request; name its partitions in one place")
            seen.add(name)
            topic = self._context.picture.topic_named(name)
            for number in numbers or (() if topic is None else topic.partitions):
                await turns.took()
                key = None if topic is None else PartitionKey(topic.id, number)
                if key is not None and key in keys:
                    raise _invalid(f"partition {number} of topic {name} stands twice in the request; give it once")
                if key is None or key not in self._context.picture.partitions:
                    unknown.append(self._unknown(name, topic, number))
                else:
                    keys[key] = None
                if len(keys) + len(unknown) > PARTITIONS_MAX:
                    raise _invalid(f"more than {PARTITIONS_MAX} partitions: split the request")
            if topic is None and not numbers:
                unknown.append(self._unknown(name, topic, 0))
        return list(keys), unknown

    def _unknown(self, name: str, topic: Topic | None, number: int) -> Election:
        if topic is None and name in self._context.refused:
            damaged = node_damaged(name)
            return _refused(name, number, damaged.code, damaged.message)
        return _unknown(name, topic, number)

    def _preference(self, _picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        if partition.held is None:
            # One that conflicted is decided about again later: it may have been removed and added anew since.
            return Refusal.NOTHING_TO_CHANGE
        return prefer(partition.held.state, partition.replicas, self._context.surroundings_of(key))

    async def _prefer(
        self, keys: Sequence[PartitionKey], request: ElectionRequest, wait_s: float
    ) -> dict[PartitionKey, Election]:
        if request.validate_only:
            picture = self._context.picture
            judged: dict[PartitionKey, Election] = {}
            async for some in slices(keys, PARTITIONS_PER_TURN):
                judged.update({key: self._looked_at(picture, key) for key in some})
            return judged
        reason = Reason(events_pb2.EVENT_CAUSE_ELECTION_REQUESTED, f"preferred leaders, asked for by {request.who}")
        trace = self._context.changes.plan(
            conventions.KIND_ELECTION,
            asked_unix_nano=request.asked_unix_nano,
            attributes={conventions.CLIENT: request.who},
            link=tracing.current(),
        )
        call = _Preferred(keys=keys, reason=reason, trace=trace)
        if keys:
            result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests.submit("elect leaders", self._steps(call, result), result, begun=lambda: call.begun)
            await self._requests.answer(result, wait_s)
        return call.done

    async def _steps(self, call: _Preferred, result: "asyncio.Future[None]") -> AsyncGenerator[None, None]:
        """In the controller's task."""
        try:
            for start in range(0, len(call.keys), PARTITIONS_PER_STEP):
                some = call.keys[start : start + PARTITIONS_PER_STEP]
                usable = [key for key in some if self._is_usable(key)]
                call.begun = call.begun or bool(usable)
                with self._context.traced(call.trace):
                    applied = await change(self._context, usable, self._preference, call.reason)
                    await tell(self._context, applied)
                picture = self._context.picture
                for key in some:
                    if key in applied.unfinished:
                        call.done[key] = self._unfinished(picture, key)
                    else:
                        call.done[key] = self._judged(picture, key, applied.refusals.get(key))
                yield
        finally:
            call.trace.seal()
        if not result.done():
            result.set_result(None)

    def _is_usable(self, key: PartitionKey) -> bool:
        partition = self._context.picture.partitions.get(key)
        return partition is not None and partition.trouble is None and partition.held is not None

    def _looked_at(self, picture: Cluster, key: PartitionKey) -> Election:
        partition = picture.partitions[key]
        if partition.trouble is not None or partition.held is None:
            return self._judged(picture, key, None)
        decision = self._preference(picture, key, partition)
        if isinstance(decision, Refusal):
            return self._judged(picture, key, decision)
        name = picture.topics[key.topic_id].name
        return Election(topic=name, partition=key.partition, leader=decision.state.leader)

    def _judged(self, picture: Cluster, key: PartitionKey, refusal: Refusal | None) -> Election:
        """The answer for a partition that was decided about."""
        topic, partition = picture.topics.get(key.topic_id), picture.partitions.get(key)
        if topic is None or partition is None:
            return _refused(
                "", key.partition, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted meanwhile"
            )
        preferred = partition.replicas[0]
        match refusal:
            case None if partition.is_led and partition.held is not None and partition.held.state.leader == preferred:
                state = partition.held.state
                return Election(
                    topic=topic.name, partition=key.partition, leader=preferred, leader_epoch=state.leader_epoch
                )
            case Refusal.PREFERRED_LEADS:
                code, message = errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED, f"broker {preferred} leads already"
            case Refusal.NEWER_REIGN:
                code, message = errors_pb2.ERROR_CODE_NOT_CONTROLLER, "a later controller wrote its state; ask that one"
            case _ if partition.is_led:
                code = errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE
                message = f"broker {preferred} is not live and in sync; {_leads_on(partition)}"
            case _:
                code = errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE
                message = why_offline(partition, self._context.surroundings_of(key)).message
        return _refused(topic.name, key.partition, code, message)

    def _unfinished(self, picture: Cluster, key: PartitionKey) -> Election:
        name = picture.topics[key.topic_id].name if key.topic_id in picture.topics else ""
        message = "somebody else keeps writing its state; it is decided about again soon"
        return _refused(name, key.partition, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message)

    async def _elect_uncleanly(
        self, keys: Sequence[PartitionKey], request: ElectionRequest, wait_s: float
    ) -> dict[PartitionKey, Election]:
        picture = self._context.picture
        names = {key: picture.topics[key.topic_id].name for key in keys if key.topic_id in picture.topics}
        by_topic: dict[str, list[int]] = {}
        for key, name in names.items():
            by_topic.setdefault(name, []).append(key.partition)
        found = await self._unclean.elect(by_topic, validate_only=request.validate_only, who=request.who, wait_s=wait_s)
        return {key: _outcome(found, names.get(key, ""), key.partition) for key in keys}


def _outcome(found: Mapping[tuple[str, int], Loss | RegnumError], name: str, number: int) -> Election:
    match found.get((name, number)):
        case Loss() as loss:
            return Election(topic=name, partition=number, leader=loss.chosen, leader_epoch=loss.leader_epoch, loss=loss)
        case RegnumError() as error:
            return _refused(name, number, error.code, error.message)
        case None:
            message = "there was no time for it; nothing was changed: try again"
            return _refused(name, number, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message)
        case other:
            assert_never(other)


def _leads_on(partition: Partition) -> str:
    held = partition.held
    leader = NO_LEADER if held is None else held.state.leader
    isr: Iterable[BrokerId] = () if held is None else held.state.isr
    return f"broker {leader} leads on (ISR {', '.join(map(str, isr))})"


def _refused(topic: str, number: int, code: ErrorCode.ValueType, message: str) -> Election:
    return Election(topic=topic, partition=number, code=code, message=message)


def _unknown(name: str, topic: Topic | None, number: int) -> Election:
    what = f"there is no topic {name[:249]}" if topic is None else f"topic {name} has no partition {number}"
    return _refused(name, number, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, f"{what}; list the topics")


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
