"""Order, numbers and repeats of one partition's batches."""

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.cluster.view import LeaderTerm
from regnum_client.producer.batches.lane import Batch, Identity, Lane
from regnum_client.producer.batches.verdicts import Fate, Verdict, judge
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId

ACK = Verdict(fate=Fate.ACKNOWLEDGED, maybe_written=False, refresh_metadata=False)
RETRY = Verdict(fate=Fate.RETRY, maybe_written=False, refresh_metadata=False)
UNKNOWN = Verdict(fate=Fate.RETRY, maybe_written=True, refresh_metadata=True)
REFUSED = Verdict(fate=Fate.REFUSED, maybe_written=False, refresh_metadata=False)
BROKEN = Verdict(fate=Fate.SEQUENCE_BROKEN, maybe_written=False, refresh_metadata=False)

OLD = LeaderTerm(TopicId("t"), BrokerId(1), LeaderEpoch(0))
NEW = LeaderTerm(TopicId("t"), BrokerId(2), LeaderEpoch(1))
FIRST_IDENTITY = Identity(producer_id=7, producer_epoch=0)


class Records:
    """Content of a batch that is never encoded."""

    def __init__(self, count: int) -> None:
        self.record_count = count

    def encoded(self, identity: Identity | None, base_sequence: int) -> bytes:
        raise AssertionError

    def halves(self) -> "tuple[Records, Records] | None":
        count = self.record_count // 2
        return (Records(count), Records(self.record_count - count)) if count else None

    @property
    def size_bytes(self) -> int:
        return 100 * self.record_count


def lane_with(batches: int, *, idempotent: bool = True, records: int = 10) -> tuple[Lane[str], list[Batch[str]]]:
    lane = Lane[str](idempotent=idempotent)
    if idempotent:
        lane.take_identity(FIRST_IDENTITY)
    made = [
        Batch[str](Records(records), opened_s=float(number), deadline_s=100.0 + number) for number in range(batches)
    ]
    for batch in made:
        lane.add(batch)
    return lane, made


def take_all(lane: Lane[str], term: LeaderTerm) -> list[Batch[str]]:
    taken = []
    while (batch := lane.next_batch(term, in_flight_max=5)) is not None:
        taken.append(batch)
    return taken


def test_the_first_batch_goes_alone_and_then_five_at_a_time() -> None:
    lane, made = lane_with(8)
    assert take_all(lane, OLD) == made[:1]
    assert lane.settle(made[0], ACK, OLD) == []
    assert take_all(lane, OLD) == made[1:6]
    assert [batch.base_sequence for batch in made[:6]] == [0, 10, 20, 30, 40, 50]
    assert [batch.went_alone for batch in made[:6]] == [True, True, False, False, False, False]


def test_repeats_go_alone_with_their_numbers_and_new_ones_wait() -> None:
    """The example in the module's head."""
    lane, made = lane_with(5)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    under_way = take_all(lane, OLD)
    assert under_way == made[1:]
    for batch in under_way:
        assert lane.settle(batch, UNKNOWN, OLD) == []
    lane.add(later := Batch[str](Records(1), opened_s=9, deadline_s=109))
    for batch in made[1:4]:
        assert take_all(lane, NEW) == [batch]
        lane.settle(batch, ACK, NEW)
    assert take_all(lane, NEW) == [made[4], later], "nothing is left to repeat behind the last one"
    assert [batch.base_sequence for batch in (*made, later)] == [0, 10, 20, 30, 40, 50]


def test_a_leader_that_has_not_answered_in_this_term_gets_one_batch() -> None:
    lane, made = lane_with(4)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    assert take_all(lane, NEW) == made[1:2]
    lane.settle(made[1], ACK, NEW)
    assert take_all(lane, NEW) == made[2:4]


def test_a_batch_acknowledged_out_of_turn_does_not_disturb_the_line() -> None:
    lane, made = lane_with(4)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    lane.settle(made[2], ACK, OLD)
    lane.settle(made[1], UNKNOWN, OLD)
    assert take_all(lane, OLD) == [made[1]]
    assert made[1].tries == 2


