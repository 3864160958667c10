"""What clients see of a topic that is compacted: what they may write, and how they read over what is gone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.partition import Partition
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import BrokerId
from regnum_records.build import build_batch
from regnum_records.read import read_records
from regnum_records.record import NewRecord
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.compaction import keyed_batch
from regnum_testing.waiting import DEADLINE_S, eventually

VALUE = b"v" * 300_000
"""Three of these make a segment of a megabyte."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    await made.elect(1, [1])
    replicas = made.brokers[BrokerId(1)].broker.replicas
    replicas.configure(
        partition(made),
        ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, segment_bytes=1 << 20),
    )
    yield made
    await made.close()


def partition(world: BrokerWorld) -> Partition:
    found = world.brokers[BrokerId(1)].broker.replicas.named("t", 0)
    assert found is not None
    return found


async def produce(world: BrokerWorld, batch: bytes) -> log_pb2.ProduceResult:
    item = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch)
    response = await world.call(1, log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, timeout_ms=5_000, partitions=[item]))
    return response.results[0]


async def fetch(world: BrokerWorld, offset: int, form: log_pb2.RecordForm.ValueType) -> log_pb2.FetchResult:
    item = log_pb2.FetchPartition(topic="t", partition=0, offset=offset)
    request = log_pb2.FetchRequest(partitions=[item], form=form, min_bytes=1, max_wait_ms=100)
    return (await world.log(1).Fetch(request, timeout=DEADLINE_S)).results[0]


async def compacted(world: BrokerWorld) -> None:
    """Write twelve values of one key; return once all but four are gone."""
    for _ in range(12):
        assert (await produce(world, keyed_batch((b"k", VALUE)))).error_code == errors_pb2.ERROR_CODE_NONE
    log = partition(world).log

    async def small() -> bool:
        return log.size_bytes < 5 * len(VALUE)

    await eventually(small)


async def test_a_record_without_a_key_is_refused(world: BrokerWorld) -> None:
    plain = log_pb2.PlainRecords(records=[log_pb2.Record(key=b"k", value=b"v"), log_pb2.Record(value=b"v")])
    message = log_pb2.ProducePartition(topic="t", partition=0, plain=plain)
    request = log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, timeout_ms=5_000, partitions=[message])
    result = (await world.call(1, request)).results[0]
    assert result.error_code == errors_pb2.ERROR_CODE_INVALID_RECORD
    assert "record 1 of the batch has no key" in result.error_message
    refused = await produce(world, build_batch([NewRecord(value=b"v")], timestamp_ms=1))
    assert refused.error_code == errors_pb2.ERROR_CODE_INVALID_RECORD
    assert partition(world).log.log_end_offset == 0
    assert (await produce(world, keyed_batch((b"", None)))).error_code == errors_pb2.ERROR_CODE_NONE


async def test_whoever_reads_single_records_goes_on_behind_what_is_gone(world: BrokerWorld) -> None:
    await compacted(world)
    offset, found = 0, list[int]()
    while offset < 12:
        result = await fetch(world, offset, log_pb2.RECORD_FORM_RECORDS)
        assert result.records, f"nothing at {offset}, and a reader would ask for it for ever"
        found += [record.offset for record in result.records]
        offset = found[-1] + 1
    assert found == sorted(set(found))
    assert found[-1] == 11
    assert len(found) < 6


@pytest.mark.parametrize("form", [log_pb2.RECORD_FORM_BATCHES, log_pb2.RECORD_FORM_RECORDS])
async def test_a_stream_of_a_compacted_topic_comes_to_its_end(
    world: BrokerWorld, form: log_pb2.RecordForm.ValueType
) -> None:
    await compacted(world)
    found: list[int] = []
    stream = world.log(1).Consume(
        log_pb2.ConsumeRequest(topic="t", partition=0, offset=1, form=form), timeout=DEADLINE_S
    )
    async for answer in stream:
        assert not answer.result.error_code
        found += [record.offset for record in answer.result.records]
        found += [record.offset for record in read_records(answer.result.record_batches, from_offset=1)]
        if found and found[-1] == 11:
            break
    stream.cancel()
    assert len(found) < 6


async def test_records_of_a_topic_that_is_compacted_only_are_not_deleted(world: BrokerWorld) -> None:
    assert (await produce(world, keyed_batch((b"k", b"v")))).error_code == errors_pb2.ERROR_CODE_NONE
    item = log_pb2.DeleteRecordsPartition(topic="t", partition=0, before_offset=1)
    request = log_pb2.DeleteRecordsRequest(partitions=[item], timeout_ms=1_000)
    result = (await world.log(1).DeleteRecords(request, timeout=DEADLINE_S)).results[0]
    assert result.error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "compacted only" in result.error_message
    assert partition(world).log.log_start_offset == 0
