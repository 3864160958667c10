"""Changes of leadership: a list, and each as a waterfall that grows while it happens."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

from regnum_client.admin.describing.events import EventFilter
from regnum_client.commands.looking.event_words import time_of
from regnum_insight.reporting.choosing import ChangeFilter
from regnum_insight.reporting.comparing import pair_of, shown_stages
from regnum_insight.reporting.rows import marked_label_of, started, title
from regnum_insight.reporting.text import chain_text
from regnum_insight.reporting.waterfall import figures_of, key, waterfall
from regnum_service.errors import RegnumError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import ID_MAX, Context, link, part, told, untold, whole_number
from regnum_console.html import Child, Markup, el, join, table
from regnum_console.live.feed import LOOK_S, Known, found_in
from regnum_console.live.from_events import KINDS, EventChange, changes_from, picture
from regnum_console.live.streams import Part, Parts
from regnum_console.pages.events import events_table
from regnum_console.pages.layout import area, page

FILTERS: Final = (
    ("kind", "Kind or cause", "balance"),
    ("victim", "Victim", "broker 2"),
    ("broker", "Broker", "2"),
    ("partition", "Partition", "orders/0"),
    ("min_ms", "Chain from, ms", "500"),
    ("error", "Error", "any"),
)
"""Name, label and an example of each field that changes are chosen by."""
SHOWN: Final = 100
"""Changes of the list."""
EVENTS: Final = 500
"""Events that are looked at for changes, and for the events of one."""
EVENTS_EVERY_S: Final = 1.0
"""How often events are looked at where there are no traces."""
FROM_EVENTS: Final = (
    "There are no traces here, so that changes are drawn from the controller's events: they say what was decided, when "
    "and why, and not where the time went. Start the console where traces are (--traces, or beside `regnum up`)."
)


async def show(context: Context, request: Request) -> Response:
    """``/changes?kind=&victim=&broker=&partition=&min_ms=&error=``."""
    chosen = _chosen(request)
    newest, listed = await _content(context, chosen)
    traced = context.feed.has_traces
    return page(
        context,
        "Changes",
        Markup(key()) if traced else el("p", FROM_EVENTS, class_="note"),
        _form(request) if traced else None,
        area("newest", newest),
        el("h2", "All of them"),
        area("changes", listed),
        here="/changes",
        live=f"/live/changes?{urlencode(_asked(request))}".rstrip("?"),
    )


async def stream(context: Context, request: Request) -> Response:
    """``/live/changes``, with what ``/changes`` has."""
    return context.streams.answer(_growing(context, _chosen(request)))


def _asked(request: Request) -> dict[str, str]:
    return {name: value for name, *_ in FILTERS if (value := request.query_params.get(name, ""))}


def _chosen(request: Request) -> ChangeFilter:
    asked = _asked(request)
    return ChangeFilter(
        kind=asked.get("kind", ""),
        victim=asked.get("victim", ""),
        broker=whole_number(request, "broker", otherwise=0, largest=ID_MAX) if "broker" in asked else None,
        partition=asked.get("partition", ""),
        min_ms=whole_number(request, "min_ms", otherwise=0, largest=10**9),
        error=asked.get("error", ""),
    )


def _form(request: Request) -> Markup:
    asked = _asked(request)
    fields = [
        el(
            "label",
            f"{label} ",
            el("input", type="search", name=name, value=asked.get(name), placeholder=hint, size=12),
        )
        for name, label, hint in FILTERS
    ]
    return el(
        "form", fields, el("button", "Show"), method="get", action="/changes", role="search", data_saves="changes"
    )


async def _growing(context: Context, chosen: ChangeFilter) -> Parts:
    before: tuple[Markup, Markup] | None = None
    while True:
        now = await _content(context, chosen)
        for at, element in enumerate(("newest", "changes")):
            yield Part(element, now[at]) if before is None or now[at] != before[at] else None
        before = now
        await context.streams.pause(LOOK_S if context.feed.has_traces else EVENTS_EVERY_S)


async def _content(context: Context, chosen: ChangeFilter) -> tuple[Markup, Markup]:
    """The newest change that was chosen, drawn, and the list."""
    if context.feed.has_traces:
        every = await context.feed.look()
        known = tuple(one for one in every if chosen.finds(one.change))[:SHOWN]
        none = f"None of {len(every):,} changes matches." if every else "The traces tell of no change yet."
        return (drawn(known[0]) if known else el("p", none, class_="quiet")), listed(known)
    changes = changes_from(await context.ports.cluster.last_events(EventFilter(kinds=KINDS), limit=EVENTS))[:SHOWN]
    if not changes:
        return el("p", "The event log has no change yet.", class_="quiet"), Markup("")
    return _drawn_from_events(changes[0]), _listed_from_events(changes)


def drawn(known: Known) -> Markup:
    """A change with its waterfall; its figures stand in attributes as in the report. Pure."""
    change = known.change
    words = ", ".join(f"{title(step)} {ms:.1f}" for step, ms in change.steps_ms.items() if ms >= 0.05)
    waited = "clients waited" if change.chains else "no client that leaves spans waited;"
    return el(
        "section",
        el("h2", link(f"/changes/{change.trace_id}", f"{marked_label_of(change)}, {change.victim or 'no victim'}")),
        el(
            "p",
            f"{started(change)[:23].replace('T', ' ')}Z, {waited} {change.total_ms:.1f} ms on {change.worst.name}: "
            f"{words or 'nothing has taken time yet'}",
            **figures_of(change),
        ),
        el("div", Markup(waterfall(change, known.spans)), class_="wide"),
        class_="growing" if change.unfinished else None,
    )


def listed(known: tuple[Known, ...]) -> Markup:
    """Changes as a table, the newest first. Pure."""
    rows: list[list[Child]] = []
    for one in known:
        change = one.change
        rows.append(
            [
                link(f"/changes/{change.trace_id}", started(change)[:23].replace("T", " ")),
                marked_label_of(change),
                change.victim or "-",
                change.worst.name,
                f"{change.partitions:,}",
                f"{change.total_ms:.1f}",
                "-" if change.outage_ms is None else f"{change.outage_ms:.1f}",
            ]
        )
    columns = ("Began (UTC)", "Kind", "Victim", "Worst", "Partitions", "Chain, ms", "Outage, ms")
    return table(columns, rows, empty="None yet.", caption="Changes", numbers=3)


async def show_change(context: Context, request: Request) -> Response:
    """``/changes/{trace id}?with=``."""
    trace_id = request.path_params["change"]
    every = await context.feed.look()
    known = found_in(every, trace_id)
    events = await told(context.ports.cluster.last_events(EventFilter(), limit=EVENTS))
    of = [] if isinstance(events, RegnumError) else [one for one in events if one.trace_id == trace_id]
    if known is None:
        changes = [] if isinstance(events, RegnumError) else changes_from(events)
        change = next((one for one in changes if one.key == trace_id), None)
        if change is None:
            raise HTTPException(404, "neither the traces that are here nor the newest events tell of that change")
        note = el("p", FROM_EVENTS, class_="note")
        body: Child = [note, _drawn_from_events(change), events_table(list(reversed(change.events)))]
        return page(context, "Change", body, here="/changes")
    other = request.query_params.get("with", "")
    beside = el("section", el("h2", "Beside another change"), _beside(known, every, other))
    return page(
        context,
        "Change",
        # What was asked for is seen first.
        beside if other else None,
        Markup(key()),
        area("change", _whole(known)),
        None if other else beside,
        el("h2", "What the controller decided"),
        untold("What it decided is not known", events) if isinstance(events, RegnumError) else events_table(of),
        here="/changes",
        live=f"/live/changes/{part(trace_id)}",
    )


def _beside(known: Known, every: Iterable[Known], other_id: str) -> Child:
    """Which other change, and both stage by stage."""
    others = [one.change for one in every if one.change.trace_id != known.change.trace_id][:SHOWN]
    options = [
        el("option", f"{started(one)[:19].replace('T', ' ')}Z {marked_label_of(one)}, {one.total_ms:.1f} ms",
           value=one.trace_id, selected=one.trace_id == other_id)
        for one in others
    ]  # fmt: skip
    form = el(
        "form",
        el("label", "With ", el("select", options, name="with")),
        el("button", "Compare"),
        method="get",
        action=f"/changes/{known.change.trace_id}",
    )
    if not other_id:
        return form if others else el("p", "There is no other one yet.", class_="quiet")
    other = found_in(every, other_id)
    if other is None:
        raise HTTPException(404, "the traces that are here do not tell of the other change")
    pair = pair_of(known.change, other.change)
    facts = [
        [name, one, link(f"/changes/{second}", second) if name == "trace" else second]
        for name, one, second in pair.about
    ]
    return [
        form,
        table(("", "This", "The other"), facts),
        table(
            ("Stage", "", "This, ms", "The other, ms", "Difference"),
            [[stage, mark, *figures] for stage, *figures, mark in shown_stages(pair)],
            numbers=3,
        ),
    ]


async def stream_change(context: Context, request: Request) -> Response:
    """``/live/changes/{trace id}``."""
    trace_id = request.path_params["change"]

    async def render() -> Markup:
        known = found_in(await context.feed.look(), trace_id)
        return el("p", "It is not held any more.", class_="quiet") if known is None else _whole(known)

    return context.streams.answer(context.streams.changing("change", render, every_s=LOOK_S))


def _whole(known: Known) -> Markup:
    change = known.change
    together = [[" ", link(f"/changes/{other}", other)] for other in change.links]
    rows = [
        [one.name, one.client or "no client", one.leader or "-", f"{one.outage_ms:.1f}"]
        for one in (change.chains or (change.worst,))[:SHOWN]
    ]
    return join(
        [
            drawn(known),
            el("p", "Belongs together with", together) if together else None,
            el("pre", chain_text(change)),
            el("h2", "Partitions"),
            table(("Partition", "Who waited", "Leader", "Chain, ms"), rows, numbers=1),
        ]
    )


def _drawn_from_events(change: EventChange) -> Markup:
    return el(
        "section",
        el("h2", link(f"/changes/{part(change.key)}", change.kind)),
        el("p", f"{time_of(change.start_ms)}, {change.partitions:,} partitions, {len(change.events):,} events"),
        el("div", Markup(picture(change)), class_="wide"),
    )


def _listed_from_events(changes: list[EventChange]) -> Markup:
    rows = [
        [
            link(f"/changes/{part(one.key)}", time_of(one.start_ms)),
            one.kind,
            f"{one.partitions:,}",
            f"{one.events[-1].time_unix_ms - one.start_ms:,}",
        ]
        for one in changes
    ]
    return table(("Began", "Cause", "Partitions", "First to last event, ms"), rows, numbers=2)
