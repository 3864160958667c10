"""Whatever is lost, restarted or replaced: every picture is one that a controller published, under its own version.

Real journals of controllers, real metadata processes and real caches of brokers; messages are lost, answers are lost,
processes and brokers start again, reigns follow one another with a base, with an old one, or with none, and what a
replaced controller published still arrives. After each step every process and every broker is compared with what was
published under the version that it says it has, so that no picture can mix two of them (safety rules S17, S18).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest
from regnum.propagation.v1 import propagation_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_election.decisions.cluster import Cluster, HeldState
from regnum_election.publication.delta_log import Announcer, Base, Journal
from regnum_election.reign.reign import Reign
from regnum_metadata.lane import Receiver
from regnum_metadata.propagation import Propagation
from regnum_metadata.servicers.propagation import PropagationServicer
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    MetadataId,
    PartitionKey,
    Registration,
    TopicId,
)
from regnum_model.nodes import Address
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.errors import RegnumError
from regnum_testing.election_values import broker, cluster, topic
from regnum_testing.waiting import DEADLINE_S

BROKERS: Final = tuple(BrokerId(id) for id in range(1, 5))
PROCESSES: Final = (MetadataId(1), MetadataId(2))

View = tuple[dict[str, tuple[str, dict[int, int]]], dict[int, int]]
"""Leader epochs by topic and partition, with topic ids; broker epochs by id."""


class HastyClock:
    """Pauses last as long as a turn of the loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 0

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)


def view_of(picture: Cluster) -> View:
    topics: dict[str, tuple[str, dict[int, int]]] = {}
    for id, one in picture.topics.items():
        states = {number: picture.partitions[PartitionKey(id, number)].held for number in one.partitions}
        topics[one.name] = (id, {n: held.state.leader_epoch for n, held in states.items() if held is not None})
    return topics, {id: one.epoch for id, one in picture.brokers.items()}


def shown(topics: Any, brokers: tuple[types_pb2.Broker, ...]) -> View:
    return (
        {
            name: (one.topic_id, {number: state.leader_epoch for number, state in one.partitions.items()})
            for name, one in topics.items()
        },
        {one.id: one.epoch for one in brokers},
    )


class Life:
    """One life of a broker: its cache, and the stream to it. Loses what it is told to lose."""

    def __init__(self, epoch: BrokerEpoch, chance: random.Random) -> None:
        self.fence = Fence()
        self.fence.registered(Identity(broker_epoch=epoch, registration=Registration(0)))
        self.cache = MetadataCache(self.fence, lambda _brokers: None)
        self.loss = 0.0
        self._chance = chance

    def stream(self) -> "Stream":
        return Stream(self, self._chance)


class Stream:
    """A BrokerStream to one life of a broker."""

    def __init__(self, life: Life, chance: random.Random) -> None:
        self._life = life
        self._chance = chance
        self._parts: list[control_pb2.UpdateMetadataRequest] = []
        self._answer: control_pb2.UpdateMetadataResponse | None = None

    async def send(self, part: bytes) -> None:
        await self._stumble()
        answer = await self._life.cache.take(control_pb2.UpdateMetadataRequest.FromString(part), self._parts)
        if answer is not None:
            self._answer = answer

    async def answer(self) -> control_pb2.UpdateMetadataResponse:
        await self._stumble()
        answer, self._answer = self._answer, None
        assert answer is not None
        return answer

    def abandon(self) -> None:
        self._parts, self._answer = [], None

    async def close(self) -> None:
        self.abandon()

    async def _stumble(self) -> None:
        # One turn: whatever else is under way may come before it.
        await asyncio.sleep(0)
        if self._chance.random() < self._life.loss:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "lost")


class Office:
    """One reign: its journal, and where it takes each metadata process to be."""

    def __init__(self, epoch: int, base: Base | None) -> None:
        self.epoch = ControllerEpoch(epoch)
        self.journal = Journal(self.epoch, base)
        self.positions = dict.fromkeys(PROCESSES, NO_PICTURE if base is None else base.position)
        reign = Reign(controller_id=ElectionId(1), epoch=self.epoch, epoch_version=epoch)
        self.announcer = Announcer(reign, cluster_id="c", client_listener=Address(host="h", port=1))


