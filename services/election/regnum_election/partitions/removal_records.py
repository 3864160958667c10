"""Records of removed partitions: brokers confirm one by one, and the record goes last (safety rule S13)."""

from collections.abc import Iterable, Sequence
from typing import Final

from regnum_coordination.errors import NoNode
from regnum_coordination.port import Check, Delete, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import PartitionDeletionNode
from regnum_service.slices import slices

from regnum_election.decisions.deletion import Removal
from regnum_election.partitions.taking_out import TakenOut, refused_by
from regnum_election.state.context import ControllerContext

ANSWERS_PER_TURN: Final = 250
"""Brokers' answers taken between two turns of the event loop (safety rule S22)."""


class RemovalRecords:
    """Of one reign. Used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        """Only assigns."""
        self._context: Final = context

    async def answered(self, broker: BrokerId, partitions: Iterable[tuple[PartitionKey, bool]]) -> None:
        """A broker answered orders to delete single replicas, and says of each whether it did."""
        removals = self._context.removals
        heard: list[PartitionKey] = []
        async for some in slices(partitions, ANSWERS_PER_TURN):
            # One that it could not delete is ordered again by the dispatch until the broker obeys or is gone.
            heard.extend(key for key, succeeded in some if succeeded and removals.confirmed(broker, key))
        await self.settle(heard)

    async def settle(self, keys: Iterable[PartitionKey]) -> None:
        """Remove records that every broker has confirmed; name only absent brokers in the others, once that is so."""
        context = self._context
        meant: list[tuple[Removal, PartitionDeletionNode | None]] = []
        async for some in slices(keys, ANSWERS_PER_TURN):
            for key in some:
                removal = context.removals.get(key)
                if removal is None:
                    continue
                due = removal.record_due(context.picture.brokers)
                if due is not None or not removal.waiting:
                    meant.append((removal, due))
        groups = [(_record_write(removal, due),) for removal, due in meant]
        await self._rewritten(meant, await context.store.write_batch(groups))

    async def _rewritten(
        self, meant: Sequence[tuple[Removal, PartitionDeletionNode | None]], outcomes: Sequence[Written | Refused]
    ) -> int:
        """What became of records that were to be rewritten or removed; returns how many are gone."""
        context = self._context
        ended: dict[TopicId, str] = {}
        count = 0
        over: dict[BrokerId, set[PartitionKey]] = {}
        for (removal, due), outcome in zip(meant, outcomes, strict=True):
            match outcome:
                case Written(results=results):
                    stat = results[-1].stat
                    if due is not None and stat is not None:
                        context.removals.replace(removal.rewritten(due, version=stat.version))
                        continue
                    count += 1
                    _note(over, removal)
                    context.removals.remove(removal.key)
                    ended[removal.key.topic_id] = removal.topic
                case Refused(error=error):
                    # Somebody wrote the record by hand: the next reign reads it again.
                    context.log.warning("removal record changed meanwhile", key=removal.key, reason=str(error))
                    if isinstance(error, NoNode):
                        _note(over, removal)
                        context.removals.remove(removal.key)
        for broker, keys in over.items():
            context.dispatch.withdraw_stops(broker, keys)
        closed = [id for id in ended if not context.removals.of_topic(id)]
        for id in closed:
            context.log.info("removed partitions deleted everywhere", topic=ended[id], topic_id=id)
        # One that somebody put something into stays.
        await context.store.write_batch([(Delete(paths.partition_deletions(id), 0),) for id in closed])
        return count

    async def forget(
        self, broker: BrokerId, keys: Iterable[PartitionKey], guard: Check | None, *, validate_only: bool
    ) -> TakenOut:
        """Take a broker that never comes back out of records, each on condition that ``guard`` holds."""
        context = self._context
        meant: list[tuple[Removal, PartitionDeletionNode | None]] = []
        for key in keys:
            removal = context.removals.get(key)
            if removal is not None and broker in removal.waiting:
                record = removal.record_without(broker)
                meant.append((removal.confirmed(broker), record if record.brokers else None))
        if validate_only:
            return TakenOut(records=len(meant), ended=sum(due is None for _, due in meant))
        checks = () if guard is None else (guard,)
        outcomes = await context.store.write_batch([(*checks, _record_write(one, due)) for one, due in meant])
        # What was written before the broker came is taken up all the same, or the records would be known as they were.
        before = [
            (one, outcome) for one, outcome in zip(meant, outcomes, strict=True) if not refused_by(guard, outcome)
        ]
        return TakenOut(
            records=sum(isinstance(outcome, Written) for _, outcome in before),
            ended=await self._rewritten([one for one, _ in before], [outcome for _, outcome in before]),
            registered=len(before) < len(meant),
        )


def _note(over: dict[BrokerId, set[PartitionKey]], removal: Removal) -> None:
    for broker in removal.recorded:
        over.setdefault(broker, set()).add(removal.key)


def _record_write(removal: Removal, due: PartitionDeletionNode | None) -> Set | Delete:
    path = paths.partition_deletion(removal.key.topic_id, removal.key.partition)
    if due is None:
        return Delete(path, removal.record_version)
    return Set(path, due.encode(), removal.record_version)
