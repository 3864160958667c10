"""Open, ready and closed batches."""

import math
from collections import Counter

import pytest
from regnum_client.producer.batches.accumulator import OPEN_SHARE_MAX, PASSED_OVER_S, PATIENCE_S, Accumulator
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.batches.partitioner import StickyRoundRobin
from regnum_client.records import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Filling:
    """An accumulator with a linger of 1 s and a delivery time-out of 100 s."""

    def __init__(self, *, batch_bytes: int = 1_000, batch_bytes_max: int = 0) -> None:
        self.turned: list[TopicPartition] = []
        self.accumulator = Accumulator[str](
            batch_bytes=batch_bytes,
            batch_bytes_max=batch_bytes_max,
            codec="none",
            linger_s=1.0,
            delivery_timeout_s=100.0,
            on_turned=self.turned.append,
        )

    def put(self, partition: TopicPartition, now_s: float, value: bytes = b"x") -> Batch[str]:
        return self.accumulator.append(
            partition,
            key=None,
            value=value,
            headers=(),
            timestamp_ms=1,
            receipt="r",
            size_bytes=len(value),
            now_s=now_s,
        )


def test_a_batch_is_ready_after_its_linger_and_takes_records_until_it_is_taken() -> None:
    filling = Filling()
    accumulator = filling.accumulator
    batch = filling.put(A, 0.0)
    assert accumulator.take(A) is None
    assert (accumulator.next_ready_s, accumulator.become_ready(0.9)) == (1.0, [])
    assert accumulator.become_ready(1.0) == [A]
    assert accumulator.become_ready(1.0) == [], "said once"
    assert (accumulator.next_ready_s, accumulator.is_ready(A)) == (None, True)
    assert filling.put(A, 1.0 + PATIENCE_S) is batch
    assert accumulator.take(A) is batch
    assert batch.content.record_count == 2
    assert filling.put(A, 1.0 + PATIENCE_S) is not batch
    assert filling.turned == [A]


def test_a_ready_batch_that_others_hold_up_for_long_goes_beside_them() -> None:
    """Where answers take a second, its records would wait for one before they begin to wait for their own."""
    filling = Filling()
    accumulator = filling.accumulator
    filling.put(A, 0.0)
    assert (accumulator.become_ready(1.0), accumulator.is_large(A)) == ([A], False)
    assert (accumulator.next_ready_s, accumulator.next_large_s) == (None, 1.0 + PATIENCE_S)
    assert accumulator.become_ready(1.0 + PATIENCE_S / 2) == []
    assert (accumulator.become_ready(1.0 + PATIENCE_S), accumulator.is_large(A)) == ([A], True)
    assert accumulator.next_large_s == math.inf
    assert accumulator.take(A) is not None
    assert not accumulator.is_large(A)


def test_a_batch_that_was_taken_is_not_waited_for() -> None:
    filling = Filling()
    filling.put(A, 0.0)
    filling.accumulator.become_ready(1.0)
    filling.accumulator.take(A)
    assert filling.accumulator.next_large_s == math.inf
    assert filling.accumulator.become_ready(3.0) == []


def test_a_ready_batch_that_fills_up_is_closed_in_its_turn() -> None:
    filling = Filling(batch_bytes=300)
    first = filling.put(A, 0.0, b"x" * 100)
    filling.accumulator.become_ready(1.0)
    second = filling.put(A, 2.0, b"x" * 150)
    assert second is not first
    assert filling.accumulator.take_closed() == [(A, first), (A, second)], "no third of that size would fit"
    assert not filling.accumulator.is_ready(A)
    assert filling.turned == [A, A], "when the first was ready and when the second was full"


def test_a_large_batch_is_ready_at_once_and_grows_until_it_is_taken() -> None:
    filling = Filling(batch_bytes=300, batch_bytes_max=1_000)
    accumulator = filling.accumulator
    batch = filling.put(A, 0.0, b"x" * 100)
    assert not accumulator.has_more
    assert filling.put(A, 0.0, b"x" * 100) is batch
    assert accumulator.has_more, "no third of that size would be below what was asked for"
    assert (accumulator.is_large(A), accumulator.next_ready_s) == (True, None)
    assert accumulator.become_ready(0.0) == [A]
    assert (accumulator.become_ready(0.0), accumulator.has_more) == ([], False), "said once"
    assert filling.put(A, 0.5, b"x" * 100) is batch
    assert accumulator.take(A) is batch
    assert batch.content.record_count == 3
    assert not accumulator.is_large(A)
    assert filling.put(A, 0.5) is not batch


