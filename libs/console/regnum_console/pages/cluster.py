"""The first page: how the cluster is, what is wrong, why, and what to do about it. And a page for each broker."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from regnum_client.admin.health.figures import BrokerFigures, Figures
from regnum_client.admin.health.views import BrokerHealth, HealthView
from regnum_client.cluster.view import ClusterView, TopicView
from regnum_client.commands.status.figures import size, span
from regnum_service.errors import RegnumError
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import ID_MAX, Context, ids, link, number_in, partition_link, told, untold
from regnum_console.html import Child, Markup, el, join, table
from regnum_console.pages.layout import area, page

EVERY_S: Final = 2.0
"""How often the page looks again."""
SHOWN: Final = 50
"""Unhealthy partitions that are shown."""
NAMED: Final = 20
"""Partitions that are named as a reason not to stop a broker."""
PARTITIONS_MAX: Final = 100_000
"""Partitions that are looked at for that."""


async def show(context: Context, _request: Request) -> Response:
    """``/``."""
    return page(context, "Cluster", area("cluster", await _content(context)), here="/", live="/live/cluster")


async def stream(context: Context, _request: Request) -> Response:
    """``/live/cluster``."""
    changing = context.streams.changing("cluster", lambda: _content(context), every_s=EVERY_S)
    return context.streams.answer(changing)


async def _content(context: Context) -> Markup:
    cluster = context.ports.cluster
    health, figures, view = await asyncio.gather(
        told(cluster.describe_health(partitions_max=SHOWN)),
        told(cluster.describe_figures()),
        told(cluster.describe_cluster()),
    )
    return content(health, figures, view)


def content(
    health: HealthView | RegnumError, figures: Figures | RegnumError, view: ClusterView | RegnumError
) -> Markup:
    """Everything that is known. Pure."""
    parts: list[Child] = []
    if isinstance(health, RegnumError):
        parts.append(untold("What is wrong is not known", health))
    else:
        parts += [_state(health), _summary(health)]
    parts.append(el("h2", "Brokers"))
    if isinstance(figures, RegnumError):
        parts.append(untold("What brokers do is not known", figures))
    parts.append(_brokers(health, {} if isinstance(figures, RegnumError) else figures, view))
    if not isinstance(health, RegnumError):
        parts += [_trouble(health), _orders(health), _damaged(health)]
    return join(parts)


def _state(health: HealthView) -> Markup:
    if not health.problems:
        unlooked = "" if health.complete else " The controller is new and has not looked at all partitions yet."
        return el("p", f"All is well.{unlooked}", class_="good")
    return el(
        "section",
        el("h2", "What is wrong"),
        el("ul", [el("li", one) for one in health.problems]),
        class_="bad",
        aria_live="polite",
    )


def _summary(health: HealthView) -> Markup:
    live = sum(one.registered for one in health.brokers)
    facts: list[tuple[str, Child]] = [
        ("Controller", f"{health.controller}, epoch {health.controller_epoch}"),
        ("Brokers", f"{live} live, {len(health.brokers) - live} away"),
        ("Topics", link("/topics", f"{health.topics:,}")),
        ("Partitions", f"{health.partitions:,}"),
        *(
            (
                trouble.value.capitalize(),
                link("/topics", f"{count.partitions:,}, {count.for_long:,} for long", trouble=trouble.value),
            )
            for trouble, count in health.troubles.items()
            if count.partitions
        ),
        ("Metadata version", health.metadata_version),
    ]
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in facts], class_="facts")


def _brokers(health: HealthView | RegnumError, figures: Figures, view: ClusterView | RegnumError) -> Markup:
    told = () if isinstance(health, RegnumError) else [one.id for one in health.brokers]
    live = () if isinstance(view, RegnumError) else map(int, view.brokers)
    return _table_of(sorted({*told, *figures, *live}), health, figures, view)


def _table_of(
    brokers: Iterable[int], health: HealthView | RegnumError, figures: Figures, view: ClusterView | RegnumError
) -> Markup:
    known = {} if isinstance(health, RegnumError) else {one.id: one for one in health.brokers}
    racks = {} if isinstance(view, RegnumError) else {int(id): one.rack for id, one in view.brokers.items()}
    rows: list[list[Child]] = [
        [
            link(f"/brokers/{id}", id),
            _broker_state(known.get(id), figures.get(id)),
            racks.get(id) or "-",
            *_figures(figures.get(id)),
        ]
        for id in brokers
    ]
    columns = ("Broker", "State", "Rack", "Leads", "Replicas", "In", "Out", "Produce p99", "Logs", "Disk free", "Up")
    return table(columns, rows, empty="No broker is known.", caption="Brokers", numbers=8)


def _broker_state(one: BrokerHealth | None, figures: BrokerFigures | RegnumError | None) -> Child:
    silent = [f"does not answer: {figures.message}"] if isinstance(figures, RegnumError) else []
    if one is None:
        return el("span", silent[0], class_="bad") if silent else "-"
    words = ["away" if not one.registered else "stopping" if one.stopping else "live", *silent]
    words += ["draining"] if one.draining else []
    words += [f"{one.offline_replicas} replicas unusable"] if one.offline_replicas else []
    words += [f"takes no records: {one.refuses_writes_because}"] if one.refuses_writes_because else []
    return el("span", ", ".join(words), class_="good" if words == ["live"] else "bad")


def _figures(one: BrokerFigures | RegnumError | None) -> list[Child]:
    if not isinstance(one, BrokerFigures):
        return ["-"] * 8
    disk = "-" if one.disk_free_bytes is None else size(one.disk_free_bytes)
    if one.disk_free_bytes is not None and one.disk_size_bytes:
        disk += f" ({100 * one.disk_free_bytes / one.disk_size_bytes:.0f} %)"
    return [
        one.leading,
        one.replicas,
        f"{size(one.produced_bytes_s)}/s",
        f"{size(one.fetched_bytes_s)}/s",
        "-" if one.produce_p99_s is None else f"{1000 * one.produce_p99_s:.0f} ms",
        size(one.log_bytes),
        disk,
        span(one.uptime_s),
    ]


def _trouble(health: HealthView) -> Markup | None:
    if not health.troubled_partitions:
        return None
    rows: list[list[Child]] = [
        [
            partition_link(one.topic, one.partition),
            ", ".join(trouble.value for trouble in one.troubles),
            span(one.age_s),
            "none" if one.leader < 0 else one.leader,
            ids(one.isr),
            ids(one.replicas),
            one.reason or "-",
        ]
        for one in health.troubled_partitions
    ]
    columns = ("Partition", "Trouble", "For", "Leader", "In sync", "Replicas", "Why, and what helps")
    return join([el("h2", "Unhealthy partitions"), table(columns, rows, caption="Unhealthy partitions")])


def _orders(health: HealthView) -> Markup | None:
    if not health.overdue_orders:
        return None
    rows: list[list[Child]] = [
        [f"broker {one.broker}", one.orders, span(one.oldest_age_s), ", ".join(one.partitions[:5])]
        for one in health.overdue_orders
    ]
    columns = ("Broker", "Orders", "Oldest", "About")
    return join([el("h2", "Orders that are not acknowledged"), table(columns, rows)])


def _damaged(health: HealthView) -> Markup | None:
    if not health.damaged:
        return None
    rows: list[list[Child]] = [
        [one.topic if one.partition is None else f"{one.topic}/{one.partition}", one.reason, one.advice]
        for one in health.damaged
    ]
    return join([el("h2", "Damaged in the store"), table(("What", "Why", "What to do"), rows)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What would become of partitions if a broker stopped now."""

    leads: int
    """Partitions that it leads."""
    follows: int
    """Those that it follows."""
    without_leader: tuple[tuple[str, int], ...]
    """Those of which it is the only replica in sync."""
    without_writes: tuple[tuple[str, int], ...]
    """Others that would have fewer replicas in sync than acks=all asks for."""


