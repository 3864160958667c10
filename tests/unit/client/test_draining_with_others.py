"""`regnum brokers drain` while another operator wants something else: nobody is overruled, and the end is explained."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_client.admin.reassignment.draining import Ask, CalledBack, Empty, Seen, Undone, due
from regnum_client.admin.reassignment.plan import PlannedMove
from regnum_testing.command_here import CommandHere
from regnum_testing.command_shell import Shell
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

MOVE = PlannedMove(topic="t", partition=0, before=(1, 2), after=(3, 2))


class OpenMoves:
    """What is asked for is open until a test says how it ends."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        cluster.reassignments.taken = self._taken

    def _taken(self, request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        for item in request.partitions:
            origin = self._cluster.replicas[item.topic, item.partition]
            self._cluster.reassignments.open.append(
                admin_pb2.OngoingReassignment(
                    topic=item.topic,
                    partition=item.partition,
                    replicas=sorted({*origin, *item.replicas}),
                    origin=origin,
                    target=item.replicas,
                    phase=admin_pb2.REASSIGNMENT_PHASE_MOVING,
                    waits_for="brokers [3] are not in sync yet",
                    leader=2,
                )
            )

    def arrive(self) -> None:
        for one in self._cluster.reassignments.open:
            self._cluster.assign(one.topic, one.partition, *one.target)
        self._cluster.reassignments.open.clear()

    def called_back(self) -> None:
        self._cluster.reassignments.open.clear()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=4) as running:
        running.create("t", partitions=2)
        for number in range(2):
            running.assign("t", number, 1, 2)
        yield running


@pytest.fixture
def moves(cluster: FakeCluster) -> OpenMoves:
    return OpenMoves(cluster)


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def asked(cluster: FakeCluster) -> int:
    return sum(len(one.partitions) for one in cluster.reassignments.asked if not one.validate_only)


