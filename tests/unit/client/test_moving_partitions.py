"""`regnum partitions reassign`, `rebalance` and `cancel`: waits, throttles and saved plans; stdout, stderr, status."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_client.admin.configs import ConfigEntry, ConfigSource
from regnum_client.admin.reassignment.throttle import command_of, rates_of, taken_back
from regnum_client.commands.reassignment.throttle import LEAST
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE, THROTTLE_RATE_MIN
from regnum_testing.command_here import CommandHere
from regnum_testing.command_shell import Shell
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

RATES = (LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE)
UNSET = f"regnum configs alter --cluster --delete {RATES[0]} --delete {RATES[1]}"
MOVE = ("partitions", "reassign", "--to", "t/0=3,2", "--execute")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=4) as running:
        running.create("t", partitions=2)
        for number in range(2):
            running.assign("t", number, 1, 2)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def moving(cluster: FakeCluster, *, target: tuple[int, ...] = (3, 2), origin: tuple[int, ...] = (1, 2)) -> None:
    """The first partition is open."""
    one = admin_pb2.OngoingReassignment(
        topic="t",
        partition=0,
        replicas=sorted({*origin, *target}),
        origin=origin,
        target=target,
        phase=admin_pb2.REASSIGNMENT_PHASE_MOVING,
        waits_for="brokers [3] are not in sync yet",
        leader=2,
    )
    cluster.reassignments.open = [one]


def begins_when_asked(cluster: FakeCluster, *, arrives: bool) -> list[dict[str, str]]:
    """What is asked for is open, and is shown once if it arrives. Returns the rates that there were at each call."""
    rates: list[dict[str, str]] = []

    def taken(_request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        rates.append(own_rates(cluster))
        moving(cluster)
        if arrives:
            cluster.reassignments.looks_until_done = 1
            cluster.assign("t", 0, 3, 2)

    cluster.reassignments.taken = taken
    return rates


def own_rates(cluster: FakeCluster) -> dict[str, str]:
    return {name: value for name, value in cluster.configs.values[""].items() if name in RATES}


async def test_a_partition_that_is_named_twice_is_refused(regnum: CommandHere, cluster: FakeCluster) -> None:
    wrong = await regnum("partitions", "reassign", "--to", "t/0=1,2", "--to", "t/0=2,3")
    assert wrong.status == 2
    assert "--to names t/0 twice" in wrong.err
    assert not cluster.reassignments.asked


@pytest.mark.parametrize("execute", [(), ("--execute",), ("--execute", "--throttle", "5000")])
async def test_a_plan_that_is_refused_is_not_shown_and_changes_no_setting(
    regnum: CommandHere, cluster: FakeCluster, execute: tuple[str, ...]
) -> None:
    cluster.reassignments.refused["t", 0] = (errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, "9 is not live")
    refused = await regnum("partitions", "reassign", "--to", "t/0=1,9", *execute)
    assert refused.status == 2
    assert refused.out == ""
    assert own_rates(cluster) == {}


async def test_of_a_plan_that_is_refused_in_part_that_is_shown_which_moves(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.reassignments.refused["t", 1] = (errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, "9 is not live")
    refused = await regnum("partitions", "reassign", "--to", "t/0=1,3", "--to", "t/1=1,9", "--execute", "-o", "json")
    assert refused.status == 2
    assert [row["partition"] for row in json.loads(refused.out)] == [0]


async def test_a_wait_without_execute_says_that_there_is_nothing_to_wait_for(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    shown = await regnum("partitions", "reassign", "--to", "t/0=3,2", "--wait")
    assert shown.status == 0
    assert "1 replica would move; nothing was changed; there is nothing to wait for" in shown.err
    assert all(call.validate_only for call in cluster.reassignments.asked)


async def test_one_replica_moves_and_two_move(regnum: CommandHere) -> None:
    assert "1 replica moves; see" in (await regnum(*MOVE)).err
    assert "2 replicas move; see" in (await regnum("partitions", "reassign", "--to", "t/0=3,4", "--execute")).err


async def test_a_call_back_to_the_old_replicas_copies_nothing_and_says_so(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.assign("t", 0, 1, 2, 3)
    moving(cluster)
    back = await regnum("partitions", "reassign", "--to", "t/0=1,2", "--execute")
    assert "nothing is copied: 1 partition keeps replicas that it has" in back.err
    assert "0 replicas" not in back.err


async def test_a_wait_ends_when_all_have_arrived_and_says_so(regnum: CommandHere, cluster: FakeCluster) -> None:
    begins_when_asked(cluster, arrives=True)
    done = await regnum(*MOVE, "--wait")
    assert done.status == 0, done.err
    assert "1 partition arrived" in done.err


async def test_a_bounded_wait_ends_with_status_5_the_reason_and_what_to_do(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    begins_when_asked(cluster, arrives=False)
    ended = await regnum(*MOVE, "--wait-s", "0.1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (5, "NOT_ARRIVED")
    message = str(ended.error["message"])
    assert "t/0: brokers [3] are not in sync yet" in message
    assert "`regnum partitions cancel` calls back" in message
    assert json.loads(ended.out), "what moves is shown all the same"


async def test_a_move_that_somebody_else_redirects_ends_the_wait_as_a_conflict(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    begins_when_asked(cluster, arrives=False)
    cluster.reassignments.before_list = lambda _lists: moving(cluster, target=(4, 2))
    ended = await regnum(*MOVE, "--wait")
    assert ended.status == 4
    assert "another caller has cancelled or redirected t/0" in ended.err
    assert "arrived" not in ended.err


async def test_cancel_waits_no_longer_than_it_is_told_and_says_what_for(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    moving(cluster, target=(1, 2))
    cluster.reassignments.open[0].waits_for = "1 of 2 needed replicas that stay are in sync; [2] are not"
    ended = await regnum("partitions", "cancel", "--all", "--wait-s", "0.1")
    assert ended.status == 5
    assert "cancelling: 1 partition left" in ended.err
    assert "t/0: 1 of 2 needed replicas that stay are in sync; [2] are not" in ended.err
    moving(cluster, target=(4, 2))
    assert (await regnum("partitions", "cancel", "--all", "--wait")).status == 4, "it was asked for again"


async def test_ctrl_c_says_that_moves_go_on_and_how_the_throttle_is_taken_back(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    begins_when_asked(cluster, arrives=False)
    process = await Shell(tmp_path, cluster.bootstrap).start(*MOVE, "--wait", "--throttle", "5000")
    await until(lambda: cluster.reassignments.lists >= 2)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert process.returncode == 130
    assert "1 partition goes on being reassigned" in err.decode()
    assert f"The throttle stays until `{UNSET}`" in err.decode()
    assert own_rates(cluster) == dict.fromkeys(RATES, "5000")


async def test_a_throttle_is_set_before_anything_moves_and_taken_back_when_all_have_arrived(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    rates = begins_when_asked(cluster, arrives=True)
    done = await regnum(*MOVE, "--wait", "--throttle", "5000")
    assert done.status == 0, done.err
    assert rates == [dict.fromkeys(RATES, "5000")]
    assert "5000 bytes a second" in done.err
    assert "the throttle is taken back" in done.err
    assert own_rates(cluster) == {}


async def test_a_throttle_that_there_was_before_is_there_again_and_is_told(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.configs.values[""][LEADER_THROTTLE_RATE] = "7000"
    begins_when_asked(cluster, arrives=True)
    done = await regnum(*MOVE, "--wait", "--throttle", "5000")
    assert own_rates(cluster) == {LEADER_THROTTLE_RATE: "7000"}
    assert f"{LEADER_THROTTLE_RATE}=7000; `regnum configs alter --cluster --delete {LEADER_THROTTLE_RATE}`" in done.err


async def test_a_throttle_that_somebody_else_changed_meanwhile_stays(regnum: CommandHere, cluster: FakeCluster) -> None:
    begins_when_asked(cluster, arrives=True)

    def before_list(_lists: int) -> None:
        if own_rates(cluster):
            cluster.configs.values[""][FOLLOWER_THROTTLE_RATE] = "9000"

    cluster.reassignments.before_list = before_list
    done = await regnum(*MOVE, "--wait", "--throttle", "5000")
    assert own_rates(cluster) == {FOLLOWER_THROTTLE_RATE: "9000"}
    assert f"another caller has changed the throttle meanwhile; it stays: {FOLLOWER_THROTTLE_RATE}=9000" in done.err


async def test_without_a_wait_it_is_said_how_the_throttle_is_taken_back(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    done = await regnum(*MOVE, "--throttle", "5000")
    assert f"The throttle stays until `{UNSET}`" in done.err
    assert own_rates(cluster) == dict.fromkeys(RATES, "5000")
    begins_when_asked(cluster, arrives=False)
    late = await regnum(*MOVE, "--throttle", "6000", "--wait-s", "0.1", "-o", "json")
    assert f"--set {LEADER_THROTTLE_RATE}=5000 --set {FOLLOWER_THROTTLE_RATE}=5000" in str(late.error["message"])


async def test_a_throttle_of_a_drain_and_of_a_rebalance_holds_as_well(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    assert "--delete" in (await regnum("brokers", "drain", "1", "--no-wait", "--throttle", "5000")).err
    assert own_rates(cluster) == dict.fromkeys(RATES, "5000")
    await regnum("partitions", "rebalance", "--throttle", "6000")
    assert own_rates(cluster) == dict.fromkeys(RATES, "5000"), "a plan that is shown sets nothing"
    await regnum("partitions", "rebalance", "--execute", "--throttle", "6000")
    assert own_rates(cluster) == dict.fromkeys(RATES, "6000")


def test_each_rate_that_is_still_ours_goes_back_and_others_stay() -> None:
    before = {LEADER_THROTTLE_RATE: None, FOLLOWER_THROTTLE_RATE: "7"}
    due = taken_back(before, ours="5", now=dict.fromkeys(RATES, "5"))
    assert (due.back, due.foreign) == (before, {})
    assert taken_back(before, ours="5", now=before).back == {}, "somebody took it back already"
    changed = taken_back(before, ours="5", now={LEADER_THROTTLE_RATE: "9", FOLLOWER_THROTTLE_RATE: "5"})
    assert (changed.back, changed.foreign) == ({FOLLOWER_THROTTLE_RATE: "7"}, {LEADER_THROTTLE_RATE: "9"})
    assert taken_back(dict.fromkeys(RATES, "5"), ours="5", now=dict.fromkeys(RATES, "5")).back == {}
    assert command_of(before) == (
        f"regnum configs alter --cluster --delete {LEADER_THROTTLE_RATE} --set {FOLLOWER_THROTTLE_RATE}=7"
    )


def test_what_nobody_has_set_is_no_rate_of_the_cluster() -> None:
    entries = (
        ConfigEntry(name=LEADER_THROTTLE_RATE, value="0", source=ConfigSource.DEFAULT),
        ConfigEntry(name=FOLLOWER_THROTTLE_RATE, value="8", source=ConfigSource.CLUSTER),
    )
    assert rates_of(entries) == {LEADER_THROTTLE_RATE: None, FOLLOWER_THROTTLE_RATE: "8"}
    assert LEAST == THROTTLE_RATE_MIN


async def test_a_saved_plan_is_carried_out_and_taken_back(
    regnum: CommandHere, cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text((await regnum("partitions", "reassign", "--to", "t/0=3,2", "--to", "t/1=2,4", "-o", "json")).out)

    def taken(request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        for item in request.partitions:
            cluster.assign(item.topic, item.partition, *item.replicas)

    cluster.reassignments.taken = taken
    plan = ("partitions", "reassign", "--plan", str(file))
    assert (await regnum(*plan, "--execute")).status == 0
    assert [cluster.replicas["t", number] for number in (0, 1)] == [(3, 2), (2, 4)]
    assert "nothing has to move" in (await regnum(*plan, "--execute")).err
    assert "would move" in (await regnum(*plan, "--back")).err
    assert (await regnum(*plan, "--back", "--execute")).status == 0
    assert [cluster.replicas["t", number] for number in (0, 1)] == [(1, 2), (1, 2)]


async def test_a_saved_plan_of_partitions_that_somebody_has_moved_since_is_refused(
    regnum: CommandHere, cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text((await regnum("partitions", "reassign", "--to", "t/0=3,2", "-o", "json")).out)
    cluster.assign("t", 0, 4, 1)
    cluster.reassignments.asked.clear()
    refused = await regnum("partitions", "reassign", "--plan", str(file), "--execute", "-o", "json")
    assert (refused.status, refused.error["code"]) == (4, "PLAN_OUTDATED")
    assert "t/0 is on brokers [4, 1]" in str(refused.error["message"])
    assert not cluster.reassignments.asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("[]", "it has no moves"),
        ('{"version": 1}', "it has no moves"),
        ('[{"topic": "t", "partition": 0, "after": [1]}]', "is no move"),
        ('[{"topic": "t", "partition": 0, "before": [1], "after": []}]', "is no move"),
        ('[{"topic": "t", "partition": true, "before": [1], "after": [2]}]', "is no move"),
        ('[{"topic": "t", "partition": 0, "before": [1], "after": ["2"]}]', "is no move"),
        (
            '[{"topic":"t","partition":0,"before":[1],"after":[2]},{"topic":"t","partition":0,"before":[1],"after":[3]}]',
            "names a partition twice",
        ),
        (None, "there is no file"),
    ],
)
async def test_what_is_no_plan_is_refused_with_the_reason(
    regnum: CommandHere, cluster: FakeCluster, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    wrong = await regnum("partitions", "reassign", "--plan", str(file), "--execute")
    assert wrong.status == 2
    assert said in wrong.err
    assert not cluster.reassignments.asked


@pytest.mark.parametrize(
    "arguments", [("--back", "--to", "t/0=1"), ("--plan", "x", "--to", "t/0=1"), ("--plan", "x", "--topics", "t")]
)
async def test_a_plan_and_what_makes_one_exclude_each_other(regnum: CommandHere, arguments: tuple[str, ...]) -> None:
    wrong = await regnum("partitions", "reassign", *arguments)
    assert wrong.status == 2
    assert "give" in wrong.err
