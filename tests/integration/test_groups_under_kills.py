"""Groups consume while leaders, which are coordinators too, are killed: at least once, and offsets never go back."""

from collections.abc import Mapping

import pytest
from regnum_client import Admin, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.group_readers import CommitWatch, GroupReader, Processed
from regnum_testing.under_load import LoadedCluster, under_load, until
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 6


async def kill_leaders(running: LoadedCluster, topic: str, processed: Processed, kills: int) -> None:
    """One after another, each while the group reads; brokers come back before the next one goes."""
    for turn in range(kills):
        await running.stage.kill_leader(TopicPartition(topic, turn % PARTITIONS))
        before = {one: len(counted) for one, counted in processed.times.items()}

        async def all_go_on(before: Mapping[TopicPartition, int] = before) -> bool:
            return all(len(processed.times.get(one, ())) > before.get(one, 0) for one in running.partitions)

        await until(all_go_on, within_s=2 * DEADLINE_S)
        for name in tuple(running.stage.killed):
            await running.stage.restart(name)
        await running.stage.all_in_sync(within_s=2 * DEADLINE_S)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [20])
async def test_with_leaders_killed_everything_is_processed_and_commits_never_go_back(
    cluster: LocalCluster, kills: int
) -> None:
    topic, processed = f"killed-{kills}", Processed()
    async with Admin(cluster.bootstrap) as admin, under_load(cluster, topic, partitions=PARTITIONS) as running:
        watch = CommitWatch(admin, topic)
        readers = [GroupReader(cluster.bootstrap, topic, topic, processed) for _ in range(3)]
        try:
            await kill_leaders(running, topic, processed, kills)
            verdict = await running.judged()
            logs = await read_everything(cluster.bootstrap, running.partitions)
            ends = {one: len(logs[one]) for one in running.partitions}

            async def all_done() -> bool:
                done = all(watch.committed.get(one, 0) >= end for one, end in ends.items())
                return done and processed.covers(ends)

            await until(all_done, within_s=2 * DEADLINE_S)
        finally:
            for reader in readers:
                await reader.stop()
            await watch.stop()
    assert verdict.clean, verdict
    assert not watch.went_back
    assert watch.looks > kills
    total = sum(ends.values())
    print(  # noqa: T201 - the number is what the test is run for
        f"\n{kills} kills: {total} records, {processed.repeated} processed again, "
        f"{sum(one.refused for one in readers)} commits refused, offsets looked at {watch.looks} times"
    )
    assert total + processed.repeated == sum(sum(counted.values()) for counted in processed.times.values())
