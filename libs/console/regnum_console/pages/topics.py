"""Topics page by page, or the largest of them; a topic with its partitions."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
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
from regnum_console.keeping import TopicLags
from regnum_console.pages.lags import topic_lags
from regnum_console.pages.layout import page
from regnum_console.pages.ranking import LAG, NAME, ORDERS, RECORDS, SIZE, Choice, bytes_in, ranked

PAGE: Final = 100
"""Topics, or partitions, of a page."""
CHOOSABLE: Final = (Trouble.OFFLINE, Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR)
"""Troubles that brokers choose topics by."""
COLUMNS: Final = (
    *(("Topic", NAME), ("State", ""), ("Partitions", ""), ("Replicas", "")),
    *(("Lag", LAG), ("Records", RECORDS), ("Size", SIZE)),
)
"""Columns of the list, and what each is sorted by."""
KEPT: Final = ("match", "trouble", "internal", "by", "min_size", "min_records")
"""What of the address the links of the list keep."""


async def show(context: Context, request: Request) -> Response:
    """``/topics?match=&trouble=&internal=&first=&by=&min_size=&min_records=&from=``."""
    chosen, choice = _chosen(request), _choice(request)
    lags = await topic_lags(context)
    try:
        chosen.check()
        body = await (
            _by_name(context, request, chosen, lags)
            if choice == Choice(NAME)
            else _ranked(context, request, chosen, choice, lags)
        )
    except InvalidTopicFilterError as error:
        raise wrong(str(error)) from None
    note = el("p", lags.note, class_="quiet") if lags.note else None
    return page(context, "Topics", _form(request), body, note, here="/topics")


def _choice(request: Request) -> Choice:
    asked = request.query_params
    order = asked.get("by") or NAME
    if order not in ORDERS:
        raise wrong(f"topics are not sorted by {order[:40]!r}")
    return Choice(
        order,
        bytes_in("the least size", asked.get("min_size", "")),
        whole_number(request, "min_records", otherwise=0, largest=2**63 - 1),
    )


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
    orders = [("", "by name"), (SIZE, "the largest"), (RECORDS, "most records"), (LAG, "most lag")]
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
            "Size from ",
            el("input", name="min_size", value=asked.get("min_size"), placeholder="10 MB", size=6),
        ),
        el(
            "label",
            "Records from ",
            el("input", name="min_records", value=asked.get("min_records"), inputmode="numeric", size=6),
        ),
        el(
            "label",
            el("input", type="checkbox", name="internal", value="1", checked=bool(asked.get("internal"))),
            " Regnum's own",
        ),
        el("button", "Show"),
        method="get",
        action="/topics",
        role="search",
        data_saves="topics",
    )


def _least(label: str, name: str, value: str | None, *, hint: str) -> Markup:
    return el("label", label, el("input", name=name, value=value, placeholder=hint, size=6))


def _select(name: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    return el(
        "select", [el("option", text, value=value, selected=value == chosen) for value, text in options], name=name
    )


async def _by_name(context: Context, request: Request, chosen: TopicFilter, lags: TopicLags) -> Child:
    found: list[TopicSummary] = []
    first = request.query_params.get("first", "")
    pages = context.ports.cluster.summarize_topics(chosen=chosen, limit=PAGE + 1, first=first)
    async with contextlib.aclosing(pages):
        async for some in pages:
            found += some
            if len(found) > PAGE:
                break
    rows: list[list[Child]] = [[*_about(one), _lag(one.name, lags)] for one in found[:PAGE]]
    keep = _keep(request)
    steps: list[Child] = [link("/topics", "First page", **keep)] if first else []
    if len(found) > PAGE:
        steps.append(link("/topics", "Next page", **keep, first=found[PAGE].name))
    listed = table(_heads(keep, COLUMNS[:-2]), rows, empty="No topic matches.", numbers=3)
    return [listed, _steps(steps)]


def _lacking(one: TopicSummary) -> Markup:
    counts = {
        "offline": one.offline_partitions,
        "below min.insync.replicas": one.under_min_isr_partitions,
        "under-replicated": one.under_replicated_partitions,
    }
    words = [f"{count:,} {what}" for what, count in counts.items() if count]
    return el("span", ", ".join(words) or "in sync", class_="bad" if words else "good")


async def _ranked(context: Context, request: Request, chosen: TopicFilter, choice: Choice, lags: TopicLags) -> Child:
    found = await ranked(context, chosen, choice, lags)
    begin = whole_number(request, "from", otherwise=0, largest=1_000_000)
    rows: list[list[Child]] = [
        [
            *_about(one),
            _lag(one.name, lags),
            f"{figures.records:,}",
            f"{size(figures.size_bytes)}{f', {figures.silent} partitions do not say' if figures.silent else ''}",
        ]
        for one, figures in found.topics[begin : begin + PAGE]
    ]
    told_of = f"{len(found.topics):,} of {found.of:,} topics, by {choice.order}; one copy of each log counts."
    if choice.order == LAG:
        told_of += " Topics of which no group has committed anything are left out."
    if found.cut:
        told_of += " There are more, which have too many partitions to ask for: choose by name."
    keep = _keep(request)
    steps: list[Child] = [link("/topics", "First page", **keep)] if begin else []
    if begin + PAGE < len(found.topics):
        steps.append(link("/topics", "Next page", **keep, from_=begin + PAGE))
    listed = table(_heads(keep, COLUMNS), rows, empty="No topic matches.", numbers=5)
    return [el("p", told_of, class_="quiet"), listed, _steps(steps)]


def _about(one: TopicSummary) -> list[Child]:
    """The first cells of a row; the name's link is what the browser hangs its own buttons to."""
    return [
        el("a", one.name, href=f"/topics/{part(one.name)}", data_topic=one.name),
        _lacking(one),
        f"{one.partitions:,}",
        one.replication_factor,
    ]


def _heads(keep: Mapping[str, str | None], columns: Iterable[tuple[str, str]]) -> list[Child]:
    return [link("/topics", name, **{**keep, "by": by}) if by else name for name, by in columns]


def _lag(topic: str, lags: TopicLags) -> str:
    return f"{lags.of[topic]:,}" if topic in lags.of else "-"


def _keep(request: Request) -> dict[str, str | None]:
    return {name: request.query_params.get(name) for name in KEPT}


def _steps(steps: Sequence[Child]) -> Markup:
    return el("p", [[step, " "] for step in steps], class_="steps")


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
