"""What a client without rights may have a cluster do: real processes, their memory from /proc, their files on disk.

Where gRPC unpacks messages and health has no gates, the 2.3 MB of the packed calls here take each process some 70 MiB
(9 without) and ten times as long; with more of them at once, a metadata process had 6 GB.
"""

import asyncio
import dataclasses
import gzip
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_client import Admin
from regnum_kafka_wire.apis import APIS
from regnum_local.cluster import LocalCluster
from regnum_local.plan import NOT_GRPC, TRACES
from regnum_model.nodes import Address
from regnum_service.request_sizes import CONTROL_BYTES_MAX
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.attacks.raw_calls import RawCall, send_many
from regnum_testing.batches import batch_of
from regnum_testing.guarded_cluster import SERVICES, context_of, files_of, guarded_cluster
from regnum_testing.kafka_fuzz.dear import NUMBER, dear_request
from regnum_testing.kafka_fuzz.listener import sized
from regnum_testing.kafka_wire.schema import MESSAGES, versions_of
from regnum_testing.kafka_world import KafkaConnection
from regnum_testing.process_memory import PeakMemory
from regnum_testing.waiting import until

# In full: memory of processes is measured.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]
LOG = logging.getLogger(__name__)

MIB = 1024 * 1024
LARGE = "x" * (CONTROL_BYTES_MAX - 100)
COMPRESSED = 20
"""Calls of a client of gRPC's own, which compresses one after another."""
CONNECTIONS, OF_EACH = 40, 7
"""Calls that come at once, each with the same 8 KiB: so many go through one connection's first window."""
COMPRESSED_MEMORY_MAX = 32 * MIB
PLAIN_CONNECTIONS, PLAIN_CALLS = 6, 20
PLAIN_MEMORY_MAX = 400 * MIB
"""Of a metadata or election process to which 960 MiB are sent: 16 messages that are read at once, and 64 MiB that are
worked on, each as it came, as it was parsed and with what gRPC keeps of it."""
REFUSED_CALLS = 1_000
CALL_S = 60.0

