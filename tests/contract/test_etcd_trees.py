"""What only a real etcd does to a tree: compact it away, and answer in fragments."""

import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio
from regnum_coordination.errors import Compacted
from regnum_coordination.port import Create, Set, Store, TreePage
from regnum_service.channel import aio_channel
from regnum_testing.coordination_worlds import EtcdWorld
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.waiting import DEADLINE_S, within

_PREFIXES = itertools.count(1)


@pytest_asyncio.fixture
async def world(etcd_server: EtcdServer) -> AsyncIterator[EtcdWorld]:
    made = EtcdWorld(etcd_server, f"/trees{next(_PREFIXES)}")
    yield made
    await made.close()


async def _compact(server: EtcdServer, revision: int) -> None:
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

    async with aio_channel(f"127.0.0.1:{server.port}") as channel:
        await rpc_pb2_grpc.KVStub(channel).Compact(rpc_pb2.CompactionRequest(revision=revision), timeout=DEADLINE_S)


async def _exhaust(pages: AsyncGenerator[TreePage, None]) -> None:
    async with aclosing(pages):
        async for _ in pages:
            pass


async def _revision(store: Store) -> int:
    async with aclosing(store.read_tree("/t")) as pages:
        revisions = {page.revision async for page in pages}
    (revision,) = revisions
    assert revision is not None
    return revision


async def test_a_tree_watch_from_before_a_compaction_says_so(world: EtcdWorld, etcd_server: EtcdServer) -> None:
    store = await world.open()
    await store.create("/t", b"0")
    revision = await _revision(store)
    for version in range(3):
        stat = await store.set("/t", b"x", version=version)
    await _compact(etcd_server, stat.modification_id)
    with pytest.raises(Compacted):
        await within(anext(store.watch_tree("/t", after_revision=revision)))
    await store.set("/t", b"last", version=3)
    async with aclosing(store.watch_tree("/t", after_revision=stat.modification_id)) as changes:
        node = (await within(anext(changes))).changed["/t"]
        assert node is not None
        assert node.data == b"last"


async def test_a_tree_watch_that_was_away_during_a_compaction_says_so(
    world: EtcdWorld, etcd_server: EtcdServer
) -> None:
    store, other = await world.open(), await world.open()
    await other.create("/t", b"0")
    async with aclosing(store.watch_tree("/t", after_revision=await _revision(store))) as changes:
        await other.set("/t", b"1", version=0)
        await within(anext(changes))
        await world.interrupt(store)
        await other.set("/t", b"2", version=1)
        stat = await other.set("/t", b"3", version=2)
        await _compact(etcd_server, stat.modification_id)
        await world.restore(store)
        with pytest.raises(Compacted):
            await within(anext(changes))


async def test_a_read_whose_revision_is_compacted_away_says_so(world: EtcdWorld, etcd_server: EtcdServer) -> None:
    store = await world.open()
    await store.create("/t", b"0")
    await store.write_batch([(Create(f"/t/{number}", b"y" * 1_000),) for number in range(6_500)])
    pages = store.read_tree("/t")
    await within(anext(pages))
    stat = await store.set("/t", b"x", version=None)
    await _compact(etcd_server, stat.modification_id)
    with pytest.raises(Compacted):
        await within(_exhaust(pages))


async def test_long_answers_come_in_fragments_and_transactions_stay_whole(world: EtcdWorld) -> None:
    """Each transaction is about half of what a fragment holds, and not a divisor of it."""
    store = await world.open()
    await store.create("/t", b"")
    paths = [f"/t/{number}" for number in range(10)]
    await store.multi([Create(path, b"") for path in paths])
    revision = await _revision(store)
    for version in range(12):
        await store.multi([Set(path, bytes([version]) * 95_000, version) for path in paths])
    async with aclosing(store.watch_tree("/t", after_revision=revision)) as changes:
        for version in range(12):
            change = await within(anext(changes))
            assert sorted(change.changed) == paths
            assert all(node is not None and node.stat.version == version + 1 for node in change.changed.values())
            assert all(node is not None and node.data[0] == version for node in change.changed.values())
