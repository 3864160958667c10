"""`regnum events` and `regnum explain`: what happened, for people and programs."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_client import Admin, EventCause, EventFilter, EventKind
from regnum_client.commands.invocation import CommandFailedError
from regnum_client.commands.looking.events import since_ms
from regnum_election.history.events import (
    AssignmentRow,
    AssignmentsEntry,
    Entry,
    OtherEntry,
    PartitionRow,
    PartitionsEntry,
    Position,
    Reason,
    not_written_down,
)
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_testing.change_traces import FULL_STEPS_MS, FullChangeTrace
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
DIED = Reason(words.EVENT_CAUSE_LIFELINE_BROKEN, "port refused twice", f"00-{TRACE}-b7ad6b7169203331-01")


class Named:
    name = "orders"


def state(leader: int, epoch: int, isr: Sequence[int]) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TopicId("t"),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(BrokerId, isr)),
        elr=(),
        members={BrokerId(id): Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("l")) for id in isr},
        controller_epoch=ControllerEpoch(1),
    )


def moved(number: int, before: LeaderAndIsr | None, after: LeaderAndIsr, reason: Reason = DIED) -> PartitionsEntry:
    return PartitionsEntry(
        position=Position(ControllerEpoch(3), number),
        controller=ElectionId(1),
        time_unix_ms=1_700_000_000_000 + number,
        reason=reason,
        rows=[PartitionRow(PartitionKey(TopicId("t"), 0), before, after, number)],
        topics={TopicId("t"): Named()},
    )


def fenced(number: int, broker: int) -> OtherEntry:
    return OtherEntry(
        position=Position(ControllerEpoch(3), number),
        controller=ElectionId(1),
        time_unix_ms=1_700_000_000_000 + number,
        reason=DIED,
        kind=words.EVENT_KIND_BROKER_FENCED,
        broker=BrokerId(broker),
        broker_epoch=BrokerEpoch(5),
    )


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders")
        yield running


async def write(cluster: FakeCluster, *entries: Entry) -> None:
    for entry in entries:
        cluster.events.append(entry)

    async def written() -> bool:
        return cluster.events.last >= entries[-1].position

    await eventually(written)


STORY = (
    moved(1, None, state(3, 0, [1, 2, 3]), Reason(words.EVENT_CAUSE_CREATION)),
    fenced(2, 3),
    moved(3, state(3, 0, [1, 2, 3]), state(2, 4, [1, 2])),
    moved(
        4, state(2, 4, [1, 2]), state(2, 4, [1, 2, 3]), Reason(words.EVENT_CAUSE_LEADER_ISR, "reported by its leader")
    ),
)


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_a_leader_is_explained_by_how_its_epoch_began(regnum: CommandHere, cluster: FakeCluster) -> None:
    await write(cluster, *STORY)
    for _ in range(4):
        cluster.elect("orders", 0, 2)
    ran = await regnum("explain", "orders/0")
    assert ran.status == 0, ran.err
    text = ran.out
    assert "orders/0 is led by broker 2 in leader epoch 4" in text
    assert "Broker 2 has led since 2023-11-14 22:13:20.003Z, because a broker died" in text
    assert "(port refused twice)" in text
    assert "Until then broker 3 led, in leader epoch 0, with 1,2,3 in sync." in text
    assert "Election process 1 decided it in controller epoch 3 (event 3.3)." in text
    assert f"trace is {TRACE}" in text
    assert "`regnum failovers report`" in text
    assert "last changed at 2023-11-14 22:13:20.004Z from 1,2 to 1,2,3" in text
    table = text[text.index("TIME") :].splitlines()
    assert [line.split()[2] for line in table[1:]] == ["isr-changed", "leader-elected", "leader-elected"]


async def test_a_leader_epoch_that_began_under_the_same_leader_is_told_as_no_change_of_leader(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    reason = Reason(words.EVENT_CAUSE_REASSIGNMENT)
    await write(cluster, moved(1, state(1, 0, [1, 2]), state(1, 1, [1, 3]), reason))
    cluster.elect("orders", 0, 1)
    text = (await regnum("explain", "orders/0")).out
    assert "Broker 1 leads in leader epoch 1 since 2023-11-14 22:13:20.001Z, because replicas were reassigned." in text
    assert "It led before as well, in leader epoch 0, with 1,2 in sync." in text
    assert "has led since" not in text
    assert "Until then" not in text


async def test_of_a_partition_without_a_leader_it_is_said_what_helps(regnum: CommandHere, cluster: FakeCluster) -> None:
    await write(cluster, moved(1, state(1, 0, [1]), state(-1, 1, [1])), moved(2, state(-1, 1, [1]), state(-1, 2, [1])))
    for _ in range(2):
        cluster.elect("orders", 0, -1)
    silent = (await regnum("explain", "orders/0")).out
    assert "Why it has no leader, and what helps, is shown by `regnum partitions list --offline orders`." in silent
    message = "no member of ISR [1] may lead (no live broker: 1); start the brokers that are away"
    cluster.leaders.offline = [admin_pb2.OfflinePartition(topic="orders", partition=0, message=message)]
    text = (await regnum("explain", "orders/0")).out
    assert f"Why it has no leader, and what helps: {message}." in text
    assert "It has no leader in leader epoch 2 since" in text
    assert "It had no leader before either, in leader epoch 1" in text


async def test_what_somebody_asked_for_has_no_unspecified_cause(regnum: CommandHere, cluster: FakeCluster) -> None:
    asked = Reason(words.EVENT_CAUSE_UNSPECIFIED, who="User:ann")
    await write(cluster, replace(fenced(1, 3), kind=words.EVENT_KIND_BROKER_DRAINING, reason=asked))
    shown = (await regnum("events")).out
    assert "asked for by User:ann" in shown
    assert "unspecified" not in shown


async def test_what_the_log_does_not_have_is_said(regnum: CommandHere, cluster: FakeCluster) -> None:
    nothing = await regnum("explain", "orders/0", "-o", "json")
    assert "The event log has nothing of it" in json.loads(nothing.out)["why"][1]
    await write(cluster, *STORY)
    for _ in range(9):
        cluster.elect("orders", 0, 1)
    said = json.loads((await regnum("explain", "orders/0", "-o", "json")).out)
    assert "does not have how this leader epoch began" in said["why"][1]
    assert [one["number"] for one in said["events"]] == [4, 3, 1]
    assert said["events"][1]["trace_id"] == TRACE


async def test_what_a_killed_controller_did_not_write_down_is_said_and_nobody_is_said_to_have_decided_it(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    await write(cluster, moved(3, None, state(2, 4, [1, 2]), not_written_down(ControllerEpoch(2))))
    for _ in range(4):
        cluster.elect("orders", 0, 2)
    text = (await regnum("explain", "orders/0")).out
    assert "How it came to that is not in the event log" in text
    assert "(written by controller epoch 2; details lost)" in text
    assert "by election process 1, in controller epoch 3 (event 3.3)" in text
    assert "decided it" not in text


async def test_a_partition_that_does_not_exist_is_not_explained(regnum: CommandHere) -> None:
    assert (await regnum("explain", "orders/7")).status == 3
    assert (await regnum("explain", "nowhere/0")).status == 3
    wrong = await regnum("explain", "orders", "-o", "json")
    assert (wrong.status, wrong.error["code"]) == (2, "WRONG_USE")


async def test_events_are_shown_in_their_order_in_every_form(regnum: CommandHere, cluster: FakeCluster) -> None:
    await write(cluster, *STORY)
    lines = (await regnum("events", "-o", "jsonl")).out.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4]
    table = (await regnum("events")).out.splitlines()
    assert table[0].split() == ["TIME", "EVENT", "SUBJECT", "CHANGE", "WHY", "DECIDED", "BY"]
    assert "leader 3 > 2 epoch 0 > 4 isr 1,2,3 > 1,2" in table[3]
    newest = json.loads((await regnum("events", "--limit", "2", "-o", "json")).out)
    assert [one["number"] for one in newest] == [3, 4]
    fences = json.loads((await regnum("events", "--kind", "broker-fenced", "-o", "json")).out)
    assert [(one["kind"], one["broker"], one["cause"]) for one in fences] == [("broker-fenced", 3, "lifeline-broken")]
    of_three = json.loads((await regnum("events", "--broker", "3", "--since", "2023-11-01", "-o", "json")).out)
    assert [one["number"] for one in of_three] == [1, 2, 3, 4]
    nothing = await regnum("events", "--topic", "audit")
    assert nothing.err.endswith("the event log has nothing like that\n")
    assert "cannot write its event log to disk" in nothing.err, "the fake has no disk, and it is said"
    assert json.loads((await regnum("events", "--since", "5m", "-o", "json")).out) == []
    wrong = await regnum("events", "--kind", "nonsense", "-o", "json")
    assert wrong.status == 2
    assert "leader-elected" in str(wrong.error["message"])
    assert (await regnum("events", "--follow", "-o", "json")).status == 2


async def test_events_are_followed_over_a_change_of_controller(cluster: FakeCluster) -> None:
    await write(cluster, *STORY)
    async with Admin(cluster.bootstrap, timeout_s=DEADLINE_S, chance=random.Random(3)) as admin:
        seen: list[tuple[int, int]] = []

        async def follow() -> None:
            chosen = EventFilter(topic="orders")
            async for page in admin.events_after(chosen, follow=True):
                seen.extend((one.position.epoch, one.position.number) for one in page)

        following = asyncio.create_task(follow())

        async def has(count: int) -> bool:
            return len(seen) == count

        await eventually(lambda: has(3))
        cluster.controller, cluster.controller_epoch = 2, 2
        cluster.version += 1
        last = moved(5, state(2, 4, [1, 2, 3]), state(1, 5, [1]))
        await write(cluster, fenced(6, 2), moved(7, last.rows[0].before, last.rows[0].after))
        await eventually(lambda: has(4))
        assert seen[-1] == (3, 7)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        newest = await admin.last_events(limit=1)
        assert (newest[0].kind, newest[0].cause) == (EventKind.LEADER_ELECTED, EventCause.LIFELINE_BROKEN)


def test_ages_and_times() -> None:
    assert since_ms("90s", 100_000) == 10_000
    assert since_ms("1.5m", 100_000) == 10_000
    assert since_ms("1970-01-01T00:00:05", 0) == 5_000
    assert since_ms("1970-01-01T01:00:05+01:00", 0) == 5_000
    with pytest.raises(CommandFailedError, match="neither an age nor a time"):
        since_ms("yesterday", 0)


def assigned(number: int, kind: words.EventKind.ValueType, *, who: str = "") -> AssignmentsEntry:
    return AssignmentsEntry(
        position=Position(ControllerEpoch(3), number),
        controller=ElectionId(1),
        time_unix_ms=1_700_000_000_000 + number,
        reason=Reason(words.EVENT_CAUSE_REASSIGNMENT, who=who, traceparent=DIED.traceparent if who else ""),
        kind=kind,
        rows=[
            AssignmentRow(PartitionKey(TopicId("t"), partition), (BrokerId(1), BrokerId(2)), (BrokerId(2), BrokerId(4)))
            for partition in (0, 1)
        ],
        topics={TopicId("t"): Named()},
    )


async def test_a_move_is_explained_with_who_asked_where_it_went_and_its_trace(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    await write(
        cluster,
        assigned(5, words.EVENT_KIND_REASSIGNMENT_STARTED, who="ann"),
        assigned(7, words.EVENT_KIND_REASSIGNMENT_MOVING),
        assigned(9, words.EVENT_KIND_REASSIGNMENT_COMPLETED),
    )
    ran = await regnum("explain", "orders/0")
    assert (
        "A reassignment began from replicas 1,2 to 2,4 at 2023-11-14 22:13:20.005Z, "
        f"asked for by ann (trace {TRACE})." in ran.out
    )
    assert "It was switched from replicas 1,2 to 2,4 at 2023-11-14 22:13:20.009Z." in ran.out
    shown = await regnum("events", "--kind", "reassignment-started", "-o", "jsonl")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(row["partition"], row["who"], row["trace_id"]) for row in rows] == [(0, "ann", TRACE), (1, "ann", TRACE)]
    assert (rows[0]["replicas_before"], rows[0]["replicas_after"]) == ([1, 2], [2, 4])
    table = await regnum("events", "--kind", "reassignment-started")
    assert "replicas 1,2 > 2,4" in table.out
    assert "reassignment; asked for by ann" in table.out


async def test_events_of_a_broker_are_those_of_the_partitions_that_come_and_go_with_it(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    await write(cluster, assigned(5, words.EVENT_KIND_REASSIGNMENT_COMPLETED))

    async def seen(broker: int) -> int:
        return len((await regnum("events", "--broker", str(broker), "-o", "jsonl")).out.splitlines())

    assert [await seen(1), await seen(2), await seen(4), await seen(3)] == [2, 0, 2, 0]


async def test_timing_is_told_by_traces_and_asks_no_cluster(tmp_path, regnum: CommandHere) -> None:
    FullChangeTrace().write(tmp_path)
    told = await regnum("explain", "orders/0", "--timing", "--traces", str(tmp_path))
    assert told.out.startswith("orders/0: lifeline broken, broker 1, ")
    document = json.loads(
        (await regnum("explain", "orders/0", "--timing", "--traces", str(tmp_path), "-o", "json")).out
    )
    assert sum(segment["ms"] for segment in document["chain"]["segments"]) == pytest.approx(sum(FULL_STEPS_MS.values()))


async def test_timing_without_traces_says_what_to_do(tmp_path, regnum: CommandHere) -> None:
    FullChangeTrace().write(tmp_path)
    nowhere = await regnum("explain", "orders/0", "--timing", "--traces", str(tmp_path / "nowhere"))
    assert (nowhere.status, "name the folder that has traces with --traces" in nowhere.err) == (3, True)
    other = await regnum("explain", "orders/7", "--timing", "--traces", str(tmp_path))
    assert (other.status, "tell of no change of orders/7's leader" in other.err) == (3, True)
    alone = await regnum("explain", "orders/0", "--traces", str(tmp_path))
    assert "go with --timing" in alone.err
