"""What clients do meanwhile: records to three topics, readers of them, a group, and a person who changes topics.

``t`` stays as it is. ``m`` has two replicas, and its partitions move. Partitions of ``r`` are removed and added again
under the same numbers. Others come and go, and have no records.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Consumer, ConsumerSettings, Producer, TopicPartition
from regnum_client.admin.leaders.elections import ElectionType
from regnum_service.channel import Channels
from regnum_service.errors import RegnumError

from regnum_testing.simulation.cluster import SimulatedCluster, Started
from regnum_testing.simulation.judging.judge import NUMBERS, History

STAYS: Final = "t"
MOVES: Final = "m"
RESIZED: Final = "r"
TOPICS: Final = (STAYS, MOVES, RESIZED)
PARTITIONS: Final = {STAYS: 3, MOVES: 2, RESIZED: 2}
"""At the start."""
PARTITIONS_MAX: Final = 3
"""Of the topic whose number changes."""
SHARES: Final = {STAYS: 4, MOVES: 2, RESIZED: 1}
"""Of the records."""
REPLICAS: Final = {STAYS: 3, MOVES: 2, RESIZED: 3}
GROUP: Final = "g"
MEMBERS: Final = ("member-1", "member-2")
LIMITED: Final = "limited"
"""Client id that has a quota."""
PACE_S: Final = 0.04
"""Mean time between two records."""
CHANGE_S: Final = 1.5
"""Mean time between two changes of topics."""
STAYS_S: Final = 6.0
"""Mean time for which a member stays in its group."""


def key_of(topic: str, partition: int) -> str:
    """A partition, as the history has it."""
    return f"{topic}-{partition}"


class Load:
    """Of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        brokers: Sequence[str],
        chance: random.Random,
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        """Only assigns; ``partitions``: other topics than those of all seeds."""
        self._cluster: Final = cluster
        self._history: Final = history
        self._brokers: Final = tuple(brokers)
        self._chance: Final = chance
        self.partitions: Final = dict(PARTITIONS if partitions is None else partitions)
        """Where records go."""
        self.stopping = False
        """Set when no record is to be sent, and nothing changed, any more."""

    def start(self) -> None:
        """Start clients: what writes and reads, and of the others those that chance chooses."""
        self.start_records()
        if self._chance.random() < 0.5:
            self._spawn("person", self._change)
        if self._chance.random() < 0.4:
            self._history.committed.update(dict.fromkeys(self._keys(STAYS), 0))
            for name in MEMBERS:
                self._spawn(name, self._take_part)

    def start_another(self) -> None:
        """Start another producer, of other numbers."""
        self._spawn("another", lambda started: self._produce(started, NUMBERS))

    def start_records(self) -> None:
        """Start what writes and reads alone."""
        # A reader that never gets a record has to be seen as one.
        self._history.read.update({key: [] for topic in (STAYS, MOVES) for key in self._keys(topic)})
        self._spawn("load", self._produce)
        self._spawn("reader", self._read)

    def _keys(self, topic: str) -> list[str]:
        return [key_of(topic, number) for number in range(self.partitions.get(topic, 0))]

    def _spawn(self, name: str, work: Callable[[Started], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await self._cluster.client(name, work)
            except Exception as error:  # noqa: BLE001 - a finding
                self._history.problems.append(f"client {name} failed: {error!r}")

        self._cluster.spawn(run())

    def _bootstrap(self) -> list[str]:
        return [self._cluster.address(name) for name in self._brokers]

    def _of(self, started: Started) -> dict[str, Any]:
        machine = started.machine
        return {"clock": machine.clock, "chance": machine.chance, "channels": Channels(machine.opener(None))}

    def admin(self, started: Started) -> Admin:
        """An admin client in a process."""
        return Admin(self._bootstrap(), **self._of(started))

    async def make_topics(self, started: Started) -> None:
        """What there is before anything goes wrong."""
        async with self.admin(started) as admin:
            while len((await admin.describe_cluster()).brokers) < len(self._brokers):
                await started.machine.clock.sleep(0.2)
            for topic in self.partitions:
                await admin.create_topic(topic, partitions=self.partitions[topic], replication_factor=REPLICAS[topic])

    async def _produce(self, started: Started, number: int = 0) -> None:
        chance, history = started.machine.chance, self._history
        producer = Producer(self._bootstrap(), **self._of(started))
        await producer.start()
        while not self.stopping:
            topic = chance.choices(tuple(self.partitions), [SHARES[topic] for topic in self.partitions])[0]
            partition = chance.randrange(self.partitions[topic])
            try:
                delivery = await producer.send(topic, b"%d" % number, partition=partition)
            except RegnumError as error:
                self._cluster.say("not sent:", error)
                await asyncio.sleep(0.2)
                continue
            key = key_of(topic, partition)
            delivery.add_done_callback(_noting(history, key, number))
            if topic != RESIZED:
                # A partition that is removed takes along what waits for it.
                history.awaited[key, number] = None
            number += 1
            history.sent += 1
            await asyncio.sleep(chance.expovariate(1 / PACE_S))

    async def mutate(self, started: Started, until_s: float) -> None:
        """Make topics as fast as a quota lets, until that time, and note when each was admitted."""
        loop, number = self._cluster.loop, 0
        async with Admin(self._bootstrap(), client_id=LIMITED, **self._of(started)) as admin:
            while (asked_s := loop.time()) < until_s:
                try:
                    await admin.create_topic(f"q{number}", replication_factor=1, retry_on_quota_violation=False)
                except RegnumError as error:
                    if error.code != errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED:
                        self._cluster.say("no topic:", error)
                    await asyncio.sleep(0.1)
                else:
                    self._history.admitted.append((asked_s, loop.time()))
                number += 1

    async def _read(self, started: Started) -> None:
        consumer = Consumer(self._bootstrap(), **self._of(started))
        await consumer.start()
        for topic in (STAYS, MOVES):
            if topic in self.partitions:
                await consumer.assign(topic)
        while True:
            for record in await consumer.read():
                read = self._history.read.setdefault(key_of(record.topic, record.partition), [])
                read.append((record.offset, int(record.value or b"")))

    async def _take_part(self, started: Started) -> None:
        """Be a member of the group again and again; commit what was handed out."""
        chance, loop = started.machine.chance, self._cluster.loop
        while True:
            settings = ConsumerSettings(enable_auto_commit=False, session_timeout_s=6.0, heartbeat_interval_s=1.0)
            consumer = Consumer(
                self._bootstrap(), topics=[STAYS], group_id=GROUP, settings=settings, **self._of(started)
            )
            until_s = loop.time() + chance.expovariate(1 / STAYS_S)
            try:
                await consumer.start()
                while self.stopping or loop.time() < until_s:
                    await self._read_as_member(consumer)
            except RegnumError as error:
                self._cluster.say("not a member:", error)
            await consumer.close()
            await asyncio.sleep(chance.uniform(0.1, 2.0))

    async def _read_as_member(self, consumer: Consumer) -> None:
        upto: dict[TopicPartition, int] = {}
        for record in await consumer.read(timeout_s=0.5):
            self._history.handed.setdefault(key_of(record.topic, record.partition), {})[record.offset] = None
            upto[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if not upto:
            return
        before = dict(self._history.committed)
        try:
            await consumer.commit(upto)
        except RegnumError:
            # Not this member's any more, or not known.
            return
        for partition, offset in upto.items():
            self._history.commit(key_of(*partition), offset, known=before)

    async def _change(self, started: Started) -> None:
        """Change topics, one change after another."""
        chance = started.machine.chance
        made: list[str] = []
        async with self.admin(started) as admin:
            while not self.stopping:
                await asyncio.sleep(chance.expovariate(1 / CHANGE_S))
                what = chance.choice(("create", "delete", "grow", "shrink", "move", "move", "prefer"))
                try:
                    await self._one_change(admin, what, made, chance.random)
                except RegnumError as error:
                    self._cluster.say("change", what, "failed:", error)

    async def _one_change(self, admin: Admin, what: str, made: list[str], draw: Callable[[], float]) -> None:
        history = self._history
        match what:
            case "create":
                name = f"c{history.changes}"
                history.changes += 1
                try:
                    await admin.create_topic(name, partitions=2, replication_factor=2)
                except RegnumError as error:
                    if error.code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS:
                        history.problems.append(f"a mutation happened twice: {name} was there before it was created")
                    raise
                made.append(name)
            case "delete" if made:
                await admin.delete_topic(made.pop(0))
            case "grow" if self.partitions[RESIZED] < PARTITIONS_MAX:
                await admin.create_partitions(RESIZED, PARTITIONS_MAX)
                self.partitions[RESIZED] = PARTITIONS_MAX
            case "shrink" if self.partitions[RESIZED] == PARTITIONS_MAX:
                last = PARTITIONS_MAX - 1
                self.partitions[RESIZED] = last
                removal = history.removing(key_of(RESIZED, last))
                await admin.delete_partitions(RESIZED, [last])
                removal()
            case "move":
                partition = int(draw() * PARTITIONS[MOVES])
                left_out = int(draw() * len(self._brokers))
                target = [number + 1 for number in range(len(self._brokers)) if number != left_out]
                if draw() < 0.5:
                    target.reverse()
                outcome = await admin.alter_partition_reassignments({(MOVES, partition): target})
                self._cluster.say("move", partition, target, outcome[MOVES, partition])
                return
            case "prefer":
                await admin.elect_leaders(ElectionType.PREFERRED)
            case _:
                return
        self._cluster.say("change", what)


def _noting(history: History, partition: str, number: int) -> Any:
    removals = history.removals.get(partition, 0)

    def note(delivery: asyncio.Future[Any]) -> None:
        if delivery.cancelled():
            return
        awaited = (partition, number) in history.awaited
        history.awaited.pop((partition, number), None)
        if (error := delivery.exception()) is None:
            history.acknowledge(partition, number, delivery.result().offset, removals=removals)
        elif awaited:
            history.problems.append(f"a record of partition {partition} failed: {error!r}")

    return note
