"""Between gRPC's messages and the values of calls about the log: the one place that reads and makes these messages.

Constraints: to ask a message for a field is a call, and of bytes a copy: each field is asked for once. A call may have
ten thousand partitions, and the loop has turns between them (safety rule S22).

Algorithm: what an answer carries is put into its message by the thread that reads it, for it is too large to be copied
on the loop; the rest of a result is filled in when the answer is there. Plain records stay in their message until a
thread makes a batch of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from regnum.broker.v1 import log_pb2
from regnum_model.wire_times import ceiling_unix_ms_of
from regnum_records.build import NO_PRODUCER_EPOCH, build_batch
from regnum_records.header import NO_PRODUCER_ID, NO_SEQUENCE, end_offset_of
from regnum_records.record import NewRecord, Record
from regnum_service.slices import next_turn

from regnum_broker.serving.current_leaders import tell_refusal
from regnum_broker.serving.fetching.offsets import TIMESTAMP_MS_MAX
from regnum_broker.serving.fetching.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEndResult,
    EpochQuery,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetQuery,
    OffsetResult,
)
from regnum_broker.serving.produce_requests import (
    PARTITIONS_MAX,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)

T = TypeVar("T")

SLICE: Final = 200
"""Partitions between two turns of the event loop (safety rule S22)."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""Largest producer epoch that a record batch has room for."""


async def _each(items: Sequence[Any], make: Callable[[Any], T]) -> list[T]:
    """What is made of each item, with a turn of the loop between parts of them; most calls have one item."""
    made = [make(item) for item in items[:SLICE]]
    for first in range(SLICE, len(items), SLICE):
        await next_turn()
        made += [make(item) for item in items[first : first + SLICE]]
    return made


class PlainMessage:
    """Records one by one, in the message in which they came."""

    __slots__ = ("_message", "size_bytes")

    def __init__(self, message: log_pb2.ProducePartition) -> None:
        """Asks the message for its size, which it encodes itself for: it is asked once."""
        self._message: Final = message
        self.size_bytes: Final = message.ByteSize()
        """Of the message."""

    def batch(self, now_ms: int) -> bytes:
        """As ``PlainRecords`` says."""
        message = self._message
        plain = message.plain if message.HasField("plain") else log_pb2.PlainRecords(records=message.records)
        return build_batch(
            [
                NewRecord(
                    key=record.key if record.HasField("key") else None,
                    value=record.value if record.HasField("value") else None,
                    headers=tuple(
                        (header.key, header.value if header.HasField("value") else None) for header in record.headers
                    ),
                    timestamp_ms=record.timestamp_ms or None,
                )
                for record in plain.records
            ],
            timestamp_ms=now_ms,
            producer_id=plain.producer_id if plain.HasField("producer_id") else NO_PRODUCER_ID,
            producer_epoch=plain.producer_epoch if plain.HasField("producer_epoch") else NO_PRODUCER_EPOCH,
            base_sequence=plain.base_sequence if plain.HasField("base_sequence") else NO_SEQUENCE,
        )


async def produce_request(request: log_pb2.ProduceRequest, *, size_bytes: int = 0) -> ProduceRequest:
    """What a request asks to append; ``size_bytes`` as of ``ProduceRequest``."""
    # (One too many is refused, and no more are looked at for that.)
    items = await _each(request.partitions[: PARTITIONS_MAX + 1], _produce_partition)
    return ProduceRequest(items, request.acks, request.timeout_ms, request.header.client_id, size_bytes)


def _produce_partition(message: log_pb2.ProducePartition) -> ProducePartition:
    item = ProducePartition(message.topic, message.partition, message.record_batch, message.topic_id)
    if message.records:
        if message.WhichOneof("data"):
            item.wrong = (
                "records stands for plain.records in old requests: give one of the two, and no record_batch beside it"
            )
        else:
            item.plain = PlainMessage(message)
    elif not item.record_batch and message.plain.records:
        item.plain = PlainMessage(message)
        item.wrong = _wrong_in_plain(message.plain)
    return item


