"""Tombstones and records of removed partitions: the second and third write of a removal (see ``removal``).

Goals: few store calls for many partitions; a leader that writes its state meanwhile costs one more read and write; a
controller that comes in between goes on from whatever is left.

Algorithm: what the picture knew of a partition when it was removed is replaced unread, at the version known; what is
refused is read. A state that is a tombstone already was buried by an earlier reign: tombstone and record were written
together, so if the record is gone every broker has confirmed.
"""

import enum
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from regnum_coordination.port import Check, Create, Delete, Group, Node, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import MalformedNodeError, PartitionDeletionNode
from regnum_service.slices import slices

from regnum_election.decisions.cluster import HeldState
from regnum_election.decisions.deletion import Removal
from regnum_election.decisions.leadership import removed_state
from regnum_election.decisions.topic_nodes import FoundNode, judge_state, readable
from regnum_election.reign.beside import Beside
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part
from regnum_election.topics.deletion_orders import tell_deletions

PARTITIONS_PER_STEP: Final = 300
"""Partitions that one step buries; a failover waits for one step at most."""

PARTITIONS_PER_TURN: Final = 100
"""Tombstones that are made between two turns of the event loop (safety rule S22)."""

ROUNDS_MAX: Final = 20
"""Rounds against leaders and people that write states while these are replaced; what is left then is tried later."""


PASSED_OVER_MAX: Final = 63
"""How often a state that cannot be read is passed over, at most, before it is read again."""