def stop_of(broker: int, topics: Iterable[TopicView]) -> Stop:
    """See Stop. Pure.

    An unhealthy partition already, which the broker is not in sync for, loses nothing.
    """
    leads = follows = 0
    without_leader, without_writes = [], []
    for topic in topics:
        for one in topic.partitions.values():
            leads += one.leader == broker
            follows += one.leader != broker and broker in one.replicas
            if broker not in one.isr:
                continue
            left = len(one.isr) - 1
            if left == 0:
                without_leader.append((topic.name, one.number))
            elif left < one.min_insync_replicas <= len(one.isr):
                without_writes.append((topic.name, one.number))
    return Stop(
        leads=leads, follows=follows, without_leader=tuple(without_leader), without_writes=tuple(without_writes)
    )


async def show_broker(context: Context, request: Request) -> Response:
    """``/brokers/2``: what it does, and whether it may be stopped."""
    broker = number_in("a broker", request.path_params["broker"], largest=ID_MAX)
    cluster = context.ports.cluster
    topics: list[TopicView] = []
    partitions = 0
    async with context.scans, context.ports.connect() as apart, contextlib.aclosing(apart.describe_topics()) as views:
        async for one in views:
            topics.append(one)
            partitions += len(one.partitions)
            if partitions >= PARTITIONS_MAX:
                break
    health, figures, view = await asyncio.gather(
        told(cluster.describe_health()), told(cluster.describe_figures()), told(cluster.describe_cluster())
    )
    seen = {} if isinstance(figures, RegnumError) else {id: one for id, one in figures.items() if id == broker}
    known = isinstance(view, RegnumError) or broker in {int(id) for id in view.brokers}
    stop = stop_of(broker, topics)
    if not known:
        return page(context, f"Broker {broker}", el("p", "No live broker has that id.", class_="bad"), status=404)
    return page(
        context,
        f"Broker {broker}",
        el("h2", "May it be stopped?"),
        _verdict(stop, health, partitions),
        el("h2", "What it does"),
        _table_of([broker], health, seen, view),
        el("p", f"It leads {stop.leads:,} partitions and follows {stop.follows:,} others.", class_="quiet"),
        el("p", link("/events", "Events of this broker", broker=broker)),
    )


