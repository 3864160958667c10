"""What a story is told with: the processes by what they do for one partition, and waiting for what happens.

A *story* is an aimed schedule as code: it looks at the cluster, and strikes at a moment that no seed would find. The
cluster has one topic with one partition on all brokers; nothing happens but what the story does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from regnum_client import Admin
from regnum_coordination.drivers.memory.server import Transaction
from regnum_coordination.port import Group
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.nodes import LeaderAndIsr

from regnum_testing.simulation.cluster import SimulatedCluster, Started
from regnum_testing.simulation.judging.judge import History
from regnum_testing.simulation.judging.replicas import directory_of, log_of
from regnum_testing.simulation.load import LIMITED, STAYS, Load, key_of
from regnum_testing.simulation.loop import Process
from regnum_testing.simulation.schedules.faults import Faults

ELECTIONS: Final = ("election-1", "election-2")

STATE: Final = paths.leader_and_isr(STAYS, 0)
"""Node of the partition that a story is about."""


class Scene:
    """Of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        faults: Faults,
        history: History,
        load: Load,
        images: Callable[[], Awaitable[list[str]]],
    ) -> None:
        """Only assigns; ``images``: looks at what brokers know."""
        self.cluster: Final = cluster
        self.history: Final = history
        self._faults: Final = faults
        self._load: Final = load
        self.over = False
        """Whether the run ends with the story: what it leaves needs a person."""
        self.images: Final = images
        """What the metadata of brokers says otherwise than the store."""

    # What is there.

    def state(self) -> LeaderAndIsr:
        """Of the partition, as the store has it."""
        node = self.cluster.stores.server.reading(current=True).get(STATE)
        assert node is not None, "the topic is there"
        return LeaderAndIsr.decode(node.data)

    def assigned(self) -> list[str]:
        """Its brokers, in the order of the assignment; the leader first."""
        _, partitions = self.cluster.topics()[STAYS]
        leader = self.state().leader
        return [f"broker-{id}" for id in sorted(partitions[0], key=lambda id: (id != leader, partitions[0].index(id)))]

    def replica(self, name: str) -> Any:
        """Of the partition, in a broker that runs."""
        topic_id, _ = self.cluster.topics()[STAYS]
        return self.cluster.started[name].service.replicas.get(PartitionKey(topic_id, 0))

    def end(self, name: str) -> int:
        """Where a broker's log of the partition ends; -1: it has none."""
        replica = self.replica(name)
        return -1 if replica is None else int(replica.log.log_end_offset)

    def acknowledged(self) -> int:
        """Records of the partition that are."""
        return sum(partition == key_of(STAYS, 0) for partition, _ in self.history.acknowledged)

    def led(self, name: str, epoch: int) -> bool:
        """Whether a broker has been seen to lead the partition in that leader epoch."""
        return name in self.history.leaders.get((key_of(STAYS, 0), epoch), {})

    def serves(self, name: str) -> bool:
        """Whether a broker answers clients as the leader of the partition."""
        return type(role := self.replica(name).role).__name__ == "Leadership" and not role.cut_off

    def followers(self, name: str) -> list[str]:
        """Brokers that have fetched from a leader in its epoch."""
        progress = getattr(self.replica(name).role, "_progress", {})
        return [f"broker-{id}" for id, one in progress.items() if one.has_fetched]

    @staticmethod
    def id(name: str) -> BrokerId:
        """Of a broker."""
        return BrokerId(int(name.partition("-")[2]))

    def nowhere(self, topic: str, partition: int) -> list[int]:
        """Acknowledged records of a partition that no log of a broker that runs has."""
        topic_id, _ = self.cluster.topics()[topic]
        there: set[int] = set()
        for started in self.cluster.started.values():
            if started.process.name.startswith("broker") and not started.process.dead:
                replica = started.service.replicas.get(PartitionKey(topic_id, partition))
                there.update(() if replica is None else (value for _, value in log_of(replica).records))
        return [
            value for at, value in self.history.acknowledged if at == key_of(topic, partition) and value not in there
        ]

    def holder(self, path: str) -> str:
        """Process whose session has a node; empty: there is none."""
        stores = self.cluster.stores
        node = stores.server.reading(current=True).get(path)
        owner = None if node is None else node.stat.ephemeral_owner
        return "" if owner is None else stores.owner(owner)

    def reigns(self) -> str:
        """Election process that has ``/controller``; empty: none has."""
        return self.holder(paths.CONTROLLER)

    # Waiting.

    async def sleep(self, seconds: float) -> None:
        """Let that much virtual time go by."""
        await self.cluster.sleep(seconds)

    async def until(self, condition: Callable[[], bool], *, within_s: float = 15.0, each_s: float = 0.002) -> bool:
        """Wait until that holds; False: it did not within that time."""
        end_s = self.cluster.loop.time() + within_s
        while not condition():
            if self.cluster.loop.time() >= end_s:
                return False
            await self.sleep(each_s)
        return True

    async def more(self, records: int, *, within_s: float = 15.0) -> bool:
        """Wait until so many more records of the partition are acknowledged."""
        wanted = self.acknowledged() + records
        return await self.until(lambda: self.acknowledged() >= wanted, within_s=within_s)

    async def in_sync(self, *names: str, within_s: float = 15.0) -> bool:
        """Wait until the ISR is these, and led."""
        wanted = {int(name.partition("-")[2]) for name in names}
        return await self.until(
            lambda: set(self.state().isr) == wanted and self.state().leader in wanted, within_s=within_s
        )

    async def written_down(self, name: str) -> None:
        """Wait until a broker writes its high watermark down; the kernel writes all that is open then.

        What is lost from then on is nothing that the log directory knows of by itself, for a second.
        """
        directory, key = directory_of(self.cluster.started[name].service), self.replica(name).key
        before = directory.stored_high_watermark(key)
        await self.until(lambda: directory.stored_high_watermark(key) != before)
        self.cluster.disks[name].write_back()

    async def sent(self, writer: str, path: str = STATE, *, within_s: float = 15.0) -> bool:
        """Wait until a process sends the next write to a node; it is on its way then."""
        happened = asyncio.Event()

        def note(process: Process, groups: tuple[Group, ...]) -> None:
            if process.name == writer and any(one.path.startswith(path) for group in groups for one in group):
                happened.set()

        self.cluster.stores.on_write = note
        return await _within(happened, within_s)

    async def called(self, source: str, target: str, method: str, *, within_s: float = 15.0) -> bool:
        """Wait until a process calls that of another one; the call is on its way then."""
        happened = asyncio.Event()

        def note(by: Process, of: Process, name: str) -> None:
            if (by.name, of.name) == (source, target) and name.endswith(method):
                happened.set()

        self.cluster.network.on_call = note
        return await _within(happened, within_s)

    async def read(self, by: str, *, within_s: float = 15.0) -> bool:
        """Wait until a process reads from the store; its request is on its way then."""
        happened = asyncio.Event()
        self.cluster.stores.on_read = lambda process: happened.set() if process.name == by else None
        return await _within(happened, within_s)

    # Acting.

    def kill(self, *names: str, power: bool = False, goes_back: bool = False) -> None:
        """End processes at once."""
        for name in names:
            self.cluster.kill(name, power=power, goes_back=goes_back)

    async def start(self, *names: str) -> None:
        """Start those that are down."""
        for name in names:
            await self._faults.start(name)

    async def ended(self, *names: str) -> bool:
        """Wait until processes have ended by themselves."""
        return await self.until(lambda: all(self.cluster.started[name].process.dead for name in names), within_s=40.0)

    def part(self, name: str, *others: str) -> None:
        """Let nothing through between one process and others."""
        for other in others:
            self.cluster.cut(name, other)
            self.cluster.cut(other, name)

    def by_hand(self, group: Group) -> None:
        """A person writes to the store."""
        server = self.cluster.stores.server
        server.carry_out(Transaction(session_id=server.open_session().id, groups=(group,)))

    def mutate(self, seconds: float) -> None:
        """A client with a quota makes topics for so long."""
        until_s = self.cluster.loop.time() + seconds
        self.cluster.spawn(self._client(LIMITED, lambda started: self._load.mutate(started, until_s)))

    async def _client(self, name: str, work: Callable[[Started], Awaitable[None]]) -> None:
        await self.cluster.client(name, work)

    def more_load(self) -> None:
        """Another producer begins."""
        self._load.start_another()

    def load_to(self, topic: str, partitions: int) -> None:
        """From now on records go to so many partitions of a topic."""
        self._load.partitions[topic] = partitions

    async def remove(self, topic: str, partition: int) -> None:
        """Remove the last partition of a topic."""
        removed = self.history.removing(key_of(topic, partition))
        await self.administer(lambda admin: admin.delete_partitions(topic, [partition]))
        removed()

    async def administer(self, work: Callable[[Admin], Awaitable[object]]) -> None:
        """A person uses the admin client."""

        async def run(started: Started) -> None:
            async with self._load.admin(started) as admin:
                await work(admin)

        await self.cluster.client("person", run)


async def _within(happened: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await happened.wait()
    except TimeoutError:
        return False
    return True
