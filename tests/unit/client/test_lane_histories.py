"""Any course of losses, late arrivals, refusals and new leaders: what is acknowledged is in the log, once and in order.

What fails is not in it, so that a caller who sends it again doubles nothing.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.cluster.view import LeaderTerm
from regnum_client.producer.batches.lane import Batch, Identity, Lane
from regnum_client.producer.batches.verdicts import judge
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_service.errors import Code

RECORDS = 6
"""Of each batch, as the producer makes it."""


class Records:
    """Content of a batch that is never encoded."""

    def __init__(self, count: int) -> None:
        self.record_count = count
        self.size_bytes = 100 * count

    def encoded(self, identity: Identity | None, base_sequence: int) -> bytes:
        raise AssertionError

    def halves(self) -> "tuple[Records, Records] | None":
        count = self.record_count // 2
        return (Records(count), Records(self.record_count - count)) if count else None


@dataclass(frozen=True)
class Sent:
    """A batch as it travels: a copy, which may arrive when nobody thinks of it any more."""

    batch: Batch[int]
    term: LeaderTerm
    producer_id: int
    base_sequence: int
    values: tuple[int, ...]


@dataclass
class ModelLog:
    """A partition as brokers keep it: the last five batches of each producer id are known again."""

    values: list[int] = field(default_factory=list)
    known: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    records_max: int = RECORDS
    """Larger batches are refused."""

    def append(self, sent: Sent) -> tuple[Code, int]:
        last_five = self.known.setdefault(sent.producer_id, deque(maxlen=5))
        for base_sequence, count, base_offset in last_five:
            if (base_sequence, count) == (sent.base_sequence, len(sent.values)):
                return errors_pb2.ERROR_CODE_NONE, base_offset
        if len(sent.values) > self.records_max:
            return errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, -1
        if last_five and sent.base_sequence != last_five[-1][0] + last_five[-1][1]:
            return errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base_offset = len(self.values)
        last_five.append((sent.base_sequence, len(sent.values), base_offset))
        self.values.extend(sent.values)
        return errors_pb2.ERROR_CODE_NONE, base_offset


class History:
    """A lane, a log, and what is under way between them, in order."""

    def __init__(self, batches: int) -> None:
        self.log = ModelLog()
        self.lane = Lane[int](idempotent=True)
        self.under_way: deque[Sent] = deque()
        self.strayed: deque[Sent] = deque()
        """Given up by the producer, and perhaps not by the network."""
        self.acknowledged: list[int] = []
        self.failed: list[int] = []
        self.producer_ids = 0
        self.epoch = 0
        for number in range(batches):
            batch = Batch[int](Records(RECORDS), opened_s=0, deadline_s=100)
            batch.receipts = list(range(number * RECORDS, (number + 1) * RECORDS))
            self.lane.add(batch)

    @property
    def term(self) -> LeaderTerm:
        return LeaderTerm(TopicId("t"), BrokerId(1), LeaderEpoch(self.epoch))

    def send(self) -> None:
        if self.lane.lacks_identity:
            self.producer_ids += 1
            self.lane.take_identity(Identity(producer_id=self.producer_ids, producer_epoch=0))
        batch = self.lane.next_batch(self.term, in_flight_max=5)
        if batch is not None:
            assert batch.identity is not None
            self.under_way.append(
                Sent(batch, self.term, batch.identity.producer_id, batch.base_sequence, tuple(batch.receipts))
            )

    def answer(self) -> None:
        if self.under_way:
            sent = self.under_way.popleft()
            self._settle(sent, *self.log.append(sent))

    def lose_the_answer(self) -> None:
        if self.under_way:
            sent = self.under_way.popleft()
            self.log.append(sent)
            self._settle(sent, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT)

    def lose_the_call(self) -> None:
        if self.under_way:
            self.strayed.append(self.under_way.popleft())
            self._settle(self.strayed[-1], errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE)

    def arrive_late(self) -> None:
        if self.strayed:
            self.log.append(self.strayed.popleft())

    def take_smaller_batches(self) -> None:
        self.log.records_max = max(1, self.log.records_max // 2)

    def elect(self) -> None:
        self.epoch += 1
        while self.under_way:
            self.lose_the_call()

    def _settle(self, sent: Sent, code: Code, base_offset: int = -1) -> None:
        batch = sent.batch
        verdict = judge(code, idempotent=True, went_alone=batch.went_alone)
        parts = batch.halves() if code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE else ()
        for lost in self.lane.settle(batch, verdict, sent.term, parts):
            self.failed.extend(lost.receipts)
        if base_offset >= 0:
            assert self.log.values[base_offset] == batch.receipts[0]
            self.acknowledged.extend(batch.receipts)


LOSSES = ("send", "answer", "lose_the_answer", "lose_the_call", "arrive_late", "elect")
WEIGHTS = (10, 5, 3, 1, 1, 1)


def course(seed: int, steps: tuple[str, ...], weights: tuple[int, ...]) -> History:
    """Steps by chance, and then all that is left without any trouble."""
    chance = random.Random(seed)
    history = History(40)
    for step in chance.choices(steps, weights, k=300):
        getattr(history, step)()
    for _ in range(1000):
        history.send()
        history.answer()
    while history.strayed:
        history.arrive_late()
    assert history.lane.empty
    return history


@pytest.mark.parametrize("seed", range(100))
def test_nothing_fails_because_calls_and_answers_are_lost(seed: int) -> None:
    history = course(seed, LOSSES, WEIGHTS)
    assert sorted(history.acknowledged) == history.log.values == list(range(40 * RECORDS))


@pytest.mark.parametrize("seed", range(100))
def test_what_fails_is_not_in_the_log_and_what_is_acknowledged_is_there_once_and_in_order(seed: int) -> None:
    history = course(seed, (*LOSSES, "take_smaller_batches"), (*WEIGHTS, 1))
    assert history.log.values == sorted(set(history.log.values)), "doubled, or out of order"
    assert sorted(history.acknowledged) == history.log.values, "what is in the log is acknowledged, and nothing else"
    assert sorted(history.acknowledged + history.failed) == list(range(40 * RECORDS)), "each has ended, once"
