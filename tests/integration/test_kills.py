"""kill -9 under load: nothing acknowledged is lost or doubled, and the cluster goes on by itself."""

import pytest
from regnum_client import TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_testing.under_load import under_load
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


async def test_a_killed_leader_is_succeeded_and_catches_up_when_it_returns(cluster: LocalCluster) -> None:
    async with under_load(cluster, "leader-killed") as running:
        outage = await running.stage.kill_leader(TopicPartition("leader-killed", 0))
        assert outage.partitions > 0
        for name in tuple(running.stage.killed):
            await running.stage.restart(name)
        await running.stage.all_in_sync()
        verdict = await running.judged()
    assert verdict.clean, verdict


@pytest.mark.full
async def test_a_leader_bounced_faster_than_its_session_loses_nothing(cluster: LocalCluster) -> None:
    """Killed and started again at once: its old registration still stands and is taken over (safety rules S5, S10)."""
    async with under_load(cluster, "bounced") as running:
        for _ in range(3):
            before = await running.stage.look()
            victim = before.leaders[TopicPartition("bounced", 0)]
            assert before.led_by(victim)
            await cluster.kill(f"broker-{victim}")
            await cluster.restart(f"broker-{victim}")
            await cluster.wait_healthy(f"broker-{victim}")
            await running.stage.all_in_sync()
        verdict = await running.judged()
    assert verdict.clean, verdict


async def test_a_killed_controller_is_succeeded_while_the_load_goes_on(cluster: LocalCluster) -> None:
    async with under_load(cluster, "controller-killed") as running:
        before = await running.stage.look()
        await running.stage.kill_controller()
        after = await running.stage.look()
        assert after.controller not in {-1, before.controller}
        # The new reign works: it moves leadership when a broker dies.
        await running.stage.kill_leader(TopicPartition("controller-killed", 1))
        for name in tuple(running.stage.killed):
            await running.stage.restart(name)
        await running.stage.all_in_sync()
        verdict = await running.judged()
    assert verdict.clean, verdict


@pytest.mark.full
async def test_controller_and_leader_killed_together(cluster: LocalCluster) -> None:
    async with under_load(cluster, "both-killed") as running:
        before = await running.stage.look()
        victim = before.leaders[TopicPartition("both-killed", 0)]
        await cluster.kill(f"election-{before.controller}")
        await cluster.kill(f"broker-{victim}")
        for name in (f"election-{before.controller}", f"broker-{victim}"):
            await cluster.restart(name)
            await cluster.wait_healthy(name)
        await running.stage.all_in_sync(within_s=60.0)
        verdict = await running.judged()
    assert verdict.clean, verdict


async def test_a_paused_leader_is_replaced_and_acknowledges_nothing_afterwards(cluster: LocalCluster) -> None:
    """A zombie: silent for longer than the lifeline allows, then it wakes up and still believes that it leads."""
    async with under_load(cluster, "paused") as running:
        before = await running.stage.look()
        partition = TopicPartition("paused", 0)
        victim = before.leaders[partition]
        cluster.pause(f"broker-{victim}")

        async def moved() -> bool:
            return (await running.stage.look()).leaders[partition] not in {-1, victim}

        await running.stage.until("another leader", moved, within_s=DEADLINE_S)
        cluster.resume(f"broker-{victim}")
        await running.stage.all_in_sync(within_s=60.0)
        verdict = await running.judged()
    assert verdict.clean, verdict
