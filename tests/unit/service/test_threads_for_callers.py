"""Calls of clients take turns on a thread of their own, and hanging up gives none of them a second one."""

import asyncio
import threading

import pytest
from regnum_model.principals import Principal
from regnum_service.access.identity import Caller, calling
from regnum_service.limits.threads import for_caller, turns
from regnum_testing.clock import settle
from regnum_testing.waiting import DEADLINE_S, eventually, within


async def test_one_that_hangs_up_again_and_again_has_one_piece_under_way() -> None:
    began, let, order = threading.Semaphore(0), threading.Event(), list[str]()

    def work(name: str) -> str:
        began.release()
        assert let.wait(DEADLINE_S)
        order.append(name)
        return name

    async def ask(name: str) -> str:
        with calling(Caller(principal=Principal(f"CN={name}"))):
            return await for_caller(lambda: work(name))

    first = asyncio.ensure_future(ask("greedy"))
    assert await asyncio.to_thread(began.acquire, timeout=DEADLINE_S)
    more = [asyncio.ensure_future(ask("greedy")) for _ in range(20)]
    await settle()
    modest = asyncio.ensure_future(ask("modest"))
    await settle()
    for call in (first, *more[:10]):
        call.cancel()
    await asyncio.wait([first, *more[:10]])
    assert turns().free == 0, "its thread works still"
    assert await asyncio.to_thread(lambda: "free") == "free", "and the process' own are free"
    let.set()
    await within(asyncio.gather(modest, *more[10:]))
    assert order[:3].count("modest") == 1
    assert len(order) == 1 + 1 + 10

    async def all_free() -> bool:
        return turns().free == 1

    await eventually(all_free)


async def test_what_a_job_raises_is_its_callers() -> None:
    def fail() -> None:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        await for_caller(fail)
    assert await for_caller(lambda: 1) == 1
