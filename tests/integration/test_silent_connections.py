"""Clients that hold connections and streams open keep nobody out who administers the cluster."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_client import Admin
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_service.connections import open_at
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.waiting import within

# In full: it measures time.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
LOG = logging.getLogger(__name__)

SILENT = 1_000
"""TCP connections that say nothing, at each listener for clients."""
STREAMS = 100
"""Open streams, each on a connection of its own, at the same listeners."""
CALLS = 150
P99_S_MAX = 0.5


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=[False, True], ids=["plaintext", "tls"])
async def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("silent") / "data"
    started = LocalCluster(
        folder, brokers=2, elections=1, metadata=1, report=lambda _text: None, tls=bool(request.param)
    )
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


PROGRAM = """
import select, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
poll, held = select.poll(), {}
def connect():
    one = socket.create_connection((host, port))
    held[one.fileno()] = one
    poll.register(one, select.POLLIN | select.POLLRDHUP)
for _ in range(count):
    connect()
print("open", flush=True)
while True:
    for number, _ in poll.poll():
        try:
            gone = not held[number].recv(4096)
        except OSError:
            gone = True
        if gone:
            poll.unregister(number)
            held.pop(number).close()
            connect()
"""
"""Holds so many connections that say nothing; whoever is hung up on connects again."""


@contextlib.asynccontextmanager
async def silence(address: Address) -> AsyncIterator[None]:
    """A process that holds ``SILENT`` connections to a listener."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, address.host, str(address.port), str(SILENT), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await within(process.stdout.readline()) == b"open\n"
        yield
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def streams(cluster: LocalCluster, address: Address) -> AsyncIterator[None]:
    """Streams that are held open and carry nothing more."""
    open_one = opener(None if cluster.tls is None else WatchedFiles(cluster.tls))
    async with contextlib.AsyncExitStack() as ends:
        for _ in range(STREAMS):
            channel = open_one(address)
            await ends.enter_async_context(channel)
            call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            ends.callback(call.cancel)
            assert await call.read() is not grpc.aio.EOF
        yield


async def timed(admin: Admin, prefix: str) -> list[float]:
    took: list[float] = []
    for number in range(CALLS):
        begun_s = time.perf_counter()
        await admin.create_topic(f"{prefix}-{number}", partitions=1, replication_factor=1)
        took.append(time.perf_counter() - begun_s)
    return sorted(took)


async def test_silent_connections_and_open_streams_leave_the_control_plane_quick(cluster: LocalCluster) -> None:
    places = [cluster.plan.of(role)[0].address("client") for role in (Role.ELECTION, Role.BROKER)]
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin, contextlib.AsyncExitStack() as ends:
        before = await timed(admin, "before")
        for place in places:
            await ends.enter_async_context(streams(cluster, place))
        for place in places:
            await ends.enter_async_context(silence(place))
        during = await timed(admin, "during")
        held = [await asyncio.to_thread(open_at, place.port) or 0 for place in places]
    for name, took in (("before", before), ("during", during)):
        LOG.info("%s: p50 %.0f ms, p99 %.0f ms", name, took[CALLS // 2] * 1e3, took[CALLS * 99 // 100] * 1e3)
    assert min(held) > SILENT * 0.9, "they were there"
    assert during[CALLS * 99 // 100] < P99_S_MAX
