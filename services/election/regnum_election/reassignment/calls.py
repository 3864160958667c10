"""AlterPartitionReassignments and ListPartitionReassignments as callers meet them.

What is asked for is written into the topic nodes, all partitions of a topic in one write, and answered then; the agent
does the rest. It is absolute, so a call may be sent twice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import Final, cast

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import Turns
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.history.events import REASSIGNMENT, Reason
from regnum_election.reassignment.agent import Reassigner
from regnum_election.reassignment.decisions import Assigned, Wait, is_grown, requested
from regnum_election.reassignment.progress import Bytes, MovingLogs
from regnum_election.reassignment.writing import AssignmentChange, write_assignments
from regnum_election.reign.beside import PARTITION_WEIGHT, beside
from regnum_election.reign.events import LogSize, ReplicasMoving
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext
from regnum_election.state.telling import publish

PARTITIONS_MAX: Final = 10_000
"""Partitions of one call."""

PAGE_PARTITIONS: Final = 1_000
"""Reassignments of one page."""

ROUNDS_MAX: Final = 5
"""Rounds against others who write the same topic node."""

PARTITIONS_PER_TURN: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

TOPIC_NODE_BYTES_MAX: Final = 900_000
"""A topic node that says where its partitions go is at most so large: stores take a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentRequest:
    """What a caller wants of one partition."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    target: tuple[BrokerId, ...] | None
    """Wanted replicas; None: call the open reassignment back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """An open reassignment as it is now."""

    topic: str
    """Topic name."""
    key: PartitionKey
    partition: Partition
    """As the picture has it."""
    waits_for: str
    """What it waits for, for people; empty: nothing."""
    moved: Bytes
    """How far it is."""
    sizes: Mapping[BrokerId, LogSize]
    """What its brokers said that they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingPage:
    """A page of them."""

    reassignments: tuple[Ongoing, ...]
    """By topic name and partition."""
    next_page_token: str
    """Where the next page begins; empty: nowhere."""
    total: int
    """On all pages."""


class PartitionReassignments:
    """Reassignments on behalf of callers; one for each reign."""

    def __init__(self, context: ControllerContext, agent: Reassigner, requests: RequestQueue) -> None:
        self._context: Final = context
        self._agent: Final = agent
        self._requests: Final = requests
        self._progress: Final = MovingLogs()

    def heard_of(self, said: ReplicasMoving) -> None:
        """A broker said how far its replicas are of partitions that move."""
        self._progress.take(self._context.picture, said.broker, said.sizes)

    def wake(self) -> None:
        """Something was asked for: look soon."""
        self._agent.wake()

    async def alter(
        self, requests: Sequence[ReassignmentRequest], *, validate_only: bool, who: str, wait_s: float
    ) -> tuple[Rejection | None, ...]:
        """Begin, redirect or call back reassignments, each on its own; None: it stands. Raises RegnumError."""
        result: asyncio.Future[tuple[Rejection | None, ...]] = asyncio.get_running_loop().create_future()
        begun = False
        # The controller's task, which does it, is no part of the caller's trace.
        traceparent = tracing.current()

        async def steps() -> AsyncGenerator[None, None]:
            nonlocal begun
            outcomes: list[Rejection | None] = [None] * len(requests)
            by_topic = _by_topic(requests, outcomes)
            for place, (name, indexes) in enumerate(by_topic.items()):
                if place:
                    # Others come between two topics, but not before the answer: it waits for no write of the agent.
                    yield
                begun = begun or not validate_only
                rejected = await self.ask(
                    name,
                    {requests[i].partition: requests[i].target for i in indexes},
                    validate_only=validate_only,
                    who=who,
                    traceparent=traceparent,
                )
                for i in indexes:
                    outcomes[i] = rejected.get(requests[i].partition)
            self._agent.wake()
            if not result.done():
                result.set_result(tuple(outcomes))

        self._requests.submit("alter reassignments", steps(), result, begun=lambda: begun)
        return await self._requests.answer(result, wait_s)

    async def ask(
        self,
        name: str,
        targets: "dict[int, tuple[BrokerId, ...] | None]",
        *,
        validate_only: bool,
        who: str,
        traceparent: str = "",
        cause: Reason = REASSIGNMENT,
    ) -> dict[int, Rejection]:
        """In the controller's task: what is wanted of some partitions of a topic; what cannot be, with the reason."""
        asked = cause.asked_by(who, traceparent)
        context = self._context
        rejected: dict[int, Rejection] = {}
        changes: dict[int, AssignmentChange] = {}
        refused_for = ""
        for _ in range(ROUNDS_MAX):
            topic = context.picture.topic_named(name)
            if topic is None:
                damaged = node_damaged(name) if name in context.refused else None
                return dict.fromkeys(targets, damaged or _unknown(f"there is no topic {name[:249]}; list the topics"))
            changes, rejected = await self._changes(topic.id, targets)
            if validate_only or not changes:
                return rejected
            await asyncio.sleep(0)
            if (reason := _too_large(context.picture, topic.id, changes)) is not None:
                return {**rejected, **dict.fromkeys(changes, reason)}
            try:
                outcome = await write_assignments(context, topic, changes, asked, over_edits=True)
            except NotTaken as error:
                return {**rejected, **dict.fromkeys(changes, _not_written(name, str(error)))}
            # A whole topic was put into the picture: what follows takes as long again (safety rule S22).
            await asyncio.sleep(0)
            for key in outcome.differing:
                rejected[key.partition] = _not_written(
                    name, "the topic node names other replicas of it than the controller knows"
                )
            if not outcome.refused:
                context.log.info("reassignment asked for", topic=name, partitions=len(outcome.written), who=who)
                self._agent.asked(outcome.written)
                await publish(context, outcome.written)
                return rejected
            refused_for = outcome.refused
        return {**rejected, **dict.fromkeys(changes, _not_written(name, refused_for))}

    async def _changes(
        self, topic_id: TopicId, targets: "dict[int, tuple[BrokerId, ...] | None]"
    ) -> tuple[dict[int, AssignmentChange], dict[int, Rejection]]:
        """What has to be written, and what cannot be."""
        changes: dict[int, AssignmentChange] = {}
        rejected: dict[int, Rejection] = {}
        turns = Turns(PARTITIONS_PER_TURN)
        name = self._context.picture.topics[topic_id].name
        is_edited = topic_id in self._context.edited or name in self._context.refused
        for number, target in targets.items():
            await turns.took()
            match self._requested(PartitionKey(topic_id, number), target):
                case Rejection() as refused:
                    rejected[number] = refused
                case Assigned() as assigned:
                    changes[number] = AssignmentChange(assigned=assigned)
                case None if is_edited:
                    # What it has is what is wanted, and the topic node does not say so.
                    known = self._context.picture.partitions[PartitionKey(topic_id, number)]
                    changes[number] = AssignmentChange(
                        assigned=Assigned(replicas=known.replicas, reassignment=known.reassignment)
                    )
                case None:
                    pass
        return changes, rejected

    def _requested(self, key: PartitionKey, target: tuple[BrokerId, ...] | None) -> Assigned | Rejection | None:
        partition = self._context.picture.partitions.get(key)
        if partition is None:
            return _unknown(f"the topic has no partition {key.partition}; describe it to see those that it has")
        picture, now_ms = self._context.picture, self._context.clock.wall_ms()
        return requested(
            partition,
            target,
            brokers=picture.brokers,
            now_ms=now_ms,
            draining=picture.draining,
            damaged=self._context.dispatch.departing.damaged(key),
        )

    async def ongoing(self, topics: Sequence[str], *, token: str = "", size: int = 0) -> OngoingPage:
        """A page of open reassignments. Raises RegnumError INVALID_REQUEST for a token that no answer gave."""
        picture = self._context.picture
        after = cast("tuple[str, int] | None", place_of(token, str, int))
        size = page_size(size, default=PAGE_PARTITIONS, maximum=PAGE_PARTITIONS)
        places, total = await beside(
            partial(_places, picture, frozenset(topics), after, size + 1),
            weight=PARTITION_WEIGHT * len(picture.reassigning),
        )
        shown: list[Ongoing] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for name, number in places[:size]:
            await turns.took()
            key = PartitionKey(picture.names[name], number)
            partition = picture.partitions[key]
            step = self._agent.step_of(picture, key)
            shown.append(
                Ongoing(
                    topic=name,
                    key=key,
                    partition=partition,
                    waits_for=step.reason if isinstance(step, Wait) else "",
                    moved=self._progress.bytes_of(key, partition),
                    sizes=dict(self._progress.sizes(key)),
                )
            )
        following = "" if len(places) <= size else page_token((shown[-1].topic, shown[-1].key.partition))
        return OngoingPage(reassignments=tuple(shown), next_page_token=following, total=total)


