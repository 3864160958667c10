"""What the parts of the controller share during one reign: picture, fenced store, and how decisions are carried out.

Decide, write, apply, tell: decisions come from pure functions over the picture, are written as one batch of small
groups, and only what was written is applied and told. Groups that were refused are read again together and decided
again together (safety rule S4).
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import Check, Create, Group, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.insync import may_let_go
from regnum_service.clock import Clock
from regnum_telemetry import conventions, tracing
from regnum_telemetry.tracing import Value

from regnum_election import partitions
from regnum_election.adoption import FoundNode, judge_state
from regnum_election.cluster import Cluster, HeldState, Partition
from regnum_election.dispatch import Dispatch
from regnum_election.failover_trace import FailoverTrace
from regnum_election.leadership import Change, ChangeKind, Decision, Refusal, Surroundings, first_state, settle
from regnum_election.metadata_processes import MetadataPublisher
from regnum_election.open_deletions import OpenDeletions
from regnum_election.reign import DeposedError, Reign
from regnum_election.unpublished import Unpublished
from regnum_election.unverified import Unverified
from regnum_election.writing import FencedStore, NotTaken

DECISIONS_PER_SLICE: Final = 200
"""Decisions between two turns of the event loop (safety rule S22)."""

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that are decided about, written and applied together."""

ROUNDS_MAX: Final = 20
"""Rounds of re-reading after conflicts; what still conflicts then makes way for others first."""

MADE_ANEW: Final = "leaderAndISR was deleted and made anew by hand; it is taken up in a new leader epoch"
"""A state whose version went back: brokers know later epochs, so it is for ``TopicAdopter.look_again``."""

Decide = Callable[[Cluster, PartitionKey, Partition], Decision]
"""A decision about one partition of the picture."""


@dataclass(slots=True)
class Applied:
    """What became of the partitions of one change."""

    everywhere: set[PartitionKey] = field(default_factory=set)
    """Every live replica is to be told."""
    leaders: set[PartitionKey] = field(default_factory=set)
    """The leader alone is to be told: only the ISR changed."""
    unfinished: set[PartitionKey] = field(default_factory=set)
    """Still in conflict after all rounds."""
    refusals: dict[PartitionKey, Refusal] = field(default_factory=dict)
    """Partitions that keep their state, with the reason."""


