"""What a killed controller wrote to the store and not into the log: its successor says so, once, and nobody waits."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import HeldState, Partition
from regnum_election.history.encoding import encode
from regnum_election.history.events import Entry, OtherEntry, PartitionRow, PartitionsEntry, Position, Reason
from regnum_election.history.log import EventLog
from regnum_election.history.missing import LoggedLeaders, logged_leaders, unlogged
from regnum_election.reign.events import BrokerDead
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
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
from regnum_service.clock import SystemClock
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within

T = TopicId("t")
NOT_WRITTEN_DOWN = words.EVENT_CAUSE_NOT_WRITTEN_DOWN


class Named:
    name = "orders"


def state(leader_epoch: int, reign: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=T,
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=(BrokerId(1),),
        elr=(),
        members={BrokerId(1): Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("l"))},
        controller_epoch=ControllerEpoch(reign),
    )


def key(number: int) -> PartitionKey:
    return PartitionKey(T, number)


def told(reign: int, number: int, *changes: tuple[int, int]) -> bytes:
    """An entry at that place about these partitions, with the leader epochs that they came to."""
    rows = [PartitionRow(key(partition), None, state(epoch, reign), epoch) for partition, epoch in changes]
    return encode(
        PartitionsEntry(
            position=Position(ControllerEpoch(reign), number),
            controller=ElectionId(1),
            time_unix_ms=1,
            reason=Reason(words.EVENT_CAUSE_SETTLING),
            rows=rows,
            topics={T: Named()},
        )
    )


def began(reign: int) -> OtherEntry:
    return OtherEntry(
        position=Position(ControllerEpoch(reign), 1),
        controller=ElectionId(1),
        time_unix_ms=1,
        reason=Reason(words.EVENT_CAUSE_UNSPECIFIED),
        kind=words.EVENT_KIND_CONTROLLER_ELECTED,
    )


def partitions(*states: tuple[int, int]) -> dict[PartitionKey, Partition]:
    """Partitions 0, 1, ... with these leader epochs, written by these reigns."""
    return {
        key(number): Partition(replicas=(BrokerId(1),), held=HeldState(state=state(epoch, reign), version=epoch))
        for number, (epoch, reign) in enumerate(states)
    }


async def found(logged: LoggedLeaders, *states: tuple[int, int], reign: int = 9) -> dict[int, list[int]]:
    answer = await unlogged(partitions(*states), logged, reign=ControllerEpoch(reign))
    return {epoch: [row.key.partition for row in rows] for epoch, rows in answer.rows.items()}


def test_the_newest_leader_epoch_that_is_told_counts() -> None:
    logged = logged_leaders([told(2, 4, (0, 7)), told(2, 2, (0, 6), (1, 3)), encode(began(2))])
    assert logged is not None
    assert logged.epochs == {key(0): 7, key(1): 3}
    assert logged.whole_since == 2


def test_a_reign_whose_beginning_was_not_looked_at_does_not_count() -> None:
    newest_first = [told(3, 2, (0, 9)), encode(began(3)), told(2, 5, (0, 8)), told(2, 2, (1, 1)), encode(began(2))]
    logged = logged_leaders(newest_first[:3])
    assert logged is not None
    assert logged.whole_since == 3, "the log begins in the middle of reign 2"
    few = logged_leaders(newest_first, bytes_max=1)
    assert few is not None
    assert (few.whole_since, set(few.epochs)) == (4, {key(0)}), "no more is looked at than was said"
    assert logged_leaders([]) is None


@pytest.mark.parametrize(
    ("epoch", "reign", "missing"),
    [
        (5, 3, False),  # as the log says
        (6, 3, True),
        (6, 2, False),  # perhaps further up in the log than was looked at
        (6, 9, False),  # the successor's own
        (4, 3, False),  # older than the log: a restored store is another matter
    ],
)
async def test_a_later_leader_epoch_than_is_told_is_missing_where_the_whole_reign_was_looked_at(
    epoch: int, reign: int, missing: bool
) -> None:
    logged = LoggedLeaders(whole_since=ControllerEpoch(3), epochs={key(0): LeaderEpoch(5)})
    assert await found(logged, (epoch, reign)) == ({reign: [0]} if missing else {})


async def test_partitions_without_a_word_in_the_log_are_missing_by_the_reign_that_wrote_them() -> None:
    logged = LoggedLeaders(whole_since=ControllerEpoch(3), epochs={})
    assert await found(logged, (0, 3), (1, 4), (2, 4), (3, 2)) == {3: [0], 4: [1, 2]}
    assert await found(logged) == {}


async def test_so_many_are_told_one_by_one_and_the_others_are_counted() -> None:
    logged = LoggedLeaders(whole_since=ControllerEpoch(1), epochs={})
    answer = await unlogged(partitions(*[(1, 2)] * 10), logged, reign=ControllerEpoch(3), rows_max=3)
    assert (sum(map(len, answer.rows.values())), answer.count) == (3, 10)


# The log


@pytest.mark.parametrize("on_disk", [True, False])
async def test_the_log_is_asked_once_all_that_came_before_a_reign_is_written(tmp_path: Path, on_disk: bool) -> None:
    log = EventLog(SystemClock())
    log.open(tmp_path if on_disk else None)
    try:
        asked = log.leaders_before(ControllerEpoch(3))
        log.take([encode(began(2)), told(2, 2, (0, 4))])
        log.append(began(3))
        logged = await within(asked)
        assert logged == LoggedLeaders(whole_since=ControllerEpoch(2), epochs={key(0): LeaderEpoch(4)})
        assert await within(log.leaders_before(ControllerEpoch(2))) is None, "nothing is older"
    finally:
        await log.close()


# Reigns


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller) -> TopicId:
    replicas = tuple(BrokerId(id) for id in (1, 2, 3))
    assignment = tuple((number, replicas) for number in range(3))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answer = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answer.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def failed_over(cluster: FakeCluster) -> TopicId:
    """A reign that creates a topic, loses the leader of its partitions, elects another, and is killed."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(1)
    id = await create(controller)
    dead = cluster.brokers[BrokerId(1)]
    cluster.kill(1)
    controller.queue.put(
        BrokerDead(broker=dead.id, epoch=dead.epoch, registration=dead.registration, evidence="the port refused twice")
    )
    await until(lambda: {leader_of(controller, key) for key in controller.picture.of_topic(id)} == {2})
    await cluster.end_reign()
    return id


