"""Who was asked to end hears it, also behind calls that keep a cancellation for themselves."""

import asyncio

import grpc
import pytest
from regnum_service.cancellation import carried_through, heeding
from regnum_testing.clock import settle
from regnum_testing.refused_stream import RefusedStream
from regnum_testing.waiting import DEADLINE_S, within


async def _for_ever(call: RefusedStream) -> None:
    while True:
        try:
            await heeding(call.read())
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0)


async def test_a_loop_that_tries_again_ends_when_it_is_told_in_the_moment_of_a_refusal() -> None:
    call = RefusedStream()
    task = asyncio.create_task(_for_ever(call))
    await call.waits.wait()
    task.cancel()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()


async def test_a_time_out_is_told_as_one_although_the_answer_came_in_that_moment() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await heeding(RefusedStream(answer=b"late").read())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_results_and_errors_pass_and_so_do_those_of_a_task_that_ends_already() -> None:
    async def given() -> str:
        return "given"

    async def failing() -> str:
        raise ValueError("as it is")

    async def ending() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            told.append(await heeding(given()))
        return "never"

    told: list[str] = []
    assert await heeding(given()) == "given"
    with pytest.raises(ValueError, match="as it is"):
        await heeding(failing())
    task = asyncio.create_task(ending())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert told == ["given"]


async def test_what_has_to_be_whole_is_carried_through_and_the_cancellation_is_heard_afterwards() -> None:
    held, done = asyncio.Event(), []

    async def work() -> str:
        await held.wait()
        done.append("whole")
        return "result"

    task = asyncio.create_task(carried_through(work()))
    for _ in range(3):
        await settle()
        task.cancel()
    await settle()
    assert not task.done()
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    assert done == ["whole"]
    assert await carried_through(work()) == "result"


async def test_a_time_out_around_it_is_told_as_one_and_an_error_of_the_work_is_not_hidden() -> None:
    async def failing() -> None:
        await settle()
        raise ValueError("as it is")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await carried_through(settle())
    with pytest.raises(ValueError, match="as it is"):
        await carried_through(failing())
    task = asyncio.create_task(carried_through(failing()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="as it is"):
        await within(task)