def _verdict(stop: Stop, health: HealthView | RegnumError, looked_at: int) -> Markup:
    """What is known of ``looked_at`` partitions: a caller may see fewer than there are, and a look is bounded."""
    if stop.without_leader or stop.without_writes:
        return el(
            "div",
            el("p", "No: wait until replicas are in sync again, or move these partitions first."),
            _of("Would have no leader", stop.without_leader),
            _of("Would take no writes with acks=all", stop.without_writes),
            class_="bad",
        )
    if isinstance(health, RegnumError):
        told = f"Not known: {looked_at:,} partitions may be seen from here, and how many there are is not told: "
        return el("p", told, health.message, class_="bad")
    if looked_at < health.partitions:
        told = f"Not known: {looked_at:,} of {health.partitions:,} partitions were looked at, or may be seen from here."
        return el("p", told, class_="bad")
    return el(
        "p",
        "Yes: every partition keeps a leader, and as many replicas in sync as acks=all asks for. "
        "Stop it with SIGTERM: it hands over first what it leads.",
        class_="good",
    )


def _of(what: str, partitions: tuple[tuple[str, int], ...]) -> Markup | None:
    if not partitions:
        return None
    named = [[partition_link(topic, number), " "] for topic, number in partitions[:NAMED]]
    more = f"and {len(partitions) - NAMED:,} more" if len(partitions) > NAMED else None
    return el("p", f"{what} ({len(partitions):,}): ", named, more)