def test_an_early_arrival_waits_for_its_predecessor() -> None:
    """OUT_OF_ORDER for the second of two under way is "not yet"; for one that went alone it is the end."""
    lane, made = lane_with(3)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    code = errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER
    assert lane.settle(made[2], judge(code, idempotent=True, went_alone=made[2].went_alone), OLD) == []
    assert take_all(lane, OLD) == []
    lane.settle(made[1], ACK, OLD)
    assert take_all(lane, OLD) == [made[2]]
    assert judge(code, idempotent=True, went_alone=made[2].went_alone).fate is Fate.SEQUENCE_BROKEN


def test_a_broken_sequence_never_numbers_anew_what_may_be_written() -> None:
    lane, made = lane_with(5)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    assert lane.settle(made[1], REFUSED, OLD) == [made[1]]
    assert lane.settle(made[2], UNKNOWN, OLD) == []
    assert take_all(lane, OLD) == [], "calls are still under way"
    assert lane.settle(made[3], RETRY, OLD) == []
    assert lane.settle(made[4], RETRY, OLD) == [made[2]]
    assert lane.lacks_identity
    assert take_all(lane, OLD) == []
    lane.take_identity(Identity(producer_id=8, producer_epoch=0))
    assert take_all(lane, OLD) == [made[3]], "nobody has confirmed this identity"
    lane.settle(made[3], ACK, OLD)
    assert take_all(lane, OLD) == [made[4]]
    assert [(batch.identity and batch.identity.producer_id, batch.base_sequence) for batch in made[3:]] == [
        (8, 0),
        (8, 10),
    ]


def test_what_may_be_written_before_a_refused_batch_goes_on_with_its_numbers() -> None:
    lane, made = lane_with(4)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    assert lane.settle(made[1], UNKNOWN, OLD) == []
    assert lane.settle(made[2], REFUSED, OLD) == [made[2]]
    assert lane.settle(made[3], RETRY, OLD) == []
    assert take_all(lane, OLD) == [made[1]]
    assert lane.settle(made[1], UNKNOWN, OLD) == []
    assert take_all(lane, OLD) == [made[1]]
    assert (made[1].identity, made[1].base_sequence) == (FIRST_IDENTITY, 10)
    assert lane.settle(made[1], ACK, OLD) == []
    assert lane.lacks_identity, "what stood behind it is numbered anew"
    lane.take_identity(Identity(producer_id=8, producer_epoch=0))
    assert take_all(lane, OLD) == [made[3]]
    assert made[3].base_sequence == 0


def test_behind_a_batch_that_may_be_written_go_no_more_than_a_broker_remembers() -> None:
    """Without it, the repeat of a batch whose answers are lost twice would be unknown by the time of the third try."""
    lane, made = lane_with(12)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    for batch in made[2:6]:
        lane.settle(batch, ACK, OLD)
    assert take_all(lane, OLD) == [], "made[1] has no answer yet"
    lane.settle(made[1], UNKNOWN, OLD)
    assert take_all(lane, OLD) == [made[1]]
    assert not lane.has_room(OLD, in_flight_max=5)
    lane.settle(made[1], ACK, OLD)
    assert take_all(lane, OLD) == made[6:11]


def test_a_lost_sequence_fails_the_batch_and_what_may_be_written() -> None:
    lane, made = lane_with(2)
    take_all(lane, OLD)
    assert lane.settle(made[0], BROKEN, OLD) == [made[0]]
    assert lane.identity is None
    assert list(lane.batches()) == [made[1]]


def test_time_is_up_for_what_waits_and_not_for_what_is_under_way() -> None:
    lane, made = lane_with(3)
    take_all(lane, OLD)
    assert lane.expire(101.5) == [made[1]]
    lane.settle(made[0], UNKNOWN, OLD)
    assert lane.expire(101.5) == [made[0]]
    assert lane.lacks_identity, "the hole in the numbers breaks the sequence"
    assert list(lane.batches()) == [made[2]]


