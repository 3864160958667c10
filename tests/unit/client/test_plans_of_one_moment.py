"""Plans of moves begin from one moment: what has just arrived, and brokers do not know yet, is waited for.

Brokers say of a partition that has arrived what was so before: all old and new replicas. A plan made of that asks for a
replica too many, or finds that every broker has one already.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_client.admin.leaders.brokers import BrokerDescription
from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.cluster.view import PartitionView
from regnum_client.commands.reassignment.assignments import Assignments
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

BEHIND = 2
"""Looks during which brokers do not know yet what has arrived."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=4) as running:
        running.create("t", partitions=2)
        for number in range(2):
            running.assign("t", number, 1, 2, 3)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def arrived_and_unknown_to_brokers(cluster: FakeCluster) -> None:
    """Both partitions have moved from (1, 2, 3) to (2, 3, 4); brokers hear of it after some looks."""
    for number in range(2):
        cluster.assign("t", number, 1, 2, 3, 4, adding=(4,))
    before = cluster.reassignments.lists

    def before_list(lists: int) -> None:
        if lists == before + BEHIND:
            for number in range(2):
                cluster.assign("t", number, 2, 3, 4)

    cluster.reassignments.before_list = before_list


async def test_three_brokers_that_have_all_after_a_fourth_is_drained_are_no_failure(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    """Where there are as many brokers left as replicas, the replicas of before leave nowhere to go."""

    def taken(request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        assert {tuple(sorted(item.replicas)) for item in request.partitions} == {(2, 3, 4)}
        arrived_and_unknown_to_brokers(cluster)

    cluster.reassignments.taken = taken
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 0, ended.err
    assert "broker 1 has no replicas; it can be stopped" in ended.err
    assert len(cluster.reassignments.asked) == 1


async def test_a_drain_that_begins_just_after_moves_have_arrived_waits_until_brokers_know(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    arrived_and_unknown_to_brokers(cluster)
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 0, ended.err
    assert not cluster.reassignments.asked


@pytest.mark.parametrize(
    "arguments",
    [("rebalance",), ("reassign", "--topics", "t", "--brokers", "1,2,3,4"), ("reassign", "--to", "t/0=2,3,1")],
)
async def test_a_plan_made_just_after_moves_have_arrived_keeps_the_number_of_replicas(
    regnum: CommandHere, cluster: FakeCluster, arguments: tuple[str, ...]
) -> None:
    arrived_and_unknown_to_brokers(cluster)
    ended = await regnum("partitions", *arguments, "-o", "json")
    assert ended.status == 0, ended.err
    moves = json.loads(ended.out)
    assert all(len(move["before"]) == len(move["after"]) == 3 for move in moves), moves
    assert moves or arguments == ("rebalance",)


async def test_a_saved_plan_that_has_arrived_is_done_and_not_outdated(
    regnum: CommandHere, cluster: FakeCluster, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"topic": "t", "partition": 0, "before": [1, 2, 3], "after": [2, 3, 4]}]))
    arrived_and_unknown_to_brokers(cluster)
    ended = await regnum("partitions", "reassign", "--plan", str(plan), "-o", "json")
    assert (ended.status, json.loads(ended.out)) == (0, []), ended.err


def partition(*replicas: int, adding: tuple[int, ...] = ()) -> PartitionView:
    ids = tuple(map(BrokerId, replicas))
    return PartitionView(
        number=0,
        leader=ids[0],
        leader_epoch=LeaderEpoch(0),
        replicas=ids,
        isr=ids,
        elr=(),
        adding_replicas=tuple(map(BrokerId, adding)),
    )


def broker(id: int, replicas: int) -> BrokerDescription:
    return BrokerDescription(
        id=id, known=True, live=True, epoch=1, registration=0, rack="", client=None, internal=None, log_ids=(),
        leaving=False, draining=False, leaders=0, replicas=replicas, preferred=0, in_sync=0, offline_replicas=0,
    )  # fmt: skip


MOVE = OngoingReassignment(
    topic="t", partition=0, replicas=(1, 2, 3), origin=(1, 2), target=(1, 3), phase="moving", waits_for="", since_ms=0,
    added=(), leader=1, isr=(1, 2), bytes_done=0, bytes_total=None,
)  # fmt: skip


def test_what_brokers_and_the_controller_do_not_say_alike() -> None:
    moving, settled = {("t", 0): partition(1, 2, 3, adding=(3,))}, {("t", 0): partition(1, 3)}
    assert not Assignments(partitions=moving, ongoing=(MOVE,)).disagreement()
    assert Assignments(partitions=moving, ongoing=(MOVE,)).to_come() == {("t", 0): (1, 3)}
    assert Assignments(partitions=moving, ongoing=()).disagreement() == "where t/0 is"
    assert not Assignments(partitions=settled, ongoing=()).disagreement()
    # Replicas that go without others coming are nothing that is added: counts tell.
    counts = [broker(1, 1), broker(2, 0), broker(3, 1)]
    assert not Assignments(partitions=settled, ongoing=(), brokers=counts).disagreement()
    before = {("t", 0): partition(1, 2, 3)}
    assert (
        Assignments(partitions=before, ongoing=(), brokers=counts).disagreement()
        == "how many replicas brokers [2] have"
    )
    unknown = Assignments(partitions={("t", 0): partition(1, 3, 9)}, ongoing=(), brokers=counts)
    assert unknown.disagreement() == "how many replicas brokers [9] have"