class World:
    """A cluster. ``truth`` is what the store holds."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.registrations = 10
        self.truth = cluster(*(broker(id) for id in BROKERS), topics=[topic("t0", (1,), (2,), (3,))])
        self.published: dict[PictureVersion, Cluster] = {}
        self.lives = {id: Life(BrokerEpoch(id), self.chance) for id in BROKERS}
        self.versions = dict.fromkeys(BROKERS, NO_PICTURE)
        self.tasks: list[asyncio.Task[None]] = []
        self.processes: dict[MetadataId, Propagation] = {}
        self.offices = [Office(1, None)]
        self.minted = 0

    async def begin(self) -> None:
        for id in PROCESSES:
            await self.restart_process(id)
        self.publish()

    async def restart_process(self, id: MetadataId) -> None:
        former = self.processes.get(id)
        if former is not None:
            await former.processes_are(frozenset())
        self.processes[id] = Propagation(
            id=id,
            open_stream=self._open,
            clock=HastyClock(),
            spawn=self._spawn,
            believes=self._believes,
            shows=self._shows,
        )
        await self.processes[id].processes_are(frozenset(PROCESSES))

    def _open(self, receiver: Receiver) -> Stream:
        return self.lives[BrokerId(receiver.internal.port - 20_000)].stream()

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    async def _believes(self, _epoch: int) -> bool:
        return True

    async def _shows(self, epoch: int) -> bool:
        return epoch <= self.office.epoch

    @property
    def office(self) -> Office:
        return self.offices[-1]

    # What happens.

    def publish(self, keys: tuple[PartitionKey, ...] = (), deleted: dict[TopicId, str] | None = None) -> None:
        number = self.office.journal.publish(self.truth, keys, deleted)
        self.published[PictureVersion(self.office.epoch, number)] = self.truth

    def elect(self) -> None:
        keys = sorted(self.truth.partitions.keys())
        chosen = self.chance.sample(keys, min(len(keys), self.chance.randint(1, 3)))
        held: dict[PartitionKey, HeldState] = {}
        for key in chosen:
            known = self.truth.partitions[key].held
            assert known is not None
            state = replace(known.state, leader_epoch=LeaderEpoch(known.state.leader_epoch + 1))
            held[key] = HeldState(state=state, version=known.version + 1)
        self.truth = self.truth.with_states(held)
        self.publish(tuple(chosen))

    def create(self) -> None:
        self.minted += 1
        name = f"t{self.chance.randint(1, 4)}"
        one, members = topic(name, (1,), (2,))
        one = replace(one, id=TopicId(f"{name}-{self.minted}"))
        former = self.truth.names.get(name)
        self.truth = self.truth.with_topics([(one, members)])
        gone = {} if former is None else {former: name}
        self.publish(self.truth.of_topic(one.id), gone)

    def delete(self) -> None:
        ids = sorted(self.truth.topics)
        if len(ids) > 1:
            id = self.chance.choice(ids)
            name = self.truth.topics[id].name
            self.truth = self.truth.without_topics([id])
            self.publish((), {id: name})

    def bounce(self) -> None:
        id = self.chance.choice(BROKERS)
        if self.chance.random() < 0.5:
            self.truth = self.truth.without_broker(id)
            self.publish()
        self.register(id)

    def succeed(self) -> None:
        """A new reign, which goes on from some publication or from none, and names what differs."""
        position = self.chance.choice([NO_PICTURE, *list(self.published)[-4:]])
        self._unheard_of()
        base = None if position == NO_PICTURE else Base(epoch=position.epoch, version=position.number)
        self.offices.append(Office(self.office.epoch + self.chance.randint(1, 2), base))
        before = self.published.get(position, Cluster())
        changed = [key for key, one in self.truth.partitions.items() if before.partitions.get(key) != one]
        gone = {id: one.name for id, one in before.topics.items() if id not in self.truth.topics}
        self.publish(tuple(changed), gone)

    def _unheard_of(self) -> None:
        """What happened between two reigns and nobody published: of topics and brokers that are gone again, perhaps."""
        for id in sorted(self.truth.topics)[1:]:
            if self.chance.random() < 0.3:
                self.truth = self.truth.without_topics([id])
        for broker_id in BROKERS:
            if self.chance.random() < 0.2:
                self.truth = self.truth.without_broker(broker_id)

    def register(self, id: BrokerId) -> None:
        self.registrations += 1
        self.lives[id] = Life(BrokerEpoch(self.registrations), self.chance)
        self.versions[id] = NO_PICTURE
        self.truth = self.truth.with_broker(broker(id, epoch=self.registrations))
        self.publish()

    def order(self) -> None:
        """An order of the controller in office reaches a broker before its metadata does."""
        self.lives[self.chance.choice(BROKERS)].fence.check_controller(self.office.epoch)

    async def deliver(self, office: Office, id: MetadataId, *, loss: float = 0.0) -> None:
        """What a process lacks, as far as that controller knows; perhaps lost on the way, or its answer is."""
        publication = office.journal.next_for(office.positions[id])
        if publication is None or self.chance.random() < loss:
            return

        async def parts() -> AsyncIterator[propagation_pb2.PublishChangesRequest]:
            for part in office.announcer.parts(publication):
                yield part

        try:
            answer = await PropagationServicer(self.processes[id]).PublishChanges(parts(), None)
        except RegnumError as error:
            if error.code != errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
                raise
            return
        if self.chance.random() >= loss:
            office.positions[id] = PictureVersion(ControllerEpoch(answer.version_epoch), answer.version)

    async def step(self) -> None:
        for life in self.lives.values():
            life.loss = self.chance.choice([0.0, 0.0, 0.2, 1.0])
        what = self.chance.choices(
            ["elect", "create", "delete", "bounce", "succeed", "order", "restart", "owners", "deliver"],
            [6, 2, 1, 1, 2, 1, 1, 1, 12],
        )[0]
        match what:
            case "restart":
                await self.restart_process(self.chance.choice(PROCESSES))
            case "owners":
                live = frozenset(id for id in PROCESSES if self.chance.random() < 0.7)
                await self.processes[self.chance.choice(PROCESSES)].processes_are(live)
            case "deliver":
                office = self.chance.choice(self.offices[-2:])
                await self.deliver(office, self.chance.choice(PROCESSES), loss=0.2)
            case _:
                getattr(self, what)()
        # Some turns, by chance: what is under way gets so far and no further.
        for _ in range(self.chance.randint(0, 12)):
            await asyncio.sleep(0)
            self.check()

    # What holds.

    def check(self) -> None:
        for process in self.processes.values():
            image = process.image
            if image.version:
                assert shown(image.topics, image.head.brokers) == view_of(self.published[image.position])
        for id, life in self.lives.items():
            cache = life.cache
            position = PictureVersion(ControllerEpoch(cache.version >> 32), cache.version & (2**32 - 1))
            assert position >= self.versions[id], "versions of clients only grow"
            self.versions[id] = position
            if position != NO_PICTURE:
                assert shown(cache.topics, cache.brokers) == view_of(self.published[position])

    async def quieten(self) -> None:
        """Everything arrives from now on; wait until every broker has the newest picture."""
        for life in self.lives.values():
            life.loss = 0.0
        for id in BROKERS:
            if id not in self.truth.brokers:
                self.register(id)
        head = self.office.journal.head
        wanted = (head.epoch << 32) + head.number
        for process in self.processes.values():
            await process.processes_are(frozenset(PROCESSES))

        def quiet() -> bool:
            everybody = all(life.cache.version == wanted for life in self.lives.values())
            return everybody and all(process.head == head for process in self.processes.values())

        async with asyncio.timeout(DEADLINE_S):
            while not quiet():
                for process_id in PROCESSES:
                    await self.deliver(self.office, process_id)
                # One turn between two looks; nothing here waits for time.
                await asyncio.sleep(0)
                self.check()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for end in await asyncio.gather(*self.tasks, return_exceptions=True):
            assert isinstance(end, asyncio.CancelledError), end


@pytest.mark.parametrize("seed", range(30))
async def test_every_picture_is_one_that_was_published_and_at_last_the_newest(seed: int) -> None:
    world = World(seed)
    try:
        await world.begin()
        for _ in range(120):
            await world.step()
        await world.quieten()
        head = world.office.journal.head
        assert {process.head for process in world.processes.values()} == {head}
        assert {life.cache.version for life in world.lives.values()} == {(head.epoch << 32) + head.number}
    finally:
        await world.close()