def _wrong_in_plain(plain: log_pb2.PlainRecords) -> str:
    given = [plain.HasField("producer_id"), plain.HasField("producer_epoch"), plain.HasField("base_sequence")]
    if any(given) and not all(given):
        return "producer_id, producer_epoch and base_sequence belong together: give all three, or none"
    if min(plain.producer_id, plain.producer_epoch, plain.base_sequence) < 0:
        return "producer_id, producer_epoch and base_sequence must not be negative"
    if plain.producer_epoch > PRODUCER_EPOCH_MAX:
        return f"producer_epoch is at most {PRODUCER_EPOCH_MAX}"
    return ""


async def fill_produced(message: log_pb2.ProduceResponse, response: ProduceResponse) -> None:
    """What became of a request."""
    message.throttle_time_ms = response.throttle_time_ms
    await _each(response.results, partial(_add_appended, message.results))


def _add_appended(messages: Any, result: ProduceResult) -> None:
    message = messages.add(topic=result.topic, partition=result.partition)
    message.base_offset, message.log_start_offset = result.base_offset, result.log_start_offset
    if result.isr_change:
        message.isr_change = result.isr_change
    if result.log_append_time_ms is not None:
        message.log_append_time_ms = result.log_append_time_ms
    if result.error_code:
        message.error_code, message.error_message = result.error_code, result.error_message
        tell_refusal(message, result.current_leader)


class MessageContent:
    """What is read of one partition, in the message that answers it."""

    __slots__ = ("message",)

    def __init__(self, message: log_pb2.FetchResult) -> None:
        """Only assigns."""
        self.message: Final = message
        """Part of an answer."""

    def begin(self, result: FetchResult) -> None:
        """As ``Content`` says."""
        message = self.message
        message.ClearField("records")
        message.ClearField("record_batches")
        message.high_watermark, message.log_start_offset = result.high_watermark, result.log_start_offset

    def put(self, batches: bytes) -> None:
        """As ``Content`` says."""
        self.message.record_batches = batches

    def add(self, record: Record) -> None:
        """As ``Content`` says."""
        message = self.message.records.add(timestamp_ms=record.timestamp_ms, offset=record.offset)
        if record.key is not None:
            message.key = record.key
        if record.value is not None:
            message.value = record.value
        for name, value in record.headers:
            header = message.headers.add(key=name)
            if value is not None:
                header.value = value

    def __len__(self) -> int:
        """As ``Content`` says."""
        return len(self.message.records)

    @property
    def size_bytes(self) -> int:
        """As ``Content`` says."""
        return self.message.ByteSize()

    @property
    def next_offset(self) -> int:
        """As ``Content`` says."""
        if self.message.records:
            return self.message.records[-1].offset + 1
        return end_offset_of(self.message.record_batches)


async def fetch_request(request: log_pb2.FetchRequest, response: log_pb2.FetchResponse) -> FetchRequest:
    """What a request asks to read; what is read is put into the response, which gets a result for each partition."""
    items = await _each(request.partitions, partial(_fetch_partition, response.results))
    return FetchRequest(
        items, request.max_wait_ms, request.min_bytes, request.max_bytes, request.form, request.client_rack
    )


def _fetch_partition(messages: Any, message: log_pb2.FetchPartition) -> FetchPartition:
    topic, partition = message.topic, message.partition
    return FetchPartition(
        topic,
        partition,
        message.offset,
        message.max_bytes,
        message.topic_id,
        message.current_leader_epoch if message.HasField("current_leader_epoch") else None,
        message.last_fetched_epoch if message.HasField("last_fetched_epoch") else None,
        message.read_from,
        MessageContent(messages.add(topic=topic, partition=partition)),
    )


async def fill_fetched(message: log_pb2.FetchResponse, response: FetchResponse) -> None:
    """Add to what was read all else that is answered."""
    message.throttle_time_ms = response.throttle_time_ms
    await _each(response.results, _fill_read)


