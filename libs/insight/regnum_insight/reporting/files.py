"""The report as files of a folder: a page for people, JSON and CSV for programs."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import orjson

from regnum_insight.attribution.changes import UNTRACED, Change
from regnum_insight.engine import Analysis
from regnum_insight.reporting.comparing import Comparison
from regnum_insight.reporting.page import page_of
from regnum_insight.reporting.rows import row_of, write_csv
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
    lists = {name: [row_of(change) for change in changes] for name, changes in _lists(analysis).items()}
    return {**lists, **_around(analysis, out), **({} if compared is None else {"compared": _compared(compared)})}


def _lists(analysis: Analysis) -> Mapping[str, Iterable[Change]]:
    """The changes of a document, by the names of their lists."""
    return {
        "failovers": (change for change in analysis.changes if change.kind != UNTRACED),
        "untraced_outages": (change for change in analysis.changes if change.kind == UNTRACED),
    }


def _around(analysis: Analysis, out: Path) -> dict[str, Any]:
    """What a document has besides changes."""
    intake = analysis.intake
    return {
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
    }


def _write_document(file: IO[bytes], analysis: Analysis, out: Path) -> None:
    """``document_of`` as JSON, a change on each line: as values all of them are several times as large."""
    file.write(b"{")
    for name, changes in _lists(analysis).items():
        file.write(b'"%s": [' % name.encode())
        before = b"\n"
        for change in changes:
            file.write(before + orjson.dumps(row_of(change)))
            before = b",\n"
        file.write(b"\n],\n")
    # Names of files may be no text, which the fast encoder does not take.
    file.write(json.dumps(_around(analysis, out)).removeprefix("{").encode() + b"\n")


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        "steps": [step.to_value() for step in comparison.steps],
        "planned": [step.to_value() for step in comparison.planned],
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
    zipkin = zipkin_of(analysis.changes, analysis.pictured)
    writers: Mapping[str, Callable[[IO[bytes]], object]] = {
        # Names of files may be no text, here and below.
        PAGE: lambda file: file.write(page_of(analysis, made=made, source=source).encode("utf-8", "backslashreplace")),
        JSON: lambda file: _write_document(file, analysis, out),
        CSV: lambda file: write_csv(file, analysis.changes),
        ZIPKIN: lambda file: file.write(json.dumps(zipkin).encode() + b"\n"),
    }
    for name, write in writers.items():
        unfinished = out / f".{name}.unfinished"
        with unfinished.open("wb") as file:
            write(file)
        unfinished.replace(out / name)
    return [out / name for name in writers]
