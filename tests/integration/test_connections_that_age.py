"""Connections of clients that are too old, and authorities that are taken away from connections that stand."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_client import Admin, Consumer, Producer, TlsFiles
from regnum_local.certificates import make
from regnum_local.cluster import LocalCluster
from regnum_local.plan import CLIENT_CA, CLUSTER_CA, Launch, Member, command
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.instant_alerts import scrape
from regnum_testing.waiting import DEADLINE_S, eventually

# In full: it measures time, on real processes.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

AGEING: Final = "broker-2"
"""The broker whose clients' connections become old; those of the other one have the default's hour."""
STANDING: Final = "broker-1"
AGE_S: Final = 3.0
SERVERS: Final = "servers.pem"
"""The authority of the cluster's processes once more: a client whose own files change connects anew."""
JITTER: Final = 0.1
"""gRPC makes an age shorter or longer by so much, so that connections do not all end at once."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """It believes two authorities of clients and two of processes; ``t`` and ``old`` are led by one broker each."""
    folder = tmp_path_factory.mktemp("aged") / "data"
    certs, others = folder / "certs", folder / "other-certs"
    make(certs, [])
    make(others, ["metadata-9"])
    (others / SERVERS).write_bytes((certs / CLUSTER_CA).read_bytes())
    for name in (CLIENT_CA, CLUSTER_CA):
        (certs / name).write_bytes((certs / name).read_bytes() + (others / name).read_bytes())

    def ageing(member: Member, launch: Launch) -> list[str]:
        line = command(member, launch)
        return [*line, "--client-connections-max-age-s", str(AGE_S)] if member.name == AGEING else line

    started = LocalCluster(
        folder, brokers=2, elections=1, metadata=1, tls=True, make_command=ageing, report=lambda _text: None
    )
    await started.start()
    try:
        async with Admin(started.bootstrap, tls=started.tls) as admin:
            await admin.create_topic("t", assignment={0: [1, 2]}, partitions=0)
            await admin.create_topic("old", assignment={0: [2, 1]}, partitions=0)
        yield started
    finally:
        await started.stop()


def address(cluster: LocalCluster, name: str, listener: str = "client") -> Address:
    return next(row for row in cluster.status() if row.name == name).addresses[listener]


def shows(cluster: LocalCluster, name: str) -> TlsFiles:
    """Of the other authorities."""
    folder = cluster.data_dir / "other-certs"
    return TlsFiles(ca=folder / SERVERS, certificate=folder / f"{name}.pem", key=folder / f"{name}.key")


def channel_to(cluster: LocalCluster, files: TlsFiles, name: str, listener: str = "client") -> grpc.aio.Channel:
    return opener(WatchedFiles(files))(address(cluster, name, listener))


def withdraw(certs: Path, name: str) -> None:
    """Take the second authority out of a file, whole or not at all."""
    kept = (certs / name).read_bytes().split(b"-----END CERTIFICATE-----")[0] + b"-----END CERTIFICATE-----\n"
    beside = certs / f"{name}.new"
    beside.write_bytes(kept)
    beside.replace(certs / name)


async def failed_handshakes(cluster: LocalCluster, name: str) -> float:
    metric = "regnum_tls_handshake_failures_total"
    samples = await asyncio.to_thread(scrape, address(cluster, name, "metrics"), metric)
    return sum(value for one, labels, value in samples if labels.get("reason") == "certificate_not_trusted")


async def to_its_end(call: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await call.read() is not grpc.aio.EOF:
            pass


async def ended(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await to_its_end(call)
    return caught.value.code()


def consume(channel: grpc.aio.Channel, topic: str) -> Any:
    return log_pb2_grpc.LogServiceStub(channel).Consume(
        log_pb2.ConsumeRequest(topic=topic, partition=0, form=log_pb2.RECORD_FORM_RECORDS)
    )


async def values(call: Any, wanted: bytes) -> None:
    """Read a stream until that record comes."""
    async with asyncio.timeout(DEADLINE_S):
        while wanted not in [one.value for one in (await call.read()).result.records]:
            pass


async def offsets(channel: grpc.aio.Channel, topic: str) -> int:
    """A short call; the error code of its answer."""
    query = log_pb2.OffsetQuery(topic=topic, partition=0, latest=log_pb2.LatestOffset())
    ask = log_pb2.ListOffsetsRequest(queries=[query])
    answer = await log_pb2_grpc.LogServiceStub(channel).ListOffsets(ask, timeout=DEADLINE_S)
    return int(answer.results[0].error_code)


async def refused(cluster: LocalCluster, files: TlsFiles, name: str, listener: str = "client") -> None:
    """Connect until that is refused: files are looked at once a second."""

    async def is_refused() -> bool:
        async with channel_to(cluster, files, name, listener) as channel:
            try:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.UNAVAILABLE
        return False

    await eventually(is_refused, what="a new connection is refused")


async def test_a_connection_that_is_too_old_is_replaced_and_its_clients_go_on(cluster: LocalCluster) -> None:
    sent: list[asyncio.Future[Any]] = []
    read: list[tuple[int, bytes | None]] = []
    over = asyncio.Event()

    async def write(producer: Producer) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            sent.append(await producer.send("old", str(number).encode(), partition=0))
            await asyncio.sleep(0.02)

    async def follow(consumer: Consumer) -> None:
        while not (over.is_set() and len(read) == len(sent)):
            read.extend((one.offset, one.value) for one in await consumer.read(timeout_s=0.5))

    async def describe(admin: Admin) -> None:
        while not over.is_set():
            await admin.describe_topic("old")
            await asyncio.sleep(0.1)

    bootstrap = [str(address(cluster, AGEING))]
    producer, consumer = Producer(bootstrap, tls=cluster.tls), Consumer(bootstrap, tls=cluster.tls)
    admin = Admin(bootstrap, tls=cluster.tls)
    assert cluster.tls is not None
    # A channel of gRPC's own, without what the SDK does about connections that end.
    plain = channel_to(cluster, cluster.tls, AGEING)
    async with producer, consumer, admin, plain, asyncio.timeout(3 * DEADLINE_S), asyncio.TaskGroup() as clients:
        await consumer.assign("old", partitions=[0], start=0)
        for one in (write(producer), follow(consumer), describe(admin)):
            clients.create_task(one)
        for _ in range(3):
            begun = time.monotonic()
            # It goes on beyond the age of its connection, for as long again.
            assert await ended(consume(plain, "old")) is grpc.StatusCode.UNAVAILABLE
            assert time.monotonic() - begun > AGE_S * (1 - JITTER)
        calls = 0
        end_s = time.monotonic() + 3 * AGE_S
        while time.monotonic() < end_s:
            # Some of them begin before their connection is too old, and end after that.
            ask = log_pb2.FetchRequest(max_wait_ms=700, min_bytes=1_000_000, max_bytes=2_000_000)
            ask.partitions.append(log_pb2.FetchPartition(topic="old", partition=0, offset=len(read)))
            answer = await log_pb2_grpc.LogServiceStub(plain).Fetch(ask, timeout=DEADLINE_S)
            assert answer.results[0].error_code == 0
            calls += 1
        assert calls >= 3
        over.set()
    told = [(await one).offset for one in sent]
    assert told == list(range(len(sent))), "each record once, in its order"
    assert read == [(number, str(number).encode()) for number in range(len(sent))]


async def test_an_authority_of_clients_that_is_taken_out_counts_for_connections_that_stand_when_they_are_too_old(
    cluster: LocalCluster,
) -> None:
    files = shows(cluster, "client-admin")
    standing, ageing = (channel_to(cluster, files, name) for name in (STANDING, AGEING))
    async with standing, ageing, Producer(cluster.bootstrap, tls=cluster.tls) as producer:
        for topic in ("t", "old"):
            await (await producer.send(topic, b"before", partition=0))
        stream = consume(standing, "t")
        await values(stream, b"before")
        before = {name: await failed_handshakes(cluster, name) for name in (STANDING, AGEING)}
        aged = consume(ageing, "old")
        await values(aged, b"before")

        withdraw(cluster.data_dir / "certs", CLIENT_CA)
        for name in (STANDING, AGEING):
            await refused(cluster, files, name)
        with pytest.raises(RegnumError, match="no broker answers"):
            async with Admin(cluster.bootstrap, tls=files):
                pass

        # What stands is not looked at again: it reads, and calls.
        await (await producer.send("t", b"after", partition=0))
        await values(stream, b"after")
        assert await offsets(standing, "t") == 0

        # Until it is too old: its stream ends, and it does not come again.
        assert await ended(aged) is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await offsets(ageing, "old")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

        async def counted() -> bool:
            return all([await failed_handshakes(cluster, name) > count for name, count in before.items()])

        await eventually(counted)
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.describe_topic("t")


async def test_an_authority_of_processes_that_is_taken_out_counts_for_connections_that_stand_after_a_restart(
    cluster: LocalCluster,
) -> None:
    files = shows(cluster, "metadata-9")
    async with channel_to(cluster, files, STANDING, "internal") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        withdraw(cluster.data_dir / "certs", CLUSTER_CA)
        await refused(cluster, files, STANDING, "internal")
        await health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)

        await cluster.restart(STANDING)
        await cluster.wait_healthy(STANDING)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:

        async def whole() -> bool:
            return sorted((await admin.describe_topic("t")).partitions[0].isr) == [1, 2]

        await eventually(
            whole, what="the processes of the cluster, of the authority that stayed, copy from one another"
        )
    async with Producer(cluster.bootstrap, tls=cluster.tls) as producer:
        await (await producer.send("t", b"by both", partition=0))
