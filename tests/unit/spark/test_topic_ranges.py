"""Which offsets a query reads, and what it is told by options: pure, and over a consumer that is played."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from regnum_client.records import ConsumedRecord, TopicPartition
from regnum_spark.cluster import Places, RangeUnreadError, records_of
from regnum_spark.options import Options
from regnum_spark.ranges import Bounds, OptionError, Range, admitted, earlier, later, ranges
from regnum_spark.source import RegnumSource, TopicMadeAgainError, TopicStreamReader, _narrow, batch_of, gathered


def options(**told: str) -> Options:
    return Options.of({"subscribe": "a,b", **told})


def test_a_range_is_cut_and_what_has_nothing_is_no_range():
    begin, end = {"a": {"0": 5, "1": 9}}, {"a": {"0": 12, "1": 9, "10": 2}, "b": {"0": 0}}
    assert list(ranges(begin, end)) == [Range("a", 0, 5, 12), Range("a", 10, 0, 2)]
    assert list(ranges(begin, end, records_max=3)) == [
        Range("a", 0, 5, 8),
        Range("a", 0, 8, 11),
        Range("a", 0, 11, 12),
        Range("a", 10, 0, 2),
    ]


def test_steps_of_a_bounded_size_read_all_of_it_in_the_end_and_starve_no_partition():
    begin: Mapping[str, Mapping[str, int]] = {"a": {"0": 100, "1": 0, "2": 7}}
    end = {"a": {"0": 100_100, "1": 3, "2": 7, "3": 50}}
    steps = 0
    while begin != end:
        reached = admitted(begin, end, 10_000)
        taken = {part.partition: part.end - part.begin for part in ranges(begin, reached)}
        assert sum(taken.values()) <= 10_000 + len(taken)
        assert {part.partition for part in ranges(begin, end)} == set(taken)
        begin = later(begin, reached)
        steps += 1
    assert steps <= 12


def test_offsets_never_go_back_and_a_target_is_not_passed():
    assert later({"a": {"0": 9}}, {"a": {"0": 7, "1": 2}}) == {"a": {"0": 9, "1": 2}}
    assert earlier({"a": {"0": 5, "1": 2}}, {"a": {"0": 9, "1": 1, "2": 4}}) == {"a": {"0": 5, "1": 1}}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"startingOffsets": "first"}, "startingOffsets is 'first'; write earliest, latest"),
        ({"endingOffsets": '{"a": 5}'}, "endingOffsets is"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "-2 for the earliest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'; write an integer of 1 or more"),
        ({"startingTimestamp": "now"}, "startingTimestamp"),
        ({"failOnDataLoss": "maybe"}, "write true or false"),
        ({"kafka.bootstrap.servers": "x"}, "there is no option kafka.bootstrap.servers; there are: bootstrap,"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_they_may_be(told, words):
    with pytest.raises(OptionError, match=words):
        options(**told)


def test_options_have_any_case_and_topics_may_be_the_path():
    told = Options.of({"PATH": "x, y,x", "MAXOFFSETSPERTRIGGER": "5", "TlsCa": "/ca.pem"})
    assert (told.topics, told.records_per_step_max, str(told.tls and told.tls.ca)) == (("x", "y"), 5, "/ca.pem")


class Played:
    """A consumer of logs that are lists: offset and value."""

    def __init__(self, logs: Mapping[TopicPartition, Sequence[int]], *, begins: int = 0, silent: bool = False) -> None:
        self.logs = logs
        self.begins = begins
        self.silent = silent
        self.ids = {one.topic: f"id of {one.topic}" for one in logs}
        self.at = 0
        self.of: TopicPartition | None = None

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [one for one in self.logs if one.topic == topic]

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.begins)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.logs[one][-1] + 1 for one in partitions}

    def offsets_for_times(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {one: next((at for at in self.logs[one] if at >= ms), None) for one, ms in moments.items()}

    def assign(self, topic: str, *, partitions: Sequence[int], start: int) -> None:
        self.of, self.at = TopicPartition(topic, partitions[0]), start

    def position(self, partition: TopicPartition) -> int:
        return self.at

    def read_batch(self, *, timeout_s: float) -> Any:
        """Three offsets at a time, also where compaction left none of them."""
        assert self.of is not None
        if self.silent or self.at > self.logs[self.of][-1]:
            return None
        begin, self.at = self.at, self.at + 3
        return Batch([record(self.of, at) for at in self.logs[self.of] if begin <= at < begin + 3], begin + 3)


class Batch(list[ConsumedRecord]):
    def __init__(self, records: list[ConsumedRecord], next_offset: int) -> None:
        super().__init__(records)
        self.next_offset = next_offset


def record(of: TopicPartition, offset: int) -> ConsumedRecord:
    return ConsumedRecord(*of, offset, 1_700_000_000_000 + offset, None, b"%d" % offset, (("h", b"1"), ("h", None)))


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
LOGS = {A0: range(20, 40), A1: [20, 25, 26, 39], B0: range(20, 30)}


def test_places_are_found_by_word_number_and_moment():
    consumer = Played(LOGS, begins=20)

    def first(**told: str) -> Any:
        return Places(consumer, options(**told)).first()

    assert first() == {"a": {"0": 20, "1": 20}, "b": {"0": 20}}
    assert first(startingOffsets="latest") == {"a": {"0": 40, "1": 40}, "b": {"0": 30}}
    numbers = '{"a": {"0": 25, "1": -1}, "b": {"0": -2}}'
    assert first(startingOffsets=numbers) == {"a": {"0": 25, "1": 40}, "b": {"0": 20}}
    assert first(startingTimestamp="35") == {"a": {"0": 35, "1": 39}, "b": {"0": 30}}
    with pytest.raises(OptionError, match="none for partition 0 of b; name all of them"):
        first(startingOffsets='{"a": {"0": 25, "1": -1}}')
    with pytest.raises(OptionError, match="which topics"):
        Places(consumer, Options.of({})).first()


@pytest.mark.parametrize(
    "part", [Range("a", 0, 20, 40), Range("a", 0, 23, 31), Range("a", 1, 21, 39), Range("b", 0, 29, 30)]
)
def test_a_range_is_read_record_by_record_also_where_compaction_took_some(part):
    read = [one for batch in records_of(part, Played(LOGS), options()) for one in batch]
    log = LOGS[TopicPartition(part.topic, part.partition)]
    assert [one.offset for one in read] == [at for at in log if part.begin <= at < part.end]


def test_a_range_that_does_not_come_is_an_error_that_says_how_far_it_got():
    clock = iter(range(0, 10_000, 50))
    with pytest.raises(RangeUnreadError, match="a-0 is read up to 20 of 40"):
        list(records_of(Range("a", 0, 20, 40), Played(LOGS, silent=True), options(), monotonic_s=lambda: next(clock)))


def test_filters_bound_what_is_read():
    bounds = Bounds()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for one in (
        EqualTo(("topic",), "a"), In(("partition",), (0, 1)), GreaterThan(("offset",), 22),
        LessThanOrEqual(("offset",), 30),
        GreaterThanOrEqual(("timestamp",), moment), LessThan(("timestamp",), moment), IsNotNull(("offset",)),
        EqualTo(("value",), b"x"),
    ):  # fmt: skip
        _narrow(bounds, one)
    assert bounds.applied(Range("a", 0, 20, 40)) == Range("a", 0, 23, 31)
    assert bounds.applied(Range("a", 1, 25, 29)) == Range("a", 1, 25, 29)
    for other in (Range("b", 0, 20, 30), Range("a", 2, 20, 30)):
        assert (
            list(ranges({}, {other.topic: {"0": max(0, bounds.applied(other).end - bounds.applied(other).begin)}}))
            == []
        )
    assert bounds.since_ms == moment.timestamp() * 1000


def test_records_become_columns_and_only_those_that_are_asked_for():
    batch = batch_of([record(A0, 5)], ["value", "headers", "timestamp", "partition"])
    (row,) = batch.to_pylist()
    assert (row["value"], row["partition"]) == (b"5", 0)
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert row["timestamp"] == datetime.fromtimestamp(1_700_000_000.005, UTC)
    with pytest.raises(OptionError, match="records have no colour"):
        RegnumSource({"subscribe": "a"}).reader(StructType().add("colour", "string"))


def test_a_task_holds_many_small_records_and_few_large_ones():
    small = [[record(A0, at + n) for n in range(30)] for at in range(0, 24_000, 30)]
    assert [len(records) for records in gathered(small)] == [10_020, 10_020, 3_960]
    large = record(A0, 5)._replace(value=bytes(8 * 2**20))
    held = [sum(len(one.value or b"") for one in records) for records in gathered([[large]] * 9)]
    assert held == [32 * 2**20, 32 * 2**20, 8 * 2**20]


class PlayedStream(TopicStreamReader):
    def __init__(self, consumer: Played, **told: str) -> None:
        super().__init__(options(**told), ["value"])
        self.played = consumer

    def _places(self) -> Places:
        return Places(self.played, self._options)


def test_a_stream_goes_on_in_steps_and_stops_at_its_target():
    consumer = Played(dict(LOGS), begins=20)
    stream = PlayedStream(consumer, maxOffsetsPerTrigger="10")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    begin = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    consumer.logs = {**LOGS, A0: range(20, 100), TopicPartition("a", 2): range(20, 30)}
    offsets = []
    while (end := stream.latestOffset(begin, limit)) != begin:
        offsets += [part.part for part in stream.partitions(begin, end)]  # type: ignore[attr-defined]
        begin = end
    ids = {"a": "id of a", "b": "id of b"}
    assert begin == {"a": {"0": 40, "1": 40}, "b": {"0": 30}, "topic ids": ids}
    assert sum(part.end - part.begin for part in offsets) == 20 + 20 + 10
    later_stream = PlayedStream(consumer)
    assert later_stream.latestOffset(begin, ReadAllAvailable()) == {
        "a": {"0": 100, "1": 40, "2": 30}, "b": {"0": 30}, "topic ids": ids,
    }  # fmt: skip


def test_a_topic_that_was_made_again_ends_a_stream_or_is_read_from_its_beginning():
    """Also where it has more records than were read of the one before."""
    consumer = Played(dict(LOGS), begins=20)
    begin = PlayedStream(consumer).initialOffset()
    begin = PlayedStream(consumer).latestOffset(begin, ReadAllAvailable())
    consumer.logs = {A0: range(50), A1: range(5), B0: LOGS[B0]}
    consumer.ids = {**consumer.ids, "a": "another"}
    with pytest.raises(TopicMadeAgainError, match="a was deleted and made again since the last step"):
        PlayedStream(consumer).latestOffset(begin, ReadAllAvailable())
    stream = PlayedStream(consumer, failOnDataLoss="false", maxOffsetsPerTrigger="20")
    read = []
    while (end := stream.latestOffset(begin, stream.getDefaultReadLimit())) != begin:
        read += [part.part for part in stream.partitions(begin, end)]  # type: ignore[attr-defined]
        begin = end
    assert {part.topic for part in read} == {"a"}
    assert sum(part.end - part.begin for part in read) == 50 + 5
    assert begin == {"a": {"0": 50, "1": 5}, "b": {"0": 30}, "topic ids": consumer.ids}


def test_a_checkpoint_of_an_earlier_release_has_no_ids_and_goes_on():
    consumer = Played(dict(LOGS), begins=20)
    begin = {"a": {"0": 38, "1": 40}, "b": {"0": 30}}
    stream = PlayedStream(consumer)
    end = stream.latestOffset(begin, ReadAllAvailable())
    (part,) = stream.partitions(begin, end)
    assert part.part == Range("a", 0, 38, 40)  # type: ignore[attr-defined]
    assert end["topic ids"] == consumer.ids
