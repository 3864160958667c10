"""Two clusters under one Prometheus, of which one goes through kills, quotas, lag and a drain: what dashboards show.

Every query of every dashboard has data by the end, or a reason to have none. The other cluster, in which next to
nothing happens, is in no answer about the first one, and the first one in none about it; when the other one loses its
only election process, the alert is about that cluster alone.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from regnum_client import DEFAULT, Admin, Consumer, Producer, QuotaAlteration, QuotaEntity
from regnum_local.cluster import LocalCluster
from regnum_service.errors import RegnumError
from regnum_telemetry import conventions
from regnum_telemetry.exposition import CLUSTER

from regnum_testing.dashboards.__main__ import DASHBOARDS
from regnum_testing.dashboards.asking import REASONS, Answer, answers, ask, told
from regnum_testing.dashboards.clients import LAG
from regnum_testing.dashboards.watched import FOLDER, prometheus
from regnum_testing.under_load import LoadedCluster, under_load, until

SCRAPED_S: Final = 300.0
"""How long figures are waited for: Prometheus scrapes every 5 s, a rate needs two."""
ALERTS: Final = FOLDER.parent / "prometheus" / "alerts.yaml"
NO_CONTROLLER: Final = "RegnumNoController"
OUTAGES: Final = 'sum(increase(regnum_client_outage_seconds_count{{kind="{kind}"}}[10m])) > 0'
"""Whether clients have waited for changes of a kind."""
TOPIC, GROUP = "t", "g"
OF_OTHER: Final = "of-the-other"
"""A topic and a group that only the other cluster has."""
SLOW: Final = "slow"
"""A client with a quota."""
SLOW_BYTES_S: Final = 2_000.0
MUTATIONS_S: Final = 0.5
MADE: Final = "made-again-and-again"


class Asked:
    """A Prometheus that may not serve yet."""

    def __init__(self, url: str) -> None:
        self.url: Final = url

    async def __call__(self, expression: str) -> list[dict[str, Any]]:
        """Series of an expression, now."""
        try:
            return await asyncio.to_thread(ask, self.url, expression)
        except OSError:
            return []

    async def has(self, expression: str) -> None:
        """Return when an expression has a series."""

        async def there() -> bool:
            return bool(await self(expression))

        await until(there, within_s=SCRAPED_S)

    async def dashboards(self, cluster: str) -> list[Answer]:
        """What all queries come to for a cluster."""
        return await asyncio.to_thread(lambda: list(answers(DASHBOARDS, prometheus=self.url, cluster=cluster)))


@asynccontextmanager
async def two_clusters(folder: Path) -> AsyncIterator[tuple[LocalCluster, LocalCluster]]:
    """The one that things happen to, and the other one."""
    async with (
        LocalCluster(folder / "one", brokers=3, elections=2, metadata=1, quotas=1) as one,
        LocalCluster(folder / "other", brokers=1, elections=1, metadata=1, quotas=0) as other,
    ):
        yield one, other


async def play(
    one: LocalCluster,
    other: LocalCluster,
    folder: Path,
    *,
    say: Callable[[str], None] = lambda _line: None,
    meanwhile: Callable[[LoadedCluster], Awaitable[None]] | None = None,
) -> list[str]:
    """All that does not hold; ``queries.txt`` in the folder says what each query came to.

    ``meanwhile`` is called when all has happened, under load.
    """
    with prometheus((one, other), folder / "prometheus") as url:
        asked = Asked(url)
        await asked.has("count(count by (cluster) (regnum_changes_total == 0)) == 2")
        say("both clusters are scraped")
        async with under_load(one, TOPIC) as running, Admin(one.bootstrap) as admin, Admin(other.bootstrap) as beside:
            await admin.create_topic("u", partitions=2, replication_factor=1)
            await beside.create_topic(OF_OTHER, partitions=1, replication_factor=1)
            await _read_some(one, TOPIC, GROUP)
            await _send_some(other, OF_OTHER)
            await _read_some(other, OF_OTHER, OF_OTHER)
            async with _throttled(one, admin):
                await _hurt(running, admin, asked, say)
                found = await _judged(asked, folder, say)
                if meanwhile is not None:
                    await meanwhile(running)
            await running.load.finish()
        return found + await _alone(asked, other, say)


async def _hurt(running: LoadedCluster, admin: Admin, asked: Asked, say: Callable[[str], None]) -> None:
    """Kill a leader and the controller, stop a broker as planned, empty one of a topic.

    Counts of a controller are scraped before it is killed: they end with its process.
    """
    stage, cluster = running.stage, running.cluster
    await stage.kill_leader(running.partitions[0], restart_at_once=True)
    await stage.all_in_sync(within_s=SCRAPED_S)
    await asked.has(OUTAGES.format(kind=conventions.KIND_BROKER_FAILURE))
    say("a leader was killed")
    await stage.kill_controller()
    await stage.restart(stage.killed[-1], wait=False)
    say("the controller was killed")
    leader = (await stage.look()).leaders[running.partitions[0]]
    await cluster.terminate(f"broker-{leader}")
    await cluster.restart(f"broker-{leader}")
    await stage.all_in_sync(within_s=SCRAPED_S)
    await asked.has(OUTAGES.format(kind=conventions.KIND_CONTROLLED_SHUTDOWN))
    say("a broker was stopped, and started again")
    of_u = await admin.describe_topic("u")
    broker = of_u.partitions[0].replicas[0]
    there = next(one for one in (1, 2, 3) if one != broker)
    await admin.drain_broker(broker)
    moved = [number for number, one in of_u.partitions.items() if broker in one.replicas]
    refused = await admin.alter_partition_reassignments({("u", number): (there,) for number in moved})
    assert not any(refused.values()), refused

    async def empty() -> bool:
        return not await admin.list_partition_reassignments(["u"])

    await until(empty, within_s=SCRAPED_S)
    await admin.drain_broker(broker, undo=True)
    say("a broker was drained of a topic")


@asynccontextmanager
async def _throttled(cluster: LocalCluster, admin: Admin) -> AsyncIterator[None]:
    """A client that goes on writing more than it may, and one that goes on making topics."""
    await admin.alter_client_quotas(
        [
            QuotaAlteration(entity=QuotaEntity(user=DEFAULT), set={"controller_mutation_rate": MUTATIONS_S}),
            QuotaAlteration(entity=QuotaEntity(client_id=SLOW), set={"producer_byte_rate": SLOW_BYTES_S}),
        ]
    )

    async def write() -> None:
        async with Producer(cluster.bootstrap, client_id=SLOW) as producer:
            while True:
                await (await producer.send("u", bytes(int(SLOW_BYTES_S))))

    async def mutate() -> None:
        async with Admin(cluster.bootstrap, client_id=SLOW) as slow:
            while True:
                with contextlib.suppress(RegnumError):
                    await slow.create_topic(MADE, partitions=2, replication_factor=1)
                    await slow.delete_topics([MADE])

    busy = [asyncio.create_task(work(), name="a client with a quota") for work in (write, mutate)]
    try:
        yield
    finally:
        for one in busy:
            one.cancel()
        await asyncio.wait(busy)


async def _send_some(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for _ in range(20):
            await (await producer.send(topic, b"value"))


async def _read_some(cluster: LocalCluster, topic: str, group: str) -> None:
    """A group reads ten records, and lags from then on."""
    async with Consumer(cluster.bootstrap, topics=[topic], group_id=group) as consumer:
        assert await consumer.read(records_max=10, timeout_s=SCRAPED_S)


async def _judged(asked: Asked, folder: Path, say: Callable[[str], None]) -> list[str]:
    """What is missing on dashboards, and what of one cluster stands on those of the other."""
    one, other = await _ids(asked)
    found: list[Answer] = []

    async def whole() -> bool:
        nonlocal found
        found = await asked.dashboards(one)
        return not any(_missing(found))

    try:
        await until(whole, within_s=SCRAPED_S)
    except AssertionError:
        say("not every query has data or a reason")
    (folder / "queries.txt").write_text("\n".join(table(found)) + "\n", encoding="utf-8")
    for line in summary(found):
        say(line)
    of_other = await asked.dashboards(other)
    say(f"of the other cluster: {sum(answer.series > 0 for answer in of_other)} of {len(of_other)} queries have series")
    mixed = [*_mixed(found, (other, OF_OTHER)), *_mixed(of_other, (one, f'"{TOPIC}"', f'"{GROUP}"', SLOW))]
    lag = [series["metric"]["group"] for series in await asked(f"sum by (group) ({LAG})")]
    groups = {series["metric"]["group"] for series in await asked("count by (group) (regnum_broker_group_offset)")}
    if not {GROUP, OF_OTHER} <= groups or not lag:
        mixed.append(f"groups with offsets are {sorted(groups)}, and with lag {sorted(lag)}")
    # What nothing is in: an id that no cluster has.
    nothing = await asked.dashboards("none")
    numbers = [answer for answer in nothing if answer.numbers and "vector(0)" not in answer.expression]
    return [*_missing(found), *mixed, *(f"without a cluster: {answer.expression}" for answer in numbers)]


async def _ids(asked: Asked) -> tuple[str, str]:
    """The cluster with three brokers, and the other one."""
    by_size = sorted(
        (int(series["value"][1]), series["metric"][CLUSTER])
        for series in await asked('count by (cluster) (regnum_build_info{job="regnum-broker"})')
    )
    (_, other), (_, one) = by_size
    return one, other


def _missing(found: Sequence[Answer]) -> Iterator[str]:
    return (line for line in map(told, found) if line)


def _mixed(found: Sequence[Answer], foreign: Sequence[str]) -> Iterator[str]:
    """Answers about one cluster that name what only the other one has."""
    for answer in found:
        yield from (f"{answer.where}: {word} in {answer.expression}" for word in foreign if word in answer.labels)


def table(found: Sequence[Answer]) -> list[str]:
    """A line for each query: how many series it has, or why none."""
    return [
        f"{one.series:>4}  {one.where}{'' if one.series else ': ' + REASONS.get(one.title, 'NOTHING, AND NO REASON')}"
        for one in found
    ]


def summary(found: Sequence[Answer]) -> Iterator[str]:
    """A line for each dashboard."""
    for board in DASHBOARDS:
        of = [one for one in found if one.where.startswith(f"{board.title}: ")]
        some, reason = sum(one.series > 0 for one in of), sum(not one.series and one.title in REASONS for one in of)
        yield f"{board.title}: {len(of)} queries, {some} with data, {reason} without for a reason"


async def _alone(asked: Asked, other: LocalCluster, say: Callable[[str], None]) -> list[str]:
    """The other cluster loses its controller: the alert's expression is about it, and about nothing else."""
    _, id = await _ids(asked)
    rules = [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    expression = next(rule["expr"] for rule in rules if rule.get("alert") == NO_CONTROLLER)
    if before := await asked(expression):
        return [f"{NO_CONTROLLER} before: {before}"]
    await other.kill("election-1")
    await asked.has(expression)
    about = [series["metric"].get(CLUSTER) for series in await asked(expression)]
    say(f"{NO_CONTROLLER} is about {about} when {id} has no controller")
    return [] if about == [id] else [f"{NO_CONTROLLER} is about {about}, and not about {id}"]
