"""`regnum partitions reassign|reassignments|cancel` and `regnum brokers drain`: stdout, stderr, exit status."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_model.wire_times import timestamp_of
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=4) as running:
        running.create("t", partitions=4)
        for number in range(4):
            running.assign("t", number, 1, 2)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def ongoing(partition: int = 0, **values: object) -> admin_pb2.OngoingReassignment:
    message = admin_pb2.OngoingReassignment(
        topic="t",
        topic_id="T" * 22,
        partition=partition,
        replicas=[1, 2, 3],
        origin=[1, 2],
        target=[2, 3],
        phase=admin_pb2.REASSIGNMENT_PHASE_MOVING,
        waits_for="brokers [3] are not in sync yet",
        since=timestamp_of(5),
        leader=1,
        isr=[1, 2],
        bytes_total=200,
        bytes_done=50,
        added=[admin_pb2.AddedReplica(broker_id=3, live=True, in_sync=False, log_end_offset=7, bytes=50)],
    )
    message.MergeFrom(admin_pb2.OngoingReassignment(**values))  # type: ignore[arg-type]
    return message


async def test_a_plan_is_shown_and_nothing_is_done_without_execute(regnum: CommandHere, cluster: FakeCluster) -> None:
    shown = await regnum("partitions", "reassign", "--topics", "t", "--brokers", "3,4", "-o", "json")
    assert shown.status == 0, shown.err
    rows = json.loads(shown.out)
    assert [sorted(row["after"]) for row in rows] == [[3, 4]] * 4
    (asked,) = cluster.reassignments.asked
    assert asked.validate_only
    people = await regnum("partitions", "reassign", "--topics", "t", "--brokers", "3,4")
    assert "nothing was changed" in people.err
    assert "8 replicas would move" in people.err


async def test_execute_sends_what_was_shown(regnum: CommandHere, cluster: FakeCluster) -> None:
    done = await regnum(
        "partitions", "reassign", "--topics", "t", "--brokers", "1,2,3,4", "--execute", "--client-id", "ops"
    )
    assert done.status == 0, done.err
    (asked,) = cluster.reassignments.asked
    assert not asked.validate_only
    assert asked.header.client_id == "ops"
    assert sum(3 in item.replicas for item in asked.partitions) == 2


async def test_single_partitions_may_be_named(regnum: CommandHere, cluster: FakeCluster) -> None:
    done = await regnum("partitions", "reassign", "--to", "t/1=3,4", "--execute", "-o", "jsonl")
    assert done.status == 0, done.err
    (asked,) = cluster.reassignments.asked
    assert [(item.topic, item.partition, list(item.replicas)) for item in asked.partitions] == [("t", 1, [3, 4])]


async def test_what_the_controller_refuses_is_shown_and_the_command_fails(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.reassignments.refused["t", 1] = (errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE, "nobody can lead it")
    failed = await regnum("partitions", "reassign", "--to", "t/1=3,4", "-o", "json")
    assert failed.status != 0
    assert failed.error["code"] == "LEADER_NOT_AVAILABLE"
    assert "t/1: nobody can lead it" in str(failed.error["message"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("reassign",),
        ("reassign", "--topics", "t"),
        ("reassign", "--topics", "t", "--brokers", "x"),
        ("reassign", "--topics", "t", "--brokers", "1,1"),
        ("reassign", "--to", "t=1"),
        ("cancel",),
        ("cancel", "t/0", "--all"),
        ("cancel", "t"),
    ],
)
async def test_what_does_not_go_together_says_what_does(regnum: CommandHere, arguments: tuple[str, ...]) -> None:
    wrong = await regnum("partitions", *arguments)
    assert wrong.status == 2
    assert "give" in wrong.err or "such as" in wrong.err or "name" in wrong.err


async def test_brokers_that_are_not_live_are_named(regnum: CommandHere) -> None:
    wrong = await regnum("partitions", "reassign", "--topics", "t", "--brokers", "3,9")
    assert wrong.status == 2
    assert "brokers [9] are not live; choose from [1, 2, 3, 4]" in wrong.err


async def test_open_reassignments_are_shown_page_after_page_with_how_far_they_are(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.reassignments.open = [ongoing(number) for number in range(5)]
    cluster.reassignments.page = 2
    rows = json.loads((await regnum("partitions", "reassignments", "-o", "json")).out)
    assert [row["partition"] for row in rows] == [0, 1, 2, 3, 4]
    assert (rows[0]["percent"], rows[0]["bytes_done"], rows[0]["added"][0]["log_end_offset"]) == (25.0, 50, 7)
    table = await regnum("partitions", "reassignments")
    assert "brokers [3] are not in sync yet" in table.out
    cluster.reassignments.open = []
    assert "no partition is being reassigned" in (await regnum("partitions", "reassignments")).err


async def test_cancel_calls_back_what_was_named_or_all_that_moves(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.reassignments.open = [ongoing(0), ongoing(2)]
    done = await regnum("partitions", "cancel", "--all", "-o", "json")
    assert done.status == 0, done.err
    assert json.loads(done.out) == [
        {"topic": "t", "partition": 0, "cancelled": True},
        {"topic": "t", "partition": 2, "cancelled": True},
    ]
    cluster.reassignments.refused["t", 3] = (errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS, "there is none")
    failed = await regnum("partitions", "cancel", "t/3", "-o", "json")
    assert failed.error["code"] == "NO_REASSIGNMENT_IN_PROGRESS"
    assert all(item.cancel and not item.replicas for call in cluster.reassignments.asked for item in call.partitions)


async def test_a_broker_is_drained_and_the_command_waits_until_it_has_nothing(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    shown = await regnum("brokers", "drain", "1", "--dry-run", "-o", "json")
    assert shown.status == 0, shown.err
    assert all(1 not in row["after"] and len(row["added"]) == 1 for row in json.loads(shown.out))
    assert cluster.reassignments.asked[0].validate_only
    cluster.reassignments.open = [ongoing(0)]
    cluster.reassignments.looks_until_done = 3
    begun = await regnum("brokers", "drain", "1", "--no-wait")
    assert begun.status == 0, begun.err
    assert not cluster.reassignments.asked[-1].validate_only
    assert "3 partitions leave broker 1" in begun.err, "the fourth goes elsewhere already"


async def test_draining_waits_with_a_word_on_how_far_it_is(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.reassignments.open = [ongoing(0)]
    # Looked at before the mark and after it, and shown twice with something left; then it has arrived.
    cluster.reassignments.looks_until_done = 4

    def before_list(lists: int) -> None:
        if lists == 4:
            cluster.assign("t", 0, 2, 3)

    def taken(request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        for item in request.partitions:
            cluster.assign(item.topic, item.partition, *item.replicas)

    cluster.reassignments.taken = taken
    cluster.reassignments.before_list = before_list
    done = await regnum("brokers", "drain", "1")
    assert done.status == 0, done.err
    assert "draining broker 1:" in done.err
    assert "broker 1 has no replicas; it can be stopped" in done.err


async def test_draining_is_refused_and_marks_nothing_where_a_partition_has_no_leader(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.elect("t", 2, -1)
    for arguments in (("--dry-run",), ()):
        refused = await regnum("brokers", "drain", "1", *arguments, "-o", "json")
        assert refused.error["code"] == "INVALID_REPLICA_ASSIGNMENT"
        assert "1 partition of broker 1 has no leader (t/2)" in refused.error["message"]
    assert not cluster.draining
    assert not cluster.reassignments.asked


async def test_draining_that_never_comes_to_an_end_says_so_with_status_5(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    def taken(request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        for item in request.partitions:
            cluster.assign(item.topic, item.partition, *item.replicas)
        name = f"more-{len(cluster.topic_ids)}"
        cluster.create(name)
        cluster.assign(name, 0, 1, 2)

    cluster.reassignments.taken = taken
    done = await regnum("brokers", "drain", "1", "-o", "json")
    assert (done.status, done.error["code"]) == (5, "NOT_EMPTY")
    assert "each of the 5 times" in done.error["message"]


def described(id: int, **values: object) -> admin_pb2.DescribedBroker:
    return admin_pb2.DescribedBroker(broker_id=id, live=True, **values)  # type: ignore[arg-type]


async def test_a_broker_may_be_taken_away_once_it_is_drained_and_nothing_is_on_it(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.leaders.brokers = [described(id, replicas=3) for id in (1, 2, 3)]
    cluster.leaders.brokers += [described(4, draining=True), described(5, draining=True, replicas=2, leaders=1)]
    safe = await regnum("brokers", "remove-check", "4", "-o", "json")
    assert (safe.status, json.loads(safe.out)) == (0, [{"broker": 4, "safe": True, "reasons": [], "strays": None}])
    people = await regnum("brokers", "remove-check", "4")
    assert "they can be taken away" in people.err
    both = await regnum("brokers", "remove-check", "4", "5", "-o", "json")
    assert (both.status, both.error["code"]) == (5, "NOT_REMOVABLE")
    assert [row["safe"] for row in json.loads(both.out)] == [True, False]
    assert "broker 5: it has 2 replicas, 1 of which it leads: `regnum brokers drain 5`" in both.error["message"]
    cluster.leaders.brokers[-1] = described(5, replicas=2)
    table = await regnum("brokers", "remove-check", "4", "5")
    assert [line.split()[:4] for line in table.out.splitlines()] == [
        ["BROKER", "SAFE", "REASON"],
        ["4", "yes"],
        ["5", "no", "it", "has"],
        ["new", "replicas", "may", "be"],
    ], "a line for each reason"
    assert "not to be taken away: 5" in table.err
    assert "it has" not in table.err, "what the table says is not said twice"


async def test_a_broker_that_nobody_knows_is_not_found(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.leaders.brokers = [described(id, replicas=3) for id in (1, 2, 3)]
    ran = await regnum("brokers", "remove-check", "9", "-o", "json")
    assert (ran.status, ran.error["code"]) == (3, "BROKER_ID_NOT_REGISTERED")
    assert "broker 9 is unknown" in str(ran.error["message"])


async def test_all_brokers_that_are_not_drained_get_their_share(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.draining.add(3)
    shown = await regnum("partitions", "rebalance", "-o", "json")
    assert shown.status == 0, shown.err
    after = [broker for row in json.loads(shown.out) for broker in row["after"]]
    assert 4 in after
    assert 3 not in after
    assert all(call.validate_only for call in cluster.reassignments.asked)
    done = await regnum("partitions", "rebalance", "--execute")
    assert done.status == 0, done.err
    assert not cluster.reassignments.asked[-1].validate_only
    assert "replicas move" in done.err


async def test_nothing_is_spread_while_a_broker_with_replicas_is_away_and_not_drained(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    """It may be restarting: all that it has would be copied to the others, and removed from it."""
    cluster.assign("t", 0, 5, 2)
    away = admin_pb2.DescribedBroker(broker_id=5, live=False, replicas=1)
    cluster.leaders.brokers = [*(described(id, replicas=count) for id, count in ((1, 3), (2, 4), (3, 0), (4, 0))), away]
    refused = await regnum("partitions", "rebalance", "--execute", "-o", "json")
    assert refused.error["code"] == "INVALID_REPLICA_ASSIGNMENT"
    assert "brokers [5] are away and have replicas" in refused.error["message"]
    assert "`regnum brokers drain 5`" in refused.error["message"]
    assert not cluster.reassignments.asked
    away.draining = True
    assert (await regnum("partitions", "rebalance", "--execute")).status == 0
    assert cluster.reassignments.asked


async def test_the_sdk_says_for_each_partition_what_became_of_it(cluster: FakeCluster) -> None:
    cluster.reassignments.refused["t", 1] = (errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, "give each once")
    async with Admin(cluster.bootstrap) as admin:
        outcomes = await admin.alter_partition_reassignments({("t", 0): (3, 4), ("t", 1): (3, 3), ("t", 2): None})
        assert outcomes["t", 0] is None
        assert outcomes["t", 2] is None
        refused = outcomes["t", 1]
        assert refused is not None
        assert refused.code == errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT


async def test_a_drained_broker_is_marked_and_stays_so_until_that_is_undone(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    await regnum("brokers", "drain", "1", "--dry-run")
    assert not cluster.draining, "a dry run marks nothing"
    assert (await regnum("brokers", "drain", "1", "--no-wait")).status == 0
    assert cluster.draining == {1}
    look = await regnum("brokers", "drain", "1", "--undo", "--dry-run", "-o", "json")
    assert json.loads(look.out) == {"broker": 1, "draining": True, "changed": False, "partitions_leaving": 0}
    assert cluster.draining == {1}
    undone = await regnum("brokers", "drain", "1", "--undo", "-o", "json")
    assert json.loads(undone.out) == {"broker": 1, "draining": False, "changed": True, "partitions_leaving": 0}
    assert not cluster.draining
    again = await regnum("brokers", "drain", "1", "--undo")
    assert "is not being drained" in again.err


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_call_back_whose_answer_was_lost_is_done_when_nothing_is_open(cluster: FakeCluster, lost: int) -> None:
    def taken(_request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        if len(cluster.reassignments.asked) > lost:
            over = (errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned")
            cluster.reassignments.refused = {("t", 0): over, ("t", 1): over}

    cluster.reassignments.taken = taken
    cluster.elections[1].silent_answers = lost
    async with Admin(cluster.bootstrap) as admin:
        outcomes = await admin.alter_partition_reassignments({("t", 0): None, ("t", 1): [3, 4], ("t", 2): None})
    assert len(cluster.reassignments.asked) == 1 + lost
    codes = {partition: error and error.code for (_, partition), error in outcomes.items()}
    over = errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS
    assert codes == {0: None if lost else over, 1: over, 2: None}, "only call backs can have been done before"
