"""`regnum partitions recover`, and the SDK's part of it."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_service.errors import RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def offline(number: int) -> admin_pb2.PartitionRecovery:
    return admin_pb2.PartitionRecovery(
        partition=number,
        reason="no member that ISR or ELR record may be elected",
        chosen=2,
        may_be_lost="what broker 1 alone had",
        unknown=[1],
        lost_from_offset=70,
        known_end_offset=90,
        leader_epoch=8,
        replicas=[
            admin_pb2.RecoverableReplica(
                broker_id=1, error_code=errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, error_message="not registered"
            ),
            admin_pb2.RecoverableReplica(
                broker_id=2,
                last_written_leader_epoch=5,
                current_leader_epoch=8,
                high_watermark=60,
                log_end_offset=70,
                recorded_log=False,
                log_id="L",
            ),
        ],
    )


async def test_the_report_names_every_replica_and_says_that_nothing_was_changed(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.recoveries.offline = [offline(0)]
    shown = await regnum("partitions", "recover", "t")
    assert shown.status == 0, shown.err
    assert "what broker 1 alone had" in shown.out
    assert "not registered" in shown.out
    assert "--accept-loss" in shown.err
    (asked,) = cluster.recoveries.requests
    assert not asked.accept_loss
    document = json.loads((await regnum("partition", "recover", "t", "0", "-o", "json")).out)
    (one,) = document
    assert (one["chosen"], one["recovered"], one["lost_from_offset"], one["unknown"]) == (2, False, 70, [1])
    assert [replica["error"] for replica in one["replicas"]] == ["BROKER_NOT_AVAILABLE", None]


async def test_accept_loss_elects_and_says_in_which_epoch(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.recoveries.offline = [offline(0), offline(3)]
    done = await regnum("partitions", "recover", "t", "3", "--accept-loss", "--client-id", "ops", "-o", "json")
    assert done.status == 0, done.err
    (one,) = json.loads(done.out)
    assert (one["partition"], one["recovered"], one["leader_epoch"]) == (3, True, 9)
    (asked,) = cluster.recoveries.requests
    assert asked.accept_loss
    assert asked.header.client_id == "ops"
    cluster.recoveries.offline = [offline(0)]
    people = await regnum("partitions", "recover", "t", "--accept-loss")
    assert "recovered, with the loss that is shown: t/0. " in people.err
    assert "regnum topics describe t" in people.err, "what comes next"


async def test_what_cannot_be_recovered_ends_with_its_reason_and_the_rest_is_shown(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    led = admin_pb2.PartitionRecovery(
        partition=1, error_code=errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED, error_message="it has a leader", chosen=-1
    )
    cluster.recoveries.offline = [offline(0), led]
    shown = await regnum("partitions", "recover", "t", "0", "1", "-o", "json")
    assert shown.status == 4
    assert [one["partition"] for one in json.loads(shown.out)] == [0]
    assert json.loads(shown.err)["error"]["code"] == "ELECTION_NOT_NEEDED"
    assert json.loads(shown.err)["error"]["metadata"]["partition"] == "1"


async def test_nothing_to_recover(regnum: CommandHere) -> None:
    shown = await regnum("partitions", "recover", "t")
    assert shown.status == 0
    assert "has a leader" in shown.err
    assert shown.out == ""


async def test_pages_follow_one_another_until_the_last(cluster: FakeCluster) -> None:
    cluster.recoveries.offline = [offline(number) for number in range(0, 50, 2)]
    cluster.recoveries.page = 10
    async with Admin(cluster.bootstrap) as admin:
        found = await admin.recover_partitions("t", accept_loss=True)
    assert [one.partition for one in found] == list(range(0, 50, 2))
    assert all(one.recovered for one in found)
    assert [request.first_partition for request in cluster.recoveries.requests] == [0, 20, 40]


async def test_an_acceptance_whose_answer_was_lost_is_not_sent_again(cluster: FakeCluster) -> None:
    cluster.recoveries.offline = [offline(0)]
    cluster.elections[1].silent_answers = 1
    async with Admin(cluster.bootstrap, timeout_s=5.0) as admin:
        with pytest.raises(RegnumError) as raised:
            await admin.recover_partitions("t", accept_loss=True)
        assert not raised.value.traits.outcome_known
        assert len(cluster.recoveries.requests) == 1
        # A report changes nothing, so it is.
        cluster.elections[1].silent_answers = 1
        assert len(await admin.recover_partitions("t")) == 1


async def test_all_partitions_of_the_cluster_are_looked_at_topic_by_topic(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    """With 30 topics that lost their leaders, each once, and no topic beside them."""
    names = [f"t{number:02}" for number in range(30)]
    cluster.leaders.offline = [
        admin_pb2.OfflinePartition(topic=name, partition=number) for name in names for number in (0, 1)
    ]
    cluster.recoveries.offline = [offline(0), offline(1)]
    shown = await regnum("partitions", "recover", "--all", "-o", "json")
    assert shown.status == 0, shown.err
    rows = json.loads(shown.out)
    assert [(row["topic"], row["partition"]) for row in rows] == [(name, number) for name in names for number in (0, 1)]
    assert sorted(asked.topic for asked in cluster.recoveries.requests) == names
    assert not any(asked.accept_loss for asked in cluster.recoveries.requests)
    done = await regnum("partitions", "recover", "--all", "--accept-loss")
    assert done.status == 0, done.err
    assert "t00/0" in done.err
    assert "and 40 more" in done.err


@pytest.mark.parametrize("words", [(), ("t", "--all")])
async def test_all_takes_the_place_of_a_topic(regnum: CommandHere, words: tuple[str, ...]) -> None:
    assert (await regnum("partitions", "recover", *words)).status == 2
