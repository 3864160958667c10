"""Clients that leave in the middle of a read: etcd 3.5.1 dies of that if the read is a read-only transaction."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest_asyncio
from regnum_coordination import open_store
from regnum_coordination.port import Check, Create, Store
from regnum_service.channel import aio_channel
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.waiting import DEADLINE_S, within

MAX_TXN_OPS: Final = 4000
"""Many reads in each transaction: the server is in the middle of one most of the time."""
PATHS: Final = ("/d", *(f"/d/{number}" for number in range(MAX_TXN_OPS)))

_READER: Final = """
import asyncio, sys
from regnum_coordination import open_store
from regnum_coordination.errors import CoordinationError

# They are there to be killed and must not leave before: a server that is busy with the others may refuse one awhile.
async def readable(url, paths):
    while True:
        try:
            store = await open_store(url, operation_timeout_s=60.0)
            await store.get_many(paths)
            return store
        except CoordinationError as error:
            print(error, file=sys.stderr, flush=True)

async def main() -> None:
    paths = [f"/d/{number}" for number in range(int(sys.argv[2]))]
    store = await readable(sys.argv[1], paths)
    print("reading", flush=True)

    async def read() -> None:
        while True:
            try:
                await store.get_many(paths)
            except CoordinationError as error:
                print(error, file=sys.stderr, flush=True)
                await asyncio.sleep(0.1)

    await asyncio.gather(*(read() for _ in range(4)))

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """What a server says of itself."""

    term: int
    """Grows when a server starts again."""
    raft_index: int
    """Entries of the raft log."""
    revision: int
    """Of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crowd:
    """A server with many nodes, and a session."""

    url: str
    """Address of the store."""
    port: int
    """Port of the server."""
    store: Store
    """The session."""

    async def status(self) -> _Status:
        """Ask the server."""
        from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

        async with aio_channel(f"127.0.0.1:{self.port}") as channel:
            answer = await rpc_pb2_grpc.MaintenanceStub(channel).Status(rpc_pb2.StatusRequest(), timeout=DEADLINE_S)
            read = await rpc_pb2_grpc.KVStub(channel).Range(rpc_pb2.RangeRequest(key=b"\0"), timeout=DEADLINE_S)
        return _Status(term=answer.raftTerm, raft_index=answer.raftIndex, revision=read.header.revision)


@pytest_asyncio.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[_Crowd]:
    server = EtcdServer(tmp_path, max_txn_ops=MAX_TXN_OPS)
    server.start()
    try:
        url = f"etcd://127.0.0.1:{server.port}/crowd?max_txn_ops={MAX_TXN_OPS}"
        store = await open_store(url)
        await store.create("/d", b"")
        await store.write_batch([(Create(path, b"x"),) for path in PATHS[1:]])
        yield _Crowd(url=url, port=server.port, store=store)
        await store.close()
    finally:
        server.kill()


async def test_reads_that_are_cancelled_leave_the_server_alone(crowd: _Crowd) -> None:
    before = await crowd.status()
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    assert all(await crowd.store.get_many(PATHS))
    whole_s = loop.time() - started_s
    for step in range(60):
        # The cancellation meets the server at a later moment each time.
        reads = crowd.store.get_many(PATHS), crowd.store.get_many(PATHS), crowd.store.children("/d")
        reading = asyncio.gather(*reads)
        await asyncio.wait({reading}, timeout=whole_s * step / 60)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert await crowd.store.get_many(["/d"])
    assert (await crowd.status()).term == before.term


async def test_readers_that_are_killed_leave_the_server_alone(crowd: _Crowd) -> None:
    before = await crowd.status()
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _READER, crowd.url, str(MAX_TXN_OPS), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(5)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert await within(child.stdout.readline()) == b"reading\n"
    finally:
        for child in children:
            child.kill()
            await child.communicate()  # to the end of its output, so that nothing of it is left
    assert await crowd.store.get_many(["/d"])
    assert (await crowd.status()).term == before.term


async def test_a_large_read_goes_through_raft_and_changes_nothing(crowd: _Crowd) -> None:
    before = await crowd.status()
    assert all(await crowd.store.get_many(PATHS))
    after = await crowd.status()
    assert after.raft_index > before.raft_index
    assert after.revision == before.revision


async def test_checks_alone_go_through_raft_and_change_nothing(crowd: _Crowd) -> None:
    for write in (crowd.store.multi([Check("/d", 0)]), crowd.store.write_batch([(Check("/d", 0),)])):
        before = await crowd.status()
        await write
        after = await crowd.status()
        assert after.raft_index > before.raft_index
        assert after.revision == before.revision
