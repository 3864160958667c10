"""A process that is slow to serve is waited for as long as it lives, with a word on what is waited for."""

import asyncio
import re
from pathlib import Path

import pytest
from regnum_local.awaited import NEWS_S, Awaited
from regnum_local.cluster import LaunchError, LocalCluster
from regnum_local.identity import ProcessIdentity
from regnum_local.runtime_record import read_record
from regnum_service.clock import SystemClock
from regnum_testing.clock import FakeClock
from regnum_testing.fake_launcher import fake_command
from regnum_testing.waiting import until

PACE = 400


class HurryingClock(SystemClock):
    """A minute is a seventh of a second."""

    def monotonic(self) -> float:
        """Seconds that pass quickly."""
        return super().monotonic() * PACE

    async def sleep(self, seconds: float) -> None:
        """As quickly."""
        await super().sleep(max(0.02, seconds / PACE))


async def test_what_a_start_waits_for_is_told_now_and_then_and_no_more_when_it_serves() -> None:
    clock, lines = FakeClock(), list[str]()
    awaited = Awaited(lines.append, clock, Path("/data/logs"))
    telling = asyncio.create_task(awaited.tell())
    with awaited.waiting("broker-1", lambda: "runs and does not serve yet"):
        await clock.advance(NEWS_S)
        await clock.advance(NEWS_S)
    await clock.advance(NEWS_S)
    telling.cancel()
    assert [line.partition(" s after")[0] for line in lines] == [
        "waiting for broker-1: it runs and does not serve yet, 10",
        "waiting for broker-1: it runs and does not serve yet, 20",
    ]
    assert "/data/logs/broker-1.log" in lines[0]


async def test_a_process_that_does_not_serve_for_minutes_is_not_ended_and_one_that_dies_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    cluster = LocalCluster(
        tmp_path,
        brokers=1,
        elections=1,
        metadata=0,
        report=lines.append,
        make_command=fake_command({"broker-1": "mute"}),
        clock=HurryingClock(),
    )
    starting = asyncio.create_task(cluster.start())
    await until(lambda: "broker-1" in getattr(read_record(tmp_path), "processes", {}))
    broker: ProcessIdentity = read_record(tmp_path).processes["broker-1"]  # type: ignore[union-attr]
    await until(lambda: any(re.match(r"waiting for broker-1: .* \d\d\d s after its start", line) for line in lines))
    assert broker.alive()
    assert not starting.done()
    await cluster.kill("broker-1")
    with pytest.raises(LaunchError, match="broker-1 was killed"):
        await starting
