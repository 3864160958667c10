"""One session after another: what ends one, what ends all, and that none is left open."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.sessions import REOPEN_INTERVAL_S, run_sessions
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within


class RefusalError(Exception):
    pass


class Process:
    """Lives through what is in ``ends``, one session each, then for ever."""

    def __init__(self, *ends: Exception | None) -> None:
        self.server = MemoryServer()
        self.clock = FakeClock()
        self.ends = list(ends)
        self.lived: list[int] = []
        self.openings: list[Exception] = []

    async def open(self) -> Store:
        if self.openings:
            raise self.openings.pop(0)
        return MemoryStore(self.server)

    async def live(self, store: Store) -> None:
        self.lived.append(store.session_id)
        assert list(self.server.sessions()) == [store.session_id]
        if not self.ends:
            await asyncio.Event().wait()
        end = self.ends.pop(0)
        if end is not None:
            raise end

    def start(self, live: Callable[[Store], Awaitable[None]] | None = None) -> "asyncio.Task[None]":
        return asyncio.create_task(run_sessions(self.open, live or self.live, self.clock))


@pytest.mark.parametrize("end", [None, SessionExpired("over")])
async def test_the_next_session_begins_at_once(end: Exception | None) -> None:
    process = Process(end)
    running = process.start()
    await settle()
    assert len(process.lived) == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not list(process.server.sessions())


async def test_a_store_that_does_not_answer_is_given_time() -> None:
    process = Process(ConnectionLoss("no answer"))
    running = process.start()
    await settle()
    assert len(process.lived) == 1
    assert not list(process.server.sessions())
    await process.clock.advance(REOPEN_INTERVAL_S)
    assert len(process.lived) == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_opening_is_tried_until_a_store_answers() -> None:
    process = Process()
    process.openings = [ConnectionLoss("nobody"), ConnectionLoss("nobody")]
    running = process.start()
    await settle()
    assert process.lived == []
    await process.clock.advance(REOPEN_INTERVAL_S)
    assert process.lived == []
    await process.clock.advance(REOPEN_INTERVAL_S)
    assert len(process.lived) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_anything_else_ends_the_process_and_closes_the_session() -> None:
    process = Process(RefusalError("another owner"))
    with pytest.raises(RefusalError):
        await within(process.start())
    assert not list(process.server.sessions())
