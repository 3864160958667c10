"""Topics page by page, or the largest of them; a topic with its partitions."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.describing.replica_admin import ReplicaSize
from regnum_client.admin.describing.topics import TopicSummary
from regnum_client.cluster.view import TopicView
from regnum_client.commands.status.figures import size
from regnum_client.records import TopicPartition
from regnum_model.topic_filter import InvalidTopicFilterError, TopicFilter, Trouble, troubles_of
from regnum_service.errors import RegnumError
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import Context, ids, link, part, partition_link, told, whole_number, wrong
from regnum_console.html import Child, Markup, el, table
from regnum_console.pages.layout import page

PAGE: Final = 100
"""Topics, or partitions, of a page."""
SIZED_MAX: Final = 50_000
"""Partitions whose sizes are asked for to find the largest topics."""
CHOOSABLE: Final = (Trouble.OFFLINE, Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR)
"""Troubles that brokers choose topics by."""
BY_SIZE: Final = "size"
"""Value of ``by`` for the largest topics."""


async def show(context: Context, request: Request) -> Response:
    """``/topics?match=&trouble=&internal=&first=&by=``."""
    asked = request.query_params
    chosen = _chosen(request)
    try:
        chosen.check()
        body = await (_largest(context, chosen) if asked.get("by") == BY_SIZE else _by_name(context, request, chosen))
    except InvalidTopicFilterError as error:
        raise wrong(str(error)) from None
    return page(context, "Topics", _form(request), body, here="/topics")


def _chosen(request: Request) -> TopicFilter:
    asked = request.query_params
    match, trouble = asked.get("match", ""), asked.get("trouble", "")
    if trouble and trouble not in {one.value for one in CHOOSABLE}:
        raise wrong(f"topics cannot be chosen by {trouble[:40]!r}")
    glob = match if not match or "*" in match or "?" in match else f"*{match}*"
    return TopicFilter(
        glob=glob,
        internal=None if asked.get("internal") or trouble else False,
        troubles=frozenset({Trouble(trouble)} if trouble else ()),
    )


def _form(request: Request) -> Markup:
    asked = request.query_params
    options = [("", "any state"), *((one.value, one.value) for one in CHOOSABLE)]
    orders = [("", "by name"), (BY_SIZE, "the largest")]
    return el(
        "form",
        el(
            "label",
            "Name ",
            el(
                "input", type="search", name="match", value=asked.get("match", ""), placeholder="part of a name, or a*b"
            ),
        ),
        el("label", "State ", _select("trouble", options, asked.get("trouble", ""))),
        el("label", "Order ", _select("by", orders, asked.get("by", ""))),
        el(
            "label",
            el("input", type="checkbox", name="internal", value="1", checked=bool(asked.get("internal"))),
            " Regnum's own",
        ),
        el("button", "Show"),
        method="get",
        action="/topics",
        role="search",
    )


def _select(name: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    return el(
        "select", [el("option", text, value=value, selected=value == chosen) for value, text in options], name=name
    )


async def _by_name(context: Context, request: Request, chosen: TopicFilter) -> Child:
    asked = request.query_params
    found: list[TopicSummary] = []
    first = asked.get("first", "")
    pages = context.ports.cluster.summarize_topics(chosen=chosen, limit=PAGE + 1, first=first)
    async with contextlib.aclosing(pages):
        async for some in pages:
            found += some
            if len(found) > PAGE:
                break
    rows: list[list[Child]] = [
        [
            link(f"/topics/{part(one.name)}", one.name),
            _lacking(one),
            f"{one.partitions:,}",
            one.replication_factor,
        ]
        for one in found[:PAGE]
    ]
    keep = {name: asked.get(name) for name in ("match", "trouble", "internal")}
    steps: list[Child] = [link("/topics", "First page", **keep)] if first else []
    if len(found) > PAGE:
        steps.append(link("/topics", "Next page", **keep, first=found[PAGE].name))
    listed = table(("Topic", "State", "Partitions", "Replicas"), rows, empty="No topic is such a one.", numbers=2)
    return [listed, el("p", [[step, " "] for step in steps], class_="steps")]


def _lacking(one: TopicSummary) -> Markup:
    counts = {
        "offline": one.offline_partitions,
        "below min.insync.replicas": one.under_min_isr_partitions,
        "under-replicated": one.under_replicated_partitions,
    }
    words = [f"{count:,} {what}" for what, count in counts.items() if count]
    return el("span", ", ".join(words) or "in sync", class_="bad" if words else "good")


async def _largest(context: Context, chosen: TopicFilter) -> Child:
    """The largest topics by what leaders say; the connection is one of its own, for it asks of all partitions."""
    chosen = replace(chosen, troubles=frozenset())
    wanted: list[TopicPartition] = []
    async with context.scans, context.ports.connect() as cluster:
        async with contextlib.aclosing(cluster.describe_topics(chosen=chosen)) as topics:
            async for topic in topics:
                wanted += [TopicPartition(topic.name, number) for number in topic.partitions]
                if len(wanted) >= SIZED_MAX:
                    break
        replicas = await cluster.describe_replicas(wanted)
    sizes: dict[str, tuple[int, int, int]] = {}
    for (name, _), of in replicas.items():
        leader = next((one for one in of if one.leading and one.size_bytes is not None), None)
        total, records, silent = sizes.get(name, (0, 0, 0))
        if leader is None:
            sizes[name] = (total, records, silent + 1)
        else:
            many = (leader.log_end or 0) - (leader.log_start or 0)
            sizes[name] = (total + (leader.size_bytes or 0), records + many, silent)
    largest = sorted(sizes.items(), key=lambda item: (-item[1][0], item[0]))[:PAGE]
    rows = [
        [
            link(f"/topics/{part(name)}", name),
            f"{silent} partitions do not say" if silent else "",
            f"{records:,}",
            size(total),
        ]
        for name, (total, records, silent) in largest
    ]
    told_of = f"The largest {len(rows):,} of {len(sizes):,} topics, by the logs of their leaders; one copy counts."
    if len(wanted) >= SIZED_MAX:
        told_of += f" Only the first {len(wanted):,} partitions were asked for: choose by name."
    listed = table(("Topic", "", "Offsets", "Size"), rows, empty="No topic is such a one.", numbers=2)
    return [el("p", told_of, class_="quiet"), listed]


async def show_topic(context: Context, request: Request) -> Response:
    """``/topics/orders?first=``: its partitions with sizes, offsets and lags."""
    name = request.path_params["topic"]
    topic = await context.ports.cluster.describe_topic(name)
    first = whole_number(request, "first", otherwise=0, largest=2**31)
    numbers = [number for number in sorted(topic.partitions) if number >= first]
    shown = [TopicPartition(name, number) for number in numbers[:PAGE]]
    replicas = await told(context.ports.cluster.describe_replicas(shown))
    offsets = await told(context.ports.cluster.list_offsets(shown))
    steps: list[Child] = [link(f"/topics/{part(name)}", "First page")] if first else []
    if len(numbers) > PAGE:
        steps.append(link(f"/topics/{part(name)}", "Next page", first=numbers[PAGE]))
    return page(
        context,
        name,
        el(
            "p",
            link(f"/records/{part(name)}", "Records"),
            " · ",
            link("/events", "Events", topic=name),
            " · ",
            f"{len(topic.partitions):,} partitions, id {topic.topic_id}",
        ),
        partitions_table(topic, numbers[:PAGE], replicas, offsets),
        el("p", [[step, " "] for step in steps], class_="steps"),
        here="/topics",
    )


def partitions_table(
    topic: TopicView,
    numbers: Sequence[int],
    replicas: dict[TopicPartition, tuple[ReplicaSize, ...]] | RegnumError,
    offsets: dict[TopicPartition, PartitionOffsets | RegnumError] | RegnumError,
) -> Markup:
    """Partitions and what brokers say of them. Pure."""
    rows = []
    for number in numbers:
        one, partition = topic.partitions[number], TopicPartition(topic.name, number)
        of = () if isinstance(replicas, RegnumError) else replicas.get(partition, ())
        said = offsets if isinstance(offsets, RegnumError) else offsets.get(partition)
        ends = said if isinstance(said, PartitionOffsets) else None
        leader = next((replica for replica in of if replica.leading), None)
        troubles = [trouble.value for trouble in troubles_of(one)]
        lags = [f"{replica.broker}: {'?' if replica.lag is None else f'{replica.lag:,}'}" for replica in of]
        rows.append(
            [
                partition_link(topic.name, number),
                el("span", ", ".join(troubles) or "in sync", class_="bad" if troubles else "good"),
                "none" if one.leader < 0 else one.leader,
                one.leader_epoch,
                ids(one.replicas),
                ids(one.isr),
                ids(one.elr) if one.elr else "-",
                ", ".join(lags) or "-",
                "-" if ends is None else f"{ends.log_start:,}",
                "-" if ends is None else f"{ends.high_watermark:,}",
                "-" if leader is None or leader.size_bytes is None else size(leader.size_bytes),
            ]
        )
    columns = (
        *("Partition", "State", "Leader", "Epoch", "Replicas", "In sync", "Eligible", "Lag by replica"),
        *("First", "End", "Size"),
    )
    return table(columns, rows, empty="It has no partition here.", caption=f"Partitions of {topic.name}", numbers=3)
