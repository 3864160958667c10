"""Events: what happened in the cluster, why, and what the controller decided; new ones come by themselves."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from regnum_client.admin.describing.events import ClusterEvent, EventFilter, EventKind, EventPosition
from regnum_client.commands.looking.event_words import row_of
from regnum_model.ids import ControllerEpoch
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import ID_MAX, Context, link, partition_link, whole_number, wrong
from regnum_console.html import Child, Markup, el, table
from regnum_console.live.streams import Part, Parts
from regnum_console.pages.layout import area, page

PAGE: Final = 100
"""Events of a page."""
KEPT: Final = 20
"""Tables of new events that stay on a page."""
WAIT_S: Final = 5.0
"""How long the controller waits for news."""
_PLACE: Final = re.compile(r"(\d{1,18})\.(\d{1,18})")
COLUMNS: Final = ("Time", "Event", "Subject", "Change", "Why", "Decided by")


async def show(context: Context, request: Request) -> Response:
    """``/events?topic=&broker=&kind=&before=``, the newest first."""
    asked = request.query_params
    chosen, before = _chosen(request), _place(asked.get("before", ""))
    found = await context.ports.cluster.describe_events(chosen, before=before, limit=PAGE)
    keep = {name: asked.get(name) for name in ("topic", "broker", "kind")}
    steps: list[Child] = [] if before is None else [link("/events", "Newest", **keep)]
    if found.more and found.next is not None:
        steps.append(link("/events", "Older", **keep, before=f"{found.next.epoch}.{found.next.number}"))
    newest = found.events[0].position if found.events else EventPosition(ControllerEpoch(0), 0)
    query = {name: value for name, value in keep.items() if value}
    live = f"/live/events?{urlencode({'after': f'{newest.epoch}.{newest.number}', **query})}" if before is None else ""
    return page(
        context,
        "Events",
        _form(request),
        None
        if found.on_disk
        else el("p", "The controller cannot write its event log: only the newest are kept, in memory.", class_="bad"),
        area("new"),
        events_table(found.events),
        el("p", [[step, " "] for step in steps], class_="steps"),
        here="/events",
        live=live,
    )


async def stream(context: Context, request: Request) -> Response:
    """``/live/events?after=12.7``."""
    told = request.headers.get("last-event-id") or request.query_params.get("after", "")
    after = _place(told) or EventPosition(ControllerEpoch(0), 0)
    return context.streams.answer(_news(context, _chosen(request), after))


async def _news(context: Context, chosen: EventFilter, after: EventPosition) -> Parts:
    while True:
        found = await context.ports.cluster.describe_events(chosen, after=after, limit=PAGE, wait_s=WAIT_S)
        after = found.next or after
        if found.events:
            place = f"{after.epoch}.{after.number}"
            yield Part("new", events_table(list(reversed(found.events))), "prepend", KEPT, place)
        else:
            yield None
            await context.streams.pause(0)


def events_table(events: Sequence[ClusterEvent]) -> Markup:
    """Events as rows. Pure."""
    rows = []
    for event in events:
        told = row_of(event)
        subject: Child = told["subject"]
        if event.topic and event.partition is not None:
            subject = partition_link(event.topic, event.partition)
        elif event.broker is not None and not event.topic:
            subject = link(f"/brokers/{event.broker}", told["subject"])
        named = link(f"/changes/{event.trace_id}", told["event"]) if event.trace_id else told["event"]
        rows.append([told["time"], named, subject, told["change"], told["why"], told["decided_by"]])
    return table(COLUMNS, rows, empty="The event log has nothing like that.", caption="Events")


def _chosen(request: Request) -> EventFilter:
    asked = request.query_params
    kind = asked.get("kind", "")
    if kind and kind not in {one.value for one in EventKind}:
        raise wrong(f"there is no kind of event {kind[:40]!r}")
    broker = whole_number(request, "broker", otherwise=ID_MAX, largest=ID_MAX)
    return EventFilter(
        topic=asked.get("topic", ""),
        broker=None if broker == ID_MAX else broker,
        kinds=frozenset({EventKind(kind)} if kind else ()),
    )


def _place(text: str) -> EventPosition | None:
    if not text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise wrong(f"{text[:40]!r} is no place in the event log; one is 12.7")
    return EventPosition(ControllerEpoch(int(match[1])), int(match[2]))


def _form(request: Request) -> Markup:
    asked = request.query_params
    kinds = [("", "any kind"), *((one.value, one.value) for one in EventKind if one is not EventKind.UNSPECIFIED)]
    chosen = asked.get("kind", "")
    options = [el("option", text, value=value, selected=value == chosen) for value, text in kinds]
    return el(
        "form",
        el("label", "Topic ", el("input", type="search", name="topic", value=asked.get("topic", ""))),
        el("label", "Broker ", el("input", name="broker", inputmode="numeric", size=4, value=asked.get("broker", ""))),
        el("label", "Kind ", el("select", options, name="kind")),
        el("button", "Show"),
        method="get",
        action="/events",
        role="search",
    )
