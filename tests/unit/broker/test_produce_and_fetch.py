"""What clients may ask of a leader, and what they are told (semantics 4.2 and 4.4)."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.decisions.watermark import WatermarkError
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import UNPACKED_BYTES_MAX, ReplicaSettings
from regnum_model.ids import BrokerId
from regnum_records.build import build_batch
from regnum_records.header import assign
from regnum_records.record import NewRecord
from regnum_testing.batches import MALFORMED, TIMESTAMP_MS, batch_of, raw_batch, raw_record, values_of
from regnum_testing.broker_world import BrokerWorld, refusal
from regnum_testing.waiting import DEADLINE_S, eventually, until, within


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    await made.elect(1, [1])
    yield made
    await made.close()


def request(
    *partitions: log_pb2.ProducePartition,
    acks: log_pb2.Acks.ValueType = log_pb2.ACKS_ALL,
    timeout_ms: int = 5_000,
) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=partitions)


async def fetch(world: BrokerWorld, offset: int, **settings: object) -> log_pb2.FetchResult:
    epoch = settings.pop("epoch", None)
    item = log_pb2.FetchPartition(topic="t", partition=0, offset=offset)
    if epoch is not None:
        item.current_leader_epoch = epoch  # type: ignore[assignment]
    response = await world.log(1).Fetch(log_pb2.FetchRequest(partitions=[item], **settings), timeout=DEADLINE_S)  # type: ignore[arg-type]
    return response.results[0]


@pytest.mark.parametrize("acks", [3, -2, 100])
async def test_acks_that_no_value_names_are_refused(world: BrokerWorld, acks: log_pb2.Acks.ValueType) -> None:
    item = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch_of(b"a"))
    error = await refusal(world.call(1, request(item, acks=acks)))
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS


async def test_a_partition_named_twice_appends_nothing(world: BrokerWorld) -> None:
    item = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch_of(b"a"))
    error = await refusal(world.call(1, request(item, item)))
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert (await fetch(world, 0)).high_watermark == 0


def damaged(position: int) -> bytes:
    batch = bytearray(batch_of(b"value"))
    batch[position] ^= 0xFF
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (b"nonsense", errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (damaged(-1), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (damaged(17), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (batch_of(bytes(1_100_000)), errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE),
    ],
)
async def test_bad_batches_are_named_and_change_nothing(world: BrokerWorld, batch: bytes, code: int) -> None:
    result = await world.produce(1, batch)
    assert result.error_code == code
    assert result.error_message
    assert result.base_offset == -1
    assert (await fetch(world, 0)).high_watermark == 0


async def test_records_that_no_reader_could_read_are_refused_and_change_nothing(world: BrokerWorld) -> None:
    for batch, said in MALFORMED.values():
        result = await world.produce(1, batch)
        assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_INVALID_RECORD, -1)
        assert re.search(said, result.error_message), result.error_message
    assert (await fetch(world, 0)).high_watermark == 0


async def test_a_log_is_searched_by_the_times_of_its_records_whatever_a_head_says(world: BrokerWorld) -> None:
    for said_ms in (-1, 2**62):
        stored = await world.produce(1, raw_batch(raw_record(), max_ms=said_ms))
        assert stored.error_code == errors_pb2.ERROR_CODE_NONE
    queries = [log_pb2.OffsetQuery(topic="t", partition=0, timestamp_ms=ms) for ms in (TIMESTAMP_MS, TIMESTAMP_MS + 1)]
    answer = await world.log(1).ListOffsets(log_pb2.ListOffsetsRequest(queries=queries), timeout=DEADLINE_S)
    assert [result.offset for result in answer.results] == [0, -1]


def plain(*values: bytes, **numbers: int) -> log_pb2.ProducePartition:
    records = log_pb2.PlainRecords(records=[log_pb2.Record(value=value) for value in values], **numbers)  # type: ignore[arg-type]
    return log_pb2.ProducePartition(topic="t", partition=0, plain=records)


NUMBERS = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize(
    "item",
    [
        log_pb2.ProducePartition(topic="t", partition=0),
        plain(),
        plain(**NUMBERS),
        *(plain(b"a", **{name: n for name, n in NUMBERS.items() if name != left_out}) for left_out in NUMBERS),
        *(plain(b"a", **(NUMBERS | {name: -1})) for name in NUMBERS),
        plain(b"a", **(NUMBERS | {"producer_epoch": 2**15})),
    ],
)
async def test_nothing_and_half_a_producer_are_refused_and_change_nothing(
    world: BrokerWorld, item: log_pb2.ProducePartition
) -> None:
    (result,) = (await world.call(1, request(item))).results
    assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_INVALID_REQUEST, -1)
    assert result.error_message
    assert (await fetch(world, 0)).high_watermark == 0


async def test_what_clients_said_before_there_were_oneofs_is_understood(world: BrokerWorld) -> None:
    """``records`` beside no data, and times of -1 and -2: programs that are not generated anew go on."""
    await world.elect(1, [1])
    records = [log_pb2.Record(value=b"a"), log_pb2.Record(value=b"b", timestamp_ms=5_000)]
    old = log_pb2.ProducePartition(topic="t", partition=0, records=records)
    both = log_pb2.ProducePartition(topic="t", partition=0, records=records, record_batch=batch_of(b"c"))
    for item, code in ((old, errors_pb2.ERROR_CODE_NONE), (both, errors_pb2.ERROR_CODE_INVALID_REQUEST)):
        request = log_pb2.ProduceRequest(partitions=[item])
        assert (await world.log(1).Produce(request, timeout=DEADLINE_S)).results[0].error_code == code
    queries = [log_pb2.OffsetQuery(topic="t", partition=0, timestamp_ms=ms) for ms in (-2, -1, 0, -3)]
    answer = await world.log(1).ListOffsets(log_pb2.ListOffsetsRequest(queries=queries), timeout=DEADLINE_S)
    assert [result.offset for result in answer.results] == [0, 2, 0, -1]
    assert answer.results[3].error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_plain_records_that_are_repeated_are_appended_once(world: BrokerWorld) -> None:
    """Steps: two calls of one producer; the first again, as a client does that has not seen its answer; the next."""

    async def send(*values: bytes, sequence: int) -> int:
        item = plain(*values, **(NUMBERS | {"base_sequence": sequence}))
        (result,) = (await world.call(1, request(item))).results
        assert result.error_code == 0
        return result.base_offset

    assert await send(b"a", b"b", sequence=0) == 0
    assert await send(b"c", sequence=2) == 2
    assert await send(b"a", b"b", sequence=0) == 0
    assert await send(b"c", sequence=2) == 2
    assert await send(b"d", sequence=3) == 3
    found = (await fetch(world, 0, form=log_pb2.RECORD_FORM_RECORDS)).records
    assert [record.value for record in found] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ({"base_sequence": 2}, errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER),
        ({"producer_epoch": 0, "base_sequence": 1}, errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH),
    ],
)
async def test_plain_records_after_a_gap_or_of_an_older_epoch_are_refused(
    world: BrokerWorld, numbers: dict[str, int], code: int
) -> None:
    current = NUMBERS | {"producer_epoch": 1}
    assert (await world.call(1, request(plain(b"a", **current)))).results[0].error_code == 0
    (result,) = (await world.call(1, request(plain(b"b", **(current | numbers))))).results
    assert (result.error_code, result.base_offset) == (code, -1)
    assert (await fetch(world, 0)).high_watermark == 1


async def test_plain_records_and_batches_of_one_producer_are_one_sequence(world: BrokerWorld) -> None:
    await world.call(1, request(plain(b"a", **NUMBERS)))
    assert (await world.produce(1, batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0))).base_offset == 0
    assert (await world.produce(1, batch_of(b"b", producer_id=9, producer_epoch=0, base_sequence=1))).base_offset == 1


@pytest.mark.parametrize(("topic", "partition"), [("unknown", 0), ("t", 1), ("t", -1)])
async def test_what_is_not_here(world: BrokerWorld, topic: str, partition: int) -> None:
    result = await world.produce(1, batch_of(b"a"), topic=topic, partition=partition)
    assert result.error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


async def test_one_bad_partition_does_not_fail_its_neighbours(world: BrokerWorld) -> None:
    await world.elect(1, [1], partition=1)
    good = log_pb2.ProducePartition(topic="t", partition=1, record_batch=batch_of(b"a"))
    bad = log_pb2.ProducePartition(topic="t", partition=0, record_batch=b"nonsense")
    results = (await world.call(1, request(bad, good))).results
    assert [result.error_code for result in results] == [errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, 0]


async def test_records_without_a_codec(world: BrokerWorld) -> None:
    records = [
        log_pb2.Record(
            key=b"k", value=b"v", headers=[log_pb2.RecordHeader(key="h", value=b"1"), log_pb2.RecordHeader(key="n")]
        ),
        log_pb2.Record(value=b""),
        log_pb2.Record(key=b"gone"),
    ]
    item = log_pb2.ProducePartition(topic="t", partition=0, plain=log_pb2.PlainRecords(records=records))
    (result,) = (await world.call(1, request(item))).results
    assert (result.error_code, result.base_offset) == (0, 0)
    found = (await fetch(world, 1, form=log_pb2.RECORD_FORM_RECORDS)).records
    assert [(record.offset, record.HasField("value")) for record in found] == [(1, True), (2, False)]
    first = (await fetch(world, 0, form=log_pb2.RECORD_FORM_RECORDS)).records[0]
    assert (first.key, first.value, first.headers[1].HasField("value")) == (b"k", b"v", False)
    assert first.timestamp_ms > 0


async def test_a_repeated_batch_is_answered_with_its_first_offset(world: BrokerWorld) -> None:
    batches = [batch_of(b"%d" % n, producer_id=9, producer_epoch=0, base_sequence=n) for n in range(3)]
    for offset, batch in enumerate(batches):
        assert (await world.produce(1, batch)).base_offset == offset
    assert (await world.produce(1, batches[1])).base_offset == 1
    assert (await fetch(world, 0)).high_watermark == 3


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (ReplicaSettings(max_message_bytes=200), errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE),
        (ReplicaSettings(cleanup_policy=CLEANUP_COMPACT), errors_pb2.ERROR_CODE_INVALID_RECORD),
    ],
    ids=["smaller", "compacted"],
)
async def test_a_repeat_is_known_again_though_the_topic_would_not_take_it_now(
    world: BrokerWorld, settings: ReplicaSettings, code: int
) -> None:
    """Its answer was lost, and what the topic takes was changed meanwhile: to refuse it would say that it is lost."""
    batches = [batch_of(bytes(300), producer_id=9, producer_epoch=0, base_sequence=number) for number in range(2)]
    assert (await world.produce(1, batches[0])).base_offset == 0
    replicas = world.brokers[BrokerId(1)].broker.replicas
    replicas.configure(world.brokers[BrokerId(1)].partition(), settings)
    repeated = await world.produce(1, batches[0])
    assert (repeated.error_code, repeated.base_offset) == (errors_pb2.ERROR_CODE_NONE, 0)
    assert (await world.produce(1, batches[1])).error_code == code
    assert (await fetch(world, 0)).high_watermark == 1


async def test_what_only_begins_like_a_repeat_is_refused(world: BrokerWorld) -> None:
    """The head of a batch that the topic would not take now is all that is looked at, until it is found again."""
    batches = [batch_of(bytes(300), producer_id=9, producer_epoch=0, base_sequence=number) for number in range(2)]
    assert (await world.produce(1, batches[0])).base_offset == 0
    replicas = world.brokers[BrokerId(1)].broker.replicas
    replicas.configure(world.brokers[BrokerId(1)].partition(), ReplicaSettings(max_message_bytes=200))
    damaged = bytearray(batches[0])
    damaged[-5] ^= 1
    both = batches[0] + batches[1]
    assert (await world.produce(1, both)).error_code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, "the second is lost"
    assert (await world.produce(1, bytes(damaged))).error_code == errors_pb2.ERROR_CODE_CORRUPT_MESSAGE
    assert (await fetch(world, 0)).high_watermark == 1


async def test_a_repeat_is_not_acknowledged_before_the_original_is_committed(world: BrokerWorld) -> None:
    await world.start(2)
    await world.elect(1, [1, 2], epoch=1, tell=[1])
    batch = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        result = await world.produce(1, batch, timeout_ms=200)
        assert result.error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    await until(lambda: world.brokers[BrokerId(1)].partition().log.log_end_offset == 1, "it is appended")


async def test_sequences_that_break(world: BrokerWorld) -> None:
    first = batch_of(b"a", producer_id=9, producer_epoch=1, base_sequence=0)
    await world.produce(1, first)
    gap = await world.produce(1, batch_of(b"c", producer_id=9, producer_epoch=1, base_sequence=2))
    assert gap.error_code == errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER
    old = await world.produce(1, batch_of(b"d", producer_id=9, producer_epoch=0, base_sequence=1))
    assert old.error_code == errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH


async def test_partitions_created_together_keep_their_producers_apart(world: BrokerWorld) -> None:
    """The same producer numbers each partition from 0: no batch of one may pass for a repeat in another."""
    state = await world.elect(1, [1], partition=1, tell=[])
    await world.send(1, [world.order(state, 0, partition=number) for number in (1, 2)])
    batch = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    for number in (1, 2):
        assert (await world.produce(1, batch, partition=number)).error_code == errors_pb2.ERROR_CODE_NONE
        partition = world.brokers[next(iter(world.brokers))].partition(number)
        assert partition.log.log_end_offset == 1


async def test_acks_none_answers_at_once(world: BrokerWorld) -> None:
    result = await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_NONE)
    assert (result.error_code, result.base_offset) == (0, -1)
    await world.log_ends_at(1, 1)


@pytest.mark.parametrize("offset", [-1, 2])
async def test_offsets_outside_the_log(world: BrokerWorld, offset: int) -> None:
    await world.produce(1, batch_of(b"a"))
    assert (await fetch(world, offset)).error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


async def test_uncommitted_records_are_not_shown_and_no_error(world: BrokerWorld) -> None:
    await world.start(2)
    await world.elect(1, [1, 2], epoch=1, tell=[1])
    await world.produce(1, batch_of(b"a", b"b"), acks=log_pb2.ACKS_LEADER)
    for offset in (0, 1, 2):
        result = await fetch(world, offset)
        assert (result.error_code, result.record_batches, result.high_watermark) == (0, b"", 0)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (4, errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH),
        (6, errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH),
        (5, errors_pb2.ERROR_CODE_NONE),
    ],
)
async def test_a_clients_leader_epoch_is_checked_both_ways(world: BrokerWorld, epoch: int, code: int) -> None:
    await world.elect(1, [1], epoch=5)
    assert (await fetch(world, 0, epoch=epoch)).error_code == code


async def test_a_long_poll_ends_with_the_record_it_waits_for(world: BrokerWorld) -> None:
    poll = asyncio.create_task(fetch(world, 0, max_wait_ms=8_000, min_bytes=1))
    partition = world.brokers[next(iter(world.brokers))].partition()

    async def attached() -> None:
        while not len(partition.committed):
            await asyncio.sleep(0)

    await within(attached())
    await world.produce(1, batch_of(b"a"))
    result = await within(poll)
    assert list(values_of(result.record_batches)) == [b"a"]


async def test_a_long_poll_ends_when_the_leader_is_deposed(world: BrokerWorld) -> None:
    poll = asyncio.create_task(fetch(world, 0, max_wait_ms=8_000, min_bytes=1))
    partition = world.brokers[next(iter(world.brokers))].partition()

    async def attached() -> None:
        while not len(partition.committed):
            await asyncio.sleep(0)

    await within(attached())
    partition.take_role(None)
    result = await within(poll)
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


async def test_a_stream_delivers_records_as_they_are_committed(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"a", b"b"))
    call = world.log(1).Consume(
        log_pb2.ConsumeRequest(topic="t", partition=0, offset=1, form=log_pb2.RECORD_FORM_RECORDS)
    )
    answers = call.__aiter__()
    first = await within(answers.__anext__())
    assert [record.value for record in first.result.records] == [b"b"]
    await world.produce(1, batch_of(b"c"))
    second = await within(answers.__anext__())
    assert [(record.offset, record.value) for record in second.result.records] == [(2, b"c")]
    call.cancel()


async def test_offsets_by_name_and_time(world: BrokerWorld) -> None:
    records = [NewRecord(value=b"a", timestamp_ms=1_000), NewRecord(value=b"b", timestamp_ms=2_000)]
    await world.produce(1, build_batch(records, timestamp_ms=0, codec="zstd"))

    def at(seconds: int, nanos: int = 0) -> log_pb2.OffsetQuery:
        return log_pb2.OffsetQuery(topic="t", partition=0, at_or_after=Timestamp(seconds=seconds, nanos=nanos))

    queries = [
        log_pb2.OffsetQuery(topic="t", partition=0, earliest=log_pb2.EarliestOffset()),
        log_pb2.OffsetQuery(topic="t", partition=0, latest=log_pb2.LatestOffset()),
        at(-5),
        at(1),
        at(1, 1),
        at(1, 500_000_000),
        at(9),
        at(2**63 - 1, 2**31 - 1),
        log_pb2.OffsetQuery(topic="t", partition=0),
        log_pb2.OffsetQuery(topic="t", partition=0, max_timestamp=log_pb2.MaxTimestampOffset()),
    ]
    results = (await world.log(1).ListOffsets(log_pb2.ListOffsetsRequest(queries=queries), timeout=DEADLINE_S)).results
    assert [result.offset for result in results] == [0, 2, 0, 0, 1, 1, -1, -1, -1, 1]
    assert [result.error_code for result in results] == [0] * 8 + [errors_pb2.ERROR_CODE_INVALID_REQUEST, 0]
    times = [result.timestamp_ms if result.HasField("timestamp_ms") else None for result in results]
    assert times == [None, None, 1_000, 1_000, 2_000, 2_000, None, None, None, 2_000]


async def test_offsets_come_with_the_epoch_in_which_their_records_were_written(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"a", timestamp_ms=1_000))
    await world.elect(1, [1], epoch=3)
    await world.produce(1, batch_of(b"b", timestamp_ms=500))
    await world.elect(1, [1], epoch=5)
    queries = [
        log_pb2.OffsetQuery(topic="t", partition=0, earliest=log_pb2.EarliestOffset()),
        log_pb2.OffsetQuery(topic="t", partition=0, latest=log_pb2.LatestOffset()),
        log_pb2.OffsetQuery(topic="t", partition=0, max_timestamp=log_pb2.MaxTimestampOffset()),
        log_pb2.OffsetQuery(topic="t", partition=0, at_or_after=Timestamp(seconds=9)),
    ]
    results = (await world.log(1).ListOffsets(log_pb2.ListOffsetsRequest(queries=queries), timeout=DEADLINE_S)).results
    found = [one.offset_leader_epoch if one.HasField("offset_leader_epoch") else None for one in results]
    assert ([one.offset for one in results], found) == ([0, 2, 0, -1], [0, 3, 0, None])
    assert {one.leader_epoch for one in results} == {5}


async def test_base_offset_and_epoch_are_the_brokers_to_set(world: BrokerWorld) -> None:
    await world.produce(1, bytes(assign(batch_of(b"a"), base_offset=77, leader_epoch=99)))
    result = await fetch(world, 0, form=log_pb2.RECORD_FORM_RECORDS)
    assert [record.offset for record in result.records] == [0]


async def test_what_breaks_after_an_append_that_nobody_waits_for_stops_the_broker(world: BrokerWorld) -> None:
    """A high watermark above the log end: acknowledged records are missing, and nothing may go on from there."""
    running = world.brokers[BrokerId(1)]
    running.partition().high_watermark = 99
    await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_NONE)

    async def stopping() -> bool:
        return running.supervisor.stopping

    await eventually(stopping)
    assert isinstance(running.supervisor.failure, WatermarkError)
    assert (running.supervisor.reason or "").startswith("append failed")


def allow_large(world: BrokerWorld) -> None:
    """Have the topic take what decompresses to as much as readers take."""
    broker = world.brokers[BrokerId(1)]
    settings = ReplicaSettings(max_message_unpacked_bytes=UNPACKED_BYTES_MAX)
    broker.broker.replicas.configure(broker.partition(), settings)


async def test_single_records_of_a_batch_that_decompresses_to_more_than_an_answer_come_in_parts(
    world: BrokerWorld,
) -> None:
    """Forty megabytes in a batch of some kilobytes: one answer for all of it would be refused by the connection."""
    batch = batch_of(*[bytes(1_000_000)] * 40, codec="zstd")
    assert len(batch) < 100_000
    allow_large(world)
    assert (await world.produce(1, batch)).error_code == 0
    offset, answers = 0, 0
    while offset < 40:
        result = await fetch(world, offset, form=log_pb2.RECORD_FORM_RECORDS, max_bytes=8_000_000)
        assert result.error_code == 0
        assert result.ByteSize() <= 9_000_000
        assert [record.offset for record in result.records] == list(range(offset, offset + len(result.records)))
        offset, answers = offset + len(result.records), answers + 1
    assert answers == 6


async def test_a_record_larger_than_an_answer_is_named_and_can_be_skipped(world: BrokerWorld) -> None:
    batch = batch_of(b"before", bytes(40_000_000), b"after", codec="zstd")
    allow_large(world)
    assert (await world.produce(1, batch)).error_code == 0
    assert [record.value for record in (await fetch(world, 0, form=log_pb2.RECORD_FORM_RECORDS)).records] == [b"before"]
    result = await fetch(world, 1, form=log_pb2.RECORD_FORM_RECORDS)
    assert (result.error_code, result.next_offset) == (errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, 2)
    assert "offset 1" in result.error_message
    rest = await fetch(world, result.next_offset, form=log_pb2.RECORD_FORM_RECORDS)
    assert [record.value for record in rest.records] == [b"after"]
