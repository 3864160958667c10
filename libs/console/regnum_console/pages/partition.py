"""One partition: why its leader is where it is, where the time of its last change went, what happened to it."""

from regnum_client.admin.describing.events import EventFilter
from regnum_client.commands.looking.event_words import why
from regnum_client.records import TopicPartition
from regnum_insight.reporting.timing import change_of_partition, timing_text
from regnum_service.errors import RegnumError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import ID_MAX, Context, link, number_in, part, told, untold
from regnum_console.html import Child, el
from regnum_console.pages.events import events_table
from regnum_console.pages.layout import page
from regnum_console.pages.topics import partitions_table

EVENTS = 20
"""Events that are shown."""


async def show(context: Context, request: Request) -> Response:
    """``/topics/orders/0``."""
    name = request.path_params["topic"]
    number = number_in("a partition", request.path_params["partition"], largest=ID_MAX)
    cluster = context.ports.cluster
    topic = await cluster.describe_topic(name)
    if number not in topic.partitions:
        raise HTTPException(404, f"topic {name} has no partition {number}")
    partition = [TopicPartition(name, number)]
    events = await told(cluster.last_events(EventFilter(topic=name, partition=number), limit=EVENTS))
    happened = [] if isinstance(events, RegnumError) else list(events)
    table = partitions_table(
        topic, [number], await told(cluster.describe_replicas(partition)), await told(cluster.list_offsets(partition))
    )
    return page(
        context,
        f"{name}/{number}",
        el(
            "p", link(f"/topics/{part(name)}", name), " · ", link(f"/records/{part(name)}", "Records", partition=number)
        ),
        table,
        el("h2", "Why is its leader where it is?"),
        el("ul", [el("li", sentence) for sentence in why(name, topic.partitions[number], happened)]),
        el("h2", "Where did the time of its last change go?"),
        await _timing(context, name, number),
        el("h2", "What happened"),
        untold("What happened is not known", events) if isinstance(events, RegnumError) else events_table(happened),
        here="/topics",
    )


async def _timing(context: Context, topic: str, partition: int) -> Child:
    if not context.feed.has_traces:
        return el("p", "There are no traces here, so that only the events below are known.", class_="quiet")
    known = await told(context.feed.look())
    if isinstance(known, RegnumError):
        return untold("Where the time went is not known", known)
    found = change_of_partition([one.change for one in known], topic, partition)
    if found is None:
        return el("p", "The traces that are here tell of no change of its leader.", class_="quiet")
    change, chain = found
    text = timing_text(f"{topic}/{partition}", change, chain)
    return [el("pre", text), el("p", link(f"/changes/{change.trace_id}", "The whole change"))]
