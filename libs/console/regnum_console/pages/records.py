"""Records of a topic: browsed by offset and time, followed, searched; produced where the console may."""

from typing import Final
from urllib.parse import urlencode

from regnum_client.cluster.view import TopicView
from regnum_client.commands.records.places import BeforeEnd, place_of
from regnum_client.consumer.positions import EARLIEST, LATEST, AtTime, Start
from regnum_client.records import TopicPartition
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from regnum_console.context import ID_MAX, Context, link, number_in, part, whole_number, wrong
from regnum_console.forms import posted
from regnum_console.guard import NOT_THE_PAGE, is_token
from regnum_console.html import Child, Markup, el
from regnum_console.pages.layout import area, page
from regnum_console.records.filtering import ASKED, filter_of
from regnum_console.records.reading import page_of, search, tail
from regnum_console.records.words import FORMS, records_table

COUNT: Final = 50
"""Records of a page."""
FILTERS: Final = tuple(
    zip(ASKED, ("Search", "Key", "Value", "Header"), ("anywhere", "part of it", "part of it", "NAME=part"), strict=True)
)
"""Name, label and hint of each field that records are searched by."""
FORM_BYTES_MAX: Final = 1_100_000
"""A form that is longer is refused: a record is at most 1 MB unless brokers are told otherwise."""


async def choose(context: Context, request: Request) -> Response:
    """``/records?topic=``: which topic."""
    topic = request.query_params.get("topic", "")
    if topic:
        return RedirectResponse(f"/records/{part(topic)}", status_code=303)
    form = el(
        "form",
        el("label", "Topic ", el("input", type="search", name="topic", required=True, autofocus=True)),
        el("button", "Show its records"),
        method="get",
        action="/records",
    )
    return page(
        context, "Records", form, el("p", "Or choose one of the ", link("/topics", "topics"), "."), here="/records"
    )


async def show(context: Context, request: Request) -> Response:
    """``/records/orders?partition=&from=&as=&follow=&search=&key=&value=&header=``."""
    topic = await context.ports.cluster.describe_topic(request.path_params["topic"])
    asked = request.query_params
    name = part(topic.name)
    masked = context.ports.masked(topic.name)
    head = [
        el("p", link(f"/topics/{name}", "Partitions of the topic")),
        el("p", f"Masked by this console: {', '.join(masked)}.", class_="note") if masked else None,
        _form(request, topic),
    ]
    keep = {key: asked.get(key, "") for key in ("partition", "from", "as", *ASKED)}
    if filter_of(asked) is not None:
        body: Child = [_stop(), area("progress", el("p", "The search begins.")), area("found")]
        query = urlencode({key: value for key, value in keep.items() if value})
        return page(context, topic.name, head, body, here="/records", live=f"/live/search/{name}?{query}")
    if asked.get("follow"):
        query = urlencode({key: value for key, value in keep.items() if value and key in {"partition", "as"}})
        body = [_stop(), el("p", "Records that come from now on:", class_="quiet"), area("new")]
        return page(context, topic.name, head, body, here="/records", live=f"/live/tail/{name}?{query}")
    return page(
        context, topic.name, head, await _browse(context, request, topic), _produce(context, topic), here="/records"
    )


async def _browse(context: Context, request: Request, topic: TopicView) -> Child:
    number = whole_number(request, "partition", otherwise=min(topic.partitions, default=0), largest=ID_MAX)
    if number not in topic.partitions:
        raise HTTPException(404, f"topic {topic.name} has no partition {number}")
    partition, form = TopicPartition(topic.name, number), _as(request)
    place = _place(context, request, otherwise=LATEST)
    async with context.reads, context.ports.read() as reader:
        first = (await reader.beginning_offsets([partition]))[partition]
        end = (await reader.end_offsets([partition]))[partition]
        if isinstance(place, AtTime):
            found = (await context.ports.cluster.list_offsets_at({partition: place.timestamp_ms}))[partition]
            start = end if found is None else found
        else:
            start = place if isinstance(place, int) else first if place == EARLIEST else end - COUNT
        start = min(max(start, first), end)
        records, after = await page_of(context, reader, partition, start, end, COUNT)
    address = f"/records/{part(topic.name)}"
    keep = {"partition": number, "as": request.query_params.get("as")}
    steps: list[Child] = [
        link(address, "Oldest", **keep, from_="begin"),
        link(address, "Older", **keep, from_=max(first, start - COUNT)) if start > first else None,
        link(address, "Newer", **keep, from_=after) if after < end else None,
        link(address, "Newest", **keep, from_="end"),
    ]
    told = f"Partition {number}: offsets {first:,} to {end:,}; from {start:,} on."
    return [
        el("p", told, class_="quiet"),
        records_table(records, form),
        el("p", [[step, " "] for step in steps if step], class_="steps"),
    ]