class ControllerContext:
    """State and means of one reign. Used by the controller's one task only."""

    def __init__(
        self,
        *,
        reign: Reign,
        store: FencedStore,
        dispatch: Dispatch,
        metadata: MetadataPublisher,
        clock: Clock,
        chance: random.Random,
        defer: Callable[[str, AsyncGenerator[None, None]], None],
        unverified: Unverified,
    ) -> None:
        self.reign: Final = reign
        self.store: Final = store
        self.dispatch: Final = dispatch
        self.metadata: Final = metadata
        self.clock: Final = clock
        self.chance: Final = chance
        self.defer: Final = defer
        """Puts work into the queue whose steps other cluster events may come between."""
        self.log: Final = structlog.get_logger("controller").bind(epoch=reign.epoch)
        self.unverified: Final = unverified
        """Partitions whose state comes from the predecessor and not from the store."""
        self.unpublished: Final = Unpublished()
        """Topics that nobody but this reign knows of."""
        self.picture = Cluster()
        self.deletions: Final = OpenDeletions()
        self.clearing: dict[str, TopicId] = {}
        """Names whose nodes are being deleted; not free yet."""
        self.fenced: dict[BrokerId, BrokerEpoch] = {}
        self.troubled: set[TopicId] = set()
        """Topics of which some partition was in trouble; see ``trouble``."""
        self.failover: FailoverTrace | None = None
        """The failover whose new leaders are being decided, written and told."""
        self.unfinished: dict[PartitionKey, Decide] = {}
        """Partitions still in conflict after all rounds of a change, with its decision; see ``unfinished``."""
        self._folders: set[PartitionKey] = set()
        self._surroundings: Surroundings | None = None

    @property
    def surroundings(self) -> Surroundings:
        """What decisions look at; one value for as long as the brokers are the same."""
        picture, known = self.picture, self._surroundings
        if known is None or known.brokers is not picture.brokers or known.leaving is not picture.leaving:
            known = self._surroundings = Surroundings(
                brokers=picture.brokers, leaving=picture.leaving, controller_epoch=self.reign.epoch
            )
        return known

    def surroundings_of(self, key: PartitionKey) -> Surroundings:
        """What decisions about one partition look at."""
        offline = self.picture.offline_at(key)
        return replace(self.surroundings, offline=offline) if offline else self.surroundings

    def begin_trace(
        self, victim: BrokerId, *, cause: str, evidence: str, noticed_unix_nano: int, heard_unix_nano: int = 0
    ) -> FailoverTrace | None:
        """Begin the trace of a broker's failover; None when nothing is traced."""
        attributes: dict[str, Value] = {
            conventions.CAUSE: cause,
            conventions.EVIDENCE: evidence,
            conventions.VICTIM_KIND: "broker",
            conventions.VICTIM: victim,
        }
        if heard_unix_nano:
            attributes[conventions.LAST_HEARD_UNIX_NANO] = heard_unix_nano
        return self.watch_trace(conventions.FAILOVER, attributes, noticed_unix_nano=noticed_unix_nano)

    def watch_trace(self, name: str, attributes: dict[str, Value], *, noticed_unix_nano: int) -> FailoverTrace | None:
        """Begin a trace that hears of acknowledgements; None when nothing is traced."""
        if not tracing.tracer().recording:
            return None
        own: dict[str, Value] = {
            conventions.CONTROLLER_ID: self.reign.controller_id,
            conventions.CONTROLLER_EPOCH: self.reign.epoch,
        }
        trace = FailoverTrace(name, noticed_unix_nano=noticed_unix_nano, attributes={**own, **attributes})
        self.dispatch.tell_of_acknowledgements(trace)
        return trace

    def _reached(self, boundary: str, *, again: bool) -> None:
        if self.failover is not None:
            self.failover.reached(boundary, again=again)

    @contextmanager
    def traced(self, trace: FailoverTrace | None) -> Iterator[None]:
        """What is decided, written and told in the body belongs to that failover."""
        self.failover = trace
        try:
            with tracing.within("" if trace is None else trace.context):
                yield
        finally:
            self.failover = None

    def settle(self, picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        """The ordinary decision: fit to the live brokers, or the first state of a partition that may get one."""
        if partition.held is None:
            return first_state(key.topic_id, partition.replicas, self.surroundings_of(key))
        return settle(
            partition.held.state,
            partition.replicas,
            self.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
        )

    def is_held_up(self, key: PartitionKey, partition: Partition) -> bool:
        """Whether a partition commits nothing because of eligible replicas that it no longer needs."""
        held = partition.held
        if held is None or not held.state.elr:
            return False
        return may_let_go(held.state, min_insync=self.picture.min_insync(key, partition))

    def let_go(self) -> None:
        """The reign is over: forget what is large. Reign and parts refer to one another, and old cycles stay."""
        self.picture = Cluster()
        self.dispatch.let_go()
        self.metadata.let_go()

    async def change(self, keys: Iterable[PartitionKey], decide: Decide) -> Applied:
        """Decide about partitions, write, apply to the picture; conflicts go round again together.

        What still conflicts after all rounds is kept, and decided about again soon.
        """
        applied = Applied()
        all_keys = list(keys)
        for start in range(0, len(all_keys), PARTITIONS_PER_WRITE):
            await self._change(all_keys[start : start + PARTITIONS_PER_WRITE], decide, applied)
        self.unfinished.update(dict.fromkeys(applied.unfinished, decide))
        return applied

    async def _change(self, keys: Sequence[PartitionKey], decide: Decide, applied: Applied) -> None:
        open_keys = list(keys)
        for _ in range(ROUNDS_MAX):
            with tracing.span(conventions.DECISION, attributes={conventions.PARTITIONS: len(open_keys)}):
                decided, groups = await self._decide(open_keys, decide, applied)
            if not decided:
                return
            self._reached(conventions.DECIDED_UNIX_NANO, again=False)
            conflicts: list[PartitionKey] = []
            written: dict[PartitionKey, HeldState] = {}
            for (key, change), outcome in zip(decided, await self.store.write_batch(groups), strict=True):
                match outcome:
                    case Written(results=results):
                        stat = results[-1].stat
                        if stat is None:
                            raise AssertionError("a create and a set leave a stat")
                        written[key] = HeldState(state=change.state.kept(), version=stat.version)
                        self._note(key, change, applied)
                    case Refused(error=error):
                        if self._worth_repeating(key, error):
                            conflicts.append(key)
            self.unverified.prove(written)
            self.picture = self.picture.with_states(written)
            self._reached(conventions.WRITTEN_UNIX_NANO, again=True)
            if not conflicts:
                return
            self.log.info("conflicts, deciding again", partitions=len(conflicts))
            open_keys = await self.reread(conflicts, applied)
        applied.unfinished.update(open_keys)

    async def _decide(
        self, keys: Sequence[PartitionKey], decide: Decide, applied: Applied
    ) -> tuple[list[tuple[PartitionKey, Change]], list[Group]]:
        decided: list[tuple[PartitionKey, Change]] = []
        groups: list[Group] = []
        for start in range(0, len(keys), DECISIONS_PER_SLICE):
            for key in keys[start : start + DECISIONS_PER_SLICE]:
                partition = self.picture.partitions.get(key)
                if partition is None or partition.trouble is not None:
                    continue
                if partition.held is None and not partition.creating:
                    continue
                decision = decide(self.picture, key, partition)
                if isinstance(decision, Refusal):
                    applied.refusals[key] = decision
                elif self._is_valid(key, partition, decision):
                    decided.append((key, decision))
                    groups.append(self._group(key, partition, decision))
            await asyncio.sleep(0)
        return decided, groups

    def _is_valid(self, key: PartitionKey, partition: Partition, change: Change) -> bool:
        source = partitions.state_of(partition)
        target = (
            partitions.PartitionState.OFFLINE if change.kind is ChangeKind.OFFLINE else partitions.PartitionState.ONLINE
        )
        if partitions.may_enter(target, source):
            return True
        self.log.error("transition not allowed, left out", key=key, source=source.value, target=target.value)
        return False

    def _group(self, key: PartitionKey, partition: Partition, change: Change) -> Group:
        name = self.picture.topics[key.topic_id].name
        path = paths.leader_and_isr(name, key.partition)
        # Ties the write to this life of the topic: versions start again when a name is used again (safety rule S2).
        guard = Check(paths.topic_id(key.topic_id))
        data = change.state.encode()
        if partition.held is not None:
            lets_go = partition.held.state.elr and not change.state.elr
            return (guard, *(self._registrations(change) if lets_go else ()), Set(path, data, partition.held.version))
        if key in self._folders:
            return (guard, Create(path, data))
        return (guard, Create(paths.partition(name, key.partition), b""), Create(path, data))

    def _registrations(self, change: Change) -> Iterator[Check]:
        """That every member of the ISR is as the decision saw it: its records are what remains (trace T7)."""
        for id in change.state.isr:
            yield Check(paths.broker_epoch(id), self.picture.brokers[id].registration)
            yield Check(paths.broker_id(id))

    def _note(self, key: PartitionKey, change: Change, applied: Applied) -> None:
        self._folders.discard(key)
        if change.kind is ChangeKind.ISR_ONLY:
            applied.leaders.add(key)
        else:
            applied.everywhere.add(key)

    def _worth_repeating(self, key: PartitionKey, error: Exception) -> bool:
        path = getattr(error, "path", None)
        if isinstance(error, NotTaken):
            self.trouble({key: f"the store does not take its state: {error}"})
            return False
        topic = self.picture.topics[key.topic_id]
        if isinstance(path, str) and path.startswith((f"{paths.BROKER_IDS}/", f"{paths.BROKER_EPOCHS}/")):
            # A member has gone or come anew: that is an event of its own, and settles what it is in.
            return False
        if path == paths.topic_id(key.topic_id):
            self.trouble({key: f"guard {path} is missing; the topic was removed by hand, or the guard was"})
            return False
        if isinstance(error, NodeExists) and path == paths.partition(topic.name, key.partition):
            self._folders.add(key)
        return True

    def trouble(self, troubles: dict[PartitionKey, str]) -> None:
        """Partitions that only a person can repair (safety rule S14)."""
        for key, reason in troubles.items():
            topic = self.picture.topics.get(key.topic_id)
            self.troubled.add(key.topic_id)
            name = "" if topic is None else topic.name
            self.log.error("partition offline", topic=name, partition=key.partition, reason=reason)
        self.picture = self.picture.with_trouble(troubles)

    async def reread(self, keys: Sequence[PartitionKey], applied: Applied) -> list[PartitionKey]:
        """Read states again and apply them; returns the partitions that a decision may still be about."""
        wanted = {
            paths.leader_and_isr(self.picture.topics[key.topic_id].name, key.partition): key
            for key in keys
            if key.topic_id in self.picture.topics
        }
        found = await self.store.read_many(tuple(wanted))
        states: dict[PartitionKey, HeldState] = {}
        troubles: dict[PartitionKey, str] = {}
        usable: list[PartitionKey] = []
        for count, (path, key) in enumerate(wanted.items(), 1):
            if count % DECISIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
            node, known = found.get(path), self.picture.partitions[key]
            seen = None if node is None else FoundNode(data=node.data, version=node.stat.version)
            match judge_state(key.topic_id, seen, creating=known.creating, reign=self.reign.epoch):
                case HeldState() as held if known.held is not None and held.version < known.held.version:
                    troubles[key] = MADE_ANEW
                    applied.everywhere.add(key)
                case HeldState() as held:
                    self.unverified.prove((key,))
                    usable.append(key)
                    if known.held is None or held.version != known.held.version or held.state != known.held.state:
                        states[key] = held
                        applied.everywhere.add(key)
                case str(reason):
                    troubles[key] = reason
                    applied.everywhere.add(key)
                case None:
                    usable.append(key)
        self.give_way(max((held.state.controller_epoch for held in states.values()), default=ControllerEpoch(0)))
        self.picture = self.picture.with_states(states)
        if troubles:
            self.trouble(troubles)
        return usable

    def give_way(self, latest: ControllerEpoch) -> None:
        """End the reign if a state is from a later one (safety rule S7).

        A partition that only kept the state of the later reign would have no controller: this one may not touch it, and
        the other one knows nothing of its brokers. The next reign begins above the highest that was met.

        Raises:
            DeposedError: it is.
        """
        if latest > self.reign.epoch:
            raise DeposedError(f"a partition's state is from controller epoch {latest}", seen=latest)

    async def tell(self, applied: Applied) -> None:
        """Send what changed to those who must know, and publish it."""
        self.dispatch.show(self.picture)
        everywhere = tuple(applied.everywhere)
        leaders = tuple(applied.leaders - applied.everywhere)
        if self.failover is not None:
            led = [key for key in applied.everywhere if self._is_led(key)]
            self.failover.expect(led, partitions=len(applied.everywhere))
        for start in range(0, len(everywhere), PARTITIONS_PER_WRITE):
            self._tell_replicas(everywhere[start : start + PARTITIONS_PER_WRITE])
            await asyncio.sleep(0)
        for start in range(0, len(leaders), PARTITIONS_PER_WRITE):
            self._tell_leaders(leaders[start : start + PARTITIONS_PER_WRITE])
            await asyncio.sleep(0)
        await self.publish((*everywhere, *leaders))

    def _tell_replicas(self, keys: Sequence[PartitionKey]) -> None:
        orders: dict[BrokerId, list[PartitionKey]] = {}
        for key in keys:
            partition = self.picture.partitions.get(key)
            if partition is None or partition.held is None:
                continue
            for broker in dict.fromkeys((*partition.replicas, *partition.held.state.isr)):
                orders.setdefault(broker, []).append(key)
        self.dispatch.order_states(orders.items())

    def _tell_leaders(self, keys: Sequence[PartitionKey]) -> None:
        orders: dict[BrokerId, list[PartitionKey]] = {}
        for key in keys:
            partition = self.picture.partitions.get(key)
            if partition is not None and partition.held is not None:
                orders.setdefault(partition.held.state.leader, []).append(key)
        self.dispatch.order_states(orders.items())

    def _is_led(self, key: PartitionKey) -> bool:
        partition = self.picture.partitions.get(key)
        return partition is not None and partition.held is not None and partition.held.state.leader != NO_LEADER

    async def publish(self, changed: Sequence[PartitionKey] = (), *, brokers_changed: bool = False) -> None:
        """Publish metadata, in changes that do not hold the loop for long (safety rule S22)."""
        self.dispatch.show(self.picture)
        if not changed and not brokers_changed:
            return
        if not changed:
            self.metadata.publish(self.picture)
        for portion in self.unpublished.portions(changed, self.picture.of_topic, PARTITIONS_PER_WRITE):
            self.metadata.publish(self.picture, portion)
            await asyncio.sleep(0)
