"""Topics page by page: whole, once, from whichever broker knows most."""

import json
import random
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, OffsetAndTimestamp, PartitionOffsets, TopicFilter, TopicPartition, Trouble
from regnum_client.cluster.view import TopicView
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError
from regnum_testing.clock import PatientClock
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap, timeout_s=10.0, chance=random.Random(3)) as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def described(admin: Admin, *names: str, limit: int = 0, chosen: TopicFilter | None = None) -> list[TopicView]:
    return [view async for view in admin.describe_topics(names, chosen=chosen or TopicFilter(), limit=limit)]


async def test_a_topic_that_spans_pages_is_given_whole(admin: Admin, cluster: FakeCluster) -> None:
    for name, partitions in (("a", 3), ("b", 8), ("c", 1)):
        cluster.create(name, partitions=partitions)
    views = await described(admin, limit=3)
    assert [(view.name, sorted(view.partitions)) for view in views] == [
        ("a", [0, 1, 2]),
        ("b", list(range(8))),
        ("c", [0]),
    ]
    assert cluster.calls["DescribeTopics"] == 4


async def test_a_topic_that_was_made_anew_between_two_pages_is_of_one_life(admin: Admin, cluster: FakeCluster) -> None:
    cluster.create("b", partitions=5)

    def anew() -> None:
        cluster.after_page = None
        cluster.delete("b")
        cluster.create("b", partitions=4)

    cluster.after_page = anew
    (view,) = await described(admin, limit=3)
    assert (view.topic_id, sorted(view.partitions)) == (cluster.topic_ids["b"], [0, 1, 2, 3])


async def test_named_topics_that_do_not_exist_are_left_out(admin: Admin, cluster: FakeCluster) -> None:
    cluster.create("a")
    assert [view.name for view in await described(admin, "nowhere", "a")] == ["a"]


async def test_a_broker_that_is_behind_is_not_believed_while_another_knows_more(cluster: FakeCluster) -> None:
    cluster.create("old")
    for behind in (1, 2):
        await cluster.brokers[behind].cut_off()
    cluster.create("new")
    async with Admin(cluster.bootstrap, clock=PatientClock(), chance=random.Random(3)) as admin:
        await admin.describe_topic("new")
        for _ in range(5):
            assert [view.name for view in await described(admin)] == ["new", "old"]


async def test_what_cannot_be_asked_is_said_at_once(admin: Admin, cluster: FakeCluster) -> None:
    with pytest.raises(RegnumError) as refused:
        await described(admin, limit=-1)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert cluster.calls["DescribeTopics"] <= len(cluster.brokers)


async def test_only_partitions_in_trouble(admin: Admin, cluster: FakeCluster) -> None:
    cluster.create("a", partitions=3)
    cluster.create("b")
    cluster.elect("a", 1, -1)
    (view,) = await described(admin, chosen=TopicFilter(troubles=frozenset({Trouble.OFFLINE})))
    assert (view.name, list(view.partitions)) == ("a", [1])


async def test_topics_are_listed_as_they_come_in_every_form(regnum: CommandHere, cluster: FakeCluster) -> None:
    for number in range(5):
        cluster.create(f"orders-{number}", partitions=number + 1)
    cluster.create("audit")
    cluster.elect("orders-3", 0, -1)
    rows = json.loads((await regnum("topics", "list", "-o", "json")).out)
    assert [row["name"] for row in rows] == ["audit", *(f"orders-{number}" for number in range(5))]
    assert [row["offline_partitions"] for row in rows] == [0, 0, 0, 0, 1, 0]
    lines = (await regnum("topics", "list", "--prefix", "orders", "-o", "jsonl")).out.splitlines()
    assert [json.loads(line)["partitions"] for line in lines] == [1, 2, 3, 4, 5]
    table = (await regnum("topics", "list", "--trouble", "offline")).out.splitlines()
    assert [line.split()[0] for line in table] == ["NAME", "orders-3"]
    globbed = await regnum("topics", "list", "--match", "*-[12]", "-o", "json")
    assert (globbed.status, globbed.error["code"]) == (2, "WRONG_USE")
    nothing = await regnum("topics", "list", "--match", "x*")
    assert (nothing.out, nothing.err) == ("", "no topic matches\n")


