"""Which replica is chosen where nobody may lead, and what is said of the loss (safety rule S14)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_election.recovery.decisions import (
    EPOCH_MAX,
    UNKNOWN_EPOCHS,
    Answer,
    NoLog,
    ReplicaLog,
    assess,
    is_sound,
    recovered_epoch,
    recovered_state,
)
from regnum_model.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId
from regnum_testing.election_values import TOPIC_ID, state

SILENT = NoLog(code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message="no answer")


def log(
    epoch: int, end: int, *, of: int = 1, start: int = 0, high_watermark: int = 0, leading: bool = False, heard: int = 0
) -> ReplicaLog:
    return ReplicaLog(
        broker_epoch=BrokerEpoch(10),
        log_id=LogId(f"log-{of}"),
        present=True,
        last_written_epoch=LeaderEpoch(epoch),
        current_epoch=LeaderEpoch(max(epoch, heard)),
        log_start_offset=start,
        high_watermark=high_watermark,
        log_end_offset=end,
        leading=leading,
    )


NOT_THERE = replace(log(-1, 0, of=9), present=False)


def by_broker(*answers: Answer) -> dict[BrokerId, Answer]:
    return {BrokerId(id): answer for id, answer in enumerate(answers, 1)}


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def test_the_later_epoch_wins_over_the_longer_log() -> None:
    found = assess(ids(1, 2, 3), None, by_broker(SILENT, log(4, 90), log(5, 70)))
    assert found.chosen == 3
    assert found.lost_from_offset == 70
    assert found.known_end_offset == 90
    assert "records 70 to 89 of broker 2" in found.may_be_lost
    assert found.unknown == (1,)
    assert "broker 1 alone had" in found.may_be_lost


def test_the_longer_log_wins_within_an_epoch() -> None:
    assert assess(ids(1, 2, 3), None, by_broker(log(5, 70), log(5, 71), log(5, 69))).chosen == 2


def test_of_equal_logs_the_one_that_leads_still_is_taken_and_then_the_first_of_the_assignment() -> None:
    assert assess(ids(1, 2, 3), None, by_broker(log(5, 70), log(5, 70), log(5, 70, leading=True))).chosen == 3
    assert assess(ids(2, 1, 3), None, by_broker(log(5, 70), log(5, 70), log(5, 70))).chosen == 2
    assert assess(ids(2, 1, 3), None, by_broker(log(5, 70), log(5, 70), log(5, 70)), leaving={BrokerId(2)}).chosen == 1


def test_a_broker_without_the_replica_is_better_than_nobody_and_worse_than_anybody() -> None:
    alone = assess(ids(1, 2), None, by_broker(SILENT, NOT_THERE))
    assert alone.chosen == 2
    assert alone.may_be_lost.startswith("all records: broker 2 has none")
    assert alone.unknown == (1, 2)
    assert assess(ids(1, 2), None, by_broker(log(0, 1), NOT_THERE)).chosen == 1


def test_a_replica_that_is_being_filled_leads_where_its_log_is_the_best_of_all() -> None:
    answers = by_broker(log(4, 90), log(5, 70))
    found = assess(ids(1, 2), None, answers, adding=ids(2))
    assert (found.chosen, found.unheard) == (2, ()), "its log is the beginning of the last leader's: more than 1 has"


def test_of_equal_logs_an_old_replica_is_taken_before_one_that_is_being_filled() -> None:
    answers = by_broker(log(4, 0), log(4, 0))
    assert assess(ids(1, 2), None, answers, adding=ids(1)).chosen == 2
    nothing = by_broker(NOT_THERE, NOT_THERE)
    assert assess(ids(1, 2), None, nothing, adding=ids(1)).chosen == 2


def test_an_old_replica_that_is_live_and_says_nothing_is_named_where_a_new_one_would_lead() -> None:
    away = NoLog(code=errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, message="not registered")
    broken = NoLog(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message="disk")
    answers = by_broker(SILENT, away, broken, log(5, 3))
    assert assess(ids(1, 2, 3, 4), None, answers, adding=ids(4)).unheard == ids(1)
    assert assess(ids(1, 2, 3, 4), None, answers).unheard == (), "nobody is being filled"
    assert assess(ids(2, 3, 4), None, answers, adding=ids(4)).unheard == (), "nobody else is live and able"


def test_nobody_is_chosen_when_nobody_answers() -> None:
    found = assess(ids(1, 2), None, by_broker(SILENT, SILENT))
    assert found.chosen is None
    assert found.may_be_lost.startswith("everything")


def test_a_member_with_another_log_than_the_recorded_is_named_though_it_answers() -> None:
    recorded = state(-1, [1, 2])
    found = assess(ids(1, 2, 3), recorded, by_broker(log(5, 70, of=77), SILENT, log(5, 60, of=3)))
    assert found.chosen == 1
    assert found.unknown == (1, 2)
    assert "log of broker 1" in found.may_be_lost


def test_committed_records_above_the_chosen_end_are_named() -> None:
    found = assess(ids(1, 2), None, by_broker(log(4, 90, high_watermark=80), log(5, 70)))
    assert "committed records 70 to 79" in found.may_be_lost


def test_nothing_is_said_to_be_lost_when_everybody_answers_and_agrees() -> None:
    answers = by_broker(log(5, 70, leading=True, high_watermark=70), log(5, 70, of=2))
    assert assess(ids(1, 2), None, answers).may_be_lost == "nothing that an assigned replica knows of"


def test_the_new_epoch_is_above_all_that_is_known_and_far_above_when_the_stores_own_is_not() -> None:
    answers = [log(4, 90, heard=7), SILENT]
    assert recovered_epoch(LeaderEpoch(5), answers, certain=True) == 8
    assert recovered_epoch(LeaderEpoch(9), answers, certain=True) == 10
    assert recovered_epoch(NO_EPOCH, answers, certain=False) == 8 + UNKNOWN_EPOCHS


def test_epochs_that_run_out_are_refused_and_none_is_used_twice() -> None:
    assert recovered_epoch(LeaderEpoch(0), [log(4, 90, heard=EPOCH_MAX)], certain=True) is None
    assert not is_sound(log(4, 90, heard=EPOCH_MAX + 1))
    assert not is_sound(log(4, 90, start=91))


def test_the_chosen_replica_is_alone_in_the_isr_with_the_log_that_it_answered_with() -> None:
    made = recovered_state(TOPIC_ID, BrokerId(2), log(4, 90, of=2), LeaderEpoch(9), ControllerEpoch(3))
    assert (made.leader, made.isr, made.elr) == (2, (2,), ())
    assert made.members[BrokerId(2)].log_id == "log-2"
    assert made.members.keys() == {2}


LOGS = st.builds(
    log,
    st.integers(0, 3),
    st.integers(0, 5),
    of=st.integers(1, 3),
    high_watermark=st.integers(0, 6),
    leading=st.booleans(),
    heard=st.integers(0, 6),
)


@given(st.lists(st.one_of(LOGS, st.just(SILENT), st.just(NOT_THERE)), min_size=1, max_size=5), st.randoms())
def test_no_answer_is_ever_later_or_of_the_same_epoch_and_longer_than_the_chosen(
    answers: list[Answer], chance: object
) -> None:
    told = by_broker(*answers)
    replicas = list(told)
    chance.shuffle(replicas)  # type: ignore[attr-defined]
    found = assess(replicas, None, told)
    logs = {id: one for id, one in told.items() if isinstance(one, ReplicaLog)}
    assert (found.chosen is None) == (not logs)
    if found.chosen is None:
        return
    chosen = logs[found.chosen]
    for one in logs.values():
        assert (chosen.last_written_epoch, chosen.log_end_offset) >= (one.last_written_epoch, one.log_end_offset)
    epoch = recovered_epoch(NO_EPOCH, answers, certain=True)
    assert epoch is not None
    assert all(epoch > one.current_epoch and epoch > one.last_written_epoch for one in logs.values())
    given_up = [id for id, one in logs.items() if one.log_end_offset > chosen.log_end_offset]
    assert all(f"of broker {id} " in found.may_be_lost for id in given_up)


@pytest.mark.parametrize("epoch", [-2, EPOCH_MAX + 1])
def test_an_answer_that_cannot_be_true_is_none(epoch: int) -> None:
    assert not is_sound(replace(log(0, 1), last_written_epoch=LeaderEpoch(epoch)))
