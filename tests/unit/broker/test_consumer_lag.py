"""Log ends and committed offsets, of which a query makes how far groups lag."""

from pathlib import Path
from typing import NamedTuple, cast

import pytest
from regnum_broker.figures.consumer_lag import COMMITTED, LOG_END, show_committed, show_log_ends
from regnum_broker.groups.decisions.offsets import CommittedOffset, Place
from regnum_broker.groups.offset_book import OffsetBook
from regnum_broker.replication.leader import Leadership
from regnum_model.ids import PartitionKey, TopicId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import groups as instruments
from regnum_telemetry.metrics import Labels, Metrics
from regnum_testing.leading_replicas import LEADER, LeadingReplicas


class Led(NamedTuple):
    """What is read of a leadership's partition."""

    topic: str
    key: PartitionKey
    high_watermark: int


class Leading(NamedTuple):
    """What is read of a leadership."""

    partition: Led


def leading(topic: str, number: int, end: int) -> Leadership:
    return cast("Leadership", Leading(Led(topic, PartitionKey(TopicId(topic), number), end)))


def book(*committed: tuple[str, str, int, int]) -> OffsetBook:
    made = OffsetBook()
    for group, topic, partition, offset in committed:
        made.put(group, Place(topic, partition), CommittedOffset(offset=offset, committed_ms=1))
    return made


def numbers(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    return {
        labels: value
        for reading in metrics.read()
        if reading.instrument is instrument
        for labels, value in reading.numbers
    }


def test_log_ends_are_shown_by_partition_but_not_of_internal_topics() -> None:
    metrics = Metrics()
    led = [leading("t", 0, 7), leading(OFFSETS_TOPIC, 3, 99), leading("t", 1, 0)]
    show_log_ends(metrics, lambda: led, most=10)
    assert numbers(metrics, instruments.LOG_END) == {("t", "0"): 7, ("t", "1"): 0}
    assert numbers(metrics, instruments.LAG_LEFT_OUT) == {(LOG_END,): 0}


def test_committed_offsets_are_shown_by_group_and_partition() -> None:
    metrics, books = Metrics(), [book(("g", "t", 0, 5), ("h", "t", 0, 6)), book(("i", "u", 2, 7))]
    show_committed(metrics, lambda: books, most=10)
    assert numbers(metrics, instruments.COMMITTED_OFFSET) == {
        ("g", "t", "0"): 5,
        ("h", "t", "0"): 6,
        ("i", "u", "2"): 7,
    }
    books.pop()
    assert ("i", "u", "2") not in numbers(metrics, instruments.COMMITTED_OFFSET)


def test_what_is_beyond_the_bound_is_counted() -> None:
    metrics = Metrics()
    show_log_ends(metrics, lambda: [leading("t", number, 1) for number in range(50)], most=20)
    show_committed(metrics, lambda: [book(*(("g", "t", number, 1) for number in range(30)))], most=20)
    assert len(numbers(metrics, instruments.LOG_END)) == len(numbers(metrics, instruments.COMMITTED_OFFSET)) == 20
    assert numbers(metrics, instruments.LAG_LEFT_OUT) == {(LOG_END,): 30, (COMMITTED,): 10}


def test_with_none_there_are_no_names() -> None:
    metrics = Metrics()
    show_log_ends(metrics, lambda: [leading("t", 0, 1)], most=0)
    show_committed(metrics, lambda: [book(("g", "t", 0, 1))], most=0)
    assert metrics.read() == []


@pytest.mark.parametrize("committed", [0, 3])
async def test_a_log_end_is_what_is_committed(tmp_path: Path, committed: int) -> None:
    metrics = Metrics()
    async with LeadingReplicas(tmp_path) as replicas:
        role = replicas.lead(0, isr=(LEADER,))
        show_log_ends(metrics, replicas.replicas.leading, most=10)
        role.partition.commit(committed)
        assert numbers(metrics, instruments.LOG_END)["t", "0"] == committed
