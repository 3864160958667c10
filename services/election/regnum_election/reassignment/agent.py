"""The agent that moves partitions on: it looks at every open reassignment and does what is due (seed 001 F).

Goals: what stands in the store says all that is needed, so any controller goes on where another one stopped; a bounded
number of partitions moves at a time, the others begin in the order in which they were asked for; a failover waits for
one write of one topic at most.

Algorithm: it is woken when a leader has reported a new ISR of a partition that moves, when something was asked for,
and every INTERVAL_S while anything is open. Where many arrive one after another, those of an interval are moved on
together, for each switch is a write of the topic node, and one fsync of every broker that has a part in it; but when
half of those that may move have arrived, they do not wait. Each time, those that move, and as many of
those that wait as there are places (``waiting``), are judged by ``decisions.next_step``, and the steps of each topic
are written together, as many as a write of PARTS_MAX parts has room for, which is small enough for every store: each
write repeats the whole topic node. Each is decided just before it is written, and other events and callers' mutations
come between two of them. What is refused is decided anew, fewer at a time, since one leader that writes its ISR must
not hold up the others; what the store cannot take is cut in halves. When brokers are told of what was written is for
``pacing`` to say.

Replicas that went are stopped and deleted when the leader of the new epoch has taken its role up: then the old ones are
out of every ISR, and it is certain who leads. A controller that dies before that leaves it to the brokers, which look
at the topic node themselves (safety rule S13).
"""

import enum
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_service.slices import Turns
from regnum_telemetry import conventions

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.dispatch.outbox import Stop
from regnum_election.reassignment.decisions import Grow, Shrink, Step, Wait, is_grown, next_step
from regnum_election.reassignment.leaving import take_confirmed_out
from regnum_election.reassignment.pacing import APART_S, Pacing
from regnum_election.reassignment.waiting import OpenMoves
from regnum_election.reassignment.writing import AssignmentChange, write_assignments
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied, reread
from regnum_election.state.telling import tell

INTERVAL_S: Final = 1.0
"""Pause between two looks while anything is open."""

STOPS_INTERVAL_S: Final = 0.1
"""Pause between two looks whether somebody leads what others are to delete, where brokers have been told of all."""

TIDYING_INTERVAL_S: Final = 5.0
"""Time between two writes of what brokers have confirmed to have deleted, while anything moves."""

MOVING_MAX: Final = 50
"""Partitions that move at a time, unless the settings say otherwise."""

PARTS_MAX: Final = 110
"""Checks and writes of the multi that switches some partitions, about: the smallest of stores take 128."""

PARTITIONS_PER_WRITE: Final = 500
"""Partitions judged and written together at most, whatever room they take (safety rule S22)."""

PARTS_DIVISOR: Final = 8
"""How much smaller the writes of the next round are: 110 parts, 13, 1."""

ROUNDS_MAX: Final = 3
"""Rounds of deciding anew in one look; what is still refused then waits for the next."""

PARTITIONS_PER_TURN: Final = 500
"""Reassignments judged between two turns of the event loop (safety rule S22)."""


class _Fate(enum.Enum):
    """What became of a write."""

    DONE = "done"
    """It stands, or there was nothing to write."""
    REFUSED = "refused"
    """Something had changed: to be decided anew."""
    TOO_LARGE = "too large"
    """The store can never take it."""


