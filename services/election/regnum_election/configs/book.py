"""The settings of one reign: read before anything is decided, seeded where they are missing, kept up with.

Settings stand in the picture and change in the controller's task only, so that a decision and the message about it
belong to the same ones. People may edit the nodes: they are read again every few seconds, beside that task, of topics
a bounded number at a time. What cannot be read is an event in the log, and the value stays what it was (safety rule
S14).

``inter.broker.protocol.version`` is never lowered, whoever wrote what while nobody reigned: the highest that was ever
in force stands in a node of the controller's own (``/feature``), written before it comes into force.
"""

import enum
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from regnum_coordination.errors import BadVersion, NodeExists, NoNode, SessionExpired
from regnum_coordination.port import Create, Set, Store
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.mutating import NodeMutations
from regnum_model import features
from regnum_model.configs import (
    CLUSTER,
    INTER_BROKER_PROTOCOL,
    MAX_BROKER_EPOCH,
    TOPICS,
    ReplicaSettings,
    decode_config,
    encode_config,
    format_value,
    topic_config,
)
from regnum_model.features import Features
from regnum_model.ids import PartitionKey
from regnum_model.nodes import LaterVersionError, MalformedNodeError
from regnum_model.quotas import CHANGES
from regnum_service.slices import Turns, slices

from regnum_election.decisions.configs import EXAMPLE, ClusterReading, Settings, read_cluster, read_topic
from regnum_election.history.events import CONFIG
from regnum_election.reign.reign import DeposedError
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied, change
from regnum_election.state.releases import why_not_raised
from regnum_election.state.telling import tell

ROUNDS_MAX: Final = 20
"""Rounds against others who write the node of the cluster."""

TOPICS_PER_LOOK: Final = 200
"""Nodes of topics that one look reads again, besides those that are new."""

TOPICS_PER_TURN: Final = 500
"""Topics looked at between two turns of the event loop (safety rule S22)."""

NO_NODE: Final = -1
"""In place of the version of a node that is not there."""

TOPICS_PER_STEP: Final = 500
"""Topics whose announced settings one step reads; a failover waits for one step at most."""

PARTITIONS_PER_STEP: Final = 500
"""Partitions whose leaders one step tells; a failover waits for one step at most."""


def _nobody() -> None:
    """Where brokers are not looked at."""


