"""What faults rely on: which replicas have what was acknowledged, and where a connection leads."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from regnum_coordination.port import Create, Set
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, DirectoryId, LeaderEpoch, LogId, Registration, TopicId
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr, Membership
from regnum_testing.simulation.cluster import SimulatedCluster, Started
from regnum_testing.simulation.disks import SimulatedDisk
from regnum_testing.simulation.loop import PROCESS, Process, SimulatedLoop
from regnum_testing.simulation.machine import SimulatedClock, SimulatedMachine
from regnum_testing.simulation.network import Network, Pipe
from regnum_testing.simulation.servers import SimulatedServer

TOPIC = TopicId("A" * 22)
BROKERS = (1, 3)


def run(work: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()


def registration(log: str) -> bytes:
    return BrokerNode(
        incarnation="i",
        registration=Registration(0),
        rack=None,
        directories={DirectoryId("d"): LogId(log)},
        listeners={name: Address(host="h", port=1) for name in ("client", "internal")},
    ).encode()


def state(isr: tuple[int, ...]) -> bytes:
    return LeaderAndIsr(
        topic_id=TOPIC,
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(0),
        isr=tuple(map(BrokerId, isr)),
        elr=(),
        members={BrokerId(id): Membership(broker_epoch=id, log_id=LogId(f"log-{id}")) for id in isr},  # type: ignore[arg-type]
        controller_epoch=ControllerEpoch(1),
    ).encode()


class Brokers:
    """Two that run, with one partition."""

    def __init__(self, loop: SimulatedLoop, root: Path) -> None:
        self.cluster = SimulatedCluster(loop, root, random.Random(1))
        self._loop = loop

    async def begin(self) -> None:
        for path in ("/brokers", paths.BROKER_IDS, paths.TOPICS):
            await self._write(Process("world"), Create(path=path, data=b""))
        for id in BROKERS:
            self.live(id)
            await self.register(id, f"log-{id}")
        told = b'{"version":1,"topic_id":"%s","partitions":{"0":[1,3]}}' % TOPIC.encode()
        for path, data in (("", told), ("/0", b""), ("/0/leaderAndISR", state(BROKERS))):
            await self._write(Process("world"), Create(path=paths.topic("t") + path, data=data))

    def live(self, id: int) -> None:
        """Another life of a broker."""
        cluster, name = self.cluster, f"broker-{id}"
        machine = SimulatedMachine(cluster.network, SimulatedClock(self._loop), random.Random(1), "boot")
        cluster.started[name] = Started(Process(name), machine)

    async def register(self, id: int, log: str) -> None:
        path, server = paths.broker_id(BrokerId(id)), self.cluster.stores.server
        before = server.reading(current=True).get(path)
        if before is not None and before.stat.ephemeral_owner is not None:
            server.expire(before.stat.ephemeral_owner)
        process = self.cluster.started[f"broker-{id}"].process
        await self._write(process, Create(path=path, data=registration(log), ephemeral=True))

    async def shrink(self, *isr: int) -> None:
        await self._write(Process("world"), Set(path=paths.leader_and_isr("t", 0), data=state(isr), version=None))

    async def _write(self, process: Process, operation: Create | Set) -> None:
        store = await self.cluster.stores.open(process)
        await store.multi((operation,))


def test_a_cluster_is_whole_when_the_members_of_each_isr_have_the_log_that_is_recorded(tmp_path: Path) -> None:
    async def work(loop: SimulatedLoop) -> None:
        brokers = Brokers(loop, tmp_path)
        await brokers.begin()
        assert brokers.cluster.is_whole()
        await brokers.shrink(1)
        assert not brokers.cluster.is_whole()
        await brokers.shrink(*BROKERS)
        assert brokers.cluster.is_whole()
        brokers.cluster.started["broker-3"].process.paused = True
        assert not brokers.cluster.is_whole()

    run(work)


def test_a_cluster_is_not_whole_while_no_controller_has_seen_that_a_log_was_lost(tmp_path: Path) -> None:
    """Seed 395: power failed at one replica of two, then the disk of the other, before a controller reigned again."""

    async def work(loop: SimulatedLoop) -> None:
        brokers = Brokers(loop, tmp_path)
        await brokers.begin()
        brokers.live(3)
        assert not brokers.cluster.is_whole(), "the registration is its former life's"
        await brokers.register(3, "another")
        assert not brokers.cluster.is_whole()
        await brokers.register(3, "log-3")
        assert brokers.cluster.is_whole()

    run(work)


ADDRESSES = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")


async def listening(network: Network, address: str) -> SimulatedServer:
    async def make() -> SimulatedServer:
        PROCESS.set(Process(address))
        server = SimulatedServer(network, ())
        server.add_insecure_port(address)
        await server.start()
        return server

    return await network.loop.create_task(make(), context=contextvars.Context())


@pytest.mark.parametrize("detours", [1, 2])
def test_connections_that_went_astray_end_with_the_detour_however_many_there_were(detours: int) -> None:
    """Seed 328: those that went astray before an address was led elsewhere once more stayed for ever."""

    async def work(loop: SimulatedLoop) -> None:
        network = Network(loop, random.Random(1))
        first, *others = [await listening(network, address) for address in ADDRESSES]
        client = Process("client")

        def connect(address: str) -> Any:
            server = network.at(address)
            assert server is not None
            return network.connect(client, server, address)

        right, neighbour = connect(ADDRESSES[0]), connect(ADDRESSES[1])
        astray = []
        for number in range(detours):
            network.detour(ADDRESSES[0], ADDRESSES[1 + number])
            assert not any(connection.client_open for connection in (right, *astray))
            astray.append(connect(ADDRESSES[0]))
            assert astray[-1].server is others[number]
        network.straight()
        assert not any(connection.client_open for connection in astray)
        assert neighbour.client_open, "it never went astray"
        assert connect(ADDRESSES[0]).server is first

    run(work)


def test_a_copy_of_a_volume_is_of_its_life_until_the_next_one_begins(tmp_path: Path) -> None:
    """A volume that goes back within one life cannot be told from one that did not, so that no seed does it."""
    disk = SimulatedDisk(tmp_path, random.Random(1))
    disk.folder.mkdir(parents=True)
    (disk.folder / "life").write_bytes(b"1")
    assert not disk.copied_in_this_life, "there is no copy"
    disk.copy()
    assert disk.copied_in_this_life
    (disk.folder / "life").write_bytes(b"2")
    assert not disk.copied_in_this_life


@pytest.mark.parametrize("seed", range(20))
def test_a_connection_keeps_its_order_through_cuts_and_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    arrived: list[int] = []

    async def work(loop: SimulatedLoop) -> None:
        network = Network(loop, chance)
        pipe = Pipe(network, Process("one"), Process("other"))
        for number in range(500):
            pipe.send(arrived.append, number)
            await asyncio.sleep(chance.uniform(0.0, 2e-3))
            if chance.random() < 0.1:
                network.cut("one", "other")
            elif chance.random() < 0.2:
                network.heal()
                pipe.release()
        network.heal()
        pipe.release()
        # Of the simulated time, which costs nothing.
        await asyncio.sleep(2 * network.slowest_s)

    run(work)
    assert arrived == list(range(500))
