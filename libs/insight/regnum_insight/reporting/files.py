"""The report as files of a folder: a page for people, JSON and CSV for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from regnum_insight.attribution.changes import UNTRACED
from regnum_insight.engine import Analysis
from regnum_insight.reporting.comparing import Comparison
from regnum_insight.reporting.page import page_of
from regnum_insight.reporting.rows import csv_of, row_of
from regnum_insight.reporting.text import chain_text, notes_of, tables_of
from regnum_insight.reporting.zipkin import zipkin_of

PAGE: Final = "report.html"
"""The page, below the folder."""
JSON: Final = "failovers.json"
"""All changes as JSON."""
CSV: Final = "segments.csv"
"""A line for each segment of each chain."""
ZIPKIN: Final = "zipkin.json"
"""Spans of the longest changes, as Zipkin's API takes them (``POST /api/v2/spans``)."""


def document_of(analysis: Analysis, out: Path, compared: Comparison | None = None) -> dict[str, Any]:
    """Everything as values: what ``-o json`` prints and the JSON file has; the latter without a comparison."""
    intake = analysis.intake
    return {
        "failovers": [row_of(change) for change in analysis.changes if change.kind != UNTRACED],
        "untraced_outages": [row_of(change) for change in analysis.changes if change.kind == UNTRACED],
        "spans": intake.spans_n,
        "files": intake.files_n,
        "malformed": {
            "lines": intake.documents_torn_n,
            "spans": intake.spans_refused_n,
            "foreign_documents": intake.documents_foreign_n,
            "kept": [{"file": one.file, "reason": one.reason, "text": one.text} for one in intake.aside],
        },
        "processes": [
            {"process": one.name, "version": one.version or None, "zone": one.zone or None}
            for one in sorted(intake.processes)
        ],
        "notes": notes_of(analysis.changes, intake),
        "out": str(out),
        "report": str(out / PAGE),
        **({} if compared is None else {"compared": _compared(compared)}),
    }


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        "steps": [step.to_value() for step in comparison.steps],
        "around": list(comparison.around),
    }


def text_of(analysis: Analysis, out: Path) -> str:
    """What a person gets in a terminal: tables, the worst chain, what is to be known, where the page is."""
    waited = [change for change in analysis.changes if change.chains and change.kind != UNTRACED]
    parts = [tables_of(analysis.changes)]
    if waited:
        parts.append(chain_text(max(waited, key=lambda change: change.total_ms)))
    parts.append("\n".join([*notes_of(analysis.changes, analysis.intake), f"report: {out / PAGE}"]))
    return "\n\n".join(parts)


def write_files(analysis: Analysis, out: Path, *, source: str, now_s: float) -> Sequence[Path]:
    """Write page, JSON, CSV and Zipkin JSON, each whole or not at all, over those of an earlier run. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    made = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    contents = {
        PAGE: page_of(analysis, made=made, source=source),
        JSON: json.dumps(document_of(analysis, out), indent=1) + "\n",
        CSV: csv_of(analysis.changes),
        ZIPKIN: json.dumps(zipkin_of(analysis.changes, analysis.pictured)) + "\n",
    }
    for name, text in contents.items():
        unfinished = out / f".{name}.unfinished"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(out / name)
    return [out / name for name in contents]
