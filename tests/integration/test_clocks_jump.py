"""Wall clocks of processes that jump by days, either way: nothing is lost, fenced or expired for it, and it is told.

The clocks are libfaketime's, over files that the test replaces; what processes measure times with (the monotonic
clock) goes on as it does.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client import Admin, ConfigAlteration, ConfigResource, Consumer, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Launch, Member, Role, command
from regnum_testing.under_load import LoadedCluster, under_load, until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
DAYS = 2
KEPT_MS = 3_600_000
"""Of the topic that is written to: far less than the clocks jump by."""
SHORT_MS = 3_000
"""Of a topic whose records expire all the time, which shows that expiry works."""


class Clocks:
    """Wall clocks, one for each process, set through files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def command(self, member: Member, launch: Launch) -> list[str]:
        """A process under its own clock."""
        if member.role not in {Role.BROKER, Role.ELECTION}:
            return command(member, launch)
        if not (self._folder / member.name).exists():
            self.set(member.name, 0)
        told = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / member.name),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }
        return ["/usr/bin/env", *(f"{key}={value}" for key, value in told.items()), *command(member, launch)]

    def set(self, name: str, days: int) -> None:
        """Have it show so many days more than the machine's; seen within a second."""
        beside = self._folder / f".{name}"
        beside.write_text(f"{days:+d}d\n", encoding="ascii")
        beside.replace(self._folder / name)


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    if not LIBRARIES:
        pytest.skip("no libfaketime here (Debian: apt-get install faketime)")
    return Clocks(tmp_path / "clocks")


@pytest.fixture
async def cluster(tmp_path: Path, clocks: Clocks) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(
        tmp_path / "data", brokers=3, elections=2, report=lambda _text: None, make_command=clocks.command
    )
    async with made:
        yield made


async def start_of(cluster: LocalCluster, topic: str) -> int:
    """The first offset that is left."""
    async with Consumer(cluster.bootstrap) as consumer:
        (offset,) = (await consumer.beginning_offsets([TopicPartition(topic, 0)])).values()
    return offset


async def differing(cluster: LocalCluster) -> set[int]:
    """Brokers whose clocks are told to differ from the controller's."""
    async with Admin(cluster.bootstrap) as admin:
        told = await admin.describe_health()
    return {one.id for one in told.brokers if abs(one.clock_ahead_s or 0.0) > 300.0}


async def expires(cluster: LocalCluster, topic: str) -> None:
    """Write to it until older records of it are gone."""
    begun = await start_of(cluster, topic)
    async with Producer(cluster.bootstrap) as producer:

        async def gone() -> bool:
            await (await producer.send(topic, b"x" * 1_000, partition=0))
            return await start_of(cluster, topic) > begun

        await until(gone, within_s=60.0)


async def acknowledged(running: LoadedCluster, records: int) -> None:
    """Wait for so many more, of each partition."""
    wanted = {key: len(history.acknowledged) + records for key, history in running.load.histories.items()}

    async def there() -> bool:
        return all(len(running.load.histories[key].acknowledged) >= count for key, count in wanted.items())

    await until(there, within_s=60.0)


@pytest.mark.parametrize("days", [DAYS, -DAYS], ids=["ahead", "back"])
@pytest.mark.parametrize("whose", ["leader", "controller"])
async def test_a_clock_that_jumps_costs_nothing_and_is_told(
    cluster: LocalCluster, clocks: Clocks, whose: str, days: int
) -> None:
    short = {"retention.ms": str(SHORT_MS), "segment.ms": "1000"}
    async with Admin(cluster.bootstrap) as admin, under_load(cluster, "kept") as running:
        kept = {"retention.ms": str(KEPT_MS), "segment.ms": "1000"}
        await admin.alter_config(ConfigAlteration(resource=ConfigResource(topic="kept"), set=kept))
        await admin.create_topic("short", partitions=1, replication_factor=3, configs=short)
        await expires(cluster, "short")
        before = await running.stage.look()
        leaders = {key: before.leaders[key] for key in running.partitions}
        jumped = f"broker-{leaders[running.partitions[0]]}"
        brokers = {leaders[running.partitions[0]]}
        if whose == "controller":
            controller = (await admin.describe_cluster()).controller
            assert controller is not None
            jumped, brokers = f"election-{controller.id}", {1, 2, 3}
        clocks.set(jumped, days)

        async def is_told() -> bool:
            return await differing(cluster) == brokers

        await until(is_told, within_s=60.0)
        await acknowledged(running, 300)
        after = await running.stage.look()
        assert {key: after.leaders[key] for key in running.partitions} == leaders, "a clock fences no broker"
        for key in running.partitions:
            async with Consumer(cluster.bootstrap) as consumer:
                assert (await consumer.beginning_offsets([key]))[key] == 0, "nothing has expired"
        # A leader is killed meanwhile, too.
        await running.stage.kill_leader(running.partitions[0])
        await running.stage.restart(running.stage.killed[-1])
        await acknowledged(running, 100)
        clocks.set(jumped, 0)

        async def agree() -> bool:
            return await differing(cluster) == set()

        await until(agree, within_s=60.0)
        await expires(cluster, "short")
        assert (await running.judged()).clean