async def test_a_drain_that_is_undone_and_called_back_ends_as_a_conflict_and_asks_for_nothing_again(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if cluster.reassignments.open:
            cluster.draining.clear()
            moves.called_back()

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 4
    assert "broker 1 is not being drained any more" in ended.err
    assert "regnum events --broker 1" in ended.err
    assert "it can be stopped" not in ended.err
    assert asked(cluster) == 2, "each of the two once"
    assert ended.out.count("t  ") == 2


async def test_an_undone_drain_whose_moves_arrive_does_not_say_that_the_broker_can_be_stopped(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if cluster.reassignments.open:
            cluster.draining.clear()
            moves.arrive()

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (4, "DRAIN_UNDONE")
    assert len(json.loads(ended.out)) == 2, "what was asked for is told"


async def test_an_undone_drain_that_has_nowhere_to_go_any_more_tells_of_the_undo(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if cluster.reassignments.open:
            cluster.draining.clear()
            moves.called_back()
            cluster.assign("t", 0, 1, 2, 3, 4)

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 4
    assert "every live broker has a replica" not in ended.err
    assert "not being drained any more" in ended.err


async def test_an_undo_is_noticed_while_moves_go_on_and_they_are_counted(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if cluster.reassignments.open:
            cluster.draining.clear()

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 4
    assert "2 partitions go on leaving it" in ended.err
    assert "regnum partitions cancel" in ended.err


async def test_moves_that_somebody_calls_back_without_an_undo_are_told_and_not_asked_for_again(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if cluster.reassignments.open:
            moves.called_back()

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (4, "CALLED_BACK")
    assert "t/0, t/1" in str(ended.error["message"])
    assert asked(cluster) == 2
    assert cluster.draining == {1}


async def test_one_of_many_that_is_called_back_is_told_while_the_others_move(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        if len(cluster.reassignments.open) == 2:
            cluster.reassignments.open.pop()

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (4, "CALLED_BACK")
    assert "t/1" in str(ended.error["message"])
    assert "t/0" not in str(ended.error["message"])
    assert len(cluster.reassignments.open) == 1, "the other one moves still"


async def test_a_call_back_that_is_under_way_is_one(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    def before_list(_lists: int) -> None:
        for one in cluster.reassignments.open:
            one.phase = admin_pb2.REASSIGNMENT_PHASE_CANCELLING
            one.target[:] = one.origin

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (4, "CALLED_BACK")
    assert asked(cluster) == 2


async def test_what_has_arrived_and_brokers_do_not_know_yet_is_no_call_back_and_not_asked_for_again(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    """The controller says that the broker has nothing; what brokers say follows a moment later."""
    looks = 0

    def before_list(_lists: int) -> None:
        nonlocal looks
        if cluster.reassignments.open:
            looks += 1
        if looks == 1:
            cluster.leaders.brokers = [
                admin_pb2.DescribedBroker(broker_id=id, live=True, draining=id == 1, replicas=count)
                for id, count in ((1, 0), (2, 2), (3, 1), (4, 1))
            ]
            moves.called_back()
            looks += 1
        elif looks >= 2:
            looks += 1
        if looks == 5:
            cluster.assign("t", 0, 3, 2)
            cluster.assign("t", 1, 4, 2)

    cluster.reassignments.before_list = before_list
    ended = await regnum("brokers", "drain", "1")
    assert ended.status == 0, ended.err
    assert asked(cluster) == 2
    assert "it can be stopped" in ended.err


async def test_a_drain_that_is_run_again_says_that_partitions_are_on_their_way(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    assert (await regnum("brokers", "drain", "1", "--no-wait")).status == 0
    first = cluster.reassignments.lists

    def before_list(lists: int) -> None:
        if lists == first + 4:
            moves.arrive()

    cluster.reassignments.before_list = before_list
    again = await regnum("brokers", "drain", "1")
    assert again.status == 0, again.err
    assert "2 partitions are on the way off it already; nothing else has to move" in again.err
    assert "broker 1 has no replicas; it can be stopped" in again.err


async def test_an_undo_counts_what_goes_on_and_names_how_to_call_it_back(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    assert (await regnum("brokers", "drain", "1", "--no-wait")).status == 0
    undone = await regnum("brokers", "drain", "1", "--undo")
    assert "2 partitions go on leaving it" in undone.err
    assert "`regnum partitions cancel` calls them back" in undone.err


async def test_a_wait_that_is_bounded_ends_with_status_5_the_reason_and_what_to_do(
    regnum: CommandHere, cluster: FakeCluster, moves: OpenMoves
) -> None:
    ended = await regnum("brokers", "drain", "1", "--wait-s", "0.1", "-o", "json")
    assert (ended.status, ended.error["code"]) == (5, "NOT_ARRIVED")
    message = str(ended.error["message"])
    assert "2 partitions left" in message
    assert "brokers [3] are not in sync yet" in message
    assert "run it again to wait" in message
    assert cluster.draining == {1}


@pytest.mark.parametrize("arguments", [("--no-wait", "--wait-s", "5"), ("--undo", "--throttle", "5000")])
async def test_options_of_a_drain_that_exclude_each_other_are_refused(
    regnum: CommandHere, cluster: FakeCluster, arguments: tuple[str, ...]
) -> None:
    wrong = await regnum("brokers", "drain", "1", *arguments)
    assert wrong.status == 2
    assert not cluster.draining


async def test_ctrl_c_says_that_the_broker_is_being_drained_still_and_what_to_do(
    cluster: FakeCluster, moves: OpenMoves, tmp_path: Path
) -> None:
    process = await Shell(tmp_path, cluster.bootstrap).start("brokers", "drain", "1")
    await until(lambda: len(cluster.reassignments.open) == 2)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert process.returncode == 130
    assert "broker 1 is still being drained" in err.decode()
    assert "`regnum brokers drain 1 --undo` and `regnum partitions cancel` to stop" in err.decode()


def test_the_mark_counts_first_then_call_backs_then_what_is_left() -> None:
    seen = Seen(draining=True, moves=(MOVE,), leaving=())
    assert due(seen, {("t", 1)}) == Ask((MOVE,))
    assert due(seen, {("t", 0)}) == CalledBack((("t", 0),))
    assert due(Seen(draining=False, moves=(MOVE,), leaving=()), {("t", 0)}) == Undone()
    assert due(Seen(draining=False, moves=(), leaving=()), ()) == Undone(), "empty, but not marked"
    assert due(Seen(draining=True, moves=(), leaving={("t", 0)}), {("t", 0)}) == Ask(())
    assert due(Seen(draining=True, moves=(), leaving=()), {("t", 0)}) == Empty()
