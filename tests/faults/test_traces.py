"""The traces of a model checker, on real processes: each once lost records while a rule was missing.

Nobody reigns while brokers fail here, so the next controller finds all of it at once, and has nothing but the store.
A loss of power is another boot id in the log directory, and a tail of the log that is gone.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_client import Admin, Producer, TopicPartition
from regnum_client.cluster.view import PartitionView
from regnum_coordination import open_store
from regnum_coordination.port import Delete, Set, Store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_testing.under_load import under_load, until
from regnum_testing.waiting import DEADLINE_S, eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

ELECTIONS = ("election-1", "election-2")
BROKERS = (1, 2, 3)
RECORDS = 50


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """One for all traces: each ends with every replica in sync."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=3, elections=2, metadata=1, report=lambda _text: None) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def store(cluster: LocalCluster) -> AsyncIterator[Store]:
    """A session of the test's own."""
    opened = await open_store(cluster.coordination, session_timeout_s=60.0)
    yield opened
    await opened.close()


class Trace:
    """A partition that broker 1 leads, with acknowledged records, and what becomes of it."""

    def __init__(self, cluster: LocalCluster, admin: Admin, topic: str) -> None:
        self.cluster = cluster
        self.admin = admin
        self.topic = topic
        self.written = 0

    async def begin(self) -> None:
        await self.admin.create_topic(self.topic, partitions=0, assignment={0: BROKERS})
        await self.write()
        await self.sees(lambda seen: seen.leader == 1 and len(seen.isr) == 3)

    async def write(self) -> None:
        async with Producer(self.cluster.bootstrap) as producer:
            numbers = range(self.written, self.written + RECORDS)
            await asyncio.gather(*[await producer.send(self.topic, str(n).encode(), partition=0) for n in numbers])
        self.written += RECORDS

    async def partition(self) -> PartitionView:
        return (await self.admin.describe_topic(self.topic)).partitions[0]

    async def sees(self, holds: Callable[[PartitionView], bool]) -> PartitionView:
        """Wait until the cluster says that of the partition; returns what it says."""
        seen: list[PartitionView] = []

        async def so() -> bool:
            seen.append(await self.partition())
            return holds(seen[-1])

        try:
            await eventually(so, within_s=DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{self.topic}: {seen[-1]}") from error
        return seen[-1]

    async def nobody_reigns(self) -> None:
        for name in ELECTIONS:
            await self.cluster.kill(name)

    async def somebody_reigns(self) -> None:
        for name in ELECTIONS:
            await self.cluster.restart(name)
        for name in ELECTIONS:
            await self.cluster.wait_healthy(name)

    def directory(self, broker: int) -> Path:
        return self.cluster.data_dir / f"broker-{broker}"

    async def wiped(self, broker: int, *, cleanly: bool = False) -> None:
        """It ends, its disk is empty, and it starts again."""
        name = f"broker-{broker}"
        await (self.cluster.terminate(name) if cleanly else self.cluster.kill(name))
        shutil.rmtree(self.directory(broker))
        await self.bounced(broker)

    async def bounced(self, broker: int) -> None:
        """It is killed, if it runs, and starts again."""
        await self.cluster.kill(f"broker-{broker}")
        await self.cluster.restart(f"broker-{broker}")
        await self.cluster.wait_healthy(f"broker-{broker}")

    async def registered(self, store: Store, brokers: set[int]) -> None:
        """Wait until these and no others are registered."""

        async def so() -> bool:
            names = (await store.children(paths.BROKER_IDS, current=True)).names
            return {int(name) for name in names} == brokers

        await until(so)

    async def everything(self) -> list[int]:
        """What is read when all replicas are in sync again and one more record was written, in its order."""
        await self.sees(lambda seen: len(seen.isr) == 3 and seen.leader > 0)
        await self.write()
        key = TopicPartition(self.topic, 0)
        log = (await read_everything(self.cluster.bootstrap, [key]))[key]
        return [number for _, number in log]


@pytest_asyncio.fixture(loop_scope="module")
async def trace(cluster: LocalCluster, request: pytest.FixtureRequest) -> AsyncIterator[Trace]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-60:].strip("-")
    async with Admin(cluster.bootstrap, timeout_s=DEADLINE_S) as admin:
        begun = Trace(cluster, admin, name)
        await begun.begin()
        yield begun


