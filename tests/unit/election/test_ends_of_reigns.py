"""The end of a reign is whole, also where a second sign of it comes meanwhile, and bounded in time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import pytest
import structlog
from regnum.types.v1 import errors_pb2
from regnum_election.reign.ending import END_S, end_reign, until_deposed
from regnum_election.reign.events import Mutation, Superseded
from regnum_election.reign.reign import DeposedError
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.creating import wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.simulation.loop import SimulatedLoop
from regnum_testing.waiting import DEADLINE_S, until, within

SEEN = ControllerEpoch(41)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def test_a_reign_that_is_cancelled_while_it_ends_is_ended_whole_and_says_why(cluster: FakeCluster) -> None:
    """A write meets the fence, and some turns later the watch on the controller's node shows that it is gone."""
    held = asyncio.Event()
    cluster.brokers[BrokerId(1)].closing = held
    controller = await cluster.reign()
    await until(lambda: len(controller.picture.brokers) == 3)
    running = cluster.running
    assert running is not None
    reigning = asyncio.create_task(until_deposed([running]))
    calling = asyncio.create_task(
        controller.topics.create((wanted("t"),), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    )
    await until(lambda: not controller.queue.is_empty)
    controller.queue.put(Superseded(seen=SEEN))
    await until(lambda: cluster.brokers[BrokerId(1)].closes)
    for _ in range(3):
        reigning.cancel()
        await settle()
    assert not reigning.done()
    with pytest.raises(RegnumError) as caught:
        await within(calling)
    assert caught.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    held.set()
    deposed = await within(reigning)
    assert deposed.seen == SEEN
    await until(lambda: all(task.done() for task in cluster.tasks))
    assert [broker.closes for broker in cluster.brokers.values()] == [1, 1, 1]
    assert not controller.picture.brokers, "released"


async def test_a_reign_that_is_cancelled_before_anything_deposed_it_ends_cancelled() -> None:
    ended: list[str] = []

    async def reign() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await settle()
            ended.append("whole")

    reigning = asyncio.create_task(until_deposed([asyncio.create_task(reign())]))
    await settle()
    reigning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(reigning)
    assert ended == ["whole"]


async def test_why_a_reign_ended_is_kept_when_the_cancellation_comes_after_it() -> None:
    """Beside the controller there is the watch for isolation, which takes its time to end."""
    held = asyncio.Event()

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(asyncio.CancelledError):
                await held.wait()

    async def reign() -> None:
        await settle()
        raise DeposedError("a later one", seen=SEEN)

    tasks = [asyncio.create_task(reign()), asyncio.create_task(beside())]
    reigning = asyncio.create_task(until_deposed(tasks))
    await until(tasks[0].done)
    await asyncio.sleep(0)
    reigning.cancel()
    held.set()
    assert (await within(reigning)).seen == SEEN


def test_what_hangs_is_left_behind_after_a_time_and_keeps_nothing_else_from_its_end() -> None:
    done: list[str] = []

    async def hangs() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()
                return
            done.append("told to end")
            return

    async def closes() -> None:
        await asyncio.sleep(0)
        done.append("closed")

    async def steps() -> AsyncGenerator[None, None]:
        yield

    async def end() -> float:
        loop = asyncio.get_running_loop()
        waiting = Mutation(name="waits", steps=steps(), abandon=lambda: done.append("answered"))
        began_s = loop.time()
        await end_reign([], [waiting], hangs, closes)
        await settle()
        return loop.time() - began_s

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner, structlog.testing.capture_logs() as logs:
        took_s = runner.run(end())
    assert took_s == pytest.approx(END_S, abs=0.01)
    assert done == ["answered", "closed", "told to end"]
    assert [line["event"] for line in logs] == ["the reign does not end: some of it is left behind"]
