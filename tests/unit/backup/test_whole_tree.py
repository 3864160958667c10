"""No election process takes part while a restore is not whole."""

import asyncio

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_election.candidacy.whole_tree import is_whole_now, wait_whole
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

WRITING = RestoreMark(whole=False, run="r", backup="b", taken_ms=1, since_ms=2)
WHOLE = RestoreMark(whole=True, run="r", backup="b", taken_ms=1, since_ms=2)


async def test_an_election_process_waits_until_a_restore_is_whole() -> None:
    server = MemoryServer()
    store, other = MemoryStore(server), MemoryStore(server)
    await other.create(MARK, WRITING.encode())
    waiting = asyncio.create_task(wait_whole(store))
    await settle()
    assert not waiting.done()
    assert not await is_whole_now(store, FakeClock())
    await other.set(MARK, WHOLE.encode(), version=0)
    await within(waiting)
    assert await is_whole_now(store, FakeClock())


async def test_where_nothing_was_restored_nobody_waits() -> None:
    store = MemoryStore(MemoryServer())
    await within(wait_whole(store))
    assert await is_whole_now(store, FakeClock())
