"""Bad input answers clearly and changes nothing. Calls are made as any gRPC client would make them, without the SDK."""

import struct
from collections.abc import AsyncIterator

import google_crc32c
import grpc
import pytest
import pytest_asyncio
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import open_channel
from regnum_service.status import from_rpc_error
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "good"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    """An admin client; the topic ``good`` exists."""
    async with Admin(cluster.bootstrap) as opened:
        await opened.create_topic(TOPIC, partitions=1, replication_factor=3)
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def controller(admin: Admin) -> "AsyncIterator[admin_pb2_grpc.AdminServiceAsyncStub]":
    """Stub of whoever is the controller now."""
    view = await admin.describe_cluster()
    assert view.controller is not None
    channel = open_channel(view.controller.address)
    yield admin_pb2_grpc.AdminServiceStub(channel)
    await channel.close()


@pytest_asyncio.fixture(loop_scope="module")
async def leader(admin: Admin) -> "AsyncIterator[log_pb2_grpc.LogServiceAsyncStub]":
    """Stub of the broker that leads ``good-0`` now."""
    view = await admin.describe_cluster()
    topic = await admin.describe_topic(TOPIC)
    channel = open_channel(view.brokers[topic.partitions[0].leader].address)
    yield log_pb2_grpc.LogServiceStub(channel)
    await channel.close()


async def end_offset(leader: "log_pb2_grpc.LogServiceAsyncStub") -> int:
    request = log_pb2.ListOffsetsRequest(
        queries=[log_pb2.OffsetQuery(topic=TOPIC, partition=0, latest=log_pb2.LatestOffset())]
    )
    answer = await leader.ListOffsets(request, timeout=DEADLINE_S)
    return int(answer.results[0].offset)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (admin_pb2.NewTopic(name="", partitions=1), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (admin_pb2.NewTopic(name="../x", partitions=1), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (admin_pb2.NewTopic(name="a/b", partitions=1), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (admin_pb2.NewTopic(name="..", partitions=1), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (admin_pb2.NewTopic(name="x" * 250, partitions=1), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (admin_pb2.NewTopic(name="n", partitions=-1), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        (admin_pb2.NewTopic(name="n", partitions=0), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        (
            admin_pb2.NewTopic(name="n", partitions=1, replication_factor=4),
            errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
        ),
        (
            admin_pb2.NewTopic(name="n", partitions=1, replication_factor=0),
            errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
        ),
        (
            admin_pb2.NewTopic(name="n", assignment=[admin_pb2.ReplicaAssignment(partition=0, replicas=[1, 9])]),
            errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            admin_pb2.NewTopic(name="n", assignment=[admin_pb2.ReplicaAssignment(partition=1, replicas=[1])]),
            errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
        ),
        (admin_pb2.NewTopic(name=TOPIC, partitions=1), errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS),
    ],
)
async def test_a_bad_topic_is_refused_with_a_reason(
    controller: "admin_pb2_grpc.AdminServiceAsyncStub", admin: Admin, topic: admin_pb2.NewTopic, code: int
) -> None:
    before = {view.name for view in await admin.list_topics()}
    answer = await controller.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]), timeout=DEADLINE_S)
    assert answer.results[0].error_code == code
    assert answer.results[0].error_message
    assert {view.name for view in await admin.list_topics()} == before


async def test_an_unknown_topic_cannot_be_deleted(controller: "admin_pb2_grpc.AdminServiceAsyncStub") -> None:
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name="nowhere")])
    answer = await controller.DeleteTopics(request, timeout=DEADLINE_S)
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert answer.results[0].error_message


def batch(*, count: int = 3) -> bytes:
    records = [NewRecord(value=b"v%d" % i) for i in range(count)]
    return build_batch(records, timestamp_ms=1)


def with_right_crc(data: bytes) -> bytes:
    """The batch with its checksum made right again."""
    return data[:17] + struct.pack(">I", google_crc32c.value(data[21:])) + data[21:]


def wrong_count(data: bytes) -> bytes:
    """Says one record more than there are: a right checksum with it kills every reader."""
    changed = bytearray(data)
    struct.pack_into(">i", changed, 23, struct.unpack_from(">i", data, 23)[0] + 1)
    struct.pack_into(">i", changed, 57, struct.unpack_from(">i", data, 57)[0] + 1)
    return with_right_crc(bytes(changed))