def waits_for_place(partition: Partition) -> bool:
    """Whether it has not begun."""
    return partition.reassignment is not None and not is_grown(partition)


def _by_topic(requests: Sequence[ReassignmentRequest], outcomes: list[Rejection | None]) -> dict[str, list[int]]:
    """Places of the requests by topic; partitions that are named twice are rejected."""
    by_topic: dict[str, list[int]] = {}
    named = Counter((request.topic, request.partition) for request in requests)
    for i, request in enumerate(requests):
        if named[request.topic, request.partition] > 1:
            outcomes[i] = Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message="the partition is named twice; name it once"
            )
        else:
            by_topic.setdefault(request.topic, []).append(i)
    return by_topic


def _places(
    picture: Cluster, topics: frozenset[str], after: tuple[str, int] | None, count: int
) -> tuple[list[tuple[str, int]], int]:
    """The first places behind one, in order, and how many there are altogether.

    They are not all sorted: that of 100,000 makes the event loop wait for 50 ms, whichever thread it is done on.
    """
    total = 0

    def behind() -> Iterator[tuple[str, int]]:
        nonlocal total
        for key in picture.reassigning:
            place = (picture.topics[key.topic_id].name, key.partition)
            if not topics or place[0] in topics:
                total += 1
                if after is None or place > after:
                    yield place

    return nsmallest(count, behind()), total


def _too_large(picture: Cluster, topic_id: TopicId, changes: dict[int, AssignmentChange]) -> Rejection | None:
    """Refuses what would let the topic node grow beyond what stores take."""
    ids = partitions = 0
    for number in picture.topics[topic_id].partitions:
        known = picture.partitions[PartitionKey(topic_id, number)]
        change = changes.get(number)
        move = known.reassignment if change is None else change.assigned.reassignment
        ids += len(known.replicas) + (0 if move is None else 2 * (len(move.origin) + len(move.target)))
        partitions += 1 if move is None else 5
    size = 8 * ids + 16 * partitions
    if size <= TOPIC_NODE_BYTES_MAX:
        return None
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message="so many partitions of one topic cannot be moved at once; move some of them, and the others when these "
        "have arrived",
    )


def _unknown(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message=message)


def _not_written(name: str, reason: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"topic {name} cannot be written ({reason}); look at the store and try again",
    )
