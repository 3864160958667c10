"""The controller's picture of the cluster: one frozen value, changed by building the next one.

Goals: a decision sees one consistent picture; a change costs what it changes and not the total (safety rule S16 and
the failure path); which partitions a broker's failure touches is known without looking at the others.

Constraints: the index runs over *assignments*, never over ISRs, so that a picture that is behind a leader's own ISR
write still names every partition the broker may matter to (safety rule S16). Partitions are keyed by topic id, so two
lives of a name never mix (safety rule S13).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from immutables import Map
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, LeaderEpoch, LogId, PartitionKey, Registration, TopicId
from regnum_model.insync import effective_min_insync
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr
from regnum_model.protocols import UNSAID, ReleaseInfo
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.configs import Settings

C = TypeVar("C", bound="Cluster")

FROM_ZERO: Final = LeaderEpoch(0)
"""Where the life of a partition begins whose number no removed one had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A live registration."""

    id: BrokerId
    epoch: BrokerEpoch
    """Creation id of the registration."""
    registration: Registration
    """Version of the broker's guard node that the registration repeats (safety rule S2)."""
    node_version: int
    """Version of the registration node as read."""
    rack: str | None
    """Failure domain."""
    log_ids: frozenset[LogId]
    """What its log directories hold now (safety rule S10)."""
    client: Address
    """Listener for clients."""
    internal: Address
    """Listener for the controller and other brokers."""
    kafka: Address | None = None
    """Listener for clients that speak Kafka's protocol; None: it has none."""
    build: ReleaseInfo = UNSAID
    """Its release, and the protocols that it speaks."""

    @classmethod
    def registered(cls, id: BrokerId, node: BrokerNode, *, epoch: BrokerEpoch, node_version: int) -> Self:
        """The broker that a registration node describes."""
        return cls(
            id=id,
            epoch=epoch,
            registration=node.registration,
            node_version=node_version,
            rack=node.rack,
            log_ids=frozenset(node.directories.values()),
            client=node.listeners["client"],
            internal=node.listeners["internal"],
            kafka=node.listeners.get("kafka"),
            build=node.build,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldState:
    """A leaderAndISR node as it was read or written."""

    state: LeaderAndIsr
    """Its content."""
    version: int
    """Its version; every write of the node names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of one topic."""

    replicas: tuple[BrokerId, ...]
    """Assignment; the first is the preferred leader."""
    held: HeldState | None = None
    """State in the store; None while there is none, or none that can be read."""
    creating: bool = False
    """Whether the partition may still get a first leader (safety rule S14)."""
    trouble: str | None = None
    """Why the partition is out of the controller's reach (safety rule S14); None when it is not."""
    tombstone: HeldState | None = None
    """What a removed partition of the same number left, while ``creating``: the first state goes on from it (S2)."""
    reassignment: Reassignment | None = None
    """Its open reassignment; ``replicas`` then names the old replicas and, once it has begun, the new ones."""
    began: LeaderEpoch = FROM_ZERO
    """Leader epoch at which its life began, above all of a removed partition of the same number (safety rule S13)."""

    @property
    def wanted_replicas(self) -> tuple[BrokerId, ...]:
        """Its replicas, or what they will be when its reassignment is complete."""
        return self.replicas if self.reassignment is None else self.reassignment.target

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Those of its replicas that an open reassignment brought in."""
        return () if (move := self.reassignment) is None else tuple(id for id in self.replicas if id not in move.origin)

    @property
    def is_led(self) -> bool:
        """Whether it has a leader as far as the controller knows."""
        return self.trouble is None and self.held is not None and self.held.state.leader != NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One life of a topic."""

    name: str
    id: TopicId
    version: int
    """Version of the topic node."""
    partitions: tuple[int, ...]
    """Partition numbers, ascending."""
    mutation: str | None = None
    """Id of the mutation that made it (safety rule S20)."""
    creation_id: int | None = None
    """Creation id of the topic node: another one means that it was removed and written again. None: not known."""
    partition_mutations: tuple[str, ...] = ()
    """Ids of the last mutations that added or removed partitions, newest last (safety rule S20)."""

    @property
    def misses_numbers(self) -> bool:
        """Whether its partitions are not 0 to the highest: a person wrote its node so (safety rule S14)."""
        return self.partitions != () and self.partitions[-1] >= len(self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All the controller knows. Every method returns the next picture and leaves this one as it is."""

    brokers: Map[BrokerId, Broker] = field(default_factory=Map)
    """Live brokers."""
    leaving: frozenset[BrokerId] = frozenset()
    """Live brokers that asked for a controlled shutdown."""
    draining: frozenset[BrokerId] = frozenset()
    """Brokers, live or not, that are given no new replicas."""
    topics: Map[TopicId, Topic] = field(default_factory=Map)
    """Topics by id."""
    names: Map[str, TopicId] = field(default_factory=Map)
    """Topic ids by name."""
    partitions: Map[PartitionKey, Partition] = field(default_factory=Map)
    assigned: Map[BrokerId, Map[PartitionKey, None]] = field(default_factory=Map)
    """Partitions by assigned broker."""
    offline: Map[BrokerId, Map[PartitionKey, None]] = field(default_factory=Map)
    """Partitions whose replica a live broker cannot use; forgotten with its broker epoch."""
    reassigning: Map[PartitionKey, None] = field(default_factory=Map)
    """Partitions with an open reassignment."""
    moves_found: int = 0
    """Grows whenever topics come into the picture that have some."""
    unled: Map[PartitionKey, None] = field(default_factory=Map)
    """Partitions that nobody leads, for whatever reason."""
    settings: Settings = field(default_factory=Settings)
    """Settings in force."""

    @property
    def usable(self) -> dict[BrokerId, str | None]:
        """Rack of each live broker that may be given new replicas."""
        left_out = self.leaving | self.draining
        return {id: broker.rack for id, broker in self.brokers.items() if id not in left_out}

    @property
    def draining_hint(self) -> str:
        """What helps where live brokers that are being drained are missed, as the end of a sentence; or nothing."""
        missed = sorted(id for id in self.draining if id in self.brokers)
        if not missed:
            return ""
        return f"; brokers {missed} are being drained: `regnum brokers drain ID --undo` takes that back"

    def topic_named(self, name: str) -> Topic | None:
        """The topic of that name."""
        return None if (id := self.names.get(name)) is None else self.topics[id]

    def min_insync(self, key: PartitionKey, partition: Partition) -> int:
        """Effective min.insync.replicas of a partition of the picture; while it moves, the old replicas count."""
        move = partition.reassignment
        count = len(partition.replicas if move is None else move.origin)
        configured = self.settings.min_insync(self.topics[key.topic_id].name)
        # Asked four times for each partition that a failover moves: the usual case is done here.
        return configured if 0 < configured <= count else effective_min_insync(configured, count)

    def of_broker(self, id: BrokerId) -> Iterable[PartitionKey]:
        """Keys of all partitions assigned to a broker."""
        return self.assigned.get(id, Map()).keys()

    def offline_at(self, key: PartitionKey) -> frozenset[BrokerId]:
        """Live brokers that cannot use their replica of a partition."""
        if not self.offline:
            return frozenset()
        return frozenset(id for id, keys in self.offline.items() if key in keys)

    def of_topic(self, id: TopicId) -> tuple[PartitionKey, ...]:
        """Keys of a topic's partitions."""
        return tuple(PartitionKey(id, number) for number in self.topics[id].partitions) if id in self.topics else ()

    def with_broker(self, broker: Broker) -> Self:
        """A broker registered (anew)."""
        known = self.brokers.get(broker.id)
        # Whatever was wrong may have been mended before it started again.
        offline = self.offline if known is not None and known.epoch == broker.epoch else _less(self.offline, broker.id)
        return replace(
            self,
            brokers=self.brokers.set(broker.id, broker),
            leaving=self.leaving - {broker.id},
            offline=offline,
        )

    def without_broker(self, id: BrokerId) -> Self:
        """A broker is gone; its partitions stay assigned to it."""
        if id not in self.brokers:
            return self
        return replace(
            self, brokers=self.brokers.delete(id), leaving=self.leaving - {id}, offline=_less(self.offline, id)
        )

    def with_leaving(self, id: BrokerId) -> Self:
        """A live broker asked for a controlled shutdown."""
        return replace(self, leaving=self.leaving | {id})

    def with_offline(self, id: BrokerId, keys: Iterable[PartitionKey]) -> Self:
        """A live broker cannot use its replicas of these partitions."""
        known = self.offline.get(id, Map())
        return replace(self, offline=self.offline.set(id, known.update(dict.fromkeys(keys))))

    def with_usable(self, id: BrokerId, keys: Iterable[PartitionKey]) -> Self:
        """A live broker can use its replicas of these partitions after all."""
        return replace(self, offline=_without(self.offline, {id: list(keys)}))

    def with_topics(self, added: Iterable[tuple[Topic, Mapping[int, Partition]]]) -> Self:
        """Topics with all their partitions; each replaces the topic of the same id, and one of the same name.

        Two lives of a name never stand side by side: the states of both would be written under one path.
        """
        added = tuple({topic.name: (topic, members) for topic, members in added}.values())
        former = {id for topic, _ in added if (id := self.names.get(topic.name)) not in {None, topic.id}}
        picture = self.without_topics((*(topic.id for topic, _ in added), *(id for id in former if id is not None)))
        return _with_members(picture, added, self.offline)

    def with_more_of_topics(self, added: Iterable[tuple[Topic, Mapping[int, Partition]]]) -> Self:
        """Further partitions of topics that are there; with each the topic as it is then."""
        return _with_members(self, tuple(added), self.offline)

    def without_topics(self, ids: Iterable[TopicId]) -> Self:
        """Topics are gone with their partitions."""
        removed = [topic for id in dict.fromkeys(ids) if (topic := self.topics.get(id)) is not None]
        if not removed:
            return self
        topics, names, partitions = self.topics.mutate(), self.names.mutate(), self.partitions.mutate()
        reassigning = self.reassigning.mutate()
        unled = self.unled.mutate()
        entries: dict[BrokerId, list[PartitionKey]] = {}
        for topic in removed:
            del topics[topic.id]
            if names.get(topic.name) == topic.id:
                del names[topic.name]
            for number in topic.partitions:
                key = PartitionKey(topic.id, number)
                reassigning.pop(key, None)
                unled.pop(key, None)
                for broker in partitions.pop(key).replicas:
                    entries.setdefault(broker, []).append(key)
        return replace(
            self,
            topics=topics.finish(),
            names=names.finish(),
            partitions=partitions.finish(),
            reassigning=reassigning.finish(),
            assigned=_less_assigned(self.assigned, entries),
            unled=unled.finish(),
            offline=_without(self.offline, entries) if self.offline else self.offline,
        )

    def without_partitions(self, gone: Mapping[TopicId, Collection[int]]) -> Self:
        """Partitions are gone, and their topics stay; what is not there is nothing to do."""
        topics, partitions, reassigning = self.topics.mutate(), self.partitions.mutate(), self.reassigning.mutate()
        unled = self.unled.mutate()
        entries: dict[BrokerId, list[PartitionKey]] = {}
        for id, numbers in gone.items():
            topic = topics.get(id)
            if topic is None:
                continue
            left = frozenset(numbers)
            topics[id] = replace(topic, partitions=tuple(number for number in topic.partitions if number not in left))
            for number in left:
                key = PartitionKey(id, number)
                reassigning.pop(key, None)
                unled.pop(key, None)
                known = partitions.pop(key, None)
                for broker in () if known is None else known.replicas:
                    entries.setdefault(broker, []).append(key)
        return replace(
            self,
            topics=topics.finish(),
            partitions=partitions.finish(),
            reassigning=reassigning.finish(),
            assigned=_less_assigned(self.assigned, entries),
            unled=unled.finish(),
            offline=_without(self.offline, entries) if self.offline else self.offline,
        )

    def with_assignments(
        self, changes: Mapping[PartitionKey, tuple[tuple[BrokerId, ...], Reassignment | None]]
    ) -> Self:
        """Partitions of the picture are assigned to other brokers, or their reassignments are other ones."""
        partitions = self.partitions
        return self.with_partitions(
            {
                key: replace(partitions[key], replicas=replicas, reassignment=reassignment)
                for key, (replicas, reassignment) in changes.items()
            }
        )

    def with_partitions(self, given: Mapping[PartitionKey, Partition]) -> Self:
        """Partitions as they are now, whose topics name them already; ``moves_found`` does not count them.

        Costs what is given, however many partitions their topics have.
        """
        reassigning = self.reassigning.mutate()
        gone: dict[BrokerId, list[PartitionKey]] = {}
        come: dict[BrokerId, list[PartitionKey]] = {}
        for key, partition in given.items():
            if partition.reassignment is None:
                reassigning.pop(key, None)
            else:
                reassigning[key] = None
            known = self.partitions.get(key)
            before = () if known is None else known.replicas
            if before != partition.replicas:
                _enter(gone, key, before, partition.replicas)
                _enter(come, key, partition.replicas, before)
        return replace(
            self._with_changed(given),
            reassigning=reassigning.finish(),
            assigned=_with(_without(self.assigned, gone), come) if gone or come else self.assigned,
            offline=_without(self.offline, gone) if self.offline else self.offline,
        )

    def with_topic_versions(self, versions: Mapping[TopicId, int]) -> Self:
        """Topic nodes were rewritten."""
        if not versions:
            return self
        topics = self.topics.mutate()
        for id, version in versions.items():
            topics[id] = replace(topics[id], version=version)
        return replace(self, topics=topics.finish())

    def with_states(self, changes: Mapping[PartitionKey, HeldState]) -> Self:
        """States of partitions as now held by the store. An older version than the one known is dropped."""
        changed: dict[PartitionKey, Partition] = {}
        for key, held in changes.items():
            known = self.partitions.get(key)
            if known is None or (known.held is not None and known.held.version > held.version):
                continue
            changed[key] = replace(known, held=held, creating=False, trouble=None, tombstone=None)
        return self._with_changed(changed)

    def with_recovered(self, states: Mapping[PartitionKey, HeldState]) -> Self:
        """States that this controller gave to partitions that nobody could lead; versions may have begun again."""
        partitions = self.partitions
        return self._with_changed(
            {
                key: replace(partitions[key], held=held, creating=False, trouble=None, tombstone=None)
                for key, held in states.items()
            }
        )

    def with_tombstones(self, found: Mapping[PartitionKey, HeldState]) -> Self:
        """Partitions that are being created where a removed one of the same number left its state."""
        if not found:
            return self
        partitions = self.partitions
        return self._with_changed({key: replace(partitions[key], tombstone=held) for key, held in found.items()})

    def with_trouble(self, troubles: Mapping[PartitionKey, str]) -> Self:
        """Partitions the controller cannot act on, with the reason (safety rule S14)."""
        known = {key: self.partitions.get(key) for key in troubles}
        return self._with_changed(
            {key: replace(one, trouble=troubles[key]) for key, one in known.items() if one is not None}
        )

    def _with_changed(self, changed: Mapping[PartitionKey, Partition]) -> Self:
        """Partitions of topics that are there; the indexes by broker and of reassignments are left as they are."""
        partitions, unled = self.partitions.mutate(), self.unled.mutate()
        for key, partition in changed.items():
            partitions[key] = partition
            if partition.is_led:
                unled.pop(key, None)
            else:
                unled[key] = None
        return replace(self, partitions=partitions.finish(), unled=unled.finish())


Index = Map[BrokerId, Map[PartitionKey, None]]
"""Partitions by broker."""


def _less(index: Index, id: BrokerId) -> Index:
    return index.delete(id) if id in index else index


def _less_assigned(index: Index, gone: Mapping[BrokerId, Iterable[PartitionKey]]) -> Index:
    """The index without entries that it has; brokers of which nothing is left stay."""
    changed = index.mutate()
    for broker, keys in gone.items():
        left = changed[broker].mutate()
        for key in keys:
            del left[key]
        changed[broker] = left.finish()
    return changed.finish()


def _without(index: Index, gone: Mapping[BrokerId, Iterable[PartitionKey]]) -> Index:
    """The index without some entries; brokers of which nothing is left are left out."""
    changed = index.mutate()
    for id, keys in gone.items():
        if id not in index:
            continue
        left = index[id].mutate()
        for key in keys:
            if key in left:
                del left[key]
        rest = left.finish()
        if rest:
            changed[id] = rest
        else:
            del changed[id]
    return changed.finish()


def _with(index: Index, come: Mapping[BrokerId, Iterable[PartitionKey]]) -> Index:
    """The index with more entries."""
    changed = index.mutate()
    for broker, keys in come.items():
        changed[broker] = changed.get(broker, Map()).update(dict.fromkeys(keys))
    return changed.finish()


def _enter(
    entries: dict[BrokerId, list[PartitionKey]],
    key: PartitionKey,
    brokers: Iterable[BrokerId],
    other: Sequence[BrokerId],
) -> None:
    """Enter a partition for each of the brokers that is none of the others."""
    for broker in brokers:
        if broker not in other:
            entries.setdefault(broker, []).append(key)


def _with_members(
    picture: C,
    added: Sequence[tuple[Topic, Mapping[int, Partition]]],
    offline_before: Map[BrokerId, Map[PartitionKey, None]],
) -> C:
    """Topics with further partitions, none of which the picture has."""
    topics, names, partitions = picture.topics.mutate(), picture.names.mutate(), picture.partitions.mutate()
    reassigning = picture.reassigning.mutate()
    unled = picture.unled.mutate()
    found = 0
    entries: dict[BrokerId, list[PartitionKey]] = {}
    for topic, members in added:
        topics[topic.id] = topic
        names[topic.name] = topic.id
        for number, partition in members.items():
            key = PartitionKey(topic.id, number)
            partitions[key] = partition
            if partition.reassignment is not None:
                reassigning[key] = None
                found = 1
            if not partition.is_led:
                unled[key] = None
            for broker in partition.replicas:
                entries.setdefault(broker, []).append(key)
    offline = picture.offline.mutate()
    for broker, keys in entries.items():
        # Where the replicas are the same ones, so is what their brokers said of them.
        if kept := [key for key in keys if broker in offline_before and key in offline_before[broker]]:
            offline[broker] = offline.get(broker, Map()).update(dict.fromkeys(kept))
    return replace(
        picture,
        offline=offline.finish(),
        topics=topics.finish(),
        names=names.finish(),
        partitions=partitions.finish(),
        reassigning=reassigning.finish(),
        moves_found=picture.moves_found + found,
        assigned=_with(picture.assigned, entries),
        unled=unled.finish(),
    )