def wrong_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("bytes_", "code"),
    [
        (b"", errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (b"\x00" * 10, errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (b"\xff" * 200, errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (batch()[:-3], errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (batch() + batch(), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (wrong_crc(batch()), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (wrong_count(batch()), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
        (with_right_crc(batch()[:16] + b"\x01" + batch()[17:]), errors_pb2.ERROR_CODE_CORRUPT_MESSAGE),
    ],
    ids=["empty", "zeros", "ones", "cut off", "two batches", "wrong crc", "right crc, wrong count", "magic 1"],
)
async def test_a_malformed_batch_is_refused_and_nothing_is_appended(
    leader: "log_pb2_grpc.LogServiceAsyncStub", bytes_: bytes, code: int
) -> None:
    before = await end_offset(leader)
    part = log_pb2.ProducePartition(topic=TOPIC, partition=0, record_batch=bytes_)
    answer = await leader.Produce(log_pb2.ProduceRequest(partitions=[part]), timeout=DEADLINE_S)
    assert answer.results[0].error_code == code
    assert answer.results[0].error_message
    assert await end_offset(leader) == before


async def test_an_oversize_batch_is_refused(leader: "log_pb2_grpc.LogServiceAsyncStub") -> None:
    before = await end_offset(leader)
    big = build_batch([NewRecord(value=b"x" * 3_000_000)], timestamp_ms=1)
    part = log_pb2.ProducePartition(topic=TOPIC, partition=0, record_batch=big)
    answer = await leader.Produce(log_pb2.ProduceRequest(partitions=[part]), timeout=DEADLINE_S)
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
    assert await end_offset(leader) == before


async def test_a_message_beyond_the_listener_is_refused_by_grpc(leader: "log_pb2_grpc.LogServiceAsyncStub") -> None:
    part = log_pb2.ProducePartition(topic=TOPIC, partition=0, record_batch=b"x" * (65 * 1024 * 1024))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await leader.Produce(log_pb2.ProduceRequest(partitions=[part]), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await end_offset(leader) >= 0


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (
            log_pb2.ProducePartition(topic="nowhere", partition=0, record_batch=batch()),
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            log_pb2.ProducePartition(topic=TOPIC, partition=-1, record_batch=batch()),
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            log_pb2.ProducePartition(topic=TOPIC, partition=2**31 - 1, record_batch=batch()),
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            log_pb2.ProducePartition(topic=TOPIC, partition=0, topic_id="A" * 22, record_batch=batch()),
            errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
        ),
        (log_pb2.ProducePartition(topic=TOPIC, partition=0), errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (
            log_pb2.ProducePartition(
                topic=TOPIC,
                partition=0,
                plain=log_pb2.PlainRecords(records=[log_pb2.Record(value=b"x")], producer_id=7, base_sequence=1),
            ),
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
        ),
    ],
    ids=[
        "unknown topic",
        "negative partition",
        "huge partition",
        "other topic id",
        "nothing to append",
        "no producer epoch",
    ],
)
async def test_a_bad_partition_is_refused(
    leader: "log_pb2_grpc.LogServiceAsyncStub", part: log_pb2.ProducePartition, code: int
) -> None:
    before = await end_offset(leader)
    answer = await leader.Produce(log_pb2.ProduceRequest(partitions=[part]), timeout=DEADLINE_S)
    assert answer.results[0].error_code == code
    assert await end_offset(leader) == before


async def test_acks_that_no_value_names_are_refused(leader: "log_pb2_grpc.LogServiceAsyncStub") -> None:
    before = await end_offset(leader)
    part = log_pb2.ProducePartition(topic=TOPIC, partition=0, record_batch=batch())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await leader.Produce(
            log_pb2.ProduceRequest(acks=log_pb2.Acks.ValueType(7), partitions=[part]), timeout=DEADLINE_S
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS
    assert await end_offset(leader) == before


@pytest.mark.parametrize("offset", [-1, 10**12])
async def test_an_offset_outside_the_log_is_out_of_range(
    leader: "log_pb2_grpc.LogServiceAsyncStub", offset: int
) -> None:
    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=TOPIC, partition=0, offset=offset)])
    answer = await leader.Fetch(request, timeout=DEADLINE_S)
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


async def test_garbage_bytes_are_refused_and_the_server_goes_on(cluster: LocalCluster) -> None:
    channel = open_channel(Address.parse(cluster.bootstrap[0]))
    call = channel.unary_unary("/regnum.broker.v1.LogService/Produce")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\xff\xff\xff\xff", timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    answer = await metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(
        metadata_pb2.GetMetadataRequest(brokers_only=True), timeout=5
    )
    assert len(answer.brokers) == 3
    await channel.close()


async def test_standbys_name_the_controller(cluster: LocalCluster, admin: Admin) -> None:
    view = await admin.describe_cluster()
    assert view.controller is not None
    standby = next(row for row in cluster.status() if row.role.value == "election" and row.id != view.controller.id)
    channel = open_channel(standby.addresses["client"])
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="n", partitions=1)])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await admin_pb2_grpc.AdminServiceStub(channel).CreateTopics(request, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await channel.close()
    assert TopicPartition("n", 0).topic not in {topic.name for topic in await admin.list_topics()}
