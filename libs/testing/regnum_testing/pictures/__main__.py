"""Show reports of known changes, and the console, in headless Chromium and judge what becomes of them.

    python -m regnum_testing.pictures --out DIR [--kills 10] [--only report|pages|kills|back-ends]

The page asks the network for nothing and leaves no error in the console; the figures of its document are those of the
JSON beside it; with 3,000 changes it stays below 2 MB. A page that does ask and does complain is tried first, so that
silence means something. Of the console every page is looked at over a cluster of values (``pages``), a page of
another origin tries to read and to change something, a search goes over a gigabyte; and the
waterfall while brokers of a real cluster are killed (``kills``). Dashboards are asked of a real Prometheus, and spans
sent to a real collector, to Zipkin and to the console (``back-ends``). Screenshots, light and dark, are left in DIR:
look at them. Exit status: 0 all holds or there is no browser, which is said; 1 something does not hold.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from regnum_insight.engine import analyse
from regnum_insight.reporting.files import JSON, PAGE, write_files
from regnum_telemetry import conventions as names

from regnum_testing.change_traces import FULL_STEPS_MS, PLANNED_STEPS_MS, FullChangeTrace
from regnum_testing.otlp_lines import line
from regnum_testing.pictures import back_ends, kills, others, pages
from regnum_testing.pictures.browser import MISSING, Browser, Shown, find_browser

PAGE_BYTES_MAX: Final = 2_000_000
"""Size of a page of MANY changes."""
MANY: Final = 3_000
FEW: Final = 40
TOLERANCE_MS: Final = 1e-4
"""Figures are written to the nanosecond."""
BAD_PAGE: Final = (
    "<!doctype html><title>bad</title><img src='http://report.invalid/picture.png'>"
    "<script>console.error('something is wrong')</script>"
)
KINDS: Final = (names.KIND_BROKER_FAILURE, names.KIND_BALANCE, names.KIND_CONTROLLED_SHUTDOWN, names.KIND_REASSIGNMENT)


class _Figures(HTMLParser):
    """What a document says of each change: total, and steps, in milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, tuple[float, dict[str, float]]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's own form
        about = dict(attrs)
        trace_id = about.get("data-trace")
        if trace_id:
            pairs = (pair.partition("=") for pair in (about.get("data-steps-ms") or "").split())
            steps = {step: float(ms) for step, _, ms in pairs}
            self.of[trace_id] = (float(about.get("data-total-ms") or 0), steps)


def write_few(folder: Path) -> None:
    """Changes of several kinds whose lengths vary."""
    chance = random.Random(5)
    for trace in range(1, FEW + 1):
        kind = chance.choice(KINDS)
        of_kind = FULL_STEPS_MS if kind == names.KIND_BROKER_FAILURE else PLANNED_STEPS_MS
        steps = {step: ms * chance.uniform(0.5, 2.5) for step, ms in of_kind.items()}
        made = FullChangeTrace(
            trace, kind=kind, steps_ms=steps, before_ms=trace * 7_000.0, partitions=chance.choice((2, 8, 40, 200))
        )
        without = ["client 7", "reader 8"] if trace % 9 == 0 else ["broker 2"] if trace % 13 == 0 else []
        made.write(folder / str(trace), without=without, ahead_ms={"broker 3": 30.0} if trace % 5 == 0 else None)


def write_many(folder: Path, n: int = MANY) -> None:
    """One change, so many times."""
    folder.mkdir(parents=True)
    made = FullChangeTrace().documents()
    text = "\n".join(
        line(spans, service=process.split()[0], instance=process.split()[1]) for process, spans in made.items()
    )
    with (folder / "all.jsonl").open("w", encoding="utf-8") as file:
        for trace in range(1, n + 1):
            file.write(text.replace(f"{1:032x}", f"{trace:032x}") + "\n")


def complaints(shown: Shown, document: dict[str, Any]) -> Iterator[str]:
    """What does not hold of a page that was shown."""
    yield from (f"it asks for {url}" for url in sorted(shown.requests))
    yield from (f"it complains: {text}" for text in shown.console)
    figures = _Figures()
    figures.feed(shown.dom)
    if not figures.of:
        yield "it tells of no change"
    rows = {row["trace_id"]: row for row in document["failovers"]}
    for trace_id, (total_ms, steps) in figures.of.items():
        row = rows[trace_id]
        if abs(total_ms - row["total_ms"]) > TOLERANCE_MS or abs(sum(steps.values()) - total_ms) > TOLERANCE_MS:
            told = f"{sum(steps.values())} ms in steps, {total_ms} ms in all, {row['total_ms']} in JSON"
            yield f"trace {trace_id}: {told}"
        if any(abs(ms - row["stages_ms"].get(step, -1)) > TOLERANCE_MS for step, ms in steps.items()):
            yield f"trace {trace_id}: steps differ from those in JSON"


def judge(browser: Browser, folder: Path, *, pictures: bool) -> list[str]:
    """All that does not hold. Reports and pictures are left below a folder."""
    bad = folder / "bad.html"
    bad.write_text(BAD_PAGE, encoding="utf-8")
    shown = browser.show(bad)
    found = []
    if not any("report.invalid" in url for url in shown.requests) or not any("wrong" in told for told in shown.console):
        found.append(f"a page that asks and complains goes unnoticed: {sorted(shown.requests)}, {shown.console}")
    bad.unlink()
    for name, write in (("few", write_few), ("many", write_many)):
        write(folder / name / "traces")
        out = folder / name
        write_files(analyse(out / "traces"), out, source=name, now_s=time.time())
        document = json.loads((out / JSON).read_text(encoding="utf-8"))
        found += [f"{name}: {complaint}" for complaint in complaints(browser.show(out / PAGE), document)]
        size = (out / PAGE).stat().st_size
        if size > PAGE_BYTES_MAX:
            found.append(f"{name}: the page has {size:,} bytes")
    if pictures:
        for scheme in ("light", "dark"):
            picture = folder / f"{scheme}.png"
            browser.picture(folder / "few" / PAGE, picture, dark=scheme == "dark", height=6_000)
    return found


def main() -> int:
    """Judge; returns the exit status."""
    parser = argparse.ArgumentParser(prog="regnum_testing.pictures", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for reports and screenshots (default: a temporary one)")
    parser.add_argument(
        "--only", choices=("report", "pages", "kills", "back-ends"), default="", help="one part (default: all)"
    )
    parser.add_argument("--kills", type=int, default=10, help="brokers that are killed under the console (default: 10)")
    arguments = parser.parse_args()
    program = find_browser()
    if program is None:
        sys.stdout.write(f"skipped: {MISSING}\n")
        return 0
    folder = arguments.out or Path(tempfile.mkdtemp(prefix="regnum-pictures-"))
    folder.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    if arguments.only in {"", "report"}:
        found += judge(Browser(program), folder, pictures=True)
    if arguments.only in {"", "pages"}:
        found += [f"console: {told}" for told in asyncio.run(pages.judge(program, folder))]
        found += [f"console: {told}" for told in asyncio.run(others.judge(program))]
    if arguments.only in {"", "kills"}:
        found += [f"console: {told}" for told in asyncio.run(kills.judge(program, folder, kills=arguments.kills))]
    if arguments.only in {"", "back-ends"}:
        found += [f"back ends: {told}" for told in asyncio.run(back_ends.judge(program, folder))]
    for complaint in found:
        sys.stdout.write(f"! {complaint}\n")
    sys.stdout.write(f"{'all holds' if not found else f'{len(found)} do not hold'}; look at the pictures in {folder}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
