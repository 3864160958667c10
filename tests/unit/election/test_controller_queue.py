"""Order of events, and how far a deletion has come."""

from collections.abc import AsyncGenerator

import pytest
from regnum_election.deletion import Deletion
from regnum_election.events import (
    MUTATIONS_MAX,
    BrokersChanged,
    EventQueue,
    IsrsWritten,
    Mutation,
    QueueFullError,
    TopicsChanged,
)
from regnum_election.replicas import ReplicaState
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode

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
    queue.put(IsrsWritten(keys=frozenset({PartitionKey(ID, 0)})))
    queue.put(IsrsWritten(keys=frozenset({PartitionKey(ID, 1)})))
    assert await queue.take() == BrokersChanged()
    assert await queue.take() == TopicsChanged(names=frozenset({"b"}))
    assert await queue.take() == IsrsWritten(keys=frozenset({PartitionKey(ID, 0), PartitionKey(ID, 1)}))
    assert queue.drain() == ()


async def test_mutations_are_bounded_and_drained() -> None:
    queue = EventQueue()
    for number in range(MUTATIONS_MAX):
        queue.put_mutation(mutation(str(number)))
    with pytest.raises(QueueFullError):
        queue.put_mutation(mutation("one too many"))
    assert len(queue.drain()) == MUTATIONS_MAX


def deletion(*ids: int) -> Deletion:
    node = DeletionNode(topic="t", brokers=frozenset(BrokerId(id) for id in ids))
    return Deletion.recorded_as(ID, node, version=0)


def test_a_deletion_ends_when_every_broker_confirmed() -> None:
    current = deletion(1, 2)
    live = {BrokerId(1), BrokerId(2)}
    assert current.to_tell(live) == (1, 2)
    current = current.told(current.to_tell(live))
    assert current.to_tell(live) == ()
    current = current.confirmed(BrokerId(1)).confirmed(BrokerId(2))
    assert not current.remaining
    assert current.record_due(live) is None


def test_a_confirmation_of_a_broker_that_was_not_told_does_not_count() -> None:
    assert deletion(1).confirmed(BrokerId(1)).remaining == {1}
    assert deletion(1).told([BrokerId(1)]).confirmed(BrokerId(9)).remaining == {1}


def test_a_broker_that_failed_or_went_is_told_again() -> None:
    current = deletion(1, 2).told([BrokerId(1), BrokerId(2)]).refused(BrokerId(1)).away(BrokerId(2))
    assert current.to_tell({BrokerId(1), BrokerId(2)}) == (1, 2)
    assert current.to_tell({BrokerId(1)}) == (1,)


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