async def test_t1_the_tail_of_a_bounced_member(trace: Trace, store: Store) -> None:
    """The leader lost power and its tail, the other member bounced with all of it: the other one leads."""
    await trace.cluster.kill("broker-2")
    await trace.sees(lambda seen: set(seen.isr) == {1, 3})
    await trace.write()
    await trace.nobody_reigns()
    await trace.bounced(3)
    await trace.cluster.kill("broker-1")
    loses_power_and_tail(trace.directory(1), str(trace.written - 1).encode())
    await trace.bounced(1)
    await trace.registered(store, {1, 3})
    await trace.somebody_reigns()
    seen = await trace.sees(lambda seen: seen.leader == 3 and 1 in seen.isr)
    assert seen.leader == 3
    await trace.bounced(2)
    assert await trace.everything() == list(range(trace.written))


def loses_power_and_tail(broker: Path, last: bytes) -> None:
    """Another boot; and the replica whose last record has that value loses the second half of its file."""
    meta = broker / "meta.json"
    content = json.loads(meta.read_text())
    meta.write_text(json.dumps({**content, "boot_id": "another boot"}))
    (segment,) = [path for path in broker.rglob("*.log") if path.stem.isdigit() and last in path.read_bytes()]
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("times", [1, 2])
async def test_t2_and_t5_a_member_that_lost_its_log_and_came_back_leads_nothing(
    trace: Trace, store: Store, times: int
) -> None:
    """Also when it has registered a second time since, with the log that it had at the first (T5)."""
    await trace.nobody_reigns()
    await trace.wiped(2)
    for _ in range(times - 1):
        await trace.bounced(2)
    await trace.cluster.kill("broker-1")
    await trace.registered(store, {2, 3})
    await trace.somebody_reigns()
    await trace.sees(lambda seen: seen.leader == 3 and set(seen.isr) == {2, 3})
    await trace.bounced(1)
    assert await trace.everything() == list(range(trace.written))


@pytest.mark.parametrize("cleanly", [False, True])
async def test_t3_t4_and_t6_a_leader_that_lost_its_disk_is_succeeded_in_a_new_epoch(
    trace: Trace, store: Store, cleanly: bool
) -> None:
    """Killed, and nobody raises its epoch otherwise (T3, T4); stopped cleanly, and the proof was on that disk (T6)."""
    before = await trace.partition()
    await trace.nobody_reigns()
    await trace.wiped(1, cleanly=cleanly)
    await trace.registered(store, {1, 2, 3})
    await trace.somebody_reigns()
    seen = await trace.sees(lambda seen: seen.leader in {2, 3} and len(seen.isr) == 3)
    assert seen.leader_epoch > before.leader_epoch
    assert await trace.everything() == list(range(trace.written))


async def test_t7_complete_copies_that_left_lead_again_when_the_last_member_is_wiped(
    trace: Trace, store: Store
) -> None:
    """1 and 2 are killed one after the other, 3 alone loses its disk; the controller dies in between."""
    await trace.cluster.kill("broker-1")
    await trace.sees(lambda seen: set(seen.isr) == {2, 3})
    await trace.write()
    await trace.cluster.kill("broker-2")
    await trace.sees(lambda seen: set(seen.isr) == {3} and set(seen.elr) == {2})
    await trace.nobody_reigns()
    await trace.wiped(3)
    await trace.bounced(1)
    await trace.registered(store, {1, 3})
    await trace.somebody_reigns()
    await trace.sees(lambda seen: seen.leader == -1 and set(seen.elr) == {2})
    await trace.bounced(2)
    await trace.sees(lambda seen: seen.leader == 2)
    assert await trace.everything() == list(range(trace.written))


@pytest.mark.parametrize("controller_dies", [False, True])
async def test_a_leader_that_was_fenced_by_mistake_loses_nothing(
    cluster: LocalCluster, store: Store, controller_dies: bool
) -> None:
    """It lives, and its registration is taken away under load; with it, once, the controller."""
    async with under_load(cluster, f"fenced-{controller_dies}") as running:
        partition = running.partitions[0]
        before = await running.stage.look()
        victim = BrokerId(before.leaders[partition])
        guard = await store.get(paths.broker_epoch(victim), current=True)
        node = await store.get(paths.broker_id(victim), current=True)
        await store.multi(
            [
                Set(paths.broker_epoch(victim), guard.data, guard.stat.version),
                Delete(paths.broker_id(victim), node.stat.version),
            ]
        )
        if controller_dies:
            await cluster.kill(f"election-{before.controller}")

        async def registered_again() -> bool:
            stat = await store.exists(paths.broker_id(victim), current=True)
            return stat is not None and stat.creation_id > node.stat.creation_id

        await until(registered_again)
        if controller_dies:
            await cluster.restart(f"election-{before.controller}")
            await cluster.wait_healthy(f"election-{before.controller}")
        await running.stage.all_in_sync(within_s=DEADLINE_S)
        verdict = await running.judged()
    assert verdict.clean, verdict
