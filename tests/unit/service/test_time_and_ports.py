"""Clock, loop lag, ports."""

import asyncio
import random
import socket

import pytest
import structlog
from regnum_service.clock import Clock, SystemClock
from regnum_service.loop_lag import LIMIT_S, LOG_PERIOD_S, PERIOD_S, LoopLag
from regnum_service.ports import LOW, free_port, free_ports, is_free
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock, settle


async def test_sleepers_wake_at_their_own_moments_in_order():
    clock = FakeClock(start_s=10.0)
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 1.0), ("now", 0.0)):
            group.create_task(sleep(name, seconds))
        await settle()
        assert clock.sleepers == 3
        await clock.advance(2.0)
        assert woken == [("now", 10.0), ("a", 11.0), ("b", 11.0)]
        assert clock.monotonic() == 12.0
        await clock.advance(1.0)
    assert woken[-1] == ("c", 13.0)


async def test_a_cancelled_sleeper_is_skipped():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1.0))
    await settle()
    task.cancel()
    await settle()
    assert clock.sleepers == 0
    await clock.advance(2.0)


async def test_the_system_clock_is_a_clock():
    clock: Clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.wall_ms() > 1_700_000_000_000


@pytest.fixture
async def lag():
    """A measurement under way, its clock, and the log."""
    clock = FakeClock()
    with structlog.testing.capture_logs() as logs:
        lag = LoopLag(clock)
        task = asyncio.create_task(lag.run())
        await settle()
        yield lag, clock, logs
        task.cancel()
        await asyncio.wait([task])


async def test_a_punctual_loop_has_no_lag(lag):
    measured, clock, logs = lag
    await clock.advance(1.0)
    assert measured.current_s == pytest.approx(0.0, abs=1e-9)
    assert measured.worst_s(10.0) == pytest.approx(0.0, abs=1e-9)
    assert logs == []


async def test_a_blocked_loop_shows_while_it_is_blocked_and_after(lag):
    measured, clock, logs = lag
    clock.skip(0.3 + PERIOD_S)
    assert measured.current_s == pytest.approx(0.3)
    assert measured.worst_s(1.0) == pytest.approx(0.3)
    await clock.advance(0.0)
    assert measured.current_s == pytest.approx(0.3)
    await clock.advance(1.0)
    assert measured.current_s == pytest.approx(0.0, abs=1e-9)
    assert measured.worst_s(5.0) == pytest.approx(0.3)
    assert measured.worst_s(0.5) == pytest.approx(0.0, abs=1e-9)
    assert [line["lag_ms"] for line in logs] == [300]


async def test_the_metric_shows_a_loop_that_is_held_up_and_measures_nothing():
    clock, metrics = FakeClock(), Metrics()
    lag = LoopLag(clock, metrics=metrics)
    LoopLag(clock, loop_name="other", metrics=metrics)
    task = asyncio.create_task(lag.run())
    await settle()
    clock.skip(60.0 + PERIOD_S)
    (shown,) = [one.numbers for one in metrics.read() if one.instrument is instruments.LOOP_LAG_CURRENT]
    assert dict(shown) == {("main",): pytest.approx(60.0), ("other",): 0.0}
    task.cancel()
    await asyncio.wait([task])


async def test_late_loops_are_logged_now_and_then_with_the_worst(lag):
    _, clock, logs = lag
    for late_s in (LIMIT_S + 0.01, 0.2, 0.1):
        clock.skip(late_s + PERIOD_S)
        await clock.advance(PERIOD_S)
    assert len(logs) == 1
    await clock.advance(LOG_PERIOD_S)
    assert [line["lag_ms"] for line in logs] == [60, 200]
    await clock.advance(3 * LOG_PERIOD_S)
    assert len(logs) == 2


def test_free_ports_are_different_free_and_below_the_ephemeral_range():
    ports = free_ports(random.Random(1), 20)
    assert len(set(ports)) == 20
    assert all(LOW <= port < 32_768 for port in ports)
    assert all(is_free(port) for port in ports)


def test_a_port_in_use_or_spoken_for_is_not_chosen():
    with socket.socket() as listener:
        # Tests that run beside this one are given the same ports by the same seeds, so that one may be taken.
        seed = next(seed for seed in range(1_000) if _listens(listener, free_port(random.Random(seed))))
        port = listener.getsockname()[1]
        assert not is_free(port)
        assert free_port(random.Random(seed)) != port
    assert is_free(port)
    assert free_port(random.Random(seed), taken=(port,)) != port


def _listens(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        return False
    return True
