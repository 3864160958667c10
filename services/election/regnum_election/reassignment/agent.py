"""The agent that moves partitions on: it looks at every open reassignment and does what is due (seed 001 F).

Goals: what stands in the store says all that is needed, so any controller goes on where another one stopped; a bounded
number of partitions moves at a time, the others begin in the order in which they were asked for; a failover waits for
one write of one topic at most.

Algorithm: it is woken when a leader has reported a new ISR of a partition that moves, when something was asked for,
and every INTERVAL_S while anything is open. Each time, every open reassignment is judged by ``decisions.next_step``,
and the steps of each topic are written together: those that grow in one write, those that shrink in writes of at most
PARTS_MAX parts, which are small enough for every store. A write that is refused is decided anew, one partition at a
time, since one leader that writes its ISR must not hold up the others.

Replicas that went are stopped and deleted when the leader of the new epoch has taken its role up: then the old ones are
out of every ISR, and it is certain who leads. A controller that dies before that leaves it to the brokers, which look
at the topic node themselves (safety rule S13).
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from heapq import nsmallest
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.dispatch.outbox import Stop
from regnum_election.reassignment.decisions import Grow, Shrink, Step, Wait, is_grown, next_step
from regnum_election.reassignment.writing import AssignmentChange, write_assignments
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied, reread
from regnum_election.state.telling import tell

INTERVAL_S: Final = 1.0
"""Pause between two looks while anything is open."""

STOPS_INTERVAL_S: Final = 0.2
"""Pause between two looks whether old replicas may go: a controller that dies first leaves them to a grace time."""

MOVING_MAX: Final = 50
"""Partitions that move at a time, unless the settings say otherwise."""

PARTS_MAX: Final = 110
"""Checks and writes of the multi that switches some partitions, about: the smallest of stores take 128."""

ROUNDS_MAX: Final = 3
"""Rounds of deciding anew in one look; what is still refused then waits for the next."""

PARTITIONS_PER_TURN: Final = 500
"""Reassignments judged between two turns of the event loop (safety rule S22)."""


class Reassigner:
    """Of one reign. Used by the controller's one task, but for ``stop_those_that_went``, which never waits."""

    def __init__(self, context: ControllerContext, *, moving_max: int = MOVING_MAX) -> None:
        self._context: Final = context
        self._moving_max: Final = moving_max
        self._queued = False
        self._leaving: Final[dict[PartitionKey, tuple[BrokerId, ...]]] = {}
        """Brokers that are to delete their replica once the partition is led in its new epoch."""
        self._told_of: Final[set[PartitionKey]] = set()
        """Partitions of which the topic node says something else, as the log has it."""
        self.looks = 0
        """How often it looked."""

    @property
    def is_open(self) -> bool:
        """Whether anything is left to do."""
        return bool(self._context.picture.reassigning or self._leaving)

    def concerns(self, key: PartitionKey) -> bool:
        """Whether news of a partition may be what a reassignment waits for."""
        return key in self._context.picture.reassigning or key in self._leaving

    def wake(self) -> None:
        """Look soon."""
        if not self._queued and self.is_open:
            self._queued = True
            self._context.defer("reassignments", self._look())

    async def _look(self) -> AsyncGenerator[None, None]:
        self._queued = False
        self.looks += 1
        self.stop_those_that_went()
        for topic_id, numbers in (await self._due()).items():
            await self._advance(topic_id, numbers)
            self.stop_those_that_went()
            yield

    async def _due(self) -> dict[TopicId, list[int]]:
        """Partitions for which something is due, by topic; those that asked first begin first."""
        context = self._context
        turns = Turns(PARTITIONS_PER_TURN)
        waiting: list[tuple[int, str, PartitionKey]] = []
        due: dict[TopicId, list[int]] = {}
        places = self._moving_max
        for key in context.picture.reassigning:
            await turns.took()
            partition = context.picture.partitions.get(key)
            if partition is None or partition.reassignment is None or key in context.unverified:
                continue
            if not is_grown(partition):
                since_ms = partition.reassignment.since_ms
                waiting.append((since_ms, context.picture.topics[key.topic_id].name, key))
                continue
            if self._moves(partition):
                places -= 1
            if not isinstance(self._step(key, partition, may_grow=False), Wait):
                due.setdefault(key.topic_id, []).append(key.partition)
        for _, _, key in nsmallest(max(places, 0), waiting):
            due.setdefault(key.topic_id, []).append(key.partition)
        return due

    def _moves(self, partition: Partition) -> bool:
        """Whether replicas of it are being filled."""
        move, held = partition.reassignment, partition.held
        return move is not None and (held is None or any(id not in held.state.isr for id in move.target))

    def step_of(self, picture: Cluster, key: PartitionKey) -> Step:
        """What is due for a partition of a picture, for those who describe it."""
        partition = picture.partitions[key]
        return next_step(
            partition,
            self._context.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
            may_grow=False,
        )

    def _step(self, key: PartitionKey, partition: Partition, *, may_grow: bool) -> Step:
        return next_step(
            partition,
            self._context.surroundings_of(key),
            min_insync=self._context.picture.min_insync(key, partition),
            may_grow=may_grow,
        )

    async def _advance(self, topic_id: TopicId, numbers: list[int]) -> None:
        """Do what is due for some partitions of a topic."""
        together, left = PARTS_MAX, numbers
        for _ in range(ROUNDS_MAX):
            grows, shrinks = self._steps(topic_id, left)
            refused = [] if await self._write(topic_id, grows) else list(grows)
            for some in _in_multis(shrinks, together):
                if not await self._write(topic_id, some):
                    refused += some
            if not refused or topic_id not in self._context.picture.topics:
                return
            applied = Applied()
            keys = [PartitionKey(topic_id, number) for number in refused]
            await reread(self._context, [key for key in keys if key in self._context.picture.partitions], applied)
            await tell(self._context, applied)
            left, together = refused, 1

    def _steps(
        self, topic_id: TopicId, numbers: list[int]
    ) -> tuple[dict[int, AssignmentChange], dict[int, AssignmentChange]]:
        grows: dict[int, AssignmentChange] = {}
        shrinks: dict[int, AssignmentChange] = {}
        for number in numbers:
            key = PartitionKey(topic_id, number)
            partition = self._context.picture.partitions.get(key)
            if partition is None or partition.reassignment is None:
                continue
            match self._step(key, partition, may_grow=True):
                case Grow(assigned=assigned):
                    grows[number] = AssignmentChange(assigned=assigned)
                case Shrink(assigned=assigned, state=state):
                    shrinks[number] = AssignmentChange(assigned=assigned, held=partition.held, state=state)
                case Wait():
                    pass
        return grows, shrinks

    async def _write(self, topic_id: TopicId, changes: Mapping[int, AssignmentChange]) -> bool:
        """Write, apply and tell; False: refused, to be decided anew."""
        context = self._context
        topic = context.picture.topics.get(topic_id)
        if topic is None or not changes:
            return True
        before = {number: context.picture.partitions[PartitionKey(topic_id, number)].replicas for number in changes}
        try:
            outcome = await write_assignments(context, topic, changes)
        except NotTaken as error:
            context.log.warning("reassignment cannot be written", topic=topic.name, reason=str(error))
            return True
        self._report(topic.name, outcome.differing)
        if outcome.refused:
            context.log.info("reassignment refused, deciding again", topic=topic.name, reason=outcome.refused)
            return False
        # Whoever was waited for before led in an earlier epoch.
        context.dispatch.forget([key for key in outcome.written if key in self._leaving])
        for key in outcome.written:
            after = context.picture.partitions[key]
            gone = tuple(id for id in before[key.partition] if id not in after.replicas)
            context.dispatch.departing.add(key, gone)
            if gone:
                self._leaving[key] = tuple(dict.fromkeys((*self._leaving.get(key, ()), *gone)))
            context.log.info(
                "partition reassigned" if after.reassignment is None else "reassignment goes on",
                topic=topic.name,
                partition=key.partition,
                replicas=after.replicas,
                dropped=gone,
            )
        context.dispatch.expect([key for key in outcome.written if key in self._leaving])
        await tell(context, Applied(leader_changes=set(outcome.written)))
        return True

    def _report(self, topic: str, differing: list[PartitionKey]) -> None:
        for key in differing:
            if key not in self._told_of:
                self._told_of.add(key)
                self._context.log.error(
                    "reassignment waits: the topic node was changed by hand",
                    topic=topic,
                    partition=key.partition,
                    reason="it names other replicas than the controller knows; write back what stood there",
                )

    def stop_those_that_went(self) -> None:
        """Have replicas deleted of partitions that are led in their new epoch. Waits for nothing."""
        context = self._context
        for key, brokers in tuple(self._leaving.items()):
            partition = context.picture.partitions.get(key)
            topic = context.picture.topics.get(key.topic_id)
            if partition is None or partition.held is None or topic is None:
                # Deleted meanwhile, which is told of in its own way.
                del self._leaving[key]
                context.dispatch.forget([key])
                continue
            if not context.dispatch.is_led(key):
                continue
            del self._leaving[key]
            context.dispatch.forget([key])
            stop = Stop(
                topic_id=key.topic_id,
                partition=key.partition,
                topic=topic.name,
                leader_epoch=partition.held.state.leader_epoch,
                delete=True,
                reassigned=True,
            )
            for id in brokers:
                if id in partition.replicas:
                    context.dispatch.departing.done(key, id)
                else:
                    context.dispatch.order_stops(id, [stop])


def _in_multis(changes: Mapping[int, AssignmentChange], parts_max: int) -> Iterator[dict[int, AssignmentChange]]:
    """Changes in portions that fit into a multi; one that is larger stands alone."""
    portion: dict[int, AssignmentChange] = {}
    parts = 0
    for number, change in changes.items():
        weight = 2 if change.state is None else 2 + 2 * len(change.state.isr)
        if portion and parts + weight > parts_max:
            yield portion
            portion, parts = {}, 0
        portion[number] = change
        parts += weight
    if portion:
        yield portion
