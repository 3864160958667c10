"""ForgetBroker: a broker that never comes back is waited for no more.

A topic's deletion is remembered until every broker that had replicas has confirmed it (safety rule S13), so a
decommissioned broker keeps the records of all topics that went after it. A person says that it is gone for good; what
is on its disks is theirs to remove.

Goals: nothing that a live broker has to do is forgotten; the node ``/brokers/epochs/<id>`` stays, or a later broker of
the same id could be taken for the former one (safety rule S2).

Algorithm: the guard node is read, then the registration. If there is none, everything is rewritten on condition that
the guard has the version that was read: whoever registers in between changes it, and the rest is refused. A broker that
has never registered gets its guard first. Last come, together, what drains it and what a restored cluster waits for.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import (
    Check,
    Create,
    Delete,
    Group,
    Node,
    Operation,
    OperationResult,
    Refused,
    Set,
    Stat,
    Written,
)
from regnum_model import paths
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import MalformedNodeError
from regnum_service.errors import RegnumError

from regnum_election.brokers.draining import ROUNDS_MAX, take_mark
from regnum_election.decisions.deletion import Deletion
from regnum_election.partitions.removal_records import RemovalRecords
from regnum_election.partitions.taking_out import NOTHING, TakenOut, refused_by
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext
from regnum_election.topics.deletion import TopicDeleter

FORGOTTEN_CONTENT: Final = b"forgotten"
"""Content of a guard node that is made here. A broker's first registration makes it with another one: if the answer to
this write is lost, the node that is found tells whose it is (safety rule S1)."""

RECORDS_PER_STEP: Final = 250
"""Records that one step rewrites; a failover waits for one step at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was, or would be, forgotten."""

    deletions: int
    """Deletions of topics, and of removed partitions, that wait for the broker no more."""
    deletions_ended: int
    """Those of them that waited for nobody else."""
    assigned_partitions: int
    """Partitions whose assignment still names it; they stay as they are."""


class BrokerForgetting:
    """ForgetBroker calls of one reign."""

    def __init__(
        self, context: ControllerContext, deleter: TopicDeleter, removals: RemovalRecords, requests: RequestQueue
    ) -> None:
        self._context = context
        self._deleter = deleter
        self._removals = removals
        self._requests = requests

    async def forget(self, broker: BrokerId, *, validate_only: bool, who: str, wait_s: float) -> Forgotten:
        """Take a broker out of all open deletions.

        Args:
            broker: which.
            validate_only: only count.
            who: who asks, for the log.
            wait_s: how long it may take.

        Raises:
            RegnumError: INVALID_REQUEST while it is registered, or when nothing is known of it.
        """
        result: asyncio.Future[Forgotten] = asyncio.get_running_loop().create_future()
        begun = False

        async def steps() -> AsyncGenerator[None, None]:
            nonlocal begun
            guard = await self._guard(broker, validate_only=validate_only)
            waiting = iter(self._context.deletions.of_broker(broker))
            assigned = len(tuple(self._context.picture.of_broker(broker)))
            out = NOTHING
            while some := tuple(islice(waiting, RECORDS_PER_STEP)):
                begun = begun or not validate_only
                out += await self._take_out(broker, some, guard, validate_only=validate_only)
                _go_on(broker, out)
                yield
            left = iter(self._context.removals.of_broker(broker))
            while keys := tuple(islice(left, RECORDS_PER_STEP)):
                begun = begun or not validate_only
                out += await self._removals.forget(broker, keys, guard, validate_only=validate_only)
                _go_on(broker, out)
                yield
            if not validate_only:
                begun = True
                await self._take_marks(broker, guard, out)
                _take_out_of_lists(self._context, broker)
                departing = self._context.dispatch.departing
                for key in departing.of_broker(broker):
                    departing.done(key, broker)
                self._context.log.warning(
                    "broker forgotten by request",
                    broker=broker,
                    deletions=out.records,
                    deletions_ended=out.ended,
                    who=who,
                )
            if not result.done():
                result.set_result(
                    Forgotten(deletions=out.records, deletions_ended=out.ended, assigned_partitions=assigned)
                )

        self._requests.submit("forget broker", steps(), result, begun=lambda: begun)
        return await self._requests.answer(result, wait_s)

    async def _take_marks(self, broker: BrokerId, guard: Check | None, out: TakenOut) -> None:
        """Nothing waits for a broker that is gone for good, nor drains it; its disk comes back as another log."""
        context, gone = self._context, (paths.draining(broker), paths.broker_life(broker))
        checks = () if guard is None else (guard,)
        for _ in range(ROUNDS_MAX):
            nodes = await context.store.read_many((*gone, MARK))
            operations: list[Operation] = [Delete(path, nodes[path].stat.version) for path in gone if path in nodes]
            if (node := nodes.get(MARK)) is not None and (mark := _mark_naming(broker, node)) is not None:
                without = replace(mark, brokers=mark.brokers - {broker})
                operations.append(Set(MARK, without.encode(), node.stat.version))
            if not operations:
                break
            (outcome,) = await context.store.write_batch([(*checks, *operations)])
            if not isinstance(outcome, Refused):
                break
            if refused_by(guard, outcome):
                raise _registered(broker, out.records)
        else:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{' or '.join((*gone, MARK))} is changed by others all the time; try again",
            )
        take_mark(context, broker, undo=True)

    async def _guard(self, broker: BrokerId, *, validate_only: bool) -> Check | None:
        """What every write relies on: that the broker has not registered since; None: nothing is written."""
        context = self._context
        epoch_path, id_path = paths.broker_epoch(broker), paths.broker_id(broker)
        # In this order: whoever registers after the first read changes what it has read.
        guard = (await context.store.read_many((epoch_path,))).get(epoch_path)
        registered = id_path in await context.store.read_many((id_path,))
        if registered or broker in context.picture.brokers:
            raise _registered(broker)
        if guard is not None:
            return Check(epoch_path, guard.stat.version)
        if not await self._is_named(broker):
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"no broker {broker} was ever registered, and nothing names it; look at the id",
            )
        if validate_only:
            return None
        # Whoever registers for the first time makes this node, and refuses the write, or changes it and refuses others.
        (outcome,) = await context.store.write_batch([(Create(epoch_path, FORGOTTEN_CONTENT),)])
        match outcome:
            case Written(results=(OperationResult(stat=Stat(version=version)),)):
                return Check(epoch_path, version)
            case Refused(error=NodeExists()):
                raise _registered(broker)
            case _:
                raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{epoch_path} cannot be written: {outcome}")

    async def _is_named(self, broker: BrokerId) -> bool:
        """Whether anything names a broker that has never registered."""
        context = self._context
        records = context.deletions.of_broker(broker) or context.removals.of_broker(broker)
        if records or context.dispatch.departing.of_broker(broker):
            return True
        if broker in context.picture.assigned or broker in context.picture.draining:
            return True
        node = (await context.store.read_many((MARK,))).get(MARK)
        return node is not None and _mark_naming(broker, node) is not None

    async def _take_out(
        self, broker: BrokerId, topics: tuple[TopicId, ...], guard: Check | None, *, validate_only: bool
    ) -> TakenOut:
        """Rewrite records, each on condition that the guard holds."""
        context = self._context
        found = [context.deletions.get(id) for id in topics]
        meant = [one for one in found if one is not None and broker in one.remaining]
        if validate_only:
            return TakenOut(records=len(meant), ended=sum(one.remaining == {broker} for one in meant))
        checks = () if guard is None else (guard,)
        groups: list[tuple[Deletion, Group]] = [(one, (*checks, self._write(one, broker))) for one in meant]
        written = ended = 0
        registered = False
        for one, outcome in zip(meant, await self._deleter.write_records(groups), strict=True):
            match outcome:
                case Written(results=results):
                    written += 1
                    stat = results[-1].stat
                    if stat is None:
                        self._deleter.ended(one)
                        ended += 1
                    else:
                        rewritten = one.rewritten(one.record_without(broker), version=stat.version)
                        context.deletions.add(rewritten)
                case Refused() if refused_by(guard, outcome):
                    registered = True
                case Refused(error=error):
                    # Somebody wrote the record by hand: the next reign reads it again.
                    context.log.warning("deletion record changed meanwhile", topic_id=one.topic_id, reason=str(error))
        return TakenOut(records=written, ended=ended, registered=registered)

    def _write(self, deletion: Deletion, broker: BrokerId) -> Set | Delete:
        record = deletion.record_without(broker)
        path = paths.deletion(deletion.topic_id)
        if record.brokers or not self._deleter.is_cleared(deletion.topic_id):
            return Set(path, record.encode(), deletion.record_version)
        return Delete(path, deletion.record_version)


def _take_out_of_lists(context: ControllerContext, broker: BrokerId) -> None:
    """A broker that had replicas of topics that are gone is listed as one that is away; nobody waits for this one."""
    assigned = context.picture.assigned
    if broker in assigned and not assigned[broker]:
        context.picture = replace(context.picture, assigned=assigned.delete(broker))


def _mark_naming(broker: BrokerId, node: Node) -> RestoreMark | None:
    """The mark of a restore, if brokers that it waits for are told there and this is one of them."""
    try:
        mark = RestoreMark.decode(node.data)
    except MalformedNodeError:
        return None
    return mark if broker in mark.brokers else None


def _go_on(broker: BrokerId, out: TakenOut) -> None:
    if out.registered:
        raise _registered(broker, out.records)


def _registered(broker: BrokerId, taken_out: int = 0) -> RegnumError:
    message = f"broker {broker} is registered; a broker that is only away is waited for. Stop it for good first"
    if taken_out:
        message += (
            f". It came while it was being forgotten; deletions that wait for it no more: {taken_out}. What it has of "
            f"them stays on its disks, and regnum brokers strays --broker {broker} lists it"
        )
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