async def stream_tail(context: Context, request: Request) -> Response:
    """``/live/tail/orders``."""
    parts = tail(context, request.path_params["topic"], _partitions(request), _as(request))
    return context.streams.answer(parts)


async def stream_search(context: Context, request: Request) -> Response:
    """``/live/search/orders?search=&key=&value=&header=``."""
    wanted = filter_of(request.query_params)
    if wanted is None:
        raise wrong("nothing is searched for: name a text")
    start = _place(context, request, otherwise=EARLIEST)
    parts = search(context, request.path_params["topic"], _partitions(request), start, wanted, _as(request))
    return context.streams.answer(parts)


async def produce(context: Context, request: Request) -> Response:
    """``POST /records/orders``: one record. Raises HTTPException 403 where that is not allowed."""
    if context.ports.write is None:
        raise HTTPException(403, "this console changes nothing: start it with --writes")
    asked = await posted(request, bytes_max=FORM_BYTES_MAX)
    if not is_token(asked.get("token", ""), context.token):
        raise HTTPException(403, NOT_THE_PAGE)
    topic = request.path_params["topic"]
    text = asked.get("partition", "")
    number = number_in("partition", text, largest=ID_MAX) if text else None
    async with context.ports.write() as writer:
        delivery = await writer.send(
            topic,
            # Browsers send each line of a field with the end that the net has.
            asked.get("value", "").replace("\r\n", "\n").encode(),
            key=asked["key"].encode() if asked.get("key") else None,
            partition=number,
        )
        where = await delivery
    query = urlencode({"partition": where.partition, "from": max(0, where.offset)})
    return RedirectResponse(f"/records/{part(topic)}?{query}", status_code=303)


def _produce(context: Context, topic: TopicView) -> Markup | None:
    if not context.writes:
        return None
    return el(
        "details",
        el("summary", "Produce a record"),
        el(
            "form",
            el("input", type="hidden", name="token", value=context.token),
            el("label", "Partition ", el("input", name="partition", inputmode="numeric", placeholder="by key", size=6)),
            el("label", "Key ", el("input", name="key", placeholder="none")),
            el("label", "Value ", el("textarea", name="value", rows=3, cols=40)),
            el("button", "Produce"),
            method="post",
            action=f"/records/{part(topic.name)}",
        ),
    )


def _stop() -> Markup:
    return el("p", el("button", "Stop", type="button", id="stop"))


def _form(request: Request, topic: TopicView) -> Markup:
    asked = request.query_params
    chosen = asked.get("partition", "")
    numbers = [("", "all, or the first"), *((str(one), str(one)) for one in sorted(topic.partitions)[:1_000])]
    options = [el("option", text, value=value, selected=value == chosen) for value, text in numbers]
    forms = [el("option", one, selected=one == asked.get("as")) for one in FORMS]
    place = el("input", name="from", value=asked.get("from", ""), placeholder="begin, end, 1500, -1h", size=18)
    return el(
        "form",
        el("label", "Partition ", el("select", options, name="partition")),
        el("label", "From ", place),
        el("label", "As ", el("select", forms, name="as")),
        [
            el(
                "label",
                f"{label} ",
                el("input", type="search", name=name, value=asked.get(name), placeholder=hint, size=14),
            )
            for name, label, hint in FILTERS
        ],
        el("button", "Show"),
        el("button", "Follow", name="follow", value="1"),
        method="get",
        action=f"/records/{part(topic.name)}",
        role="search",
        data_saves="records",
    )


def _as(request: Request) -> str:
    form = request.query_params.get("as") or FORMS[0]
    if form not in FORMS:
        raise wrong(f"records are not shown as {form[:40]!r}")
    return form


def _partitions(request: Request) -> list[int] | None:
    number = whole_number(request, "partition", otherwise=-1, largest=ID_MAX)
    return None if number < 0 else [number]


def _place(context: Context, request: Request, *, otherwise: Start) -> Start:
    text = request.query_params.get("from", "")
    if not text:
        return otherwise
    try:
        place = place_of(text, context.clock.wall_ms())
    except ValueError as error:
        raise wrong(str(error)) from None
    if isinstance(place, BeforeEnd):
        raise wrong("a page of records begins at an offset, an age or a time; the newest are followed by Follow")
    return place
