"""Order of events, and how far a deletion has come."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from regnum_election.decisions.deletion import Deletion, ReplicaState
from regnum_election.decisions.isr_reports import ReportedNode
from regnum_election.reign.events import (
    MUTATIONS_MAX,
    REPORTS_IN_A_ROW,
    REPORTS_PER_EVENT,
    BrokersChanged,
    Event,
    EventQueue,
    IsrsWritten,
    Mutation,
    QueueFullError,
    ReplicasDeleted,
    ReplicasOffline,
    ReplicasUsable,
    Superseded,
    TopicsChanged,
)
from regnum_election.reign.request_queue import RequestQueue
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode
from regnum_service.errors import RegnumError

ID = TopicId("d" * 22)


async def no_steps() -> AsyncGenerator[None, None]:
    return
    yield


def mutation(name: str) -> Mutation:
    return Mutation(name=name, steps=no_steps(), abandon=lambda: None)


async def test_cluster_events_go_before_mutations() -> None:
    queue = EventQueue()
    first, second = mutation("first"), mutation("second")
    queue.put_mutation(first)
    queue.put_mutation(second)
    queue.put(BrokersChanged())
    assert await queue.take() == BrokersChanged()
    assert await queue.take() is first
    queue.put(BrokersChanged())
    queue.put_back(first)
    assert await queue.take() == BrokersChanged()
    assert await queue.take() is first
    assert await queue.take() is second


async def test_events_that_say_the_same_merge() -> None:
    queue = EventQueue()
    queue.put(BrokersChanged())
    queue.put(BrokersChanged())
    queue.put(TopicsChanged(names=frozenset({"a"})))
    queue.put(TopicsChanged(names=frozenset({"b"})))
    queue.put(IsrsWritten.unseen({PartitionKey(ID, 0)}))
    queue.put(IsrsWritten.unseen({PartitionKey(ID, 1)}))
    assert await queue.take() == BrokersChanged()
    assert await queue.take() == TopicsChanged(names=frozenset({"b"}))
    assert await queue.take() == IsrsWritten.unseen({PartitionKey(ID, 0), PartitionKey(ID, 1)})
    assert queue.drain() == ()


async def test_what_waits_already_is_found_without_looking_at_all_that_waits() -> None:
    """Each answer was compared with every other that waited: 1.8 s for 5,000."""
    queue = EventQueue()
    compared = 0

    class Compared(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == str(other)

        __hash__ = str.__hash__

    for number in range(5_000):
        queue.put(ReplicasDeleted(broker=BrokerId(number % 9), topics=((TopicId(Compared(f"t{number}")), True),)))
    assert compared < 5_000
    answers: list[tuple[TopicId, bool]] = []
    while not queue.is_empty:
        event = await queue.take()
        assert isinstance(event, ReplicasDeleted)
        assert len(event.topics) <= REPORTS_PER_EVENT
        answers += event.topics
    assert len(answers) == 5_000


async def test_the_last_answer_of_a_broker_counts() -> None:
    queue = EventQueue()
    queue.put(ReplicasDeleted(broker=BrokerId(1), topics=((ID, False),)))
    queue.put(ReplicasDeleted(broker=BrokerId(1), topics=((ID, True),)))
    assert await queue.take() == ReplicasDeleted(broker=BrokerId(1), topics=((ID, True),))
    assert queue.is_empty


async def test_reports_come_in_parts_and_a_failure_waits_for_one_at_most() -> None:
    queue = EventQueue()
    keys = frozenset(PartitionKey(ID, number) for number in range(3 * REPORTS_PER_EVENT))
    queue.put(IsrsWritten.unseen(keys))
    first = await queue.take()
    assert isinstance(first, IsrsWritten)
    assert len(first.reports) == REPORTS_PER_EVENT
    queue.put(BrokersChanged())
    assert await queue.take() == BrokersChanged()
    seen = set(first.reports)
    while not queue.is_empty:
        event = await queue.take()
        assert isinstance(event, IsrsWritten)
        seen |= event.reports.keys()
    assert seen == keys


async def test_reports_without_end_do_not_starve_a_mutation_nor_one_another() -> None:
    queue = EventQueue()
    waiting = mutation("waiting")
    queue.put_mutation(waiting)
    queue.put(ReplicasDeleted(broker=BrokerId(1), topics=((ID, True),)))
    taken: list[Event] = []
    while waiting not in taken:
        queue.put(IsrsWritten.unseen({PartitionKey(ID, len(taken))}))
        queue.put(TopicsChanged(names=frozenset({str(len(taken))})))
        taken.append(await queue.take())
        assert len(taken) <= REPORTS_IN_A_ROW + 1
    assert any(isinstance(event, ReplicasDeleted) for event in taken)


async def test_what_a_broker_says_of_its_replicas_merges_but_not_across_the_opposite() -> None:
    queue = EventQueue()

    def offline(*numbers: int) -> ReplicasOffline:
        keys = frozenset(PartitionKey(ID, number) for number in numbers)
        return ReplicasOffline(broker=BrokerId(1), epoch=BrokerEpoch(5), keys=keys)

    usable = ReplicasUsable(broker=BrokerId(1), epoch=BrokerEpoch(5), keys=frozenset({PartitionKey(ID, 1)}))
    for event in (offline(1), offline(2), BrokersChanged(), usable, offline(1)):
        queue.put(event)
    taken = [await queue.take() for _ in range(4)]
    assert taken == [offline(1, 2), BrokersChanged(), usable, offline(1)]
    assert queue.is_empty


async def test_mutations_are_bounded_and_drained() -> None:
    queue = EventQueue()
    for number in range(MUTATIONS_MAX):
        queue.put_mutation(mutation(str(number)))
    with pytest.raises(QueueFullError):
        queue.put_mutation(mutation("one too many"))
    assert len(queue.drain()) == MUTATIONS_MAX


async def test_a_store_that_refuses_writes_tells_those_who_wait_and_not_those_whose_mutation_was_not_queued() -> None:
    queue = EventQueue()
    requests = RequestQueue(queue)
    waits, refused = (asyncio.get_running_loop().create_future() for _ in range(2))
    requests.submit("waits", no_steps(), waits, begun=lambda: False)
    for number in range(MUTATIONS_MAX - 1):
        queue.put_mutation(mutation(str(number)))
    with pytest.raises(RegnumError, match="too many requests wait"):
        requests.submit("one too many", no_steps(), refused, begun=lambda: False)
    requests.store_refuses("no space")
    with pytest.raises(RegnumError, match="no space"):
        await waits
    assert not refused.done(), "an error that nobody retrieves is a line on stderr"


def deletion(*ids: int) -> Deletion:
    node = DeletionNode(topic="t", brokers=frozenset(BrokerId(id) for id in ids))
    return Deletion.recorded_as(ID, node, version=0)


def to_tell(current: Deletion, *live: int) -> list[int]:
    return [id for id in live if current.is_to_tell(BrokerId(id))]


def test_a_deletion_ends_when_every_broker_confirmed() -> None:
    current = deletion(1, 2)
    live = {BrokerId(1), BrokerId(2)}
    assert to_tell(current, 1, 2) == [1, 2]
    current = current.told(live)
    assert to_tell(current, 1, 2) == []
    current = current.confirmed(BrokerId(1)).confirmed(BrokerId(2))
    assert not current.remaining
    assert current.record_due(live) is None


def test_a_confirmation_of_a_broker_that_was_not_told_does_not_count() -> None:
    assert deletion(1).confirmed(BrokerId(1)).remaining == {1}
    assert deletion(1).told([BrokerId(1)]).confirmed(BrokerId(9)).remaining == {1}


def test_a_broker_that_failed_or_went_is_told_again() -> None:
    current = deletion(1, 2).told([BrokerId(1), BrokerId(2)]).refused(BrokerId(1)).away(BrokerId(2))
    assert to_tell(current, 1, 2, 3) == [1, 2]


def test_a_confirmed_broker_stays_confirmed_when_it_goes() -> None:
    current = deletion(1).told([BrokerId(1)]).confirmed(BrokerId(1)).away(BrokerId(1))
    assert current.replicas[BrokerId(1)] is ReplicaState.DELETION_SUCCESSFUL


def test_the_record_is_rewritten_once_only_absent_brokers_remain() -> None:
    current = deletion(1, 2, 3).told([BrokerId(1), BrokerId(2)]).confirmed(BrokerId(1))
    assert current.record_due({BrokerId(1), BrokerId(2)}) is None
    current = current.confirmed(BrokerId(2))
    due = current.record_due({BrokerId(1), BrokerId(2)})
    assert due is not None
    assert due.brokers == {3}
    assert current.rewritten(due, version=1).record_due({BrokerId(1)}) is None


async def test_registrations_that_changed_wait_in_one_place_and_none_is_forgotten() -> None:
    queue = EventQueue()
    queue.put(BrokersChanged(frozenset({"1"})))
    queue.put(Superseded(seen=ControllerEpoch(9)))
    queue.put(BrokersChanged(frozenset({"2"})))
    assert await queue.take() == BrokersChanged(frozenset({"1", "2"}))
    assert await queue.take() == Superseded(seen=ControllerEpoch(9))
    queue.put(BrokersChanged(frozenset({"1"})))
    queue.put(BrokersChanged())
    queue.put(BrokersChanged(frozenset({"2"})))
    assert await queue.take() == BrokersChanged()
    assert queue.is_empty


def report(partition: int, version: int) -> tuple[PartitionKey, ReportedNode]:
    node = ReportedNode(broker=BrokerId(1), epoch=BrokerEpoch(1), version=version, data=b"{}")
    return PartitionKey(ID, partition), node


async def test_of_two_reports_of_a_partition_the_later_version_counts_and_a_wish_to_have_it_read() -> None:
    queue = EventQueue()
    for key, node in (report(0, 5), report(0, 4), report(1, 4), report(1, 5), report(2, 4)):
        queue.put(IsrsWritten(reports={key: node}))
    queue.put(IsrsWritten.unseen([PartitionKey(ID, 2)]))
    taken = await queue.take()
    assert isinstance(taken, IsrsWritten)
    assert dict(taken.reports) == {**dict([report(0, 5), report(1, 5)]), PartitionKey(ID, 2): None}
