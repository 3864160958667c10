"""Between gRPC's messages and the values of calls about the log: the one place that reads and makes these messages.

Constraints: to ask a message for a field is a call, and of bytes a copy: each field is asked for once. A call may have
ten thousand partitions, and the loop has turns between them (safety rule S22).

Algorithm: what an answer carries is put into its message by the thread that reads it, for it is too large to be copied
on the loop; the rest of a result is filled in when the answer is there. Plain records stay in their message until a
thread makes a batch of them.
"""

from itertools import islice
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum_model.wire_times import ceiling_unix_ms_of
from regnum_records.build import NO_PRODUCER_EPOCH, build_batch
from regnum_records.header import NO_PRODUCER_ID, NO_SEQUENCE, end_offset_of
from regnum_records.record import NewRecord, Record
from regnum_service.slices import Turns

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

SLICE: Final = 200
"""Partitions between two turns of the event loop (safety rule S22)."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""Largest producer epoch that a record batch has room for."""


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
    turns = Turns(SLICE)
    items: list[ProducePartition] = []
    # (One too many is refused, and no more are looked at for that.)
    for message in islice(request.partitions, PARTITIONS_MAX + 1):
        await turns.took()
        items.append(_produce_partition(message))
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
    turns = Turns(SLICE)
    message.throttle_time_ms = response.throttle_time_ms
    for result in response.results:
        await turns.took()
        _fill_appended(message.results.add(topic=result.topic, partition=result.partition), result)


def _fill_appended(message: log_pb2.ProduceResult, result: ProduceResult) -> None:
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
    turns = Turns(SLICE)
    items: list[FetchPartition] = []
    for message in request.partitions:
        await turns.took()
        topic, partition = message.topic, message.partition
        content = MessageContent(response.results.add(topic=topic, partition=partition))
        items.append(
            FetchPartition(
                topic,
                partition,
                message.offset,
                message.max_bytes,
                message.topic_id,
                message.current_leader_epoch if message.HasField("current_leader_epoch") else None,
                message.last_fetched_epoch if message.HasField("last_fetched_epoch") else None,
                message.read_from,
                content,
            )
        )
    return FetchRequest(
        items, request.max_wait_ms, request.min_bytes, request.max_bytes, request.form, request.client_rack
    )


async def fill_fetched(message: log_pb2.FetchResponse, response: FetchResponse) -> None:
    """Add to what was read all else that is answered."""
    turns = Turns(SLICE)
    message.throttle_time_ms = response.throttle_time_ms
    for one, result in zip(message.results, response.results, strict=True):
        await turns.took()
        _fill_read(one, result)


def _fill_read(message: log_pb2.FetchResult, result: FetchResult) -> None:
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
    assert isinstance(content, StepContent)  # noqa: S101 - that is what the stream was asked for with
    message = content.message
    message.topic, message.partition = result.topic, result.partition
    _fill_read(message, result)
    return content.step


async def list_offsets_request(request: log_pb2.ListOffsetsRequest) -> ListOffsetsRequest:
    """Which offsets a request asks for."""
    turns = Turns(SLICE)
    queries: list[OffsetQuery] = []
    for query in request.queries:
        await turns.took()
        queries.append(OffsetQuery(query.topic, query.partition, _asked_ms(query)))
    return ListOffsetsRequest(queries)


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
    turns = Turns(SLICE)
    message = log_pb2.ListOffsetsResponse()
    for result in response.results:
        await turns.took()
        _fill_offset(message.results.add(topic=result.topic, partition=result.partition), result)
    return message


def _fill_offset(message: log_pb2.OffsetResult, result: OffsetResult) -> None:
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
    turns = Turns(SLICE)
    queries: list[EpochQuery] = []
    for query in request.queries:
        await turns.took()
        queries.append(
            EpochQuery(
                query.topic,
                query.partition,
                query.leader_epoch,
                query.current_leader_epoch if query.HasField("current_leader_epoch") else None,
                query.topic_id,
            )
        )
    return OffsetForLeaderEpochRequest(queries)


async def epochs_response(response: OffsetForLeaderEpochResponse) -> log_pb2.OffsetForLeaderEpochResponse:
    """The ends."""
    turns = Turns(SLICE)
    message = log_pb2.OffsetForLeaderEpochResponse()
    for result in response.results:
        await turns.took()
        _fill_end(message.results.add(topic=result.topic, partition=result.partition), result)
    return message


def _fill_end(message: log_pb2.EpochEndResult, result: EpochEndResult) -> None:
    message.leader_epoch, message.end_offset = result.leader_epoch, result.end_offset
    if result.error_code:
        message.error_code, message.error_message = result.error_code, result.error_message
        tell_refusal(message, result.current_leader)
