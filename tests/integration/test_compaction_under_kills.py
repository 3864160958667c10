"""Leaders and followers killed in the middle of a compaction: the newest record of each key is there, on every replica.

Segments are as small as they may be, and a log is compacted whenever one is closed, so there is always something to be
in the middle of: a broker is killed when the file of a segment that is being compacted has appeared in its folders.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client import Admin, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_testing.keyed_load import KeyedLoad, ReplicaFiles
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]

TOPIC = "table"
BROKERS = (1, 2, 3)
PARTITIONS = 2
KEYS = 60
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": str(1 << 20),
    "min.insync.replicas": "2",
    # No deletion goes while the test runs: each key keeps its newest record, also where that has no value.
    "delete.retention.ms": "3600000",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    started = LocalCluster(tmp_path / "data", brokers=3, elections=2, metadata=1, report=lambda _text: None)
    async with started:
        yield started


def folders(root: Path, broker: int) -> list[Path]:
    """Folders of a broker's replicas of the topic: the only ones with segments."""
    return sorted((root / f"broker-{broker}" / "replicas").glob("*"))


class Campaign:
    """Kills, one after another."""

    def __init__(self, cluster: LocalCluster, admin: Admin, load: KeyedLoad, root: Path) -> None:
        self.cluster = cluster
        self.admin = admin
        self.load = load
        self.root = root
        self.amid = 0
        """Kills in the middle of a compaction."""

    async def leader(self, partition: int) -> int:
        (topic,) = [one async for one in self.admin.describe_topics([TOPIC])]
        return topic.partitions[partition].leader

    async def all_in_sync(self) -> bool:
        (topic,) = [one async for one in self.admin.describe_topics([TOPIC])]
        return all(set(state.isr) == set(BROKERS) for state in topic.partitions.values())

    async def kill_amid_compaction(self, broker: int) -> None:
        async def begun() -> bool:
            return any(list(one.glob("*.cleaned")) + list(one.glob("*.swap")) for one in folders(self.root, broker))

        await until(begun, within_s=DEADLINE_S)
        await self.cluster.kill(f"broker-{broker}")
        # It may have been put in its place at that very moment.
        self.amid += await begun()

    async def goes_on(self) -> None:
        written, rounds = self.load.written, self.load.rounds

        async def more() -> bool:
            return self.load.written > written + 300 and self.load.rounds > rounds

        await until(more, within_s=2 * DEADLINE_S)

    async def come_back(self, broker: int) -> None:
        await self.cluster.restart(f"broker-{broker}")
        await self.cluster.wait_healthy(f"broker-{broker}")
        await until(self.all_in_sync, within_s=2 * DEADLINE_S)


@pytest.mark.parametrize("kills", [2, 20])
async def test_whoever_is_killed_amid_a_compaction_the_newest_record_of_each_key_stays(
    cluster: LocalCluster, tmp_path: Path, kills: int
) -> None:
    root = tmp_path / "data"
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    load = KeyedLoad(cluster.bootstrap, partitions, keys=KEYS)
    async with Admin(cluster.bootstrap) as admin:
        assignment = {number: [*BROKERS[number:], *BROKERS[:number]] for number in range(PARTITIONS)}
        await admin.create_topic(TOPIC, assignment=assignment, partitions=0, configs=CONFIGS)
        campaign = Campaign(cluster, admin, load, root)
        writing = asyncio.create_task(load.write())
        reading = asyncio.create_task(load.read_again_and_again())
        try:
            await campaign.goes_on()
            for turn in range(kills):
                leader = await campaign.leader(turn % PARTITIONS)
                victim = leader if turn % 3 else next(one for one in BROKERS if one != leader)
                await campaign.kill_amid_compaction(victim)
                await campaign.goes_on()
                await campaign.come_back(victim)
            load.stop()
            await writing
        finally:
            writing.cancel()
            reading.cancel()
            ended = await asyncio.gather(writing, reading, return_exceptions=True)
        assert not [one for one in ended if isinstance(one, Exception)], ended
        tables = await load.read_all()
        await until(campaign.all_in_sync)
    await cluster.stop()
    assert load.written > 300 * kills
    assert campaign.amid * 2 >= kills, "half of them at least were in the middle of it"
    for partition, newest in load.newest.items():
        assert newest.keys() == tables[partition].keys()
        for key, (offset, value) in newest.items():
            found_offset, found_value = tables[partition][key]
            assert found_offset >= offset, (partition, key)
            assert found_offset > offset or found_value == value, (partition, key)
    of_brokers = [[ReplicaFiles(folder) for folder in folders(root, broker)] for broker in BROKERS]
    for number, replicas in enumerate(zip(*of_brokers, strict=True)):
        assert len({one.end for one in replicas}) == 1, number
        assert len({tuple(sorted(one.table.items())) for one in replicas}) == 1, "the same newest records"
        every = {offset: record for one in replicas for offset, record in one.records.items()}
        assert all(one.records.items() <= every.items() for one in replicas), "an offset is one record everywhere"
        for one in replicas:
            assert one.thinned > 0, "it was compacted"
            assert len(one.records) < one.end / 2, "most of what was written is gone"
