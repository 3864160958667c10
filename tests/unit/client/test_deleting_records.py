"""Deleting records with the SDK, and `regnum topics delete-records`."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, DeletedRecords, TopicPartition
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import Code, RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.fake_partition import FakePartition
from regnum_testing.waiting import until

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=3)
        for number in range(3):
            add_records(running.partitions["orders", number], count=4)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def starts(cluster: FakeCluster) -> list[int]:
    return [cluster.partitions["orders", number].log_start for number in range(3)]


def add_records(one: FakePartition, *, count: int) -> None:
    for _ in range(count):
        one.append(build_batch([NewRecord(value=b"v")], timestamp_ms=0))


async def test_every_partition_is_checked_and_deleted_from_at_its_own_leader_in_one_call_each(
    cluster: FakeCluster,
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        answers = await admin.delete_records({P0: 2, P1: None, P2: 0})
    assert answers == {
        P0: DeletedRecords(log_start_offset=0, new_log_start_offset=2, low_watermark=2),
        P1: DeletedRecords(log_start_offset=0, new_log_start_offset=4, low_watermark=4),
        P2: DeletedRecords(log_start_offset=0, new_log_start_offset=0, low_watermark=0),
    }
    assert starts(cluster) == [2, 4, 0]
    leaders = {cluster.partitions["orders", number].leader for number in range(3)}
    assert cluster.calls["DeleteRecords"] == 2 * len(leaders)


@pytest.mark.parametrize("until", [None, 4])
async def test_records_that_are_committed_after_the_call_stay_though_it_is_repeated(
    cluster: FakeCluster, until: int | None
) -> None:
    """A follower is slow: the leader has deleted, says REQUEST_TIMED_OUT, and producers go on."""
    codes = [errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, errors_pb2.ERROR_CODE_NONE]

    def slow_at_first(one: FakePartition) -> Code:
        add_records(one, count=5)
        return codes.pop(0)

    cluster.after_deletion = slow_at_first
    async with Admin(cluster.bootstrap) as admin:
        answers = await admin.delete_records({P0: until})
    assert not codes, "it was repeated"
    assert answers[P0] == DeletedRecords(log_start_offset=0, new_log_start_offset=4, low_watermark=4)
    assert starts(cluster) == [4, 0, 0]


async def test_a_topic_that_was_created_again_between_two_attempts_keeps_its_records(cluster: FakeCluster) -> None:
    def created_again(_one: FakePartition) -> Code:
        cluster.after_deletion = None
        cluster.delete("orders")
        cluster.create("orders", partitions=3)
        add_records(cluster.partitions["orders", 0], count=9)
        return errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT

    cluster.after_deletion = created_again
    async with Admin(cluster.bootstrap) as admin:
        call = asyncio.create_task(admin.delete_records({P0: None}))
        await until(lambda: cluster.deletions_refused >= 2, what="it is asked for again, of the topic that is gone")
        assert starts(cluster) == [0, 0, 0]
        call.cancel()
        await asyncio.wait({call})


async def test_a_check_deletes_nothing(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        answers = await admin.delete_records({P0: 2}, validate_only=True)
    assert answers[P0] == DeletedRecords(log_start_offset=0, new_log_start_offset=2, low_watermark=0)
    assert starts(cluster) == [0, 0, 0]


async def test_what_one_partition_refuses_is_told_beside_what_the_others_did(cluster: FakeCluster) -> None:
    nowhere = TopicPartition("orders", 9)
    async with Admin(cluster.bootstrap) as admin:
        answers = await admin.delete_records({P0: 99, nowhere: None, P1: 1})
    refused, unknown = answers[P0], answers[nowhere]
    assert isinstance(refused, RegnumError)
    assert refused.code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert isinstance(unknown, RegnumError)
    assert unknown.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert starts(cluster) == [0, 1, 0]


async def test_a_leader_that_moved_is_found(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.delete_records({P0: 1})
        one = cluster.partitions["orders", 0]
        one.leader, one.leader_epoch = one.leader % 3 + 1, one.leader_epoch + 1
        answers = await admin.delete_records({P0: 3})
    assert answers[P0] == DeletedRecords(log_start_offset=1, new_log_start_offset=3, low_watermark=3)


async def test_the_command_shows_what_would_go_and_deletes_only_when_told_so(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    shown = await regnum("topics", "delete-records", "orders", "--before-offset", "3", "-p", "1", "-o", "json")
    assert shown.status == 0
    assert json.loads(shown.out) == [
        {"partition": 1, "log_start": 0, "to_delete": 3, "new_log_start": 3, "low_watermark": 0}
    ]
    assert "--yes" in shown.err
    assert starts(cluster) == [0, 0, 0]
    done = await regnum("topics", "delete-records", "orders", "--all", "--yes", "-o", "jsonl")
    assert (done.status, done.err) == (0, "")
    assert [json.loads(line)["deleted"] for line in done.out.splitlines()] == [4, 4, 4]
    assert starts(cluster) == [4, 4, 4]
    table = await regnum("topics", "delete-records", "orders", "--all", "--yes")
    assert "low_watermark" in table.out.lower().replace(" ", "_")


async def test_the_command_says_what_is_wrong_and_what_to_do(regnum: CommandHere) -> None:
    neither = await regnum("topics", "delete-records", "orders")
    both = await regnum("topics", "delete-records", "orders", "--all", "--before-offset", "1")
    assert neither.status == both.status == 2
    assert "--before-offset OFFSET, or --all" in neither.err
    beyond = await regnum("topics", "delete-records", "orders", "--before-offset", "99", "--yes", "-o", "json")
    assert beyond.status != 0
    assert "OFFSET_OUT_OF_RANGE" in beyond.err
    unknown = await regnum("topics", "delete-records", "nothing", "--all")
    assert unknown.status != 0
