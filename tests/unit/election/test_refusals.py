"""What a broker refused, and when it is told of it again."""

import pytest
from regnum_election.dispatch.answers import RETRY_INTERVAL_S, RETRY_INTERVAL_S_MAX, pause_after_s
from regnum_election.dispatch.outbox import Stop
from regnum_election.dispatch.refusals import OFFLINE_INTERVAL_S, REFUSED_INTERVAL_S, Refusals, Unusable
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId

TOPIC = TopicId("t")


def keys(*numbers: int) -> frozenset[PartitionKey]:
    return frozenset(PartitionKey(TOPIC, number) for number in numbers)


def stop(partition: int, *, reassigned: bool = False) -> Stop:
    return Stop(
        topic_id=TOPIC,
        partition=partition,
        topic="name",
        leader_epoch=LeaderEpoch(3),
        delete=True,
        reassigned=reassigned,
    )


def test_what_was_refused_is_repeated_once_and_not_before_a_pause() -> None:
    refusals = Refusals()
    assert refusals.next_s is None
    for key in keys(0, 1):
        refusals.refuse_state(key)
    refusals.refuse_stop(stop(2))
    refusals.wait(10.0)
    assert refusals.next_s == 10.0 + REFUSED_INTERVAL_S
    early = refusals.take_due(9.9 + REFUSED_INTERVAL_S)
    assert not early.states
    assert not early.stops
    due = refusals.take_due(10.0 + REFUSED_INTERVAL_S)
    assert (due.states, due.stops) == (keys(0, 1), {stop(2)})
    assert refusals.next_s is None
    assert not refusals.take_due(100.0).states


def test_a_later_refusal_joins_the_pause_that_is_running() -> None:
    refusals = Refusals()
    refusals.refuse_stop(stop(0))
    refusals.wait(10.0)
    refusals.refuse_stop(stop(1))
    refusals.wait(10.5)
    assert refusals.take_due(10.0 + REFUSED_INTERVAL_S).stops == {stop(0), stop(1)}
    refusals.refuse_stop(stop(1))
    refusals.wait(11.0 + REFUSED_INTERVAL_S)
    assert refusals.next_s == 11.0 + 2 * REFUSED_INTERVAL_S, "refused again, it waits anew"


@pytest.mark.parametrize("between_s", [0.3, 0.7, 1.5])
def test_what_was_refused_is_repeated_however_often_other_orders_are_answered(between_s: float) -> None:
    """Answers may also straddle the end of each pause."""
    refusals = Refusals()
    (key,) = keys(0)
    refusals.refuse_state(key)
    refusals.wait(0.0)
    now_s = 0.0
    while not (due := refusals.take_due(now_s)).states:
        assert now_s <= REFUSED_INTERVAL_S + between_s
        now_s += between_s
        refusals.wait(now_s)
    assert due.states == {key}


def test_what_is_withdrawn_leaves_no_pause_behind() -> None:
    refusals = Refusals()
    refusals.refuse_stop(stop(1))
    refusals.wait(10.0)
    refusals.withdraw(keys(1))
    assert refusals.next_s is None
    refusals.refuse_stop(stop(2))
    refusals.wait(50.0)
    assert not refusals.take_due(50.0).stops
    assert refusals.next_s == 50.0 + REFUSED_INTERVAL_S


def test_only_orders_of_removed_partitions_are_withdrawn() -> None:
    refusals = Refusals()
    for one in (stop(0), stop(1), stop(1, reassigned=True)):
        refusals.refuse_stop(one)
    assert refusals.withdraw(keys(1)) == [stop(1)]
    assert set(refusals.stops) == {stop(0), stop(1, reassigned=True)}


def test_a_replica_that_cannot_be_used_is_asked_about_again_and_again_while_it_is_the_brokers() -> None:
    unusable = Unusable()
    here = set(keys(0, 1))
    unusable.note(here, 10.0)
    assert not unusable.take_due(9.9 + OFFLINE_INTERVAL_S, here.__contains__)
    assert unusable.take_due(10.0 + OFFLINE_INTERVAL_S, here.__contains__) == keys(0, 1)
    here -= keys(1)
    assert unusable.next_s == 10.0 + 2 * OFFLINE_INTERVAL_S
    assert unusable.take_due(10.0 + 2 * OFFLINE_INTERVAL_S, here.__contains__) == keys(0)
    here.clear()
    assert not unusable.take_due(10.0 + 3 * OFFLINE_INTERVAL_S, here.__contains__)
    assert unusable.next_s is None


def test_a_disk_that_takes_records_again_is_reason_to_ask_at_once() -> None:
    unusable = Unusable()
    unusable.ask_now(5.0)
    assert unusable.next_s is None
    unusable.note(keys(0), 10.0)
    unusable.ask_now(11.0)
    assert unusable.next_s == 11.0
    assert unusable.take_due(11.0, lambda _: True) == keys(0)
    assert unusable.next_s == 11.0 + OFFLINE_INTERVAL_S


def test_one_that_is_found_later_does_not_put_off_the_question() -> None:
    unusable = Unusable()
    unusable.note(keys(0), 10.0)
    unusable.note(keys(1), 10.0 + OFFLINE_INTERVAL_S / 2)
    assert unusable.take_due(10.0 + OFFLINE_INTERVAL_S, lambda _: True) == keys(0, 1)


def test_only_what_a_broker_says_to_the_question_is_news() -> None:
    """It takes a replica up as follower and refuses it as leader: that must not raise the epoch at every order."""
    unusable = Unusable()
    unusable.note(keys(0, 1), 0.0)
    assert not unusable.answered(taken=keys(0), offline=())
    assert unusable.next_s is not None
    unusable.take_due(OFFLINE_INTERVAL_S, lambda _: True)
    assert unusable.answered(taken=keys(0), offline=keys(1)) == keys(0)
    assert not unusable.answered(taken=keys(0, 1), offline=()), "each was answered"
    assert unusable.take_due(2 * OFFLINE_INTERVAL_S, lambda _: True) == keys(1)


def test_the_pause_doubles_with_each_failure_and_has_an_end() -> None:
    assert [pause_after_s(failures) for failures in (1, 2, 3)] == [RETRY_INTERVAL_S * times for times in (1, 2, 4)]
    assert pause_after_s(5) == pause_after_s(10_000) == RETRY_INTERVAL_S_MAX
