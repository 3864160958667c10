"""What `regnum topics` shows before it changes anything: create, delete, add-partitions, remove-partitions."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_partitions_are_added_after_a_look(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("t", partitions=2)
    looked = await regnum("topics", "add-partitions", "t", "--count", "3", "--validate-only")
    assert looked.status == 0, looked.err
    assert "nothing was changed" in looked.err
    assert cluster.count("t") == 2
    added = await regnum("topics", "add-partitions", "t", "-n", "3", "-o", "json")
    assert added.status == 0, added.err
    (row,) = json.loads(added.out)
    assert (row["partitions"], row["added"]) == (5, [2, 3, 4])
    by_hand = await regnum("topic", "add-partitions", "t", "--assignment", "1,2;2,3", "-o", "jsonl")
    assert json.loads(by_hand.out)["added"] == [5, 6]
    for wrong in (("t",), ("t", "--count", "1", "--assignment", "1"), ("t", "--assignment", "x")):
        assert (await regnum("topics", "add-partitions", *wrong)).status == 2
    assert (await regnum("topics", "add-partitions", "nowhere", "--count", "1")).status == 3


def fill(cluster: FakeCluster, topic: str, *records: int) -> None:
    """So many records in each partition."""
    for number, count in enumerate(records):
        for _ in range(count):
            cluster.partitions[topic, number].append(build_batch([NewRecord(value=b"v")], timestamp_ms=0))


async def test_topics_are_listed_by_size_and_only_those_in_trouble(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("small", partitions=2)
    cluster.create("large", partitions=2)
    fill(cluster, "large", 3, 4)
    fill(cluster, "small", 1, 0)
    ran = await regnum("topics", "list", "--sort", "size", "-o", "json")
    large, small = json.loads(ran.out)
    assert (large["name"], small["name"]) == ("large", "small")
    assert large["size_bytes"] == 7 * small["size_bytes"] > 0
    assert large["disk_bytes"] == 3 * large["size_bytes"]
    table = await regnum("topics", "list", "--sort", "size")
    assert [line.split()[0] for line in table.out.splitlines()] == ["NAME", "large", "small"]
    assert json.loads((await regnum("topics", "list", "--unhealthy", "-o", "json")).out) == []
    cluster.elect("small", 1, -1)
    sick = await regnum("topics", "list", "--unhealthy", "-o", "json")
    assert [row["name"] for row in json.loads(sick.out)] == ["small"]
    assert (await regnum("topics", "list", "--unhealthy", "--trouble", "offline")).status == 2


async def test_topics_are_deleted_only_with_yes_and_what_goes_is_shown(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("t", partitions=3)
    cluster.create("other")
    fill(cluster, "t", 2, 3, 4)
    shown = await regnum("topics", "delete", "t", "nowhere", "other", "-o", "json")
    assert shown.status == 3
    assert [
        (row["name"], row["deleted"], row["partitions"], row["records_to_lose"]) for row in json.loads(shown.out)
    ] == [
        ("t", False, 3, 9),
        ("other", False, 1, 0),
    ]
    table = await regnum("topics", "delete", "t")
    assert table.out.splitlines()[0].split() == ["NAME", "TOPIC", "ID", "PARTITIONS", "RECORDS", "TO", "LOSE"]
    assert table.err == (
        "nothing was changed; run it again with --yes if these topics may be lost with all their records\n"
    )
    assert sorted(cluster.topic_ids) == ["other", "t"]
    assert cluster.calls["DeleteTopics"] == 0
    done = await regnum("topics", "delete", "t", "other", "--yes", "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert [(row["name"], row["deleted"]) for row in json.loads(done.out)] == [("t", True), ("other", True)]
    assert cluster.topic_ids == {}


async def test_partitions_that_do_not_say_what_they_hold_are_not_counted_and_named(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.create("t", partitions=2)
    fill(cluster, "t", 2, 3)
    cluster.partitions["t", 1].end_questions_refused = 1_000
    shown = await regnum("topics", "delete", "t", "-o", "json")
    (row,) = json.loads(shown.out)
    assert (shown.status, row["records_to_lose"], row["partitions_silent"]) == (0, 2, 1)
    assert "1 partitions of t do not say how many records they have" in shown.err


async def test_what_a_creation_was_only_checked_for_is_not_shown_as_created(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    looked = await regnum("topics", "create", "t", "--dry-run")
    assert looked.out.splitlines()[0].split() == ["NAME", "PARTITIONS", "REPLICATION", "FACTOR"]
    assert (looked.status, looked.err) == (0, "nothing was changed; run it again without --dry-run\n")
    assert cluster.topic_ids == {}
    (row,) = json.loads((await regnum("topics", "create", "t", "--dry-run", "-o", "json")).out)
    assert row["validated_only"] is True
    (row,) = json.loads((await regnum("topics", "create", "t", "-o", "json")).out)
    assert row["validated_only"] is False


async def test_nobody_is_told_to_create_what_only_the_cluster_creates(regnum: CommandHere) -> None:
    ran = await regnum("topics", "remove-partitions", "__consumer_offsets", "--count", "1")
    assert ran.status == 3
    assert "topics create" not in ran.err
    assert "the cluster creates it with the first group" in ran.err


async def test_partitions_are_removed_only_with_yes(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("t", partitions=5)
    fill(cluster, "t", 9, 9, 9, 2, 3)
    shown = await regnum("topics", "remove-partitions", "t", "--count", "2", "-o", "json")
    assert shown.status == 0, shown.err
    (row,) = json.loads(shown.out)
    assert (row["to_remove"], row["partitions"], row["records_to_lose"]) == ([3, 4], 3, 5)
    assert "--yes" in shown.err
    assert cluster.count("t") == 5
    table = await regnum("topics", "remove-partitions", "t", "--count", "2")
    titles, values = (line.split() for line in table.out.splitlines())
    assert titles == ["NAME", "PARTITIONS", "BEFORE", "PARTITIONS", "AFTER", "TO", "REMOVE", "RECORDS", "TO", "LOSE"]
    assert values == ["t", "5", "3", "3,4", "5"]
    done = await regnum("topics", "remove-partitions", "t", "--count", "2", "--yes")
    assert done.status == 0, done.err
    assert cluster.count("t") == 3
    all_of_them = await regnum("topics", "remove-partitions", "t", "--count", "3", "--yes")
    assert all_of_them.status != 0
    assert "highest" in all_of_them.err
    assert cluster.count("t") == 3
