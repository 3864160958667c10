"""Clients that begin messages and never end them take no more of a broker's memory than was set for that.

gRPC takes a message into memory as it comes and tells nobody: so what bounds it is how many may be coming at a time.
A real broker; what it has in memory is read from /proc.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_client import Admin, NewTopic, Producer
from regnum_local.cluster import LocalCluster, ProcessRow
from regnum_local.plan import Role
from regnum_testing.partial_messages import PartialMessages
from regnum_testing.process_memory import PeakMemory
from regnum_testing.waiting import eventually, within

# In full: memory of a process is measured, and gigabytes are offered.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(200),
    pytest.mark.asyncio(loop_scope="module"),
]

LOG = logging.getLogger(__name__)
MIB = 1024 * 1024
MESSAGE_MAX = 4 * MIB
INCOMING_MAX = 64 * MIB
"""8 streams, 4 produce calls and 4 others, with messages of 4 MiB."""
CONNECTIONS, CALLS = 25, 16
WINDOW = 64 * 1024
"""Of a call whose message nobody reads."""
MEMORY_PER_BYTE = 2.0
"""Of the process for each byte that comes: pieces as they came, and the buffer that they are put together in."""
MEMORY_BESIDE = 100 * MIB
"""Connections with their buffers, calls with theirs."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    extra = {
        Role.BROKER: (
            *("--socket-request-max-bytes", str(MESSAGE_MAX)),
            *("--queued-max-incoming-bytes", str(INCOMING_MAX)),
        )
    }
    folder: Path = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=1, elections=1, metadata=1, extra=extra) as started:
        async with Admin(started.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        async with Producer(started.bootstrap) as producer:
            await within(await producer.send("t", b"first", partition=0))
        yield started


def row(cluster: LocalCluster) -> ProcessRow:
    return next(one for one in cluster.status() if one.name == "broker-1")


async def offered(cluster: LocalCluster, stack: AsyncExitStack, path: str) -> tuple[list[PartialMessages], PeakMemory]:
    """25 connections with 16 calls each, 1.6 GB of messages but for their ends; returns them, and the memory."""
    broker = row(cluster)
    assert broker.pid is not None
    address = broker.addresses["client"]
    peak = await stack.enter_async_context(PeakMemory(broker.pid))
    clients = [
        await stack.enter_async_context(
            PartialMessages(address.host, address.port, path=path, calls=CALLS, message_bytes=MESSAGE_MAX)
        )
        for _ in range(CONNECTIONS)
    ]
    return clients, peak


@pytest.mark.parametrize(("method", "coming"), [("ProduceStream", 8), ("Produce", 4), ("Fetch", 4)])
async def test_messages_that_never_end_take_what_was_set_for_them(
    cluster: LocalCluster, method: str, coming: int
) -> None:
    async with AsyncExitStack() as stack:
        clients, peak = await offered(cluster, stack, f"/regnum.broker.v1.LogService/{method}")

        async def settled() -> bool:
            return all(client.is_settled for client in clients)

        await eventually(settled)
        peak.look()
        complete, refused = sum(one.complete for one in clients), sum(one.refused for one in clients)
        LOG.info(
            "%s: %d wait with all but their ends, %d refused, broker %d MiB before, %d MiB above",
            *(method, complete, refused, peak.before / MIB, peak.above / MIB),
        )
        assert not any(client.closed for client in clients)
        assert complete == coming
        # One whose turn has not come stays with its client, but for a window.
        held_up = CONNECTIONS * CALLS - complete - refused
        assert peak.above <= MEMORY_PER_BYTE * (complete * MESSAGE_MAX + held_up * WINDOW) + MEMORY_BESIDE


async def test_a_producer_for_which_there_is_no_stream_goes_on_by_calls(cluster: LocalCluster) -> None:
    async with AsyncExitStack() as stack:
        clients, _ = await offered(cluster, stack, "/regnum.broker.v1.LogService/ProduceStream")

        async def taken() -> bool:
            return sum(one.complete for one in clients) == 8

        await eventually(taken)
        async with Producer(cluster.bootstrap) as producer:
            offsets = [(await within(await producer.send("t", b"more", partition=0))).offset for _ in range(20)]
        assert offsets == list(range(offsets[0], offsets[0] + 20))
