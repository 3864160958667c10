"""Consumer groups, those that lag most first; a group with its members, its offsets, and what a reset would do."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.groups.views import CommittedOffset, GroupDescription, GroupListing
from regnum_client.commands.groups.resets import Goal, resets
from regnum_client.commands.looking.event_words import time_of
from regnum_client.commands.moments import moment_ms
from regnum_client.consumer.groups.consumer_protocol import PROTOCOL_TYPE, assignment_of
from regnum_client.records import TopicPartition
from regnum_service.errors import RegnumError
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import (
    Context,
    link,
    part,
    partition_link,
    told,
    untold,
    whole_number,
    wrong,
)
from regnum_console.html import Child, Markup, el, table
from regnum_console.pages.lags import MEASURED_MAX, Ends, Lag, lag_of, read_lags
from regnum_console.pages.layout import page

PAGE: Final = 100
"""Groups of a page, and partitions of a group."""
SORTS: Final = ("lag", "name")
GOALS: Final = {"earliest": Goal.EARLIEST, "latest": Goal.LATEST, "time": Goal.TIME}
"""Resets that are shown beforehand."""


async def show(context: Context, request: Request) -> Response:
    """``/groups?sort=lag|name&from=``."""
    sort = request.query_params.get("sort", SORTS[0])
    if sort not in SORTS:
        raise wrong("groups are sorted by lag or by name")
    begin = whole_number(request, "from", otherwise=0, largest=1_000_000)
    groups = await context.ports.cluster.list_groups()
    many = len(groups) > MEASURED_MAX
    measured = list(groups[begin : begin + PAGE] if many or sort == "name" else groups)
    async with context.scans:
        lags = await _lags(context, measured)
    if sort == "lag":
        measured = sorted(measured, key=lambda one: (-(lags[one.group_id].records or 0), one.group_id))
    shown = measured if many or sort == "name" else measured[begin : begin + PAGE]
    steps: list[Child] = [link("/groups", "First page", sort=sort)] if begin else []
    if begin + PAGE < len(groups):
        steps.append(link("/groups", "Next page", sort=sort, from_=begin + PAGE))
    note = f" There are more than {MEASURED_MAX}: each page is sorted by itself." if many and sort == "lag" else ""
    heads = [
        link("/groups", "Group", sort="name"), "State", "Coordinator", "Partitions", "Most of it",
        link("/groups", "Lag", sort="lag"),
    ]  # fmt: skip
    return page(
        context,
        "Groups",
        el("p", f"Groups: {len(groups):,}, by {sort}.{note}", class_="quiet"),
        table(heads, [_row(one, lags[one.group_id]) for one in shown], empty="There are no groups.", numbers=1),
        el("p", [[step, " "] for step in steps], class_="steps"),
        here="/groups",
    )


async def _lags(context: Context, groups: Sequence[GroupListing]) -> dict[str, Lag]:
    committed, ends = await read_lags(context, [one.group_id for one in groups])
    return {name: lag_of(offsets, ends) for name, offsets in committed.items()}


def _row(group: GroupListing, lag: Lag) -> list[Child]:
    unknown = f" (and {lag.unknown} partitions that do not say)" if lag.unknown else ""
    return [
        link(f"/groups/{part(group.group_id)}", group.group_id),
        group.state.value,
        link(f"/brokers/{group.coordinator}", group.coordinator),
        lag.partitions,
        partition_link(*lag.worst) if lag.worst is not None and lag.records else "-",
        "not known" if lag.records is None else f"{lag.records:,}{unknown}",
    ]


async def show_group(context: Context, request: Request) -> Response:
    """``/groups/billing?to=earliest|latest|time&at=``."""
    name = request.path_params["group"]
    cluster = context.ports.cluster
    group, committed = await asyncio.gather(cluster.describe_group(name), cluster.list_group_offsets(name))
    ends = await told(cluster.list_offsets(sorted(committed)))
    known: Ends = {} if isinstance(ends, RegnumError) else ends
    lag = lag_of(committed, known)
    return page(
        context,
        name,
        el(
            "p",
            f"{group.state.value}, generation {group.generation}, members: {len(group.members)}, coordinator ",
            link(f"/brokers/{group.coordinator}", f"broker {group.coordinator}"),
            f"; lag {lag.records or 0:,} records in {lag.partitions:,} partitions.",
        ),
        untold("Where logs end is not known", ends) if isinstance(ends, RegnumError) else None,
        el("h2", "Partitions, those that lag most first"),
        _offsets(committed, known),
        el("h2", "Members"),
        _members(group),
        el("h2", "What would a reset do?"),
        await _preview(context, request, name, committed, known),
        here="/groups",
    )


def _offsets(committed: Mapping[TopicPartition, CommittedOffset], ends: Ends) -> Markup:
    rows = []
    for where, offset in committed.items():
        end = ends.get(where)
        lag = max(0, end.high_watermark - offset.offset) if isinstance(end, PartitionOffsets) else None
        rows.append((-(lag or 0), where, offset, end, lag))
    rows.sort(key=lambda row: (row[0], row[1]))
    cells = [
        [
            partition_link(*where),
            time_of(offset.committed_ms) if offset.committed_ms else "-",
            f"{offset.offset:,}",
            f"{end.high_watermark:,}" if isinstance(end, PartitionOffsets) else "-",
            "not known" if lag is None else f"{lag:,}",
        ]
        for _, where, offset, end, lag in rows[:PAGE]
    ]
    more = len(rows) - len(cells)
    listed = table(
        ("Partition", "Committed at", "Committed", "End", "Lag"), cells, empty="Nothing is committed.", numbers=3
    )
    return el("div", listed, el("p", f"And {more:,} partitions that lag less.", class_="quiet") if more else None)


def _members(group: GroupDescription) -> Markup:
    rows: list[list[Child]] = []
    for one in group.members[:PAGE]:
        assigned = sorted(assignment_of(one.assignment)) if group.protocol_type == PROTOCOL_TYPE else []
        named = ", ".join(f"{topic}/{number}" for topic, number in assigned[:20])
        more = f" and {len(assigned) - 20} more" if len(assigned) > 20 else ""
        rows.append([one.client_id, one.client_host, one.instance_id or "-", len(assigned), f"{named}{more}" or "-"])
    return table(("Client", "Host", "Static name", "Partitions", "Assigned"), rows, empty="It has no members.")


async def _preview(
    context: Context, request: Request, name: str, committed: Mapping[TopicPartition, CommittedOffset], ends: Ends
) -> Child:
    asked = request.query_params
    to, at = asked.get("to", ""), asked.get("at", "")
    form = el(
        "form",
        el(
            "label",
            "To ",
            el("select", [el("option", one, value=one, selected=one == to) for one in GOALS], name="to"),
        ),
        el("label", "Time ", el("input", name="at", value=at, placeholder="-1h or 2026-01-31T12:00:00Z")),
        el("button", "Show"),
        method="get",
        action=f"/groups/{part(name)}",
    )
    if not to:
        return form
    if to not in GOALS:
        raise wrong(f"a group is not reset to {to[:40]!r}")
    goal = GOALS[to]
    logs = {one: end for one, end in ends.items() if isinstance(end, PartitionOffsets)}
    found: dict[TopicPartition, int | None] = {}
    if goal is Goal.TIME:
        at_ms = moment_ms(at, context.clock.wall_ms())
        if at_ms is None:
            raise wrong(f"{at[:40]!r} is no time: give an age such as -1h, or 2026-01-31T12:00:00Z")
        found = await context.ports.cluster.list_offsets_at(dict.fromkeys(logs, at_ms))
    offsets = {one: offset.offset for one, offset in committed.items()}
    planned = resets(goal, 0, partitions=committed, committed=offsets, logs=logs, at_time=found)
    rows = [
        [
            partition_link(*one.partition),
            f"{one.committed:,}" if one.committed is not None else "-",
            f"{one.offset:,}" if one.offset is not None else "-",
            f"{(one.offset or 0) - (one.committed or 0):+,}",
        ]
        for one in planned[:PAGE]
    ]
    option = f"--to-datetime={shlex.quote(at)}" if goal is Goal.TIME else f"--to-{to}"
    return [
        form,
        table(("Partition", "Committed", "Would be", "Records"), rows, empty="Nothing is committed.", numbers=3),
        el("p", "To do it, once the group has no members: "),
        # (A person takes it over into a shell, and a group's name may be anything.)
        el("pre", f"regnum groups reset-offsets --all-topics {option} --execute -- {shlex.quote(name)}"),
    ]
