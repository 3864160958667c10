"""`regnum groups` and what the SDK knows of groups, against a broker that coordinates them."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client import Admin, TopicPartition
from regnum_client.admin.groups.views import GroupState
from regnum_model.ids import BrokerId
from regnum_service.errors import ExitStatus, RegnumError
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID
from regnum_testing.command_here import CommandHere, Ran
from regnum_testing.group_world import GroupWorld, TestMember


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GroupWorld]:
    """A broker with a topic of three records, and a group of one member that has come to the second."""
    made = GroupWorld(tmp_path)
    await made.begin()
    await made.start(1)
    await made.elect(1, [1])
    state = types_pb2.PartitionState(leader=1, leader_epoch=0, isr=[1], replicas=[1])
    await made.lead(1, [1], others=(types_pb2.TopicState(name="t", topic_id=TOPIC_ID, partitions=[state]),))
    await made.serves(1)
    await made.produce(1, batch_of(b"a", b"b", b"c"))
    member = TestMember(made, 1, "readers", name="worker")
    await member.join(session_ms=600_000)
    await member.sync({member.member_id: b"all"})
    await member.commit(1)
    await TestMember(made, 1, "idle").commit(3, 9)
    yield made
    await made.close()


def bootstrap(world: GroupWorld) -> str:
    return world.brokers[BrokerId(1)].settings.client_listen


def content_of(ran: Ran) -> Any:
    """The JSON that a command printed; the broker is in this process and may have logged something before it."""
    return json.loads("\n".join(lines_of(ran)))


def lines_of(ran: Ran) -> list[str]:
    """What it printed, likewise."""
    return [line for line in ran.out.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]


async def test_groups_are_listed_and_described_with_their_lag(world: GroupWorld) -> None:
    regnum = CommandHere(bootstrap(world))
    listed = await regnum("groups", "list", "-o", "json")
    assert [(row["group"], row["state"], row["coordinator"]) for row in content_of(listed)] == [
        ("idle", "Empty", 1),
        ("readers", "Stable", 1),
    ]
    shown = await regnum("group", "describe", "readers", "-o", "jsonl")
    row = content_of(shown)
    assert (row["topic"], row["partition"], row["committed"], row["log_end"], row["lag"]) == ("t", 0, 1, 3, 2)
    table = await regnum("groups", "describe", "idle")
    assert lines_of(table)[0].split() == ["TOPIC", "PARTITION", "COMMITTED", "LOG", "END", "LAG", "METADATA"]
    assert "Empty" in table.err
    members = await regnum("groups", "describe", "readers", "--members", "-o", "json")
    (one,) = content_of(members)
    assert (one["client_id"], one["leader"], one["assignment_bytes"]) == ("worker", True, 3)
    missing = await regnum("groups", "describe", "nobody", "-o", "json")
    assert missing.status == ExitStatus.NOT_FOUND


async def test_groups_are_listed_with_their_lag_and_topics_by_it(world: GroupWorld) -> None:
    regnum = CommandHere(bootstrap(world))
    listed = await regnum("groups", "list", "--lag", "-o", "json")
    assert [(row["group"], row["lag"], row["partitions"], row["unknown_partitions"]) for row in content_of(listed)] == [
        ("readers", 2, 1, 0),
        ("idle", 0, 2, 1),
    ]
    topics = await regnum("topics", "list", "--sort", "lag", "-o", "json")
    assert [(row["name"], row["lag"]) for row in content_of(topics) if row["name"] == "t"] == [("t", 2)]
    meant = await regnum("groups", "describe", "reader")
    assert (meant.status, "did you mean 'readers'?" in meant.err) == (ExitStatus.NOT_FOUND, True)


async def test_status_says_who_is_furthest_behind_where_that_is_asked(world: GroupWorld) -> None:
    """There is no controller here: groups are shown beside what is wrong."""
    regnum = CommandHere(bootstrap(world))
    asked = content_of(await regnum("status", "--lag", "--timeout", "1", "-o", "json"))
    assert [(row["group"], row["lag"], row["unknown_partitions"]) for row in asked["group_lags"]] == [
        ("readers", 2, 0),
        ("idle", 0, 1),
    ]
    assert content_of(await regnum("status", "--timeout", "1", "-o", "json"))["group_lags"] is None
    table = lines_of(await regnum("status", "--lag", "--timeout", "1"))
    assert any("group readers is 2 records behind" in line for line in table)
    assert any(line.split() == ["readers", "2", "1", "0"] for line in table)


async def test_a_group_is_deleted_only_when_it_is_said_twice_and_nobody_is_in_it(world: GroupWorld) -> None:
    regnum = CommandHere(bootstrap(world))
    looked = await regnum("groups", "delete", "idle", "-o", "json")
    assert content_of(looked) == {"group": "idle", "state": "Empty", "offsets": 2, "deleted": False}
    assert "--yes" in looked.err
    busy = await regnum("groups", "delete", "readers", "--yes")
    assert busy.status == ExitStatus.CONFLICT
    gone = await regnum("groups", "delete", "idle", "--yes", "-o", "json")
    assert content_of(gone)["deleted"] is True
    left = await regnum("groups", "list", "-o", "json")
    assert [row["group"] for row in content_of(left)] == ["readers"]


async def test_offsets_of_a_topic_are_deleted_when_it_is_said_twice_and_no_member_reads_it(world: GroupWorld) -> None:
    regnum = CommandHere(bootstrap(world))
    ask = ("groups", "delete-offsets", "idle", "--topic", "t", "-o", "json")
    looked = await regnum(*ask)
    rows = content_of(looked)
    assert [(row["partition"], row["committed"], row["deleted"]) for row in rows] == [(0, 3, False), (1, 9, False)]
    assert "--yes" in looked.err
    gone = await regnum(*ask, "--yes")
    assert [row["deleted"] for row in content_of(gone)] == [True, True]
    assert content_of(await regnum(*ask)) == []
    read = await regnum("groups", "delete-offsets", "readers", "--topic", "t", "--yes", "-o", "jsonl")
    assert read.status == ExitStatus.CONFLICT
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in read.err
    async with Admin(bootstrap(world), timeout_s=20.0) as admin:
        assert (await admin.list_group_offsets("readers"))[TopicPartition("t", 0)].offset == 1


async def test_the_sdk_tells_the_same(world: GroupWorld) -> None:
    async with Admin(bootstrap(world), timeout_s=20.0) as admin:
        group = await admin.describe_group("readers")
        assert (group.state, group.generation, group.coordinator) == (GroupState.STABLE, 1, 1)
        (member,) = group.members
        assert (member.member_id, member.assignment) == (group.leader, b"all")
        committed = await admin.list_group_offsets("readers")
        assert committed[TopicPartition("t", 0)].offset == 1
        assert committed[TopicPartition("t", 0)].committed_ms > 0
        assert await admin.list_group_offsets("nobody") == {}
        with pytest.raises(RegnumError) as caught:
            await admin.delete_group("nobody")
        assert caught.value.code == errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND
