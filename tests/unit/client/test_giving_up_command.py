"""`regnum partitions remove-damaged`: nothing is lost without being told so."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.damaged["orders"] = {3: "leaderAndISR: it is no JSON"}
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_without_acceptance_it_is_shown_what_would_be_lost_and_nothing_is(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    ran = await regnum("partitions", "remove-damaged", "orders", "-o", "json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out) == [
        {
            "partition": 3,
            "given_up": False,
            "damaged_because": "leaderAndISR: it is no JSON",
            "may_be_lost": "all of it",
            "failure": None,
        }
    ]
    shown = await regnum("partitions", "remove-damaged", "orders")
    assert "--accept-loss" in shown.err
    assert cluster.damaged["orders"]


async def test_accepted_it_is_given_up_and_a_repeat_finds_nothing(cluster: FakeCluster, regnum: CommandHere) -> None:
    ran = await regnum("partitions", "remove-damaged", "orders", "3", "--accept-loss", "-o", "jsonl")
    assert ran.status == 0
    assert json.loads(ran.out)["given_up"] is True
    assert not cluster.damaged["orders"]
    again = await regnum("partitions", "remove-damaged", "orders")
    assert (again.status, "nothing of orders is damaged" in again.out + again.err) == (0, True)


async def test_its_name_before_is_accepted_and_not_shown(cluster: FakeCluster, regnum: CommandHere) -> None:
    assert (await regnum("partitions", "give-up", "orders", "--accept-loss")).status == 0
    assert not cluster.damaged["orders"]
    assert "give-up" not in (await regnum("partitions", "--help")).out


async def test_what_is_not_damaged_is_refused(regnum: CommandHere) -> None:
    ran = await regnum("partitions", "remove-damaged", "orders", "0", "--accept-loss", "-o", "json")
    assert ran.status == 2
    assert json.loads(ran.err)["error"]["code"] == "INVALID_REQUEST"
