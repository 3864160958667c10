"""`regnum brokers unregister`, and the SDK's part of it: stdout, stderr, exit status, repeats."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_client import Admin
from regnum_client.admin.forgetting import ForgottenBroker
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_without_yes_nothing_is_forgotten(cluster: FakeCluster, regnum: CommandHere) -> None:
    status, out, err = await regnum("brokers", "unregister", "9", "-o", "json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "broker": 9,
        "forgotten": False,
        "deletions": 2,
        "deletions_ended": 1,
        "assigned_partitions": 3,
    }
    assert not cluster.elections[1].forgotten
    _, out, err = await regnum("brokers", "unregister", "9")
    assert "--yes" in err
    assert [" ".join(line.split()) for line in out.splitlines()][-2:] == ["would end 1", "assigned partitions 3"]


async def test_its_name_before_is_accepted_and_not_shown(cluster: FakeCluster, regnum: CommandHere) -> None:
    assert (await regnum("brokers", "forget", "9", "--yes")).status == 0
    assert cluster.elections[1].forgotten == {9}
    assert "forget" not in (await regnum("brokers", "--help")).out


async def test_with_yes_it_is(cluster: FakeCluster, regnum: CommandHere) -> None:
    status, out, err = await regnum("brokers", "unregister", "9", "--yes")
    assert status == 0
    assert "assigned to it still" in err
    assert "--yes" not in err
    assert out
    assert cluster.elections[1].forgotten == {9}


async def test_a_live_broker_is_refused(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.leaders.brokers = [admin_pb2.DescribedBroker(broker_id=2, live=True)]
    for yes in ((), ("--yes",)):
        ran = await regnum("brokers", "unregister", "2", *yes, "-o", "json")
        assert (ran.status, ran.out) == (4, "")
        assert (ran.error["code"], ran.error["exit_status"]) == ("BROKER_REGISTERED", 4)


async def test_nobody_is_forgotten_who_never_was(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.elections[1].never_heard_of.add(77)
    ran = await regnum("brokers", "unregister", "77", "-o", "json")
    assert (ran.status, ran.error["code"]) == (3, "BROKER_ID_NOT_REGISTERED")
    assert "regnum brokers list" in str(ran.error["message"])


async def test_a_call_whose_answer_is_lost_is_sent_again(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 1
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.forget_broker(9) == ForgottenBroker(deletions=0, deletions_ended=0, assigned_partitions=3)
    assert cluster.calls["ForgetBroker"] == 2


async def test_the_list_says_how_much_room_the_disks_have(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.leaders.brokers = [
        admin_pb2.DescribedBroker(broker_id=1, disk_free_bytes=0, disk_size_bytes=64, refuses_writes_because="full"),
        admin_pb2.DescribedBroker(broker_id=2, disk_free_bytes=32, disk_size_bytes=64),
        admin_pb2.DescribedBroker(broker_id=3),
    ]
    _, out, _ = await regnum("brokers", "list", "-o", "json")
    rows = json.loads(out)
    assert [one["disk_free"] for one in rows] == ["0 B of 64 B (takes no records)", "32 B of 64 B", None]
    assert [one["refuses_writes_because"] for one in rows] == ["full", None, None]
