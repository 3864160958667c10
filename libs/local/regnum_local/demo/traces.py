"""The Spark job over the demo's own traces."""

import asyncio
from pathlib import Path
from typing import Any, Final

from regnum_service.clock import Clock

from regnum_local.demo.report import Narrator
from regnum_local.failover_job import failover_report

TABLES: Final = "failovers"
"""Folder of the job's tables, beside that of the traces."""
_PROGRESS_S: Final = 5.0


async def analyse(traces: Path, *, clock: Clock, narrator: Narrator) -> list[dict[str, Any]]:
    """The job's row for each failover. Raises JobError; JobUnavailableError when Spark or Java is missing."""
    narrator.step("reading the traces of all this with Spark")
    ticker = asyncio.create_task(_tick(clock, narrator), name="progress of the job")
    try:
        report = await failover_report(traces, traces.parent / TABLES)
    finally:
        ticker.cancel()
    rows: list[dict[str, Any]] = report["failovers"]
    aside = report["malformed"]["lines"] + report["malformed"]["spans"]
    narrator.detail(f"{report['spans']:,} spans, {len(rows)} failovers; {aside} torn lines or spans set aside")
    return rows


async def _tick(clock: Clock, narrator: Narrator) -> None:
    begin = clock.monotonic()
    while True:
        await clock.sleep(_PROGRESS_S)
        narrator.detail(f"Spark has been at it for {clock.monotonic() - begin:.0f} s")
