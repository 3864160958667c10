"""GiveUpPartitions: the way out where what is recorded of a partition cannot be read and nobody can mend it.

Four kinds of damage keep a partition number from ever being used again:

    its state                the partition stands and nobody may lead it; DeletePartitions refuses it, since the
                             tombstone has to go on from a leader epoch that nobody knows (safety rule S2)
    its state, while it goes the topic node names it as ``removing``, and the tombstone cannot be written over a state
                             that may be a later controller's
    its removal record       nobody knows which brokers have confirmed that their files are gone (safety rule S13)
    its tombstone            nobody knows from which leader epoch the number has to go on (safety rule S2)

Goals: a person is told what is lost before anything is, and decides; what is done is done by the writes of an ordinary
removal, so a controller that dies in between leaves what the next one, or a repeat, carries on from.

Constraints: the leader epoch of the tombstone is above every one that the controller or an assigned broker that answers
knows, by ``UNKNOWN_EPOCHS`` as for a recovery: a broker that is silent may know later ones, and one of a later epoch
than its order to delete would keep its files. Only what is still damaged when its turn comes is touched, at the version
read.

Algorithm: brokers are asked what epochs they know in the coroutine of the caller; then, in the controller's task, a
partition that stands is removed like any other (highest first), one that goes is buried with that epoch, and a record
or a tombstone is written over the unreadable one (``tombstones``).
"""

import asyncio
import enum
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, BrokerId, LeaderEpoch, PartitionKey
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Topic
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.history.events import DELETION
from regnum_election.partitions.removal import PartitionRemover, RemovalCall, RemovalOutcome
from regnum_election.partitions.requests import RemovalRequest
from regnum_election.partitions.tombstones import look_behind, write_anew
from regnum_election.recovery.decisions import Answer, recovered_epoch
from regnum_election.recovery.survey import Survey
from regnum_election.reign.request_queue import RequestQueue, beside
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part
from regnum_election.topics.deletion_orders import tell_deletions

PARTITIONS_MAX: Final = 1_000
"""Partitions of one call."""


PARTITIONS_PER_TURN: Final = 1_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


class Kind(enum.Enum):
    """What is damaged."""

    STATE = "state"
    """The partition stands, and its state cannot be used."""
    STATE_ON_ITS_WAY_OUT = "state on its way out"
    """Its removal began, and its state cannot be read."""
    RECORD = "removal record"
    """It is removed, and the record of who has still to delete it cannot be read."""
    TOMBSTONE = "tombstone"
    """It is removed, and what its number goes on from cannot be read."""


LOST: Final[Mapping[Kind, str]] = {
    Kind.STATE: "the partition is removed: all records that its brokers have of it are deleted",
    Kind.STATE_ON_ITS_WAY_OUT: "its removal goes on: the records that its brokers still have of it are deleted",
    Kind.RECORD: "every broker is told once more to delete what it has of the removed partition; no other record goes",
    Kind.TOMBSTONE: "no record of any partition that the topic has: every broker is told to delete what it has of the "
    "removed one, and its number goes on in a leader epoch far above",
}
"""What giving up does, for people."""

