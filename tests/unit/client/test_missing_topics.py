"""Topics that do not exist: what may have been meant is named, and only what is damaged is called so."""

from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_model.spelling import nearest
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders")
        running.create("payments")
        running.health = admin_pb2.DescribeHealthResponse(
            damaged=[admin_pb2.DamagedPartition(topic="ledger", partition=-1, reason="no JSON", advice="mend the node")]
        )
        yield running


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("oders", "topic 'oders' does not exist; did you mean 'orders'? `regnum topics list` shows those that do"),
        ("Payment", "did you mean 'payments'?"),
        ("elsewhere", "topic 'elsewhere' does not exist; `regnum topics list`"),
        ("ledger", "topic 'ledger' is there, and no broker knows it, because it is damaged: no JSON; mend the node"),
    ],
)
async def test_a_mistyped_topic_is_told_with_its_neighbour_and_only_a_damaged_one_as_damaged(
    cluster: FakeCluster, typed: str, said: str
) -> None:
    ran = await CommandHere(cluster.bootstrap)("topics", "describe", typed, "-o", "json")
    assert (ran.status, ran.error["code"]) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
    assert said in str(ran.error["message"])
    assert ("damaged" in ran.err) is (typed == "ledger")


def test_what_is_alike() -> None:
    assert nearest("orders-2025", ["orders-2024", "orders", "x"]) == "orders-2024"
    assert not nearest("a", ["orders"])
    assert not nearest("orders", [])
