"""A member of etcd that answers pings and keep-alives and carries nothing out keeps no watch silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.reading import EtcdReader
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.session import LeaseSession
from regnum_coordination.drivers.etcd.watch import EtcdWatcher
from regnum_coordination.port import SessionState
from regnum_coordination.timing import Backoff
from regnum_service.channel import aio_channel
from regnum_testing.etcd_member import EtcdMember
from regnum_testing.waiting import DEADLINE_S, until, within

KEYS = Keys("/regnum")
SESSION = KEYS.session(7)


@pytest.fixture
async def first() -> AsyncIterator[EtcdMember]:
    async with EtcdMember() as member:
        yield member


@pytest.fixture
async def second() -> AsyncIterator[EtcdMember]:
    async with EtcdMember() as member:
        yield member


def rpc_over(*members: EtcdMember, timeout_s: float) -> EtcdRpc:
    return EtcdRpc([aio_channel(member.target) for member in members], timeout_s=timeout_s)


async def test_watches_leave_a_member_whose_disk_hangs_while_the_session_is_kept_there(
    first: EtcdMember, second: EtcdMember
) -> None:
    rpc = rpc_over(first, second, timeout_s=1.0)
    now_s = asyncio.get_running_loop().time()
    session = LeaseSession(rpc, key=SESSION, lease_id=7, ttl_s=2, granted_at_s=now_s + DEADLINE_S)
    reader = EtcdReader(rpc, KEYS, max_txn_ops=128)
    watcher = EtcdWatcher(rpc, reader, KEYS, session.feed, backoff=Backoff())
    session.start()
    try:
        async with aclosing(watcher.tree("/brokers", 0)) as changes:
            change = asyncio.ensure_future(anext(changes))
            await until(lambda: first.watches == 1 and first.reads > 1)
            first.hang()
            for member in (first, second):
                member.change(KEYS.key("/brokers"))
            assert list((await within(change)).changed) == ["/brokers"]
            assert second.watches > 0
            beats = first.keep_alives
            await until(lambda: first.keep_alives > beats)
            assert session.state is SessionState.CONNECTED
    finally:
        await session.stop()
        await rpc.close()


async def test_each_member_that_watches_are_with_is_asked_and_only_its_own_watches_leave_it(
    first: EtcdMember, second: EtcdMember
) -> None:
    rpc = rpc_over(first, second, timeout_s=1.0)
    stays = rpc.watch_stream()
    await rpc.recover(stays, TimeoutError())
    leaves = rpc.watch_stream()
    assert (stays.member, leaves.member) == (0, 1)
    first.refuses = True
    second.hang()
    await within(rpc.find_silent(SESSION))
    assert (first.reads, second.reads) == (1, 1)
    assert (stays.silent.is_set(), leaves.silent.is_set()) == (False, True), "a refusal is an answer"
    leaves.call.cancel()
    await until(leaves.call.done)
    await within(rpc.find_silent(SESSION))
    assert (first.reads, second.reads) == (2, 1), "no watch is with the second any more"
    await rpc.close()


async def test_a_single_member_is_not_asked_since_watches_could_go_nowhere_else(first: EtcdMember) -> None:
    rpc = rpc_over(first, timeout_s=1.0)
    stream = rpc.watch_stream()
    first.hang()
    await within(rpc.find_silent(SESSION))
    assert first.reads == 0
    assert not stream.silent.is_set()
    await rpc.close()