def test_a_sent_batch_whose_time_is_up_takes_those_behind_it_that_may_be_written() -> None:
    lane, made = lane_with(3)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    for batch in take_all(lane, OLD):
        lane.settle(batch, UNKNOWN, OLD)
    assert lane.expire(101.5) == [made[1], made[2]]


def test_without_idempotence_one_at_a_time_and_a_refusal_is_its_own() -> None:
    lane, made = lane_with(3, idempotent=False)
    assert not lane.lacks_identity
    assert take_all(lane, OLD) == [made[0]]
    assert lane.settle(made[0], REFUSED, OLD) == [made[0]]
    assert take_all(lane, OLD) == [made[1]]
    lane.settle(made[1], UNKNOWN, OLD)
    assert take_all(lane, OLD) == [made[1]]
    assert made[1].identity is None
    assert made[1].base_sequence == -1


def test_sequence_numbers_wrap() -> None:
    lane, made = lane_with(3, records=2**30)
    take_all(lane, OLD)
    lane.settle(made[0], ACK, OLD)
    take_all(lane, OLD)
    assert [batch.base_sequence for batch in made] == [0, 2**30, 0]


@pytest.mark.parametrize(
    ("code", "alone", "fate", "maybe_written"),
    [
        (errors_pb2.ERROR_CODE_NONE, True, Fate.ACKNOWLEDGED, False),
        (errors_pb2.ERROR_CODE_DUPLICATE_SEQUENCE_NUMBER, True, Fate.ACKNOWLEDGED, False),
        (errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, True, Fate.RETRY, False),
        (errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS, True, Fate.RETRY, False),
        (errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, True, Fate.RETRY, True),
        (errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, True, Fate.RETRY, True),
        (errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, True, Fate.RETRY, True),
        (errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, True, Fate.REFUSED, False),
        (errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, True, Fate.REFUSED, True),
        (errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER, True, Fate.SEQUENCE_BROKEN, False),
        (errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER, False, Fate.RETRY, False),
        (errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH, False, Fate.SEQUENCE_BROKEN, False),
    ],
)
def test_what_an_answer_means(
    code: errors_pb2.ErrorCode.ValueType, alone: bool, fate: Fate, maybe_written: bool
) -> None:
    verdict = judge(code, idempotent=True, went_alone=alone)
    assert (verdict.fate, verdict.maybe_written) == (fate, maybe_written)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_too_large_goes_as_two_halves_before_what_came_behind_it(idempotent: bool) -> None:
    lane, made = lane_with(4, idempotent=idempotent)
    (first,) = take_all(lane, OLD)
    lane.settle(first, ACK, OLD)
    sent = take_all(lane, OLD)
    made[1].receipts = [f"{number}" for number in range(10)]
    halves = made[1].halves()
    assert [half.receipts for half in halves] == [made[1].receipts[:5], made[1].receipts[5:]]
    assert lane.settle(made[1], REFUSED, OLD, halves) == []
    for batch in sent[1:]:
        assert lane.settle(batch, RETRY, OLD) == []
    if idempotent:
        assert lane.next_batch(OLD, in_flight_max=5) is None, "not under the old numbers"
        lane.take_identity(Identity(producer_id=8, producer_epoch=0))
    order = []
    while (batch := lane.next_batch(OLD, in_flight_max=5)) is not None:
        order.append(batch)
        lane.settle(batch, ACK, OLD)
    assert order == [*halves, made[2], made[3]]
    if idempotent:
        assert [batch.base_sequence for batch in order] == [0, 5, 10, 20]


def test_a_batch_that_may_be_in_the_log_or_has_one_record_is_never_parted() -> None:
    lane, (batch,) = lane_with(1)
    take_all(lane, OLD)
    lane.settle(batch, UNKNOWN, OLD)
    assert batch.halves() == ()
    _, (single,) = lane_with(1, records=1)
    assert single.halves() == ()
