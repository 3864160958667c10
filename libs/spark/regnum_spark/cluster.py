"""What the source asks a cluster: partitions, offsets, and the records of a range."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.records import ConsumedRecord, TopicPartition
from regnum_client.sync import Consumer

from regnum_spark.options import Options
from regnum_spark.ranges import EARLIEST, Offsets, OptionError, Range

POLL_S: Final = 1.0


class Reads(Protocol):
    """What is needed of a consumer (``regnum_client.sync.Consumer``)."""

    def partitions_of(self, topic: str) -> Sequence[TopicPartition]: ...  # noqa: D102
    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]: ...  # noqa: D102
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...  # noqa: D102
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...  # noqa: D102
    def offsets_for_times(self, moments: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]: ...  # noqa: D102
    def assign(self, topic: str, *, partitions: Sequence[int], start: int) -> Any: ...  # noqa: D102
    def read_batch(self, *, timeout_s: float) -> Any: ...  # noqa: D102
    def position(self, partition: TopicPartition) -> int: ...  # noqa: D102


def consumer_of(options: Options) -> Consumer:
    """A consumer that is not open yet."""
    settings = ConsumerSettings(reset="fail" if options.fail_on_data_loss else "earliest")
    return Consumer(options.bootstrap, settings=settings, client_id=options.client_id, tls=options.tls)


class Places:
    """Offsets of the topics of a reader, as the cluster has them now."""

    def __init__(self, consumer: Reads, options: Options) -> None:
        self._consumer = consumer
        self._options = options

    def first(self) -> Offsets:
        """Where reading begins that has no checkpoint."""
        return self._placed(self._options.starting, self._options.starting_ms)

    def last(self) -> Offsets:
        """Where a batch ends."""
        return self._placed(self._options.ending, self._options.ending_ms)

    def ends(self) -> Offsets:
        """High watermarks."""
        return _by_topic(self._consumer.end_offsets(self._partitions()))

    def ids(self) -> Mapping[str, str]:
        """Topic ids. Ask for them after offsets: no offsets of a topic may come with the id of an earlier one."""
        return self._consumer.topic_ids(self._options.topics)

    def since(self, ms: int) -> Offsets:
        """The first records from a moment on."""
        return self._at_moment(self._partitions(), ms)

    def _partitions(self) -> list[TopicPartition]:
        if not self._options.topics:
            raise OptionError("which topics? .option('subscribe', 'TOPIC,...')")
        return [one for topic in self._options.topics for one in self._consumer.partitions_of(topic)]

    def _placed(self, place: str | Mapping[str, Mapping[str, int | str]], ms: int | None) -> Offsets:
        partitions = self._partitions()
        if ms is not None:
            return self._at_moment(partitions, ms)
        known: dict[str, Offsets] = {}

        def at(name: str) -> Offsets:
            if name not in known:
                ask = self._consumer.beginning_offsets if name == EARLIEST else self._consumer.end_offsets
                known[name] = _by_topic(ask(partitions))
            return known[name]

        if isinstance(place, str):
            return at(place)
        found: dict[str, dict[str, int]] = {}
        for topic, number in partitions:
            told = place.get(topic, {}).get(str(number))
            if told is None:
                raise OptionError(f"offsets are given, and none for partition {number} of {topic}; name all of them")
            found.setdefault(topic, {})[str(number)] = (
                at(told)[topic][str(number)] if isinstance(told, str) else int(told)
            )
        return found

    def _at_moment(self, partitions: Sequence[TopicPartition], ms: int) -> Offsets:
        found = self._consumer.offsets_for_times(dict.fromkeys(partitions, ms))
        ends = self._consumer.end_offsets([one for one in partitions if found[one] is None])
        return _by_topic({one: ends[one] if (offset := found[one]) is None else offset for one in partitions})


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found


class RangeUnreadError(Exception):
    """The records of a range did not come."""


def records_of(
    part: Range, consumer: Reads, options: Options, *, monotonic_s: Callable[[], float] = time.monotonic
) -> Iterator[list[ConsumedRecord]]:
    """The records of a range, a batch at a time, in their order; each once.

    Offsets in it that the log has no record at are passed over: compaction took them. Raises RangeUnreadError,
    RegnumError; OffsetOutOfRangeError for offsets that retention took, where that is an error.
    """
    at = TopicPartition(part.topic, part.partition)
    consumer.assign(part.topic, partitions=[part.partition], start=part.begin)
    position, progress_s = part.begin, monotonic_s()
    while position < part.end:
        batch = consumer.read_batch(timeout_s=POLL_S)
        if batch is not None:
            records = [record for record in batch if part.begin <= record.offset < part.end]
            if records:
                yield records
        reached = consumer.position(at) if batch is None else batch.next_offset
        if reached > position:
            position, progress_s = reached, monotonic_s()
        elif monotonic_s() - progress_s > options.read_timeout_s:
            raise RangeUnreadError(
                f"{part.topic}-{part.partition} is read up to {position} of {part.end} and says nothing for "
                f"{options.read_timeout_s:g} s; is its leader alive, or was its log cut (readTimeoutS)"
            )