class Unreadable(enum.Enum):
    """A state that only a person can mend."""

    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A state that cannot be read, and that a person lets be written over."""

    version: int
    """Version of its node."""


class Burial:
    """Of one reign. Used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        """Only assigns."""
        self._context: Final = context
        self._known: Final[dict[TopicId, dict[int, HeldState]]] = {}
        """Last states of partitions that are gone from the picture and not buried: they need not be read."""
        self._hopeless: Final[dict[PartitionKey, tuple[int, int]]] = {}
        """What only a person can mend: how often it is passed over before it is read again, and how often the last
        time."""
        self._contested: Final[set[TopicId]] = set()
        """Topics whose folder of records was made for a record that then was refused."""
        self._given_up: Final[dict[PartitionKey, LeaderEpoch]] = {}
        """Partitions whose state may be written over unread, with the leader epoch of their tombstone, at least."""

    def remember(self, key: PartitionKey, held: HeldState) -> None:
        """What the picture knew of a partition when it was removed."""
        self._known.setdefault(key.topic_id, {})[key.partition] = held

    def accept_unreadable(self, key: PartitionKey, epoch: LeaderEpoch) -> None:
        """A person gives a state up; the tombstone has this leader epoch at least, should it be unreadable or gone."""
        self._given_up[key] = epoch
        self._hopeless.pop(key, None)

    def accept_no_more(self, key: PartitionKey) -> None:
        """What was given up stands all the same."""
        self._given_up.pop(key, None)

    async def bury(self, topics: Collection[TopicId]) -> AsyncGenerator[None, None]:
        """Steps that make tombstones and records of what topic nodes name as ``removing``; may be repeated."""
        context = self._context
        buried: dict[TopicId, set[int]] = {id: set() for id in topics}
        keys = self._due(PartitionKey(id, number) for id in topics for number in context.removals.begun.get(id, ()))
        for first in range(0, len(keys), PARTITIONS_PER_STEP):
            left = self._still_there(keys[first : first + PARTITIONS_PER_STEP])
            hopeless: set[PartitionKey] = set()
            for round_ in range(ROUNDS_MAX):
                if not left:
                    break
                done = await self._bury(left, hopeless, read=round_ > 0)
                for key in done:
                    buried[key.topic_id].add(key.partition)
                    self._put_out_of_mind(key)
                left = [key for key in left if key not in done and key not in hopeless]
            self._pass_over(hopeless)
            if left or hopeless:
                stuck = len(left) + len(hopeless)
                context.log.error("partitions removed and not buried; trying again later", partitions=stuck)
            await tell_deletions(context)
            yield
        for id in topics:
            # What is left is read when its time comes again.
            self._known.pop(id, None)
        await self._take_empty_folders_away(id for id in topics if id in self._contested)
        for key in [key for key in self._given_up if key.topic_id not in context.picture.topics]:
            del self._given_up[key]
        for key in [key for key in self._hopeless if key.partition not in context.removals.begun.get(key.topic_id, ())]:
            # Deleted with its topic.
            del self._hopeless[key]
        await self._take_marks_away({id: numbers for id, numbers in buried.items() if numbers})

    def _put_out_of_mind(self, key: PartitionKey) -> None:
        """A partition is buried: whoever comes to it once more, before its mark is taken away, reads that."""
        self._known.get(key.topic_id, {}).pop(key.partition, None)
        self._hopeless.pop(key, None)
        self._given_up.pop(key, None)
        self._no_longer_stuck(key)

    def _no_longer_stuck(self, key: PartitionKey) -> None:
        damage = self._context.removals.damage_of(key)
        if damage is not None and damage.part is Part.STATE:
            self._context.removals.mended(key)

    def _due(self, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
        """Those whose turn it is; what nobody can read is looked at less and less often."""
        due: list[PartitionKey] = []
        for key in keys:
            left, last = self._hopeless.get(key, (0, 0))
            if left:
                self._hopeless[key] = (left - 1, last)
            else:
                due.append(key)
        return due

    def _pass_over(self, hopeless: Iterable[PartitionKey]) -> None:
        for key in hopeless:
            _, last = self._hopeless.get(key, (0, 0))
            times = min(2 * last + 1, PASSED_OVER_MAX)
            self._hopeless[key] = (times, times)

    def _still_there(self, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
        """A topic may have been deleted meanwhile, with all that is recorded of its partitions."""
        context = self._context
        return [
            key
            for key in keys
            if key.topic_id in context.picture.topics and key.partition in context.removals.begun.get(key.topic_id, ())
        ]

    async def _bury(
        self, keys: Sequence[PartitionKey], hopeless: set[PartitionKey], *, read: bool
    ) -> set[PartitionKey]:
        """One round; those that need no further one. What only a person can mend is added to ``hopeless``."""
        context = self._context
        known = {} if read else {key: one for key in keys if (one := self._remembered(key)) is not None}
        unknown = [key for key in keys if key not in known]
        found = await context.store.read_many([path for key in unknown for path in self._paths_of(key)])
        done: set[PartitionKey] = set()
        groups: list[Group] = [self._folder(id) for id in dict.fromkeys(key.topic_id for key in keys)]
        folders = len(groups)
        meant: list[tuple[PartitionKey, PartitionDeletionNode]] = []
        asked = frozenset(unknown)
        async for some in slices(keys, PARTITIONS_PER_TURN):
            for key in some:
                held = self._judge(key, found) if key in asked else known[key]
                if held is Unreadable.STATE:
                    hopeless.add(key)
                    continue
                if isinstance(held, HeldState) and held.state.removed:
                    self._take_up(key, found)
                    done.add(key)
                    continue
                group, record = self._grave(key, held, found)
                groups.append(group)
                meant.append((key, record))
        outcomes = (await context.store.write_batch(groups))[folders:] if meant else ()
        for (key, record), outcome in zip(meant, outcomes, strict=True):
            match outcome:
                case Written(results=results):
                    stat = results[-1].stat
                    version = 0 if stat is None else stat.version
                    context.removals.add(Removal.recorded_as(key, record, version=version))
                    done.add(key)
                case Refused(error=error):
                    context.log.info("state changed while it was replaced", key=key, reason=str(error))
                    self._contested.add(key.topic_id)
                    if getattr(error, "path", None) == paths.topic_id(key.topic_id):
                        # Without its guard the topic is out of reach (safety rule S2).
                        hopeless.add(key)
        return done

    def _remembered(self, key: PartitionKey) -> HeldState | None:
        return self._known.get(key.topic_id, {}).get(key.partition)

    def _paths_of(self, key: PartitionKey) -> tuple[str, ...]:
        name = self._context.picture.topics[key.topic_id].name
        return (
            paths.partition(name, key.partition),
            paths.leader_and_isr(name, key.partition),
            paths.partition_deletion(key.topic_id, key.partition),
        )

    def _folder(self, id: TopicId) -> Group:
        """Of the topic's records. It may stand already: then this is refused, and nothing depends on it."""
        return (Check(paths.topic_id(id)), Create(paths.partition_deletions(id), b""))

    def _judge(self, key: PartitionKey, found: Mapping[str, Node]) -> "HeldState | GivenUp | Unreadable | None":
        """The state to replace; None: there is none."""
        _, state_path, _ = self._paths_of(key)
        node = found.get(state_path)
        seen = None if node is None else FoundNode(data=node.data, version=node.stat.version)
        match judge_state(key.topic_id, seen, creating=True, reign=self._context.reign.epoch):
            case HeldState() as held:
                self._context.give_way(held.state.controller_epoch)
                return held
            case None:
                return None
            case str() if key in self._given_up and node is not None:
                return GivenUp(version=node.stat.version)
            case str(reason):
                self._context.removals.unreadable(key, reason, Part.STATE)
                self._context.log.error("state of a removed partition cannot be read", path=state_path, reason=reason)
                return Unreadable.STATE

    def _take_up(self, key: PartitionKey, found: Mapping[str, Node]) -> None:
        """Buried by an earlier reign: without a record every broker has confirmed, or none ever had a replica."""
        record = found.get(self._paths_of(key)[2])
        if record is None or self._context.removals.get(key) is not None:
            return
        try:
            content = PartitionDeletionNode.decode(record.data)
        except MalformedNodeError as error:
            self._context.removals.unreadable(key, f"{self._paths_of(key)[2]}: {error}")
            self._context.log.warning("removal record ignored", key=key, reason=f"{error}; delete it or correct it")
        else:
            self._context.removals.add(Removal.recorded_as(key, content, version=record.stat.version))

    def _grave(
        self, key: PartitionKey, held: HeldState | GivenUp | None, found: Mapping[str, Node]
    ) -> tuple[Group, PartitionDeletionNode]:
        """The write that makes tombstone and record, and what the record says."""
        context = self._context
        folder_path, state_path, record_path = self._paths_of(key)
        known = self._remembered(key)
        at_least = NO_EPOCH if known is None else known.state.leader_epoch
        state = held.state if isinstance(held, HeldState) else None
        if state is None:
            at_least = max(at_least, self._given_up.get(key, NO_EPOCH))
        tombstone = removed_state(key.topic_id, state, context.reign.epoch, at_least=at_least)
        brokers = set(context.removals.begun[key.topic_id][key.partition])
        if state is not None:
            brokers.update(state.isr, state.elr)
        record = PartitionDeletionNode(
            topic=context.picture.topics[key.topic_id].name,
            brokers=frozenset(brokers),
            leader_epoch=tombstone.leader_epoch,
        )
        guard, note = Check(paths.topic_id(key.topic_id)), Create(record_path, record.encode())
        if held is not None:
            return (guard, Set(state_path, tombstone.encode(), held.version), note), record
        folder = () if folder_path in found else (Create(folder_path, b""),)
        return (guard, *folder, Create(state_path, tombstone.encode()), note), record

    async def _take_empty_folders_away(self, topics: Iterable[TopicId]) -> None:
        """Where no record came after the folder was made, none will take it away when it ends."""
        empty: list[Group] = []
        for id in tuple(topics):
            self._contested.discard(id)
            if not self._context.removals.of_topic(id):
                empty.append((Delete(paths.partition_deletions(id), 0),))
        if empty:
            # One that somebody put something into stays.
            await self._context.store.write_batch(empty)

    async def _take_marks_away(self, buried: Mapping[TopicId, Collection[int]]) -> None:
        """The topic nodes name them no more; what is refused is for a later time."""
        context = self._context
        names = {paths.topic(topic.name): topic for id in buried if (topic := context.picture.topics.get(id))}
        groups: list[Group] = []
        meant: list[TopicId] = []
        encoding = Beside()
        for path, node in (await context.store.read_many(tuple(names))).items():
            topic = names[path]
            content = await encoding.result(partial(readable, node.data), weight=len(node.data))
            if content is None or content.topic_id != topic.id:
                continue
            left = {number: ids for number, ids in content.removing.items() if number not in buried[topic.id]}
            if len(left) == len(content.removing):
                context.removals.not_begun(topic.id, buried[topic.id])
                continue
            data = await encoding.result(replace(content, removing=left).encode, weight=len(node.data))
            groups.append((Check(paths.topic_id(topic.id)), Set(path, data, node.stat.version)))
            meant.append(topic.id)
        versions: dict[TopicId, int] = {}
        for id, outcome in zip(meant, await context.store.write_batch(groups), strict=True):
            match outcome:
                case Written(results=results):
                    if (stat := results[-1].stat) is not None:
                        versions[id] = stat.version
                    context.removals.not_begun(id, buried[id])
                case Refused(error=error):
                    context.log.warning("topic node changed meanwhile", topic_id=id, reason=str(error))
        context.picture = context.picture.with_topic_versions(versions)
