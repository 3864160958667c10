"""Two real clusters watched as deploy/observability watches: Prometheus, a collector of spans, Zipkin, the console.

Every query of every dashboard has data or a reason after kills, quotas, lag and a drain, and clusters do not mix
(``dashboards.scenario``). What processes send to the collector comes into its files, to Zipkin and to the console, and
is the same change there: as long, in the same steps. Pictures of Zipkin are left. What is not on the machine is named
and left out.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import urllib.error
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from regnum_console.serving import Options, serving
from regnum_insight.attribution.changes import Change
from regnum_insight.engine import analyse
from regnum_local.plan import TRACES
from regnum_service.clock import SystemClock
from regnum_telemetry import conventions as names
from regnum_telemetry import setup

from regnum_testing.dashboards.scenario import SCRAPED_S, play, two_clusters
from regnum_testing.dashboards.watched import collector
from regnum_testing.direct_http import opened_directly
from regnum_testing.pictures.devtools import Page, opened
from regnum_testing.ports import unused_port
from regnum_testing.under_load import LoadedCluster, until
from regnum_testing.zipkin_judge import JAR, send, zipkin

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TOLERANCE_MS: Final = 1e-3
"""Lengths in files and on pages."""
KINDS: Final = frozenset({names.KIND_BROKER_FAILURE, names.KIND_SUCCESSION, names.KIND_CONTROLLED_SHUTDOWN})
"""Changes that the scenario makes, and that have to arrive."""


async def judge(program: str, folder: Path) -> list[str]:
    """All that does not hold; ``queries.txt`` and pictures are left in a folder."""
    if shutil.which("prometheus") is None:
        _say("skipped: no prometheus on this machine (Debian: apt-get install prometheus)")
        return []
    with contextlib.ExitStack() as stack:
        jar, java = os.environ.get(JAR), shutil.which("java")
        address = ""
        if jar is None or java is None:
            _say(f"no Zipkin: {'no Java' if java is None else f'name its jar by {JAR}'}")
        else:
            address = await asyncio.to_thread(stack.enter_context, zipkin(java, Path(jar), folder))
        if collected := shutil.which("otelcol-contrib") is not None:
            otlp = f"127.0.0.1:{unused_port()}"
            place = stack.enter_context(collector(folder / "collector", backend=otlp, zipkin=address))
            os.environ[ENDPOINT] = f"http://{place}"
            stack.callback(os.environ.pop, ENDPOINT)
            traces, options = folder / "collector" / TRACES, Options(port=0, otlp=otlp)
        else:
            _say("no collector: no otelcol-contrib on this machine; spans go into files, and from there to Zipkin")
            traces = folder / "one" / TRACES
            options = Options(port=0, traces=traces)
        telemetry = setup.start("regnum-pictures", "1", traces_dir=None if collected else traces)
        stack.callback(telemetry.close)
        async with two_clusters(folder) as (one, other):
            options = replace(options, bootstrap=one.bootstrap)
            async with serving(options, SystemClock()) as console:
                found: list[str] = []

                async def arrived(_running: LoadedCluster) -> None:
                    changes = await _arrived(traces)
                    if address and not collected:
                        await asyncio.to_thread(send, address, changes.values(), analyse(traces).pictured)
                    look = partial(pictured, program, folder, console=console.address, zipkin=address)
                    for _, change in sorted(changes.items()):
                        found.extend(await asyncio.to_thread(look, change))

                return await play(one, other, folder, say=_say, meanwhile=arrived) + found


async def _arrived(traces: Path) -> dict[str, Change]:
    """The changes of the scenario out of files, by their kinds, as soon as there is one of each."""
    changes: dict[str, Change] = {}

    async def in_files() -> bool:
        nonlocal changes
        held = (await asyncio.to_thread(analyse, traces)).changes
        changes = {change.kind: change for change in held if change.kind in KINDS}
        return changes.keys() >= KINDS

    await until(in_files, within_s=SCRAPED_S)
    _say(f"files have changes of the kinds {', '.join(sorted(changes))}")
    return changes


def pictured(program: str, folder: Path, change: Change, *, console: str, zipkin: str) -> list[str]:
    """What does not hold of a change of the files, in the console and in Zipkin, of which pictures are left.

    Args:
        program: Chromium.
        folder: for the pictures.
        change: as the report has it.
        console: its address; empty: there is none.
        zipkin: the same.
    """
    found = []
    with opened(program) as page:
        page.look(width=1100, height=900, dark=False)
        if console:
            found += _in_console(page, folder, change, console)
        if zipkin:
            found += _in_zipkin(page, folder, change, zipkin)
    return found


def _in_console(page: Page, folder: Path, change: Change, console: str) -> list[str]:
    page.go(f"{console}changes/{change.trace_id}")
    total = f"Math.abs(Number(document.querySelector('p[data-trace]')?.dataset.totalMs) - {change.total_ms})"
    try:
        page.until(f"{total} <= {TOLERANCE_MS}")
    except TimeoutError:
        return [f"{change.kind}: {change.total_ms} ms in files; in the console it differs by {page.value(total)} ms"]
    page.picture(folder / f"console-{change.kind.replace(' ', '-')}.png")
    _say(f"{change.kind}: {change.total_ms:.3f} ms in files and in the console")
    return []


def _in_zipkin(page: Page, folder: Path, change: Change, zipkin: str) -> list[str]:
    try:
        with opened_directly(f"{zipkin}/api/v2/trace/{change.trace_id}", timeout=30.0) as answer:
            spans: list[dict[str, Any]] = json.load(answer)
    except urllib.error.HTTPError as error:
        return [f"{change.kind}: Zipkin answers {error.code} for its trace"]
    roots = [one for one in spans if not one.get("parentId") and one["name"] == names.LEADERSHIP_CHANGE.lower()]
    services = sorted({one["localEndpoint"]["serviceName"] for one in spans})
    _say(f"{change.kind}: Zipkin has {len(spans)} spans of {', '.join(services)}")
    page.go(f"{zipkin}/zipkin/traces/{change.trace_id}")
    page.until(f"document.body.innerText.toLowerCase().includes('{names.LEADERSHIP_CHANGE.lower()}')")
    page.wait(2.0)
    page.picture(folder / f"zipkin-{change.kind.replace(' ', '-')}.png")
    return [] if len(roots) == 1 else [f"{change.kind}: {len(roots)} roots in Zipkin"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
