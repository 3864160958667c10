"""Between gRPC's messages and the values of the log: each field says what it said, and is absent where it was."""

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.log.epochs import EpochEnd
from regnum_broker.servicers import log_messages
from regnum_broker.servicers.log_messages import StepContent
from regnum_broker.serving.current_leaders import CurrentLeader
from regnum_broker.serving.fetching.offsets import TIMESTAMP_MS_MAX
from regnum_broker.serving.fetching.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEndResult,
    FetchResponse,
    FetchResult,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
    OffsetResult,
    ReadFrom,
    RecordForm,
)
from regnum_broker.serving.produce_requests import (
    PARTITIONS_MAX,
    Acks,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    check_request,
)
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_records.record import Record
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status
from regnum_testing.batches import batch_of, values_of

NOT_LEADER = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
LEADER = CurrentLeader(BrokerId(2), 7, types_pb2.Endpoint(host="b", port=9))
TOLD = types_pb2.CurrentLeader(leader=2, leader_epoch=7, client=types_pb2.Endpoint(host="b", port=9))
FACTS = {"leader_id": "2", "leader_epoch": "7", "leader_address": "b:9"}
REFUSED: dict[str, Any] = {
    "error_code": NOT_LEADER,
    "error_message": "go to the leader",
    "current_leader": TOLD,
    "status": item_status(NOT_LEADER, "go to the leader", facts=FACTS),
}


@pytest.mark.parametrize(
    ("values", "wire", "prefix"),
    [
        (Acks, log_pb2.Acks, "ACKS_"),
        (RecordForm, log_pb2.RecordForm, "RECORD_FORM_"),
        (ReadFrom, log_pb2.ReadFrom, "READ_FROM_"),
    ],
)
def test_numbers_of_values_are_those_of_the_wire(values: Any, wire: Any, prefix: str) -> None:
    assert {f"{prefix}{one.name}": one.value for one in values} == dict(wire.items())


async def produced(*partitions: log_pb2.ProducePartition, **fields: Any) -> ProduceRequest:
    return await log_messages.produce_request(log_pb2.ProduceRequest(partitions=partitions, **fields))


async def test_a_produce_request_says_what_its_message_says() -> None:
    batch = batch_of(b"v")
    request = log_pb2.ProduceRequest(
        header=types_pb2.RequestHeader(client_id="c"),
        acks=log_pb2.ACKS_NONE,
        timeout_ms=5,
        partitions=[
            log_pb2.ProducePartition(topic="t", topic_id="id", partition=3, record_batch=batch),
            log_pb2.ProducePartition(plain=log_pb2.PlainRecords(records=[log_pb2.Record(value=b"plain")])),
            log_pb2.ProducePartition(records=[log_pb2.Record(value=b"old")]),
            log_pb2.ProducePartition(plain=log_pb2.PlainRecords()),
        ],
    )
    asked = await log_messages.produce_request(request, size_bytes=99)
    assert (asked.acks, asked.timeout_ms, asked.client_id, asked.size_bytes) == (Acks.NONE, 5, "c", 99)
    first, plain, old, nothing = asked.partitions
    assert (first.topic, first.topic_id, first.partition, first.batch(0)) == ("t", "id", 3, batch)
    assert [values_of(one.batch(1)) for one in (plain, old)] == [[b"plain"], [b"old"]]
    assert [one.size_bytes for one in asked.partitions] == [
        len(batch),
        request.partitions[1].ByteSize(),
        request.partitions[2].ByteSize(),
        0,
    ]
    assert [one.wrong for one in (first, plain, old, nothing)] == [""] * 4


@pytest.mark.parametrize(
    ("item", "wrong"),
    [
        ({"record_batch": b"x", "records": [log_pb2.Record()]}, "give one of the two"),
        ({"plain": log_pb2.PlainRecords(), "records": [log_pb2.Record()]}, "give one of the two"),
        ({"plain": log_pb2.PlainRecords(records=[log_pb2.Record()], producer_id=1)}, "belong together"),
    ],
)
async def test_what_is_wrong_in_its_form_is_said_of_a_partition(item: dict[str, Any], wrong: str) -> None:
    request = await produced(log_pb2.ProducePartition(topic="t", **item))
    assert wrong in request.partitions[0].wrong


