"""`regnum consume --group` and `regnum groups reset-offsets`: nothing moves unasked, and what moves is shown first."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum_client import Consumer, TopicPartition
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.commands.groups.resets import BEYOND, NOTHING, Goal, resets
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import ExitStatus
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.group_members import write
from regnum_testing.waiting import within

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=2)
        for partition in range(2):
            for number in range(10):
                record = NewRecord(value=f"{partition}.{number}".encode(), timestamp_ms=number * 1000)
                running.partitions["t", partition].append(build_batch([record], timestamp_ms=0))
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


@pytest.mark.parametrize(
    ("goal", "value", "expected"),
    [
        (Goal.EARLIEST, 0, [(5, ""), (0, "")]),
        (Goal.LATEST, 0, [(20, ""), (10, "")]),
        (Goal.OFFSET, 7, [(7, ""), (7, "")]),
        (Goal.OFFSET, 15, [(15, ""), (10, BEYOND.format(15))]),
        (Goal.SHIFT, -3, [(5, BEYOND.format(3)), (None, NOTHING)]),
        (Goal.SHIFT, 4, [(10, ""), (None, NOTHING)]),
        (Goal.TIME, 0, [(12, ""), (10, "")]),
    ],
)
def test_each_way_says_where_to_and_never_beyond_the_log(
    goal: Goal, value: int, expected: list[tuple[int | None, str]]
) -> None:
    planned = resets(
        goal,
        value,
        partitions=[P1, P0],
        committed={P0: 6},
        logs={P0: PartitionOffsets(5, 20), P1: PartitionOffsets(0, 10)},
        at_time={P0: 12, P1: None},
    )
    assert [one.partition for one in planned] == [P0, P1]
    assert [(one.offset, one.remark) for one in planned] == expected


async def test_a_group_commits_what_was_printed_and_goes_on_there(cluster: FakeCluster, regnum: CommandHere) -> None:
    first = await regnum("consume", "t", "--group", "g", "-n", "12", "--timeout", "30")
    assert first.status == 0, first.err
    assert sum(cluster.groups.offset("g", "t", number) or 0 for number in range(2)) == 12
    second = await regnum("consume", "t", "-g", "g", "-n", "8", "--timeout", "30")
    printed = [*first.out.splitlines(), *second.out.splitlines()]
    assert sorted(printed) == sorted(f"{partition}.{number}" for partition in range(2) for number in range(10))
    assert cluster.groups.members("g") == set(), "it left"


async def test_a_member_reads_all_topics_that_match_alone_or_in_a_group(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.create("t-2", partitions=1)
    write(cluster, 0, 5, topic="t-2")
    cluster.create("other")
    write(cluster, 0, 5, topic="other")
    for group in ([], ["--group", "g"]):
        done = await regnum("consume", "t(-[0-9])?", "--topics-matching", *group, "-n", "25", "--timeout", "30")
        assert (done.status, len(done.out.splitlines())) == (0, 25), done.err
    assert cluster.groups.offset("g", "t-2", 0) == 5
    refused = await regnum("consume", "t(", "--topics-matching", "--group", "g")
    assert refused.status != 0
    assert "no pattern of topics" in refused.err
    assert (await regnum("consume", "t.*", "--topics-matching", "-p", "0")).status == ExitStatus.WRONG_USE


async def test_what_no_group_can_do_is_said_before_anything_is_read(cluster: FakeCluster, regnum: CommandHere) -> None:
    for arguments in (["-p", "0"], ["--until", "end"], ["--from", "17"]):
        refused = await regnum("consume", "t", "--group", "g", *arguments)
        assert refused.status == ExitStatus.WRONG_USE, arguments
        assert "--group" in refused.err
    missing = await regnum("consume", "absent", "--group", "g")
    assert missing.status == ExitStatus.NOT_FOUND
    assert cluster.calls["Fetch"] == 0


async def test_a_reset_is_shown_first_and_done_only_when_it_is_said(cluster: FakeCluster, regnum: CommandHere) -> None:
    await regnum("consume", "t", "--group", "g", "-n", "20", "--timeout", "30")
    shown = await regnum("groups", "reset-offsets", "g", "--topic", "t", "--to-offset", "4", "-o", "json")
    rows = json.loads(shown.out)
    assert [(row["partition"], row["committed"], row["new_offset"], row["lag"]) for row in rows] == [
        (0, 10, 4, 6),
        (1, 10, 4, 6),
    ]
    assert "--execute" in shown.err
    assert [cluster.groups.offset("g", "t", number) for number in range(2)] == [10, 10]
    done = await regnum("groups", "reset-offsets", "g", "--topic", "t", "--to-offset", "4", "--execute", "-o", "jsonl")
    assert len(done.out.splitlines()) == 2
    assert [cluster.groups.offset("g", "t", number) for number in range(2)] == [4, 4]
    one = await regnum("groups", "reset-offsets", "g", "--topic", "t", "-p", "1", "--shift-by", "-1", "--execute")
    assert one.status == 0, one.err
    at = await regnum(
        "groups", "reset-offsets", "g", "--all-topics", "--to-datetime", "1970-01-01T00:00:07Z", "-o", "json"
    )
    assert [(row["committed"], row["new_offset"]) for row in json.loads(at.out)] == [(4, 7), (3, 7)]


async def test_a_group_with_members_is_not_moved_under_them(cluster: FakeCluster, regnum: CommandHere) -> None:
    async with Consumer(cluster.bootstrap, topics=["t"], group_id="g") as consumer:
        await within(anext(consumer))
        refused = await regnum("groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute")
        assert refused.status == ExitStatus.CONFLICT
        assert "stop them first" in refused.err
        shown = await regnum("groups", "reset-offsets", "g", "--topic", "t", "--to-latest")
        assert shown.status == 0
        members = await regnum("groups", "describe", "g", "--members", "-o", "json")
        assert json.loads(members.out)[0]["assigned"] == ["t-0", "t-1"]
    assert cluster.groups.offset("g", "t", 0) in {0, 1}


async def test_a_reset_that_is_not_clear_is_refused(regnum: CommandHere) -> None:
    for arguments in (
        ["--topic", "t"],
        ["--to-latest"],
        ["--topic", "t", "--to-latest", "--to-earliest"],
        ["--topic", "t", "--all-topics", "--to-latest"],
        ["--all-topics", "-p", "1", "--to-latest"],
        ["--topic", "t", "--to-datetime", "soon"],
    ):
        refused = await regnum("groups", "reset-offsets", "g", *arguments, "--execute")
        assert refused.status == ExitStatus.WRONG_USE, arguments
