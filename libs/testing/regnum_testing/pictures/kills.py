"""The console's waterfall in a browser while brokers of a real cluster are killed under load.

Each change has its first bar on the open page soon after the controller's opening record, and is in the end what the
report makes of the same traces.
"""

import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from regnum_client import Admin, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_console.serving import Options, serving
from regnum_insight.engine import analyse
from regnum_local.cluster import LocalCluster
from regnum_local.demo.report import Narrator
from regnum_local.demo.scenes import Stage
from regnum_local.demo.workload import Load
from regnum_local.plan import TRACES
from regnum_service.clock import SystemClock
from regnum_telemetry import conventions as names
from regnum_telemetry import setup
from rich.console import Console

from regnum_testing.pictures.devtools import Page, opened

BAR_MS_MAX: Final = 500.0
"""From the opening record to the first bar: the median of all changes."""
TOLERANCE_MS: Final = 1e-4
PARTITIONS: Final = 6
WATCH: Final = """
window.seen = {};
new MutationObserver(() => {
  const told = document.querySelector('#newest p[data-trace]');
  if (!told || !document.querySelector('#newest svg rect')) return;
  const one = window.seen[told.dataset.trace] ||= {first: Date.now()};
  one.total = told.dataset.totalMs;
  one.steps = told.dataset.stepsMs;
}).observe(document.getElementById('newest'), {childList: true, subtree: true});
"""
"""Notes when a change has its first bar, and the last state of its row."""


async def judge(program: str, folder: Path, *, kills: int) -> list[str]:
    """All that does not hold; a picture of the page after the last kill is left in the folder."""
    data_dir = folder / "cluster"
    narrator = Narrator(Console(file=sys.stderr))
    cluster = LocalCluster(data_dir, brokers=3, elections=3, metadata=1, quotas=1, report=narrator.detail)
    telemetry = setup.start("regnum-pictures", "1", traces_dir=data_dir / TRACES)
    await cluster.start()
    try:
        options = Options(bootstrap=cluster.bootstrap, port=0, traces=data_dir / TRACES)
        async with serving(options, SystemClock()) as running:
            seen, found = await _watched(program, folder, running.address, cluster, narrator, kills=kills)
    finally:
        await cluster.stop()
        await asyncio.to_thread(telemetry.close)
    return found + _held_against(seen, data_dir / TRACES, kills=kills)


async def _watched(
    program: str, folder: Path, address: str, cluster: LocalCluster, narrator: Narrator, *, kills: int
) -> tuple[dict[str, Any], list[str]]:
    """What the page had of each change, by its trace id; and what does not hold of the page."""
    with opened(program) as page:
        await asyncio.to_thread(_begin, page, f"{address}changes")
        await _hurt(cluster, narrator, kills=kills)
        await asyncio.sleep(3.0)
        seen = await asyncio.to_thread(page.value, "window.seen")
        page.picture(folder / "kills.png")
        found = [f"it asks for {url}" for url in page.requests if not url.startswith(address)]
        found += [f"it complains: {told}" for told in page.complaints]
    return seen, found


def _begin(page: Page, url: str) -> None:
    page.look(width=1100, height=900, dark=False)
    page.go(url)
    page.until("document.getElementById('live').dataset.state === 'open'")
    page.value(WATCH)


async def _hurt(cluster: LocalCluster, narrator: Narrator, *, kills: int) -> None:
    clock = SystemClock()
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        async with (
            Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=2)) as producer,
            Consumer(cluster.bootstrap) as consumer,
        ):
            load = Load(producer=producer, consumer=consumer, partitions=partitions, interval_s=0.05, clock=clock)
            stage = Stage(cluster=cluster, admin=admin, load=load, topics=["orders"], clock=clock, narrator=narrator)
            try:
                await load.start()
                for number in range(kills):
                    await stage.run_for(2.0)
                    await stage.kill_leader(partitions[number % PARTITIONS], restart_at_once=True)
                    await stage.all_in_sync(within_s=120.0)
                await load.finish()
            finally:
                await load.abandon()


def _held_against(seen: dict[str, Any], traces: Path, *, kills: int) -> list[str]:
    """What does not hold of the changes that the page showed, by the traces."""
    opened_ms = _openings(traces)
    waited = sorted(one["first"] - opened_ms[trace] for trace, one in seen.items() if trace in opened_ms)
    found = []
    if len(waited) < kills:
        return [f"{kills} kills, and {len(waited)} changes with an opening record had a bar on the page"]
    median = statistics.median(waited)
    sys.stdout.write(f"opening record to bar: median {median:.0f} ms of {len(waited)}, at most {waited[-1]:.0f} ms\n")
    if median > BAR_MS_MAX:
        found.append(f"the median from opening record to bar is {median:.0f} ms")
    of_report = {change.trace_id: change for change in analyse(traces).changes}
    for trace, one in seen.items():
        change = of_report.get(trace)
        if change is None or abs(float(one["total"]) - change.total_ms) > TOLERANCE_MS:
            told = "nothing" if change is None else f"{change.total_ms} ms"
            found.append(f"trace {trace}: {one['total']} ms on the page, {told} in the report")
    return found


def _openings(traces: Path) -> dict[str, float]:
    """When each change was opened, milliseconds since 1970, by its trace id."""
    found = {}
    for file in traces.glob("*election*.jsonl"):
        for text in file.read_text(encoding="utf-8").splitlines():
            if names.CHANGE_OPENED not in text:
                continue
            for span in _spans(json.loads(text)):
                if span["name"] == names.CHANGE_OPENED:
                    found[span["traceId"]] = int(span["endTimeUnixNano"]) / 1e6
    return found


def _spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for group in document["resourceSpans"] for scope in group["scopeSpans"] for span in scope["spans"]]