async def test_of_a_request_that_is_too_long_no_more_is_looked_at_than_it_takes_to_refuse_it() -> None:
    request = await produced(*[log_pb2.ProducePartition()] * (PARTITIONS_MAX + 500))
    assert len(request.partitions) == PARTITIONS_MAX + 1
    with pytest.raises(RegnumError, match="more than"):
        check_request(request)


async def test_what_was_appended_is_told_field_by_field() -> None:
    done = ProduceResult("t", 1, base_offset=5, log_start_offset=2, isr_change="trace", log_append_time_ms=0)
    refused = ProduceResult("t", 2, NOT_LEADER, "go to the leader", current_leader=LEADER)
    message = log_pb2.ProduceResponse()
    await log_messages.fill_produced(message, ProduceResponse([done, refused], 40))
    assert message == log_pb2.ProduceResponse(
        throttle_time_ms=40,
        results=[
            log_pb2.ProduceResult(
                topic="t", partition=1, base_offset=5, log_start_offset=2, isr_change="trace", log_append_time_ms=0
            ),
            log_pb2.ProduceResult(topic="t", partition=2, base_offset=-1, **REFUSED),
        ],
    )
    assert message.results[0].HasField("log_append_time_ms")


async def test_what_was_read_is_told_field_by_field() -> None:
    request = log_pb2.FetchRequest(
        max_wait_ms=1,
        min_bytes=2,
        max_bytes=3,
        form=log_pb2.RECORD_FORM_RECORDS,
        client_rack="r",
        partitions=[
            log_pb2.FetchPartition(topic="t", partition=0, offset=4, max_bytes=5, read_from=log_pb2.READ_FROM_NEAREST),
            log_pb2.FetchPartition(topic="t", topic_id="id", partition=1, current_leader_epoch=0, last_fetched_epoch=0),
            log_pb2.FetchPartition(topic="t", partition=2),
            log_pb2.FetchPartition(topic="t", partition=3),
        ],
    )
    message = log_pb2.FetchResponse()
    asked = await log_messages.fetch_request(request, message)
    assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.client_rack) == (1, 2, 3, "r")
    assert asked.form == RecordForm.RECORDS
    first, second = asked.partitions[:2]
    assert (first.offset, first.max_bytes, first.read_from) == (4, 5, ReadFrom.NEAREST)
    assert (first.current_leader_epoch, first.last_fetched_epoch) == (None, None)
    assert (second.topic_id, second.current_leader_epoch, second.last_fetched_epoch) == ("id", 0, 0)
    results = [FetchResult(item.topic, item.partition, item.content) for item in asked.partitions]
    results[0].high_watermark, results[0].log_start_offset = 9, 1
    first.content.begin(results[0])
    first.content.add(
        Record(offset=4, timestamp_ms=6, key=None, value=b"v", headers=(("a", None), ("b", b""))),
    )
    assert (len(first.content), first.content.next_offset) == (1, 5)
    assert first.content.size_bytes == message.results[0].ByteSize()
    results[1].diverging_epoch = EpochEnd(epoch=LeaderEpoch(3), end_offset=8)
    results[2].preferred_read_replica = 0
    results[3].error_code, results[3].error_message = NOT_LEADER, "go to the leader"
    results[3].next_offset, results[3].current_leader = 12, LEADER
    await log_messages.fill_fetched(message, FetchResponse(results, 40))
    headers = [log_pb2.RecordHeader(key="a"), log_pb2.RecordHeader(key="b", value=b"")]
    record = log_pb2.Record(offset=4, timestamp_ms=6, value=b"v", headers=headers)
    assert message == log_pb2.FetchResponse(
        throttle_time_ms=40,
        results=[
            log_pb2.FetchResult(topic="t", partition=0, high_watermark=9, log_start_offset=1, records=[record]),
            log_pb2.FetchResult(topic="t", partition=1, diverging_epoch=log_pb2.DivergingEpoch(epoch=3, end_offset=8)),
            log_pb2.FetchResult(topic="t", partition=2, preferred_read_replica=0),
            log_pb2.FetchResult(topic="t", partition=3, next_offset=12, **REFUSED),
        ],
    )