def test_a_batch_grows_up_to_a_size_and_records_without_a_key_go_round_meanwhile() -> None:
    filling = Filling(batch_bytes=300, batch_bytes_max=1_000)
    first = filling.put(A, 0.0, b"x" * 100)
    while filling.put(A, 0.0, b"x" * 100) is first:
        pass
    assert [batch for _, batch in filling.accumulator.take_closed()] == [first]
    assert 800 < first.content.size_bytes <= 1_000
    assert len(filling.turned) == 3, "with each batch_bytes, and when it was full"
    assert not filling.accumulator.is_large(A), "the next one begins small"


def test_records_without_a_key_pass_over_a_batch_that_nobody_takes_for_long() -> None:
    """It kept the turn: nine of ten records without a key went to the one partition that could not be sent to."""
    filling = Filling()
    filling.put(A, 0.0)
    filling.accumulator.become_ready(1.0)
    filling.put(A, 1.0 + PASSED_OVER_S)
    assert filling.turned == [A], "when it was ready: that it is not taken yet makes it larger, as long as all is well"
    filling.put(A, 1.01 + PASSED_OVER_S)
    filling.put(A, 1.02 + PASSED_OVER_S)
    assert filling.turned == [A, A, A], "with each further record"


@pytest.mark.parametrize("per_s", [20, 1_000, 5_000])
def test_a_partition_that_is_not_sent_to_gets_its_share_of_records_without_a_key_and_no_more(per_s: int) -> None:
    partitions, stuck = 12, 3
    sticky = StickyRoundRobin(0)
    accumulator = Accumulator[str](
        batch_bytes=64 * 1024,
        batch_bytes_max=1_000_000,
        codec="none",
        linger_s=0.005,
        delivery_timeout_s=120.0,
        on_turned=lambda turned: sticky.batch_turned("t", turned.partition, partitions),
    )
    given = Counter[int]()
    for number in range(max(2_000, 4 * per_s)):
        now_s = number / per_s
        chosen = sticky.current("t", partitions)
        given[chosen] += 1
        accumulator.append(
            TopicPartition("t", chosen),
            key=None,
            value=b"x" * 100,
            headers=(),
            timestamp_ms=1,
            receipt="r",
            size_bytes=100,
            now_s=now_s,
        )
        for ready in accumulator.become_ready(now_s + 0.9 / per_s):
            if ready.partition != stuck:
                accumulator.take(ready)
        accumulator.take_closed()
    assert 0 < given[stuck] <= 1.1 * given.total() / partitions


def test_a_batch_does_not_grow_beyond_what_its_topic_takes() -> None:
    filling = Filling(batch_bytes=300, batch_bytes_max=1_000)
    assert filling.accumulator.limit("t", 500) == 500
    first = filling.put(A, 0.0, b"x" * 100)
    while filling.put(A, 0.0, b"x" * 100) is first:
        pass
    assert first.content.size_bytes <= 500


def test_late_records_do_not_join_a_batch_that_has_waited_for_long() -> None:
    filling = Filling()
    first = filling.put(A, 0.0)
    filling.accumulator.become_ready(1.0)
    assert filling.put(A, 100.0 * OPEN_SHARE_MAX) is first
    late = filling.put(A, 100.0 * OPEN_SHARE_MAX + 0.1)
    assert late is not first
    assert late.deadline_s > 110.0
    assert filling.accumulator.take_closed() == [(A, first)]


def test_a_ready_batch_expires_and_an_open_one_is_not_asked_for() -> None:
    filling = Filling()
    batch = filling.put(A, 0.0)
    filling.accumulator.become_ready(1.0)
    assert filling.accumulator.take_expired(A, 99.9) is None
    assert filling.accumulator.take_expired(A, 100.0) is batch
    assert filling.accumulator.take_expired(A, 100.0) is None


def test_closing_all_takes_the_ready_ones_first() -> None:
    filling = Filling()
    first = filling.put(A, 0.0)
    filling.accumulator.become_ready(1.0)
    second = filling.put(B, 2.0)
    filling.accumulator.close_all()
    assert filling.accumulator.take_closed() == [(A, first), (B, second)]
    assert filling.accumulator.next_ready_s is None