BY_NAME = {"produce": 12, "fetch": 12, "offset_commit": 9, "offset_fetch": 9, "delete_topics": 5}
"""The last versions of Kafka's calls that name topics; later ones have ids."""
OPEN_TO_ALL = {"api_versions", "describe_cluster", "metadata", "list_groups"}
"""Calls that are answered without a right: versions, brokers, and lists of what one may see."""
_ANY = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
_OF_TOPICS = {"resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 3, **_ANY}
_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "u"}],
    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
}
SPELLED_OUT: dict[str, dict[str, Any]] = {
    "produce": {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": "secret", "partition_data": [{"index": 0, "records": batch_of(b"v")}]}],
    },
    "describe_acls": _OF_TOPICS,
    "delete_acls": {"filters": [_OF_TOPICS]},
    "alter_client_quotas": {"entries": [_QUOTA], "validate_only": False},
    "describe_client_quotas": {"components": [{"entity_type": "user", "match_type": 0, "match": "u"}], "strict": False},
}
"""Requests that mean nothing with any name in any place, and are refused for that."""
NOT_ALLOWED = {
    errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED,
    errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED,
    errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and admin are super users; the client guest may nothing."""
    folder = tmp_path_factory.mktemp("guests") / "data"
    async with guarded_cluster(folder, "guest", brokers=1, quotas=1) as started:
        async with Admin(started.bootstrap, tls=started.tls) as admin:
            await admin.create_topic("secret", partitions=1, replication_factor=1)
        yield started


def guest(cluster: LocalCluster, address: Address) -> grpc.aio.Channel:
    return opener(WatchedFiles(files_of(cluster, "guest")))(address)


def listeners(cluster: LocalCluster) -> list[tuple[str, int, Address]]:
    """Process, its id, and address, of every gRPC listener that there is."""
    return [
        (f"{row.name} {name}", row.pid, address)
        for row in cluster.status()
        for name, address in row.addresses.items()
        if row.role in SERVICES and name not in NOT_GRPC and row.pid
    ]


def place(cluster: LocalCluster, process: str) -> tuple[int, Address]:
    """Its id and where clients come in."""
    row = next(row for row in cluster.status() if row.name == process)
    assert row.pid is not None
    return row.pid, row.addresses["client"]


async def outcomes(calls: list[Any]) -> Counter[grpc.StatusCode]:
    async def one(call: Any) -> grpc.StatusCode:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    return Counter(await asyncio.gather(*map(one, calls)))


PACKED = gzip.compress(health_pb2.HealthCheckRequest(service=LARGE).SerializeToString())


@pytest.mark.parametrize("process", ["metadata-1", "election-1", "broker-1"])
async def test_packed_messages_that_come_at_once_stay_packed(cluster: LocalCluster, process: str) -> None:
    pid, address = place(cluster, process)
    context = context_of(files_of(cluster, "guest"))
    context.set_alpn_protocols(["h2"])
    # A hostile client made its message once, and sends it in every call.
    call = RawCall(path="/grpc.health.v1.Health/Check", message=PACKED, encoding="gzip")
    async with PeakMemory(pid) as memory:
        heard = await send_many(address, context, call, connections=CONNECTIONS, of_each=OF_EACH, seconds=CALL_S)
        memory.look()
    assert heard.total() == CONNECTIONS * OF_EACH
    assert heard["unanswered"] == heard["hung up"] == 0
    sent = CONNECTIONS * OF_EACH * len(PACKED)
    LOG.warning("%s: %d bytes, %d MiB more", process, sent, memory.above // MIB)
    assert memory.above < COMPRESSED_MEMORY_MAX


async def test_compressed_messages_become_no_memory_at_any_listener(cluster: LocalCluster) -> None:
    question = health_pb2.HealthCheckRequest(service=LARGE)
    found = listeners(cluster)
    assert len(found) >= 8
    for name, pid, address in found:
        async with guest(cluster, address) as channel, PeakMemory(pid) as memory:
            stub = health_pb2_grpc.HealthStub(channel)
            heard = await outcomes(
                [stub.Check(question, timeout=CALL_S, compression=grpc.Compression.Gzip) for _ in range(COMPRESSED)]
            )
            memory.look()
        LOG.warning("%s: %s, %d MiB more", name, dict(heard), memory.above // MIB)
        # Other processes alone have a certificate for the listeners between them.
        code = grpc.StatusCode.UNIMPLEMENTED if name.endswith(" client") else grpc.StatusCode.UNAVAILABLE
        assert heard == {code: COMPRESSED}, name
        assert memory.above < COMPRESSED_MEMORY_MAX, name


@pytest.mark.parametrize("what", ["health", "metadata", "admin"])
async def test_large_messages_wait_for_their_turn(cluster: LocalCluster, what: str) -> None:
    pid, address = place(cluster, "election-1" if what == "admin" else "metadata-1")
    channels = [guest(cluster, address) for _ in range(PLAIN_CONNECTIONS)]

    def call(channel: grpc.aio.Channel) -> Any:
        if what == "health":
            return health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=LARGE), timeout=CALL_S
            )
        if what == "metadata":
            return metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(
                metadata_pb2.GetMetadataRequest(topics=[LARGE]), timeout=CALL_S
            )
        return admin_pb2_grpc.AdminServiceStub(channel).CreateTopics(
            admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=LARGE)]), timeout=CALL_S
        )

    async with PeakMemory(pid) as memory:
        heard = await outcomes([call(channel) for _ in range(PLAIN_CALLS) for channel in channels])
        memory.look()
    for channel in channels:
        await channel.close()
    LOG.warning("%s: %s, %d MiB more", what, dict(heard), memory.above // MIB)
    assert grpc.StatusCode.OK not in heard
    assert memory.above < PLAIN_MEMORY_MAX
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        assert (await admin.describe_cluster()).brokers


async def test_refused_calls_leave_nothing_in_the_traces(cluster: LocalCluster) -> None:
    _, address = place(cluster, "broker-1")
    traced = (("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"),)
    asked = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="secret", partition=0)])

    def written() -> list[str]:
        lines = (
            line for file in (cluster.data_dir / TRACES).glob("*.jsonl") for line in file.read_bytes().splitlines()
        )
        scopes = (scope for line in lines for one in json.loads(line)["resourceSpans"] for scope in one["scopeSpans"])
        return [span["name"] for scope in scopes for span in scope["spans"] if span["traceId"] == "ab" * 16]

    async with guest(cluster, address) as channel:
        log, admin = log_pb2_grpc.LogServiceStub(channel), admin_pb2_grpc.AdminServiceStub(channel)
        for _ in range(REFUSED_CALLS // 50):
            answers = await asyncio.gather(
                *(log.ListOffsets(asked, metadata=traced, timeout=CALL_S) for _ in range(50))
            )
            assert {answer.results[0].error_code for answer in answers} == {
                errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
            }
        # By way of the broker: neither it nor the controller writes.
        for version in (0, 2, 5, 7) * 5:
            created = admin_pb2.CreateTopicsRequest(
                header=RequestHeader(api_version=version), topics=[admin_pb2.NewTopic(name="made-up", partitions=1)]
            )
            await outcomes([admin.CreateTopics(created, metadata=traced, timeout=CALL_S)])
        # One that is not refused is written, and what was written before it as well.
        metadata = metadata_pb2_grpc.MetadataServiceStub(channel)
        await metadata.DescribeCluster(metadata_pb2.DescribeClusterRequest(), metadata=traced, timeout=CALL_S)

    await until(written, "a span of a call that was not refused")
    LOG.warning("%d refused calls and one other left %s", REFUSED_CALLS + 20, written())
    assert written() == ["regnum.metadata.v1.MetadataService/DescribeCluster"]


def codes_of(message: Any) -> set[int]:
    """Every error in an answer of Kafka's protocol, as kio has read it."""
    if isinstance(message, tuple):
        return set().union(*map(codes_of, message))
    if not dataclasses.is_dataclass(message):
        return set()
    found: set[int] = set()
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        found |= {int(value)} if field.name == "error_code" else codes_of(value)
    return found


async def test_every_call_of_kafka_is_refused_as_at_the_other_door(cluster: LocalCluster) -> None:
    """One element in each array, and every name that of the topic that there is."""
    row = next(row for row in cluster.status() if row.name == "broker-1")
    context = context_of(files_of(cluster, "guest"))
    address = row.addresses["kafka"]
    named = {api.name: api for api in APIS.values()}
    found: dict[str, set[int]] = {}
    for message in MESSAGES:
        layouts = versions_of(message, "request")
        version = BY_NAME.get(message, max(layouts))
        api = named["".join(part.capitalize() for part in message.split("_"))]
        connection = KafkaConnection(*await asyncio.open_connection(address.host, address.port, ssl=context))
        if message in SPELLED_OUT:
            number = connection.send(message, version, **SPELLED_OUT[message])
        else:
            number = NUMBER
            connection.writer.write(sized(dear_request(api, version, layouts[version], text=b"secret")))
        answer = await asyncio.wait_for(connection.receive(message, version, number), CALL_S)
        connection.writer.close()
        found[message] = codes_of(answer)
    assert len(found) == len(APIS)
    refused = {message: codes for message, codes in found.items() if message not in OPEN_TO_ALL}
    assert {message: codes for message, codes in refused.items() if not codes & NOT_ALLOWED} == {}
    assert {message: codes for message, codes in refused.items() if codes - NOT_ALLOWED - {0}} == {}