def leader_of(controller: Controller, key: PartitionKey) -> int:
    held = controller.picture.partitions[key].held
    return -1 if held is None else held.state.leader


def not_written_down(entries: Sequence[Entry]) -> list[PartitionsEntry]:
    return [one for one in entries if isinstance(one, PartitionsEntry) and one.reason.cause == NOT_WRITTEN_DOWN]


async def succeeded(cluster: FakeCluster, kept: Sequence[Entry]) -> list[Entry]:
    """What a successor writes down whose log has these entries of its predecessor."""
    asked = []
    before = len(cluster.recorded)

    async def of_log(reign: ControllerEpoch) -> LoggedLeaders | None:
        asked.append(reign)
        return logged_leaders(encode(entry) for entry in reversed(kept))

    controller = await cluster.reign(2, logged_leaders=of_log)
    await until(
        lambda: bool(asked) and all(task.done() for task in cluster.tasks if task.get_name() == "unlogged states")
    )
    assert controller.reign.epoch == 2
    return cluster.recorded[before:]


async def test_a_successor_whose_log_has_everything_misses_nothing(cluster: FakeCluster) -> None:
    await failed_over(cluster)
    written = await succeeded(cluster, list(cluster.recorded))
    assert not_written_down(written) == []


async def test_an_election_that_was_not_written_down_is_told_of_with_the_epoch_of_its_reign(
    cluster: FakeCluster,
) -> None:
    id = await failed_over(cluster)
    elections = [
        place
        for place, entry in enumerate(cluster.recorded)
        if isinstance(entry, PartitionsEntry) and any(row.after.leader == 2 for row in entry.rows)
    ]
    written = await succeeded(cluster, cluster.recorded[: elections[0]])
    entries = not_written_down(written)
    assert {row.key for entry in entries for row in entry.rows} == {PartitionKey(id, number) for number in range(3)}
    assert {row.after.leader for entry in entries for row in entry.rows} == {2}
    assert {entry.reason.evidence for entry in entries} == {"written by controller epoch 1; details lost"}
    assert {entry.position.epoch for entry in entries} == {2}


async def test_a_log_that_cannot_be_read_ends_no_reign(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)

    async def unreadable(_reign: ControllerEpoch) -> LoggedLeaders | None:
        raise OSError("input/output error")

    controller = await cluster.reign(1, logged_leaders=unreadable)
    assert await create(controller) in controller.picture.topics
    assert not_written_down(cluster.recorded) == []
