"""A client of Kafka sends while the leader of its partition is killed."""

import sys

import pytest
from regnum_local.cluster import LocalCluster
from regnum_testing.kafka_kill.killing import back, kill_in_the_middle
from regnum_testing.suite.harm import unharmed

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]


async def test_nothing_of_an_idempotent_producer_is_lost_doubled_or_out_of_order(cluster: LocalCluster) -> None:
    program = [sys.executable, "-m", "regnum_testing.kafka_kill.producer"]
    verdict = await kill_in_the_middle(cluster, program, topic="killed", count=10_000, rate=1_000)
    await back(cluster)
    unharmed(not verdict.harmed, verdict)
    assert verdict.clean, verdict
    assert verdict.said["acked"] == 10_000