def _fill_read(result: FetchResult) -> None:
    content = result.content
    assert isinstance(content, MessageContent)  # noqa: S101 - what it was asked for with
    message = content.message
    message.high_watermark, message.log_start_offset = result.high_watermark, result.log_start_offset
    if result.preferred_read_replica is not None:
        message.preferred_read_replica = result.preferred_read_replica
    if result.diverging_epoch is not None:
        diverging = message.diverging_epoch
        diverging.epoch, diverging.end_offset = result.diverging_epoch.epoch, result.diverging_epoch.end_offset
    if result.error_code:
        message.error_code, message.error_message = result.error_code, result.error_message
        message.next_offset = result.next_offset
        tell_refusal(message, result.current_leader)


def consumed_partition(request: log_pb2.ConsumeRequest) -> FetchPartition:
    """Where a stream begins."""
    return FetchPartition(
        request.topic,
        request.partition,
        request.offset,
        0,
        request.topic_id,
        request.current_leader_epoch if request.HasField("current_leader_epoch") else None,
        request.last_fetched_epoch if request.HasField("last_fetched_epoch") else None,
    )


class StepContent(MessageContent):
    """That of one step of a stream, in the message that is sent: a reader that is slow has it once, and not twice."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        """Nothing is in there."""
        self.step: Final = log_pb2.ConsumeResponse()
        """The message."""
        super().__init__(self.step.result)


def consume_response(result: FetchResult) -> log_pb2.ConsumeResponse:
    """A step of a stream whose contents are of ``StepContent``."""
    content = result.content
    assert isinstance(content, StepContent)  # noqa: S101 - what the stream was asked for with
    content.message.topic, content.message.partition = result.topic, result.partition
    _fill_read(result)
    return content.step


async def list_offsets_request(request: log_pb2.ListOffsetsRequest) -> ListOffsetsRequest:
    """Which offsets a request asks for."""
    return ListOffsetsRequest(await _each(request.queries, _offset_query))


def _offset_query(query: log_pb2.OffsetQuery) -> OffsetQuery:
    return OffsetQuery(query.topic, query.partition, _asked_ms(query))


def _asked_ms(query: log_pb2.OffsetQuery) -> int | None:
    match query.WhichOneof("offset"):
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "max_timestamp":
            return MAX_TIMESTAMP
        case "at_or_after":
            return min(max(0, ceiling_unix_ms_of(query.at_or_after)), TIMESTAMP_MS_MAX)
        case "timestamp_ms" if query.timestamp_ms >= EARLIEST:
            return query.timestamp_ms
        case _:
            return None


async def list_offsets_response(response: ListOffsetsResponse) -> log_pb2.ListOffsetsResponse:
    """The offsets."""
    message = log_pb2.ListOffsetsResponse()
    await _each(response.results, partial(_add_offset, message.results))
    return message


def _add_offset(messages: Any, result: OffsetResult) -> None:
    message = messages.add(topic=result.topic, partition=result.partition)
    message.offset, message.leader_epoch = result.offset, result.leader_epoch
    if result.timestamp_ms is not None:
        message.timestamp_ms = result.timestamp_ms
    if result.offset_leader_epoch is not None:
        message.offset_leader_epoch = result.offset_leader_epoch
    if result.error_code:
        message.error_code, message.error_message = result.error_code, result.error_message
        tell_refusal(message, result.current_leader)


async def epochs_request(request: log_pb2.OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochRequest:
    """The ends of which epochs a request asks for."""
    return OffsetForLeaderEpochRequest(await _each(request.queries, _epoch_query))


def _epoch_query(query: log_pb2.EpochQuery) -> EpochQuery:
    known = query.current_leader_epoch if query.HasField("current_leader_epoch") else None
    return EpochQuery(query.topic, query.partition, query.leader_epoch, known, query.topic_id)


async def epochs_response(response: OffsetForLeaderEpochResponse) -> log_pb2.OffsetForLeaderEpochResponse:
    """The ends."""
    message = log_pb2.OffsetForLeaderEpochResponse()
    await _each(response.results, partial(_add_end, message.results))
    return message


def _add_end(messages: Any, result: EpochEndResult) -> None:
    message = messages.add(topic=result.topic, partition=result.partition)
    message.leader_epoch, message.end_offset = result.leader_epoch, result.end_offset
    if result.error_code:
        message.error_code, message.error_message = result.error_code, result.error_message
        tell_refusal(message, result.current_leader)