def test_a_step_of_a_stream_is_the_message_that_was_read_into() -> None:
    content = StepContent()
    result = FetchResult("t", 1, content, high_watermark=1)
    content.begin(result)
    assert content.next_offset == -1
    content.put(batch_of(b"v"))
    assert content.next_offset == 1
    step = log_messages.consume_response(result)
    assert step is content.step
    assert (step.result.topic, step.result.partition, step.result.high_watermark) == ("t", 1, 1)
    assert values_of(step.result.record_batches) == [b"v"]
    content.begin(result)
    assert step.result.record_batches == b"", "it is read anew"


@pytest.mark.parametrize(
    ("query", "asked_ms"),
    [
        ({}, None),
        ({"earliest": log_pb2.EarliestOffset()}, EARLIEST),
        ({"latest": log_pb2.LatestOffset()}, LATEST),
        ({"max_timestamp": log_pb2.MaxTimestampOffset()}, MAX_TIMESTAMP),
        ({"at_or_after": Timestamp(nanos=1_000_001)}, 2),
        ({"at_or_after": Timestamp(seconds=-5)}, 0),
        ({"at_or_after": Timestamp(seconds=2**62)}, TIMESTAMP_MS_MAX),
        ({"timestamp_ms": 0}, 0),
        ({"timestamp_ms": -1}, LATEST),
        ({"timestamp_ms": -2}, EARLIEST),
        # In the old form that was never an offset.
        ({"timestamp_ms": -3}, None),
    ],
)
async def test_a_query_for_an_offset_says_what_its_message_says(query: dict[str, Any], asked_ms: int | None) -> None:
    request = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="t", partition=1, **query)])
    (asked,) = (await log_messages.list_offsets_request(request)).queries
    assert (asked.topic, asked.partition, asked.timestamp_ms) == ("t", 1, asked_ms)


async def test_offsets_and_ends_of_epochs_are_told_field_by_field() -> None:
    found = OffsetResult("t", 0, offset=5, leader_epoch=3, timestamp_ms=0, offset_leader_epoch=0)
    refused = OffsetResult("t", 1, NOT_LEADER, "go to the leader", current_leader=LEADER)
    assert await log_messages.list_offsets_response(ListOffsetsResponse([found, refused])) == (
        log_pb2.ListOffsetsResponse(
            results=[
                log_pb2.OffsetResult(
                    topic="t", partition=0, offset=5, leader_epoch=3, timestamp_ms=0, offset_leader_epoch=0
                ),
                log_pb2.OffsetResult(topic="t", partition=1, offset=-1, leader_epoch=-1, **REFUSED),
            ]
        )
    )
    queries = [
        log_pb2.EpochQuery(topic="t", topic_id="id", partition=1, leader_epoch=4, current_leader_epoch=0),
        log_pb2.EpochQuery(topic="t", partition=2),
    ]
    asked = await log_messages.epochs_request(log_pb2.OffsetForLeaderEpochRequest(queries=queries))
    first, second = asked.queries
    assert (first.topic, first.topic_id, first.partition) == ("t", "id", 1)
    assert (first.leader_epoch, first.current_leader_epoch, second.current_leader_epoch) == (4, 0, None)
    end = EpochEndResult("t", 1, leader_epoch=2, end_offset=6)
    lost = EpochEndResult("t", 2, NOT_LEADER, "go to the leader", current_leader=LEADER)
    assert await log_messages.epochs_response(OffsetForLeaderEpochResponse([end, lost])) == (
        log_pb2.OffsetForLeaderEpochResponse(
            results=[
                log_pb2.EpochEndResult(topic="t", partition=1, leader_epoch=2, end_offset=6),
                log_pb2.EpochEndResult(topic="t", partition=2, leader_epoch=-1, end_offset=-1, **REFUSED),
            ]
        )
    )