class ConfigBook:
    """Settings as the store has them. One for each reign."""

    def __init__(
        self, context: ControllerContext, *, seeds: Mapping[str, int], protocol_raised: Callable[[], None] = _nobody
    ) -> None:
        """Only assigns.

        Args:
            context: the reign; its picture holds what is in force.
            seeds: what this process was started with, for settings that the store does not have yet.
            protocol_raised: called when another protocol between processes is in force: a broker may have registered
                since all were looked at.
        """
        self._protocol_raised: Final = protocol_raised
        self._context = context
        self._seeds = seeds
        self._reported: dict[str, str] = {}
        self._looked_at = ""
        self._highest = 0
        """``inter.broker.protocol.version``, the highest that was ever in force; 0: not known."""
        self._others: Mapping[str, Any] = {}
        """What a later release made final besides."""
        self._announced = Announced()
        self._silent: set[str] = set()
        """Topics whose nodes say nothing: they stand for the mutations that they know."""
        self._mutations = NodeMutations(context.store, wall_ms=context.clock.wall_ms)

    async def begin(self) -> None:
        """Read everything, and write what is missing. Nothing is decided before that."""
        await self._read_features()
        # What is announced from here on may have been missed by what is read below.
        await self._announced.look(self._context.store, await self._context.store.names(CHANGES))
        reading = await self._read_cluster(self._seeds, reigns=False)
        settings = Settings(cluster=reading.values)
        await self._finalize(settings)
        other = {key: seed for key, seed in self._seeds.items() if settings.of_cluster(key) != seed}
        for key, seed in other.items():
            self._context.log.warning(
                "flag not used",
                setting=key,
                flag=seed,
                in_force=settings.of_cluster(key),
                advice="settings live in the store; change them with `regnum configs alter --cluster`",
            )
        names = await self._context.store.names(TOPICS)
        settings, _ = await self._read_topics(settings, names)
        self._take(settings)

    async def look(self) -> AsyncGenerator[None, None] | None:
        """Read again what people may have written; the steps of what follows from it, None: nothing.

        May run beside the controller's task. Raises DeposedError.
        """
        context = self._context
        known = context.picture.settings
        reading = await self._read_cluster(known.cluster, reigns=True)
        standing = await context.store.names(TOPICS)
        gone = set(known.topics).difference(standing)
        settings = replace(known, cluster=reading.values).with_topics(dict.fromkeys(gone))
        self._silent.intersection_update(standing)
        settings, _ = await self._read_topics(settings, names := self._next_names(standing, known))
        await self._mutations.sweep([topic_config(name) for name in names if name in self._silent])
        for path in [path for path in self._reported if path != CLUSTER and path.rpartition("/")[2] not in standing]:
            del self._reported[path]
        # A topic that is being deleted must not leave its settings to the next one of its name.
        settings = settings.with_topics(dict.fromkeys(context.clearing))
        return None if settings == known else self._take_up(settings, read_over=known)

    async def follow(self, store: Store, put: Callable[[str, AsyncGenerator[None, None]], None]) -> None:
        """Hear what brokers below protocol 2, and people, announce; a task that ends with the session (rule S19).

        Args:
            store: the session.
            put: has steps carried out in the controller's task.
        """
        try:
            async with aclosing(store.watch_children(CHANGES)) as changes:
                async for children in changes:
                    changed = await self._announced.look(self._context.store, children.names)
                    if changed is None or any(_is_ours(path) for path in changed):
                        put("announced settings", self.take_announced(changed))
        except (SessionExpired, DeposedError):
            self._context.log.info("watch ended with the session", folder=CHANGES)

    async def take_announced(self, changed: frozenset[str] | None) -> AsyncGenerator[None, None]:
        """Read again what somebody else has changed, and put it in force; the steps of that.

        Runs in the controller's task, so it never replaces what was changed here by what was read before that.
        ``changed``: the nodes; None: any.
        """
        context = self._context
        if changed is None:
            names = list(dict.fromkeys((*context.picture.settings.topics, *await context.store.names(TOPICS))))
        else:
            names = [path.rpartition("/")[2] for path in sorted(changed) if path.startswith(f"{TOPICS}/")]
        reading = await self._read_cluster(context.picture.settings.cluster, reigns=True)
        settings = replace(context.picture.settings, cluster=reading.values)
        for start in range(0, max(len(names), 1), TOPICS_PER_STEP):
            some = names[start : start + TOPICS_PER_STEP]
            found, there = await self._read_topics(settings, some)
            gone = set(some) - there
            settings = found.with_topics(dict.fromkeys((*gone, *context.clearing)))
            if settings != context.picture.settings:
                async for _ in self.apply(settings):
                    yield
            # Failures go before the next step, and so may other changes of settings: it begins with what is in force.
            yield
            settings = context.picture.settings

    async def _take_up(self, settings: Settings, *, read_over: Settings) -> AsyncGenerator[None, None]:
        # What was changed meanwhile, or deleted, may be newer than what was read: the next look sees both.
        if self._context.picture.settings is read_over:
            async for _ in self.apply(settings):
                yield

    def _next_names(self, standing: Sequence[str], known: Settings) -> list[str]:
        """Those that are new, and some of the others in turn."""
        new = [name for name in standing if name not in known.topics and name not in self._silent]
        old = sorted(name for name in standing if name in known.topics or name in self._silent)
        later = [name for name in old if name > self._looked_at]
        again = [*later, *old][: min(TOPICS_PER_LOOK, len(old))]
        self._looked_at = again[-1] if again else ""
        return [*new[:TOPICS_PER_LOOK], *again]

    async def apply(self, settings: Settings, *, topics: Sequence[str] | None = None) -> AsyncGenerator[None, None]:
        """Put settings in force: the steps in which live brokers hear of what concerns them.

        Leaders are told of min.insync.replicas and of how large batches may be, every replica of how its log is kept;
        what the controller alone acts by is told to nobody. Partitions are settled first, so that a leader hears of a
        lower min.insync.replicas together with the end of what it kept eligible under the higher one (safety rule S10).

        Args:
            settings: what is to be in force.
            topics: the only ones whose own settings may differ from what is in force; None: any may.
        """
        context = self._context
        await self._finalize(settings)
        before = self._take(settings)
        if before.cluster != settings.cluster:
            context.events.config("", _in_words(settings.cluster))
        if before.inter_broker_protocol != settings.inter_broker_protocol:
            # Metadata processes go by what they were told last.
            context.metadata.publish(context.picture)
            self._protocol_raised()
        if before.throttle_rates != settings.throttle_rates:
            await self._tell_rates()
        for_leaders, for_all = await self._concerned_by(before, settings, topics)
        for keys, everywhere in ((for_leaders, False), (for_all, True)):
            for start in range(0, len(keys), PARTITIONS_PER_STEP):
                some = [key for key in keys[start : start + PARTITIONS_PER_STEP] if key in context.picture.partitions]
                applied = await change(context, some, context.settle, CONFIG)
                told = [key for key in some if key not in applied.leader_changes]
                (applied.settings if everywhere else applied.isr_changes).update(told)
                await tell(context, applied)
                yield

    async def _concerned_by(
        self, before: Settings, settings: Settings, named: Sequence[str] | None
    ) -> tuple[list[PartitionKey], list[PartitionKey]]:
        """Partitions whose leaders, and partitions all of whose replicas, act by what differs; notes what does."""
        context = self._context
        for_leaders: list[PartitionKey] = []
        for_all: list[PartitionKey] = []
        turns = Turns(TOPICS_PER_TURN)
        if named is None or before.cluster != settings.cluster:
            named = tuple(before.may_differ(settings, tuple(context.picture.names)))
        for name in named:
            await turns.took()
            topic = context.picture.topic_named(name)
            if topic is None:
                continue
            own = settings.topics.get(name, {})
            if before.topics.get(name, {}) != own:
                context.events.config(name, f"the topic's own: {_in_words(own)}")
            match _concerned(before, settings, name):
                case Concerned.REPLICAS:
                    for_all.extend(context.picture.of_topic(topic.id))
                case Concerned.LEADERS:
                    for_leaders.extend(context.picture.of_topic(topic.id))
                case Concerned.NOBODY:
                    pass
        return for_leaders, for_all

    async def _tell_rates(self) -> None:
        """Brokers of partitions that move hear of another throttle."""
        context, picture = self._context, self._context.picture
        moving: set[PartitionKey] = set()
        async for some in slices(picture.reassigning, PARTITIONS_PER_STEP):
            moving.update(
                key
                for key in some
                if (partition := picture.partitions[key]).reassignment is not None
                and set(partition.replicas) != set(partition.reassignment.origin)
            )
        await tell(context, Applied(settings=moving))

    def _take(self, settings: Settings) -> Settings:
        context = self._context
        before = context.picture.settings
        context.picture = replace(context.picture, settings=settings)
        context.dispatch.show(context.picture)
        shown = {key: format_value(key, value) for key, value in settings.cluster.items()}
        context.log.info("settings in force", **shown, topics=len(settings.topics))
        return before

    async def _read_cluster(self, known: Mapping[str, int], *, reigns: bool) -> ClusterReading:
        """What the node says, after what was missing has been written."""
        store = self._context.store
        for _ in range(ROUNDS_MAX):
            node = (await store.read_many((CLUSTER,))).get(CLUSTER)
            data = None if node is None else node.data
            highest = min(self._highest, MAX_BROKER_EPOCH)
            reading = read_cluster(data, known, reigns=reigns, highest=highest)
            if raised := self._raised(reading):
                not_above = await why_not_raised(self._context, raised)
                reading = read_cluster(data, known, reigns=reigns, highest=highest, not_above=not_above)
            if not reading.missing:
                break
            if reading.refused:
                self._context.log.error("setting taken back", path=CLUSTER, reason=reading.refused)
                self._context.events.config("", f"taken back: {reading.refused}")
            config = {} if data is None else decode_config(data, example=EXAMPLE)
            config.update({key: str(reading.values[key]) for key in reading.missing})
            data = encode_config(config, over=data)
            try:
                await store.multi((Create(CLUSTER, data) if node is None else Set(CLUSTER, data, node.stat.version),))
            except (BadVersion, NodeExists, NoNode):
                continue
            except NotTaken as error:
                reading = replace(reading, problem=f"what is missing cannot be written: {error}")
                break
            self._context.log.info("settings written", **{key: config[key] for key in reading.missing})
        # Whoever writes it all the time: what is missing is written at the next look.
        self._report(CLUSTER, reading.problem)
        return reading

    def _raised(self, reading: ClusterReading) -> int:
        """A protocol above all that were in force; 0: it is none. A cluster that begins has nobody to ask."""
        wanted = reading.values.get(INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH)
        return wanted if 0 < self._highest < wanted else 0

    async def _read_features(self) -> int:
        """Take up what is final; returns the version of the node, or -1: there is none. What cannot be read is said."""
        node = (await self._context.store.read_many((features.PATH,))).get(features.PATH)
        if node is None:
            return NO_NODE
        try:
            found = Features.decode(node.data)
            self._highest = max(self._highest, found.inter_broker_protocol)
            self._others = found.others
        except LaterVersionError as error:
            # What is final is above all that is known here: nothing is written over it, and nothing raised.
            self._highest = max(self._highest, MAX_BROKER_EPOCH + 1)
            self._report(features.PATH, str(error))
            return node.stat.version
        except MalformedNodeError as error:
            self._report(features.PATH, str(error))
        if self._highest > MAX_BROKER_EPOCH:
            self._report(
                features.PATH,
                f"{INTER_BROKER_PROTOCOL} was {self._highest}, which a later release speaks: run that one",
            )
        return node.stat.version

    async def _finalize(self, settings: Settings) -> None:
        """Write down a higher protocol than was ever in force, before it is. Raises DeposedError."""
        store = self._context.store
        for _ in range(ROUNDS_MAX):
            if settings.inter_broker_protocol <= self._highest:
                return
            version = await self._read_features()
            data = Features(
                inter_broker_protocol=max(settings.inter_broker_protocol, self._highest), others=self._others
            ).encode()
            write = Create(features.PATH, data) if version == NO_NODE else Set(features.PATH, data, version)
            try:
                await store.multi((write,))
            except (BadVersion, NodeExists, NoNode):
                continue
            except NotTaken as error:
                self._report(features.PATH, f"the protocol in force cannot be written down: {error}")
                return
            self._highest = max(settings.inter_broker_protocol, self._highest)
            self._report(features.PATH, "")
            self._context.log.info("protocol final", inter_broker_protocol=self._highest)

    async def _read_topics(self, settings: Settings, names: Iterable[str]) -> tuple[Settings, frozenset[str]]:
        """Settings with what these topics have of their own, and which of them have a node.

        Two of these may run at a time, ``look`` beside the controller's task.
        """
        nodes = await self._context.store.read_many([topic_config(name) for name in names])
        read: dict[str, Mapping[str, int]] = {}
        turns = Turns(TOPICS_PER_TURN)
        for path, node in nodes.items():
            await turns.took()
            name = path.rpartition("/")[2]
            reading = read_topic(node.data, settings.topics.get(name))
            read[name] = reading.values
            (self._silent.discard if reading.values else self._silent.add)(name)
            self._report(path, reading.problem)
        return settings.with_topics(read), frozenset(read)

    def _report(self, path: str, problem: str) -> None:
        """Say what a person has to correct, once."""
        if self._reported.get(path, "") == problem:
            return
        if problem:
            self._reported[path] = problem
            self._context.log.error("settings not readable", path=path, reason=problem, advice="correct the node")
        else:
            del self._reported[path]


def _is_ours(path: str) -> bool:
    return path == CLUSTER or path.startswith(f"{TOPICS}/")


def _in_words(values: Mapping[str, int]) -> str:
    return " ".join(f"{key}={format_value(key, value)}" for key, value in sorted(values.items())) or "none"


class Concerned(enum.Enum):
    """Who acts by what differs between two settings of a topic."""

    NOBODY = "nobody"
    """No broker."""
    LEADERS = "leaders"
    """Its leaders."""
    REPLICAS = "replicas"
    """Every broker that has a replica."""


def _concerned(before: Settings, after: Settings, topic: str) -> Concerned:
    then, now = before.of_replicas(topic), after.of_replicas(topic)
    if _of_logs(then) != _of_logs(now):
        return Concerned.REPLICAS
    differs = then != now or before.min_insync(topic) != after.min_insync(topic)
    return Concerned.LEADERS if differs else Concerned.NOBODY


def _of_logs(settings: ReplicaSettings) -> ReplicaSettings:
    """Without what leaders alone act by."""
    return replace(settings, max_message_bytes=None, max_message_unpacked_bytes=None, message_timestamp_type=None)
