"""What is still to be told to one broker."""

from regnum_election.dispatch.outbox import Outbox, StatesCall, Stop, StopsCall
from regnum_model.ids import TOPIC_DELETED_EPOCH, PartitionKey, TopicId

ID = TopicId("t" * 22)


def key(number: int) -> PartitionKey:
    return PartitionKey(ID, number)


def stop(*, delete: bool, partition: int = -1) -> Stop:
    return Stop(topic_id=ID, partition=partition, topic="t", leader_epoch=TOPIC_DELETED_EPOCH, delete=delete)


def states(outbox: Outbox) -> StatesCall:
    call = outbox.next_call()
    assert isinstance(call, StatesCall), call
    return call


def test_nothing_to_tell() -> None:
    assert Outbox().next_call() is None
    assert Outbox().is_empty


def test_a_partition_changed_twice_is_told_once() -> None:
    outbox = Outbox()
    outbox.order_states([key(1), key(2)])
    outbox.order_states([key(1)])
    call = states(outbox)
    assert call.keys == (key(1), key(2))
    outbox.acknowledge(call)
    assert outbox.is_empty


def test_a_change_while_the_call_is_in_flight_is_told_again() -> None:
    outbox = Outbox()
    outbox.order_states([key(1), key(2)])
    call = states(outbox)
    outbox.order_states([key(2)])
    outbox.acknowledge(call)
    assert states(outbox).keys == (key(2),)


def test_a_failed_call_is_repeated() -> None:
    outbox = Outbox()
    outbox.order_states([key(1)])
    outbox.fail(states(outbox))
    assert states(outbox).keys == (key(1),)


def test_messages_are_limited() -> None:
    outbox = Outbox(limit=2)
    outbox.order_states([key(n) for n in range(3)])
    first = states(outbox)
    assert first.keys == (key(0), key(1))
    outbox.acknowledge(first)
    assert states(outbox).keys == (key(2),)


def test_the_full_set_goes_first_in_parts() -> None:
    outbox = Outbox(limit=2)
    outbox.order_states([key(9)])
    outbox.order_full([key(n) for n in range(3)])
    seen = []
    while (call := outbox.next_call()) is not None:
        assert isinstance(call, StatesCall)
        seen.append((call.init, call.part, call.parts, len(call.keys)))
        outbox.acknowledge(call)
    assert seen == [(True, 0, 2, 2), (True, 1, 2, 1), (False, 0, 1, 1)]


def test_a_failed_part_starts_the_full_set_again() -> None:
    outbox = Outbox(limit=1)
    outbox.order_full([key(0), key(1)])
    outbox.acknowledge(states(outbox))
    second = states(outbox)
    assert second.part == 1
    outbox.fail(second)
    assert states(outbox).part == 0


def test_an_empty_full_set_is_told() -> None:
    outbox = Outbox()
    outbox.order_full([])
    call = states(outbox)
    assert (call.init, call.part, call.parts, call.keys) == (True, 0, 1, ())
    outbox.acknowledge(call)
    assert outbox.is_empty


def test_a_change_during_the_full_set_is_told_after_it() -> None:
    outbox = Outbox(limit=1)
    outbox.order_full([key(0), key(1)])
    outbox.acknowledge(states(outbox))
    outbox.order_states([key(0)])
    outbox.acknowledge(states(outbox))
    call = states(outbox)
    assert (call.init, call.keys) == (False, (key(0),))


def test_stops_come_after_states_and_deletion_is_not_weakened() -> None:
    outbox = Outbox()
    outbox.order_stops([stop(delete=True)])
    outbox.order_stops([stop(delete=False)])
    outbox.order_states([key(0)])
    outbox.acknowledge(states(outbox))
    call = outbox.next_call()
    assert isinstance(call, StopsCall)
    assert [item.delete for item in call.stops] == [True]
    outbox.fail(call)
    assert outbox.next_call() == call
    outbox.acknowledge(call)
    assert outbox.is_empty