async def test_partitions_in_trouble_are_described_without_naming_topics(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("a", partitions=3)
    cluster.create("b")
    cluster.elect("a", 2, -1)
    ran = await regnum("topics", "describe", "--trouble", "offline", "-o", "jsonl")
    assert [one["partition"] for one in json.loads(ran.out)["partitions"]] == [2]
    both = await regnum("topics", "describe", "a", "--prefix", "a", "-o", "json")
    assert both.status == 2
    named = await regnum("topics", "describe", "a", "b", "--trouble", "offline")
    assert [line.split()[:2] for line in named.out.splitlines()[1:]] == [["a", "2"]]
    assert named.status == 0


async def test_leaders_say_where_logs_begin_and_end_where_that_is_wanted(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("a", partitions=3)
    cluster.partitions["a", 0].log_start = 7
    cluster.partitions["a", 1].append(build_batch([NewRecord(value=b"1")] * 5, timestamp_ms=0))
    cluster.elect("a", 2, -1)
    table = await regnum("topics", "describe", "a", "--offsets")
    head, *rows = [line.split() for line in table.out.splitlines()]
    assert head[-4:] == ["LOG", "START", "HIGH", "WATERMARK"]
    assert [row[-2:] for row in rows] == [["7", "7"], ["0", "5"], ["-", "-"]]
    assert "a/2 has no leader now" in table.err
    [topic] = json.loads((await regnum("topics", "describe", "a", "--offsets", "-o", "json")).out)
    assert [(one["log_start"], one["high_watermark"]) for one in topic["partitions"]] == [(7, 7), (0, 5), (None, None)]
    asked = cluster.calls["ListOffsets"]
    [plain] = json.loads((await regnum("topics", "describe", "a", "-o", "json")).out)
    assert "log_start" not in plain["partitions"][0]
    assert cluster.calls["ListOffsets"] == asked, "nobody is asked who need not be"


async def test_the_record_with_the_largest_timestamp_and_why_it_is_not_known(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    """KIP-734."""
    cluster.create("a", partitions=3)
    records = [NewRecord(value=b"1", timestamp_ms=at) for at in (1_000, 3_000, 2_000, 3_000)]
    cluster.partitions["a", 1].append(build_batch(records, timestamp_ms=0))
    cluster.elect("a", 2, -1)
    table = await regnum("topics", "describe", "a", "--newest")
    head, *rows = [line.split() for line in table.out.splitlines()]
    assert head[-4:] == ["NEWEST", "OFFSET", "NEWEST", "TIME"]
    assert [row[-2:] for row in rows] == [["-", "-"], ["1970-01-01", "00:00:03.000Z"], ["-", "-"]]
    assert rows[1][-3] == "1"
    assert "a/2 has no leader now" in table.err
    [topic] = json.loads((await regnum("topics", "describe", "a", "--newest", "-o", "json")).out)
    told = [(one["newest_offset"], one["newest_timestamp_ms"]) for one in topic["partitions"]]
    assert told == [(None, None), (1, 3_000), (None, None)]
    async with Admin(cluster.bootstrap) as admin:
        found = await admin.list_max_timestamps([TopicPartition("a", 0), TopicPartition("a", 1)])
    assert found == {TopicPartition("a", 0): None, TopicPartition("a", 1): OffsetAndTimestamp(1, 3_000)}


async def test_offsets_of_partitions_that_have_moved_are_asked_for_again(cluster: FakeCluster) -> None:
    cluster.create("a")
    cluster.partitions["a", 0].append(build_batch([NewRecord(value=b"1")] * 5, timestamp_ms=0))
    here = TopicPartition("a", 0)
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.list_offsets([here]) == {here: PartitionOffsets(0, 5)}
        cluster.elect("a", 0, 2)
        found = await admin.list_offsets([here, TopicPartition("nowhere", 0)])
        assert found[here] == PartitionOffsets(0, 5)
        missing = found[TopicPartition("nowhere", 0)]
        assert isinstance(missing, RegnumError)


async def test_brokers_say_how_large_replicas_are_and_how_far_behind_in_one_call_each(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("a", partitions=3)
    cluster.partitions["a", 1].append(build_batch([NewRecord(value=b"1")] * 5, timestamp_ms=0))
    leader = cluster.partitions["a", 1].leader
    size = len(cluster.partitions["a", 1].batches[0][1])
    table = await regnum("topics", "describe", "a", "--sizes")
    head, *rows = [line.split() for line in table.out.splitlines()]
    assert head[-6:] == ["SIZE", "BYTES", "LOG", "END", "REPLICA", "SIZES", "LAGS"][-6:]
    assert rows[1][-4:-1] == [str(size), "5", ",".join([str(size)] * 3)]
    assert sorted(rows[1][-1].split(",")) == ["0", "1", "1"]
    assert cluster.calls["DescribeReplicas"] == 3, "one for each broker, whatever the number of partitions"
    [topic] = json.loads((await regnum("topics", "describe", "a", "--sizes", "-o", "json")).out)
    logs = {one["broker"]: one for one in topic["partitions"][1]["replica_logs"]}
    assert {id: one["leading"] for id, one in logs.items()} == {id: id == leader for id in (1, 2, 3)}
    assert logs[leader] == {
        "broker": leader,
        "leading": True,
        "size_bytes": size,
        "log_start": 0,
        "log_end": 5,
        "lag": 0,
        "error": "",
    }


async def test_a_broker_that_does_not_answer_leaves_a_gap_and_a_reason(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("a")
    cluster.partitions["a", 0].append(build_batch([NewRecord(value=b"1")] * 5, timestamp_ms=0))
    follower = next(id for id in cluster.brokers if id != cluster.partitions["a", 0].leader)
    await cluster.brokers[follower].stop()
    [topic] = json.loads((await regnum("topics", "describe", "a", "--sizes", "-o", "json")).out)
    logs = {one["broker"]: one for one in topic["partitions"][0]["replica_logs"]}
    assert (logs[follower]["size_bytes"], logs[follower]["log_end"], logs[follower]["lag"]) == (None, 0, 5)
    assert logs[follower]["error"]
    assert [id for id, one in logs.items() if not one["error"]] == [id for id in logs if id != follower]
