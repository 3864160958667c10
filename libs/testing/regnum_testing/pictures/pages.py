"""Every page of the console in a browser, over a cluster of values with something on each of them.

Light, dark, and 360 pixels wide: no page asks another place for anything, complains, or is wider than its window.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from regnum_client.admin.describing.events import EventCause, EventKind
from regnum_client.admin.describing.quota_usage import ClientUsage
from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.admin.health.figures import BrokerFigures
from regnum_client.admin.health.views import TroubleCount, TroubledPartition
from regnum_client.admin.reassignment.values import AddedReplica, OngoingReassignment
from regnum_client.records import TopicPartition
from regnum_console.guard import Hosts
from regnum_console.listening import served
from regnum_console.live.feed import Sources
from regnum_console.live.tail import TraceTail
from regnum_insight.attribution.changes import SELECTION
from regnum_model.topic_filter import Trouble
from regnum_service.clock import SystemClock
from regnum_telemetry.conventions import KIND_BALANCE

from regnum_testing.asgi import HOST, ask
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.fake_console import WHEN_MS, FakeConsole, event_of, health_of, topic_of
from regnum_testing.fake_visitors import FakeVisitors
from regnum_testing.pictures import kept
from regnum_testing.pictures.devtools import Page, opened

TOPICS: Final = 5_000
GROUPS: Final = 100
CPU_S_MAX: Final = 1.0
BYTES_MAX: Final = 1_000_000
"""Of a first page of that many topics and groups."""
CHANGE: Final = f"{1:032x}"
PAGES: Final = {
    "cluster": "/",
    "broker": "/brokers/2",
    "topics": "/topics",
    "topic": "/topics/orders",
    "partition": "/topics/orders/0",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/billing?to=earliest",
    "choose": "/records",
    "records": "/records/orders?from=begin",
    "search": "/records/orders?search=Anna",
    "changes": "/changes",
    "change": f"/changes/{CHANGE}",
    "compared": f"/changes/{CHANGE}?with={2:032x}",
    "events": "/events",
    "quotas": "/quotas",
    "moves": "/moves",
    "missing": "/topics/none",
}
"""Pages by the name of their picture."""
STATE: Final = "document.getElementById('live').dataset.state"
HIDE: Final = """
Object.defineProperty(document, 'hidden', {value: true, configurable: true});
document.dispatchEvent(new Event('visibilitychange'));
"""
"""As if another page was looked at: a browser has six connections to a place for all its pages."""
VISITOR: Final = "visitor"
"""A page as it is for a visitor who has signed in."""
LOOKS: Final = (("light", 1100, 900, False), ("dark", 1100, 900, True), ("narrow", 360, 740, False))


def busy_console(traces: Path, hosts: Hosts, *, topics: int = TOPICS) -> FakeConsole:
    """A cluster in which something is wrong, something moves, and clients wait."""
    FullChangeTrace().write(traces)
    FullChangeTrace(2, kind=KIND_BALANCE, before_ms=-7_000.0).write(traces / "before")
    tails = Sources([TraceTail(one, SELECTION) for one in (traces, traces / "before")])
    console = FakeConsole(writes=True, source=tails, hosts=hosts)
    cluster = console.cluster
    for n in range(topics):
        cluster.topics[f"clicks.region-{n:04}"] = topic_of(f"clicks.region-{n:04}", [[1, 2, 3]])
    cluster.topics["orders"] = topic_of("orders", [[1, 2, 3], [2, 3], []])
    cluster.health = health_of(
        topics=topics + 1,
        partitions=topics + 3,
        troubles={
            Trouble.OFFLINE: TroubleCount(partitions=1, for_long=1),
            Trouble.UNDER_REPLICATED: TroubleCount(partitions=1, for_long=0),
        },
        troubled_partitions=(
            TroubledPartition(
                topic="orders",
                partition=2,
                troubles=(Trouble.OFFLINE,),
                age_s=61.0,
                leader=-1,
                isr=(),
                replicas=(1, 2, 3),
                reason="brokers 1, 2 and 3 lost what they had; `regnum partitions recover orders/2` says what is left",
            ),
        ),
    )
    cluster.figures = {n: _figures(n) for n in (1, 2, 3)}
    for n in range(GROUPS):
        name = "billing" if n == 0 else f"report-{n:03}"
        committed = {TopicPartition("orders", p): CommittedOffset(100 - (n + p) % 90, 4, "", WHEN_MS) for p in range(2)}
        cluster.groups[name] = committed
    kinds = (EventKind.BROKER_GONE, EventKind.LEADER_ELECTED, EventKind.CONTROLLER_ELECTED)
    cluster.events = [event_of(n, kinds[n % 3], trace_id=CHANGE, cause=EventCause.LIFELINE_BROKEN) for n in range(30)]
    cluster.clients = tuple(
        ClientUsage(
            broker=1 + n % 3,
            quota="producer_byte_rate",
            user=f"User:service-{n}",
            client_id=f"shop-{n}",
            rate=2_000_000.0 * (n + 1),
            limit=1_500_000.0,
            wait_s=0.4 * (3 - n),
            idle_s=0.1,
        )
        for n in range(3)
    )
    cluster.moves = (
        OngoingReassignment(
            topic="orders",
            partition=0,
            replicas=(1, 2, 3, 4),
            origin=(1, 2, 3),
            target=(2, 3, 4),
            phase="moving",
            waits_for="broker 4 is not in sync yet",
            since_ms=WHEN_MS,
            leader=1,
            isr=(1, 2, 3),
            bytes_total=2_000_000_000,
            bytes_done=500_000_000,
            added=(AddedReplica(broker=4, live=True, in_sync=False, log_end_offset=400, bytes=500_000_000),),
        ),
    )
    for n in range(60):
        text = f'{{"order": {n}, "customer": "Anna {n}", "items": [{{"sku": "A-{n}", "count": 2}}]}}'
        console.log.add(text.encode() if n % 3 else bytes(range(40)), key=f"customer-{n % 7}".encode())
    return console


def _figures(broker: int) -> BrokerFigures:
    return BrokerFigures(
        broker=broker,
        leading=1_700 + broker,
        replicas=5_003,
        produced_bytes_s=1_500_000.0 * broker,
        fetched_bytes_s=2_500_000.0,
        produce_p99_s=0.012,
        metadata_epoch=7,
        metadata_version=40,
        under_replicated=0,
        under_min_isr=0,
        offline=0,
        log_bytes=12_000_000_000,
        log_segments=5_100,
        rates_over_s=60.0,
        produced_records_s=1_500.0,
        fetched_records_s=2_500.0,
        replicated_in_bytes_s=0.0,
        replicated_out_bytes_s=0.0,
        refused_batches_s=0.0,
        loop_lag_max_s=0.004,
        resident_bytes=300_000_000,
        open_files=900,
        open_files_max=65_536,
        connections=40,
        lifeline_open=True,
        disk_free_bytes=40_000_000_000,
        disk_size_bytes=100_000_000_000,
        uptime_s=90_000.0,
    )


async def judge(program: str, folder: Path) -> list[str]:
    """All that does not hold; pictures are left in a folder."""
    found = []
    console = busy_console(folder / "traces", Hosts(scheme="http", names=("127.0.0.1",), port=8090))
    for path in ("/", "/topics", "/groups"):
        began_s = time.process_time()
        answer = await ask(console.app, path, headers={"Host": HOST})
        took_s = time.process_time() - began_s
        if took_s > CPU_S_MAX or len(answer.body) > BYTES_MAX:
            found.append(f"{path} of {TOPICS:,} topics and {GROUPS} groups: {took_s:.2f} s, {len(answer.body):,} bytes")
    any_port = Hosts(scheme="http", names=("127.0.0.1",))
    console = busy_console(folder / "traces", any_port)
    visitors = FakeVisitors(name="127.0.0.1")
    visitors.add("alice", "orders")
    cookie = await visitors.sign_in("alice")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        async with served(console.app, one, SystemClock()), served(visitors.app, other, SystemClock()):
            pages = {name: f"http://127.0.0.1:{one.getsockname()[1]}{path}" for name, path in PAGES.items()}
            for name in ("sign-in", VISITOR):
                pages[name] = f"http://127.0.0.1:{other.getsockname()[1]}/topics"
            ticking = asyncio.create_task(_ticking(console), name="time of the console")
            try:
                found += await asyncio.to_thread(lambda: list(_looked_at(program, folder, pages, cookie)))
                found += await asyncio.to_thread(lambda: list(kept.complaints(program, pages["cluster"], folder)))
            finally:
                ticking.cancel()
                console.streams.closing.set()
                await visitors.sessions.close()
    return found


async def _ticking(console: FakeConsole) -> None:
    while True:
        await asyncio.sleep(0.2)
        await console.clock.advance(0.2)


def _looked_at(program: str, folder: Path, pages: dict[str, str], cookie: str) -> Iterator[str]:
    with opened(program) as page:
        for look, width, height, dark in LOOKS:
            page.look(width=width, height=height, dark=dark)
            for name, url in pages.items():
                page.ask("Network.setExtraHTTPHeaders", headers={"Cookie": cookie} if name == VISITOR else {})
                yield from (f"{name}, {look}: {told}" for told in _complaints(page, url, folder / f"{look}-{name}.png"))
        for name, state in (("cluster", "hidden"), ("events", "open")):
            page.go(pages[name])
            page.until("document.getElementById('live').dataset.state === 'open'")
            page.value(HIDE)
            if (found := page.value(STATE)) != state:
                yield f"{name}: its stream is {found} when nobody looks at the page"
            page.value("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
            page.until("document.getElementById('live').dataset.state === 'open'")


def _complaints(page: Page, url: str, picture: Path) -> Iterator[str]:
    page.requests.clear()
    page.complaints.clear()
    page.go(url)
    page.until("!document.getElementById('live') || document.getElementById('live').dataset.state")
    page.wait(0.3)
    page.picture(picture)
    base = url[: url.index("/", len("http://"))]
    yield from (f"it asks for {one}" for one in page.requests if not one.startswith(f"{base}/"))
    # (A browser writes every status that is no success down.)
    expected: Callable[[str], bool] = lambda told: "the server responded with a status of 40" in told  # noqa: E731
    yield from (f"it complains: {told}" for told in page.complaints if not expected(told))
    if page.value("document.documentElement.scrollWidth > innerWidth"):
        yield f"it is {page.value('document.documentElement.scrollWidth')} pixels wide"
