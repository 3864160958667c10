"""Where the time went, by the demo's own traces."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from regnum_insight.attribution.changes import UNTRACED
from regnum_insight.engine import analyse as analyse_folder
from regnum_insight.reporting.files import PAGE, write_files
from regnum_insight.reporting.rows import row_of
from regnum_insight.reporting.text import chain_text, notes_of
from regnum_service.clock import Clock

from regnum_local.demo.report import Narrator

TABLES: Final = "failovers"
"""Folder of the report, beside that of the traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """What the traces tell."""

    failovers: list[dict[str, Any]]
    """A row for each change of leadership."""
    worst: str
    """The chain of the partition that waited longest, drawn; empty where none did."""
    page: Path
    """The report as a page."""


async def analyse(traces: Path, *, clock: Clock, narrator: Narrator) -> Analysed:
    """Read the traces and write the report. Raises OSError where there are none, or it cannot be written."""
    narrator.step("reading the traces of all this")
    analysis = await asyncio.to_thread(analyse_folder, traces)
    out = traces.parent / TABLES
    await asyncio.to_thread(write_files, analysis, out, source=str(traces), now_s=clock.wall_ms() / 1000)
    for note in notes_of(analysis.changes, analysis.intake):
        narrator.detail(note)
    waited = [change for change in analysis.changes if change.chains and change.kind != UNTRACED]
    return Analysed(
        failovers=[row_of(change) for change in analysis.changes if change.kind != UNTRACED],
        worst=chain_text(max(waited, key=lambda change: change.total_ms)) if waited else "",
        page=out / PAGE,
    )