class Reassigner:
    """Of one reign. Used by the controller's one task, but for ``pause_s`` and ``go_on``, which never waits."""

    def __init__(
        self,
        context: ControllerContext,
        *,
        moving_max: int = MOVING_MAX,
        refusing: Callable[[], Collection[BrokerId]] = tuple,
    ) -> None:
        """Only assigns.

        Args:
            context: the reign.
            moving_max: partitions that move at a time.
            refusing: live brokers that append no records: nothing is moved to them.
        """
        self._context: Final = context
        self._moving_max: Final = moving_max
        self._refusing: Final = refusing
        self._looking = False
        self._wanted_again = False
        self._news = 0
        self._looked_s = -INTERVAL_S
        self._tidied_s = -TIDYING_INTERVAL_S
        self._leaving: Final[dict[PartitionKey, tuple[BrokerId, ...]]] = {}
        """Brokers that are to delete their replica once the partition is led in its new epoch."""
        self._told_of: Final[set[PartitionKey]] = set()
        """Partitions of which the log says what holds them up: a topic node changed by hand, or too large a one."""
        self._moves: Final = OpenMoves(context, refusing)
        self._pacing: Final = Pacing(context)
        self._telling = False
        self._stops_due_s = 0.0
        """When it is looked next who has begun to lead."""
        self._stops_overdue_s = 0.0
        """When that is done whatever is still to be told."""
        self.looks = 0
        """How often it looked."""
        self.judged = 0
        """Reassignments that it judged in all looks."""

    @property
    def scans(self) -> int:
        """How often it looked at all that are open, moving or not."""
        return self._moves.scans

    def asked(self, keys: Iterable[PartitionKey]) -> None:
        """Something was asked for of these partitions, and stands in the picture."""
        for key in keys:
            self._moves.note(key)

    @property
    def is_open(self) -> bool:
        """Whether anything is left to do."""
        context = self._context
        return bool(
            context.picture.reassigning
            or self._leaving
            or self._pacing.has_untold
            or context.dispatch.departing.has_confirmed
        )

    def concerns(self, key: PartitionKey) -> bool:
        """Whether news of a partition may be what a reassignment waits for."""
        return key in self._context.picture.reassigning or key in self._leaving

    def hear(self, keys: Iterable[PartitionKey]) -> None:
        """The ISR of these partitions is another one: look soon, if some move, or leave it to the next interval."""
        concerned = sum(map(self.concerns, keys))
        self._news += concerned
        idle_s = self._context.clock.monotonic() - self._looked_s
        if concerned and (idle_s >= INTERVAL_S or self._news >= self._moving_max / 2):
            self.wake()

    def wake(self) -> None:
        """Look soon; once more after the look that is under way."""
        if self._looking:
            self._wanted_again = True
        elif self.is_open:
            self._looking = True
            # Moves that arrive want one look after the other: callers' mutations take turns with its steps.
            self._context.defer("reassignments", self._look(), gives_way=True)

    @property
    def pause_s(self) -> float:
        """Seconds until ``go_on`` has something to do, or should look whether it has."""
        if not self.is_open:
            return INTERVAL_S
        # What is due already is on its way.
        return max(min(self._pacing.pause_s, STOPS_INTERVAL_S), APART_S)

    def go_on(self) -> None:
        """Have somebody told of what stands in the store; or replicas deleted, when everybody has been.

        For those of some portions together, because each message about them costs its broker a look into the store and
        an fsync, and because it does not come while others take orders up.
        """
        now_s = self._context.clock.monotonic()
        if self._pacing.has_untold and now_s < self._stops_overdue_s:
            self._stops_due_s = now_s + STOPS_INTERVAL_S
        elif now_s >= self._stops_due_s:
            self._stops_due_s, self._stops_overdue_s = now_s + STOPS_INTERVAL_S, now_s + INTERVAL_S
            self._stop_those_that_went()
        if self._pacing.has_untold and self._pacing.pause_s <= 0 and not self._telling:
            self._telling = True
            self._context.defer("orders of reassignments", self._tell_some())

    async def _tell_some(self) -> AsyncGenerator[None, None]:
        await self._pacing.tell_some()
        self._telling = False
        yield

    async def _look(self) -> AsyncGenerator[None, None]:
        self._wanted_again, self._news = False, 0
        self._looked_s = self._context.clock.monotonic()
        self.looks += 1
        for topic_id, numbers in (await self._due()).items():
            before = self._context.picture.partitions
            async for _ in self._advance(topic_id, numbers):
                yield
            after = self._context.picture.partitions
            for key in [PartitionKey(topic_id, number) for number in numbers]:
                # Nothing of it could be written: it waits for a scan, or it would be tried before all others for ever.
                if after.get(key) != before.get(key):
                    self._moves.note(key)
        if not self._context.picture.reassigning or self._looked_s - self._tidied_s >= TIDYING_INTERVAL_S:
            self._tidied_s = self._looked_s
            async for _ in take_confirmed_out(self._context):
                yield
        self._looking = False
        if self._wanted_again:
            self.wake()

    async def _due(self) -> dict[TopicId, list[int]]:
        """Partitions for which something is due, by topic; those that asked first begin first."""
        context, moves = self._context, self._moves
        await moves.keep_up()
        turns = Turns(PARTITIONS_PER_TURN)
        due: dict[TopicId, list[int]] = {}
        places = self._moving_max
        for key in tuple(moves.grown):
            await turns.took()
            self.judged += 1
            partition = context.picture.partitions.get(key)
            if partition is None or partition.reassignment is None or not is_grown(partition):
                moves.note(key)
                continue
            if key in context.unverified:
                continue
            if self._holds_place(key, partition):
                places -= 1
            if not isinstance(self._step(key, partition, may_grow=False), Wait):
                due.setdefault(key.topic_id, []).append(key.partition)
        while places > 0 and (key_ := moves.next()) is not None:
            await turns.took()
            self.judged += 1
            # What cannot begin for another reason than its brokers is taken up again with the next scan.
            if not isinstance(self._step(key_, context.picture.partitions[key_], may_grow=True), Wait):
                places -= 1
                due.setdefault(key_.topic_id, []).append(key_.partition)
        return due

    def _holds_place(self, key: PartitionKey, partition: Partition) -> bool:
        """Whether replicas of it are being filled; what waits for brokers that can fill none leaves its place."""
        move, held = partition.reassignment, partition.held
        if move is None or held is None:
            return move is not None
        brokers = self._context.picture.brokers
        unfit = {*held.state.isr, *self._context.picture.offline_at(key), *self._refusing()}
        return any(id in brokers and id not in unfit for id in move.target)

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

    async def _advance(self, topic_id: TopicId, numbers: list[int]) -> AsyncGenerator[None, None]:
        """Do what is due for some partitions of a topic; others come between two writes."""
        parts_max, left = PARTS_MAX, numbers
        for _ in range(ROUNDS_MAX):
            refused: list[int] = []
            queue, most = deque(left), PARTITIONS_PER_WRITE
            while queue:
                # Decided by the picture of this moment: since the write before, others may have changed it.
                changes = self._next_changes(topic_id, queue, parts_max=parts_max, most=most)
                fate = await self._write(topic_id, changes)
                if fate is _Fate.TOO_LARGE and len(changes) > 1:
                    queue.extendleft(reversed(changes))
                    most = max(len(changes) // 2, 1)
                elif fate is _Fate.REFUSED:
                    refused += changes
                yield
            if not refused or topic_id not in self._context.picture.topics:
                return
            applied = Applied()
            keys = [PartitionKey(topic_id, number) for number in refused]
            await reread(self._context, [key for key in keys if key in self._context.picture.partitions], applied)
            await tell(self._context, applied)
            # Fewer stand together, so that one leader that writes its ISR holds up fewer.
            left, parts_max = refused, parts_max // PARTS_DIVISOR
            yield

    def _next_changes(
        self, topic_id: TopicId, queue: deque[int], *, parts_max: int, most: int
    ) -> dict[int, AssignmentChange]:
        """Take from the queue what is judged and written together: as much as the multi has room for, one at least."""
        changes: dict[int, AssignmentChange] = {}
        members: set[BrokerId] = set()
        parts = 0
        for _ in range(min(len(queue), most)):
            key = PartitionKey(topic_id, queue[0])
            partition = self._context.picture.partitions.get(key)
            if partition is None or partition.reassignment is None:
                queue.popleft()
                continue
            change = _change(partition, self._step(key, partition, may_grow=True))
            if change is not None:
                joined = members if change.state is None else members.union(change.state.isr)
                own = int(change.held is not None)
                if changes and parts + own + 2 * len(joined) > parts_max:
                    break
                changes[key.partition], members, parts = change, joined, parts + own
            queue.popleft()
        return changes

    async def _write(self, topic_id: TopicId, changes: Mapping[int, AssignmentChange]) -> "_Fate":
        """Write, apply and tell."""
        context = self._context
        topic = context.picture.topics.get(topic_id)
        if topic is None or not changes:
            return _Fate.DONE
        # Clients must not hear of a leader to whom the order is given only some portions later.
        context.metadata.send_what_waits()
        known = context.picture.partitions
        before = {number: known[PartitionKey(topic_id, number)] for number in changes}
        former = [
            _leader(before[number])
            for number, change in changes.items()
            if change.state is not None and change.state.leader != _leader(before[number])
        ]
        try:
            with context.traced(self._pacing.trace() if former else None):
                context.decided((id for id in former if id != NO_LEADER), leaders=bool(former))
                outcome = await write_assignments(context, topic, changes)
                context.reached(conventions.WRITTEN_UNIX_NANO, again=True)
        except NotTaken as error:
            self._report_not_taken(topic, changes, str(error))
            return _Fate.TOO_LARGE
        self._report(topic.name, outcome.differing)
        if outcome.refused:
            context.log.info("reassignment refused, deciding again", topic=topic.name, reason=outcome.refused)
            return _Fate.REFUSED
        # Whoever was waited for before led in an earlier epoch.
        context.dispatch.forget([key for key in outcome.written if key in self._leaving])
        led_elsewhere: set[PartitionKey] = set()
        for key in outcome.written:
            after = context.picture.partitions[key]
            if _leader(after) != _leader(before[key.partition]):
                led_elsewhere.add(key)
            gone = tuple(id for id in before[key.partition].replicas if id not in after.replicas)
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
        await self._pacing.written(outcome.written, led_elsewhere=led_elsewhere)
        return _Fate.DONE

    def _report_not_taken(self, topic: Topic, changes: Mapping[int, AssignmentChange], reason: str) -> None:
        """Say once of a partition that there is no smaller step for it."""
        if len(changes) > 1:
            return
        (key,) = (PartitionKey(topic.id, number) for number in changes)
        if key not in self._told_of:
            self._told_of.add(key)
            self._context.log.warning(
                "reassignment cannot be written", topic=topic.name, partition=key.partition, reason=reason
            )

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

    def _stop_those_that_went(self) -> None:
        """Have replicas deleted of partitions that are led in their new epoch."""
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
                if id not in partition.replicas:
                    context.dispatch.order_stops(id, [stop])


def _leader(partition: Partition) -> BrokerId:
    return NO_LEADER if partition.held is None else partition.held.state.leader


def _change(partition: Partition, step: Step) -> AssignmentChange | None:
    match step:
        case Grow(assigned=assigned) | Shrink(assigned=assigned, leaving=()):
            # Nobody goes: whatever its state is by then, nothing is lost by it.
            return AssignmentChange(assigned=assigned)
        case Shrink(assigned=assigned, state=state):
            return AssignmentChange(assigned=assigned, held=partition.held, state=state)
        case Wait():
            return None
