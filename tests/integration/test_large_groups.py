"""Many records read through a group of four processes while members join, leave and die.

REGNUM_GROUP_RECORDS says how many records (200,000 where it is not set); `-s` shows what was repeated.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1.log_pb2 import ACKS_ALL, ProducePartition, ProduceRequest
from regnum.broker.v1.log_pb2_grpc import LogServiceStub
from regnum_client import Admin
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import open_channel
from regnum_testing.group_judge import judge_runs
from regnum_testing.group_member import Run, read_runs
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S, within

RECORDS = int(os.environ.get("REGNUM_GROUP_RECORDS", "200000"))
PARTITIONS = 8
BATCH = 1_000
MEMBERS = 4
CHANGES = 12
"""Members that join, leave or die, spread over the records."""

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(240 + RECORDS // 1_000)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    started = LocalCluster(tmp_path / "data", brokers=3, elections=1, metadata=1, report=lambda _text: None)
    async with started:
        yield started


class Members:
    """Processes of one group."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._names = itertools.count()
        self.live: list[asyncio.subprocess.Process] = []
        self.changes: list[str] = []

    async def join(self) -> None:
        """One more."""
        file = self._folder / f"{next(self._names)}.runs"
        arguments = [self._bootstrap, "many", "readers", str(file)]
        self.live.append(
            await asyncio.create_subprocess_exec(sys.executable, "-m", "regnum_testing.group_member", *arguments)
        )
        self.changes.append("join")

        async def listens() -> bool:
            return file.exists()

        await until(listens)

    async def die(self) -> None:
        """The oldest gets kill -9."""
        victim = self.live.pop(0)
        victim.kill()
        assert await within(victim.wait()) == -signal.SIGKILL
        self.changes.append("die")

    async def leave(self) -> None:
        """The oldest gets SIGTERM."""
        one = self.live.pop(0)
        one.terminate()
        assert await within(one.wait(), 2 * DEADLINE_S) == 0, "it failed, or was gone"
        self.changes.append("leave")

    async def runs(self) -> list[Run]:
        """What all of them wrote, the dead ones too."""

        def read() -> list[Run]:
            return [run for file in self._folder.glob("*.runs") for run in read_runs(file)]

        assert all(one.returncode is None for one in self.live), "a member failed"
        return await asyncio.to_thread(read)

    async def stop(self) -> None:
        """All that are left."""
        for one in self.live:
            if one.returncode is None:
                one.kill()
            await one.wait()


async def fill(cluster: LocalCluster) -> dict[int, int]:
    """Write the records, the same batch again and again: only offsets count. Returns the end of each partition."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("many", partitions=PARTITIONS, replication_factor=3)
        topic = await admin.describe_topic("many")
        brokers = {one.id: one.address for one in (await admin.describe_cluster()).brokers.values()}
    batch = build_batch([NewRecord(value=b"record %d" % number) for number in range(BATCH)], timestamp_ms=0)
    batches = -(-RECORDS // (BATCH * PARTITIONS))

    async def fill_one(number: int, address: Address) -> None:
        async with open_channel(address) as channel:
            for _ in range(batches):
                part = ProducePartition(topic="many", partition=number, record_batch=batch)
                request = ProduceRequest(acks=ACKS_ALL, timeout_ms=60_000, partitions=[part])
                answer = await LogServiceStub(channel).Produce(request, timeout=DEADLINE_S)
                assert answer.results[0].error_code == 0, answer.results[0].error_message

    await asyncio.gather(*(fill_one(number, brokers[one.leader]) for number, one in topic.partitions.items()))
    return dict.fromkeys(range(PARTITIONS), batches * BATCH)


async def test_each_partition_is_read_in_order_with_nothing_skipped_while_members_come_and_go(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    ends = await fill(cluster)
    total = sum(ends.values())
    members = Members(cluster.bootstrap[0], tmp_path)
    began_s = time.monotonic()
    try:
        for _ in range(MEMBERS):
            await members.join()
        for turn in range(CHANGES):

            async def far_enough(turn: int = turn) -> bool:
                so_far = judge_runs(await members.runs(), ends)
                return so_far.processed >= total * (turn + 1) // (CHANGES + 2)

            await until(far_enough, within_s=DEADLINE_S + total / 1_000)
            # In turn: one more than four; one dies; one leaves and another one comes.
            match turn % 3:
                case 0:
                    await members.join()
                case 1:
                    await members.die()
                case _:
                    await members.leave()
                    await members.join()

        async def all_processed() -> bool:
            return judge_runs(await members.runs(), ends).missing == 0

        await until(all_processed, within_s=DEADLINE_S + total / 1_000)
        while members.live:
            await members.leave()
        judged = judge_runs(await members.runs(), ends)
    finally:
        await members.stop()
    assert not judged.skipped
    assert (judged.processed, judged.missing) == (total, 0)
    assert members.changes.count("die") == CHANGES // 3
    async with Admin(cluster.bootstrap) as admin:
        committed = await admin.list_group_offsets("readers")
    assert {where.partition: one.offset for where, one in committed.items()} == ends
    print(  # noqa: T201 - the numbers are what the test is run for
        f"\n{total} records by {MEMBERS} members in {time.monotonic() - began_s:.0f} s: {members.changes}; "
        f"{judged.repeated} processed again, {len(await members.runs())} runs"
    )
