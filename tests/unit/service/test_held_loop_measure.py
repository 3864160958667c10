import asyncio
import gc
import threading
import time

import pytest
from regnum_testing.held_loop import ATTEMPTS_MAX, HeldLoop, run_measured

pytestmark = pytest.mark.alone


def burn(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_a_turn_that_computes_is_held_and_one_that_waits_is_not() -> None:
    async def scenario(held: HeldLoop) -> None:
        burn(0.08)
        with held.measuring("computes"):
            await asyncio.sleep(0)
            burn(0.06)
            await asyncio.sleep(0)
        with held.measuring("in slices"):
            for _ in range(20):
                burn(0.005)
                await asyncio.sleep(0)
        with held.measuring("waits"):
            await asyncio.to_thread(burn, 0.06)
            await asyncio.sleep(0.06)

    held = run_measured(scenario, how_slow=lambda: 1.0)
    assert held.worst_s["computes"] >= 0.06
    assert held.worst_s["in slices"] < 0.05
    assert held.worst_s["waits"] < 0.05
    with pytest.raises(AssertionError, match="computes"):
        held.assert_free()


def test_where_everything_takes_longer_the_limit_is_higher_and_not_away() -> None:
    async def scenario(held: HeldLoop) -> None:
        with held.measuring("computes"):
            await asyncio.sleep(0)
            burn(0.06)
            await asyncio.sleep(0)

    run_measured(scenario, how_slow=iter([1.0, 1.5]).__next__).assert_free()
    with pytest.raises(AssertionError, match=r"1\.1 times as slow"):
        run_measured(scenario, how_slow=lambda: 1.1).assert_free()


def test_what_holds_the_loop_is_held_each_time_and_a_neighbour_is_not() -> None:
    burnt_s = iter([0.06, 0.001])

    async def neighbour(held: HeldLoop) -> None:
        with held.measuring("computes"):
            await asyncio.sleep(0)
            burn(next(burnt_s))
            await asyncio.sleep(0)

    async def alternating(held: HeldLoop) -> None:
        with held.measuring("computes"):
            await asyncio.sleep(0)
            burn(0.06)
            await asyncio.sleep(0)
        await neighbour(held)

    measured = run_measured(neighbour, how_slow=lambda: 1.0)
    measured.assert_free()
    assert len(measured.attempts) == 2
    burnt_s = iter([0.001, 0.06, 0.001, 0.001])
    measured = run_measured(alternating, how_slow=lambda: 1.0)
    assert len(measured.attempts) == ATTEMPTS_MAX
    with pytest.raises(AssertionError, match="in 4 attempts"):
        measured.assert_free()


def test_callbacks_of_one_turn_count_together() -> None:
    async def scenario(held: HeldLoop) -> None:
        with held.measuring("crowd"):
            await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(2)))
            done = asyncio.Event()
            for _ in range(8):
                asyncio.get_running_loop().call_soon(burn, 0.01)
            asyncio.get_running_loop().call_soon(done.set)
            await done.wait()

    assert run_measured(scenario).worst_s["crowd"] >= 0.08


def test_a_collection_on_another_thread_counts() -> None:
    def remember() -> None:
        remembered = [[[]] for _ in range(100_000)]
        gc.collect()
        remembered.clear()

    async def scenario(held: HeldLoop) -> None:
        with held.measuring("collects"):
            thread = threading.Thread(target=remember)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0.001)

    assert run_measured(scenario).worst_s["collects"] > 0.0005
