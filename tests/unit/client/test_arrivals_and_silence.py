"""What a consumer has to read, and what it hears nothing of: counted, with thousands of partitions."""

from itertools import pairwise

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.consumer.arrivals import Arrivals
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.fetching.silence import COMPARE_EVERY_S, QUIET_S, Comparisons, Silence
from regnum_client.records import TopicPartition
from regnum_model.ids import TopicId
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError

MANY = 5_000


class CountingCursor(Cursor):
    """A cursor that counts how often somebody asked whether there is something to read."""

    __slots__ = ()
    asked = 0

    @property
    def has_chunk(self) -> bool:
        """As that of any cursor."""
        type(self).asked += 1
        return super().has_chunk


def cursor(number: int = 0, *, topic: str = "t") -> CountingCursor:
    return CountingCursor(TopicPartition(topic, number), TopicId("id"), 0)


def fetched(one: Cursor) -> Cursor:
    """One more record is there to read."""
    buffer = bytearray(build_batch([NewRecord(value=b"x")], timestamp_ms=1))
    buffer[0:8] = one.fetch_offset.to_bytes(8, "big")
    assert one.take_in(bytes(buffer))
    return one


def failed(one: Cursor) -> Cursor:
    one.error = RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, "gone")
    return one


def test_partitions_are_served_in_turn_and_only_those_with_something_are_asked() -> None:
    arrivals = Arrivals()
    cursors = [cursor(number) for number in range(MANY)]
    for one in cursors:
        arrivals.add(fetched(one))
        fetched(one)
    CountingCursor.asked = 0
    first = [begun[0].partition.partition for _ in range(MANY) if (begun := arrivals.take())]
    again = [begun[0].partition.partition for _ in range(MANY) if (begun := arrivals.take())]
    assert first == again == list(range(MANY)), "one chunk of each, and then the next"
    assert arrivals.take() is None
    assert CountingCursor.asked <= 4 * MANY, "a few looks for each chunk, whatever else waits"


def test_an_error_is_raised_in_its_turn_and_until_somebody_goes_on() -> None:
    arrivals, good, bad = Arrivals(), cursor(0), cursor(1)
    arrivals.add(fetched(good))
    arrivals.add(failed(fetched(bad)))
    fetched(good)
    served = [begun[0] for _ in range(3) if (begun := arrivals.take())]
    assert served == [good, bad, good], "what was fetched before it failed is read first"
    for _ in range(2):
        with pytest.raises(RegnumError, match="gone"):
            arrivals.take()
    bad.seek(0)
    assert not arrivals
    assert arrivals.take() is None


def test_what_a_seek_or_an_end_of_reading_left_is_nothing_to_read() -> None:
    arrivals, sought, ended = Arrivals(), cursor(0), cursor(1)
    for one in (sought, ended):
        arrivals.add(fetched(one))
    assert arrivals.unread_bytes == sought.unread_bytes + ended.unread_bytes > 0
    sought.seek(7)
    arrivals.discard(ended)
    arrivals.discard(ended)
    assert arrivals.unread_bytes == 0
    assert not arrivals


def test_the_last_that_became_quiet_is_named_and_looks_cost_what_became_quiet() -> None:
    silence = Silence(quiet_s=1.0)
    cursors = [cursor(number) for number in range(MANY)]
    for number, one in enumerate(cursors):
        silence.heard(one, number / MANY)
    assert silence.last(0.99) is None
    assert silence.next_s == 1.0
    assert silence.last(1.5) == (0.5, cursors[MANY // 2])
    CountingCursor.asked = 0
    for _ in range(100):
        silence.last(1.5)
    assert CountingCursor.asked == 100
    silence.heard(cursors[MANY // 2], 1.5)
    assert silence.last(1.5) == (0.5 - 1 / MANY, cursors[MANY // 2 - 1])
    silence.forget(cursors[MANY // 2 - 1])
    assert silence.last(1.5) == (0.5 - 2 / MANY, cursors[MANY // 2 - 2])


def test_a_partition_that_is_not_asked_for_records_is_not_quiet() -> None:
    silence, unread, broken = Silence(quiet_s=1.0), cursor(0), cursor(1)
    silence.heard(fetched(unread), 0.0)
    silence.heard(broken, 0.0)
    assert silence.last(1.0) == (0.0, broken), "the one that is unread counts as heard of"
    assert silence.next_s == 2.0
    failed(broken)
    assert silence.last(1.0) is None
    unread.next_chunk()
    broken.seek(0)
    assert silence.last(2.0) == (1.0, broken)


def test_an_idle_consumer_asks_about_its_leaders_less_and_less() -> None:
    silence, comparisons, idle = Silence(quiet_s=QUIET_S), Comparisons(), cursor(0)
    silence.heard(idle, 0.0)
    moments, now_s = [], 0.0
    while now_s < 3_600.0:
        quiet = silence.last(now_s)
        if quiet is None:
            now_s = silence.next_s
            continue
        due_s = comparisons.due_s(quiet[0], now_s)
        if now_s >= due_s:
            comparisons.done(now_s)
            moments.append(now_s)
            due_s = comparisons.due_s(quiet[0], now_s)
        now_s = due_s
    assert moments[:3] == [1.0, 2.0, 3.0], "soon while it may be news"
    # Each 2.5 s they were 1,440.
    assert len(moments) < 150
    assert max(after - before for before, after in pairwise(moments)) <= COMPARE_EVERY_S + 0.001


def test_partitions_that_are_quiet_are_all_that_is_asked_about() -> None:
    silence, idle, busy = Silence(quiet_s=QUIET_S), cursor(0, topic="idle"), cursor(0, topic="busy")
    silence.heard(idle, 0.0)
    silence.heard(busy, 0.9)
    silence.last(1.5)
    assert silence.topics == {"idle"}