KINDS: Final[Mapping[Part, Kind]] = {
    Part.RECORD: Kind.RECORD,
    Part.STATE: Kind.STATE_ON_ITS_WAY_OUT,
    Part.TOMBSTONE: Kind.TOMBSTONE,
}
"""By what is damaged of a partition that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """What was found of one partition, and what was done."""

    partition: int
    kind: Kind | None
    """What is damaged; None: nothing that can be given up."""
    reason: str = ""
    """What is wrong with it, for people."""
    rejection: Rejection | None = None
    """What stands against it."""
    done: bool = False
    """Whether it was given up."""


@dataclass(slots=True, kw_only=True)
class _Call:
    topic: Topic
    who: str
    found: Mapping[int, GivenUp]
    floors: Mapping[int, LeaderEpoch]
    traceparent: str
    outcomes: dict[int, Rejection | None] = field(default_factory=dict)
    """None: done."""
    begun: bool = False


class GivingUp:
    """Of one reign."""

    def __init__(self, context: ControllerContext, remover: PartitionRemover, requests: RequestQueue) -> None:
        """Only assigns."""
        self._context: Final = context
        self._remover: Final = remover
        self._requests: Final = requests
        self._survey: Final = Survey(context)

    async def give_up(
        self, name: str, partitions: Sequence[int], *, accept_loss: bool, who: str, wait_s: float
    ) -> tuple[GivenUp, ...]:
        """Look at damaged partitions of a topic, or at those that are named; with ``accept_loss`` give them up.

        Raises RegnumError.
        """
        deadline_s = self._context.clock.monotonic() + wait_s
        await self._all_is_read(wait_s)
        topic = self._context.picture.topic_named(name)
        if topic is None and name in self._context.refused:
            damaged = node_damaged(name)
            raise RegnumError(damaged.code, damaged.message)
        if topic is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {name[:249]}; list the topics to see the names",
            )
        if len(partitions) > PARTITIONS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{len(partitions)} partitions in one call; name at most {PARTITIONS_MAX}",
            )
        await look_behind(self._context, topic, partitions)
        found = {number: self._found(topic, number) for number in partitions or await self._damaged(topic)}
        meant = {number: one for number, one in found.items() if one.kind is not None}
        if not accept_loss or not meant:
            return tuple(found[number] for number in sorted(found))
        self._requests.require_room()
        late = "brokers could not be asked in time and nothing was changed; try again"
        floors = await beside(self._floors(topic, meant, wait_s), wait_s, late=late)
        call = _Call(topic=topic, who=who, found=meant, floors=floors, traceparent=tracing.current())
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.submit("give up partitions", self._steps(call, result), result, begun=lambda: call.begun)
        await self._requests.answer(result, max(deadline_s - self._context.clock.monotonic(), 0.0))
        return tuple(_after(found[number], call.outcomes) for number in sorted(found))

    async def _all_is_read(self, wait_s: float) -> None:
        """Wait for what a reign that has just begun reads anew: before, damage in the store looks like none."""
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.submit("what is damaged", _tell(read), read, begun=lambda: False)
        late = "the controller is still reading what its predecessor left and nothing was changed; try again"
        await beside(self._requests.answer(read, wait_s), wait_s, late=late)

    async def _damaged(self, topic: Topic) -> list[int]:
        """Damaged partitions of a topic: those that are gone, and those that stand without a usable state."""
        found = list(self._context.removals.damaged_of(topic.id))
        turns = Turns(PARTITIONS_PER_TURN)
        for number in topic.partitions:
            await turns.took()
            if self._found(topic, number).kind is Kind.STATE:
                found.append(number)
        return found[:PARTITIONS_MAX]

    def _found(self, topic: Topic, number: int) -> GivenUp:
        key = PartitionKey(topic.id, number)
        damage = self._context.removals.damage_of(key)
        partition = self._context.picture.partitions.get(key)
        if damage is not None and partition is None:
            return GivenUp(partition=number, kind=KINDS[damage.part], reason=damage.reason)
        if partition is None or partition.trouble is None:
            message = f"partition {number} of topic {topic.name} is not damaged, or there is none; nothing to give up"
            return GivenUp(partition=number, kind=None, rejection=_rejected(message))
        return GivenUp(partition=number, kind=Kind.STATE, reason=partition.trouble)

    async def _floors(self, topic: Topic, found: Mapping[int, GivenUp], wait_s: float) -> dict[int, LeaderEpoch]:
        """Leader epochs that are above all that anybody knows, by partition."""
        asked: dict[BrokerId, list[PartitionKey]] = {}
        known: dict[int, LeaderEpoch] = {}
        removals, picture = self._context.removals, self._context.picture
        for number, one in found.items():
            key = PartitionKey(topic.id, number)
            partition = picture.partitions.get(key)
            held = None if partition is None else partition.held
            began = 0 if partition is None else partition.began
            known[number] = LeaderEpoch(max(NO_EPOCH if held is None else held.state.leader_epoch, began - 1))
            brokers: Iterable[BrokerId] = () if partition is None else partition.replicas
            if one.kind is Kind.STATE_ON_ITS_WAY_OUT:
                brokers = removals.begun.get(topic.id, {}).get(number, ())
            elif partition is None:
                # Any of them may have had it; who has files of it still knows its epoch.
                brokers = picture.brokers
                recorded = removals.get(key)
                known[number] = LeaderEpoch(NO_EPOCH) if recorded is None else recorded.leader_epoch
            for id in brokers:
                asked.setdefault(id, []).append(key)
        answers = await self._survey.ask(asked, wait_s / 2)
        told: dict[int, list[Answer]] = {}
        turns = Turns(PARTITIONS_PER_TURN)
        for (_, key), answer in answers.items():
            await turns.took()
            told.setdefault(key.partition, []).append(answer)
        floors: dict[int, LeaderEpoch] = {}
        for number, epoch in known.items():
            await turns.took()
            above = recovered_epoch(epoch, told.get(number, ()), certain=False)
            if above is not None:
                floors[number] = above
        return floors

    async def _steps(self, call: _Call, result: "asyncio.Future[None]") -> AsyncGenerator[None, None]:
        """In the controller's task."""
        context, topic = self._context, call.topic
        # What was mended, or given up by somebody else, since it was looked at is left alone.
        meant = [number for number, one in call.found.items() if self._found(topic, number).kind is one.kind]
        call.outcomes.update(
            dict.fromkeys(call.found.keys() - set(meant), _rejected("it changed meanwhile; look again"))
        )
        by_kind = {kind: [number for number in meant if call.found[number].kind is kind] for kind in Kind}
        for number in (*by_kind[Kind.STATE], *by_kind[Kind.STATE_ON_ITS_WAY_OUT]):
            if number not in call.floors:
                call.outcomes[number] = _rejected("no leader epoch is left above those known; delete the topic")
            else:
                self._remover.accept_unreadable(PartitionKey(topic.id, number), call.floors[number])
        call.begun = True
        context.log.warning("partitions given up by request", topic=topic.name, partitions=sorted(meant), who=call.who)
        standing = [number for number in by_kind[Kind.STATE] if number not in call.outcomes]
        if standing:
            async for _ in self._remove(call, standing):
                yield
        going = [number for number in by_kind[Kind.STATE_ON_ITS_WAY_OUT] if number not in call.outcomes]
        if going:
            async for _ in self._remover.bury((topic.id,)):
                yield
            left = context.removals.begun.get(topic.id, {})
            for number in going:
                call.outcomes[number] = _rejected("it could not be written; try again") if number in left else None
        for number in (*by_kind[Kind.RECORD], *by_kind[Kind.TOMBSTONE]):
            call.outcomes[number] = await write_anew(context, topic, number, call.floors.get(number))
            yield
        await tell_deletions(context)
        if not result.done():
            result.set_result(None)

    async def _remove(self, call: _Call, numbers: Sequence[int]) -> AsyncGenerator[None, None]:
        topic = call.topic
        request = RemovalRequest(
            name=topic.name, topic_id=topic.id, partitions=numbers, mutation=None, accept_damage=True
        )
        future: asyncio.Future[tuple[RemovalOutcome, ...]] = asyncio.get_running_loop().create_future()
        reason = DELETION.asked_by(call.who, call.traceparent)
        removal = RemovalCall(requests=[request], validate_only=False, result=future, reason=reason)
        async for _ in self._remover.remove_partitions(removal):
            yield
        outcome = removal.outcomes[0]
        refused = outcome if isinstance(outcome, Rejection) else None
        left = self._context.removals.begun.get(topic.id, {})
        for number in numbers if refused is not None else ():
            # It stands, and what becomes of it later nobody has accepted.
            self._remover.accept_no_more(PartitionKey(topic.id, number))
        for number in numbers:
            waits = _rejected("it is removed, and its state could not be written yet; run it again")
            call.outcomes[number] = refused or (waits if number in left else None)


async def _tell(read: "asyncio.Future[None]") -> AsyncGenerator[None, None]:
    """A step that does nothing: mutations are taken in order, and a reign reads before it takes one."""
    if not read.done():
        read.set_result(None)
    return
    yield


def _after(found: GivenUp, outcomes: Mapping[int, Rejection | None]) -> GivenUp:
    if found.partition not in outcomes:
        return found
    refused = outcomes[found.partition]
    return GivenUp(
        partition=found.partition, kind=found.kind, reason=found.reason, rejection=refused, done=refused is None
    )


def _rejected(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
