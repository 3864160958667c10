"""The console as an ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from importlib.resources import files
from typing import Any, Final

from regnum_service.errors import ExitStatus, RegnumError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regnum_console.context import Context
from regnum_console.guard import READING
from regnum_console.html import el
from regnum_console.pages import changes, cluster, events, groups, layout, moves, partition, quotas, records, topics
from regnum_console.pages.layout import SIGN_IN, SIGN_OUT
from regnum_console.port import is_believed_no_more
from regnum_console.visitors.visitors import NotSignedInError, Visitors, not_signed_in

Handler = Callable[[Context, Request], Coroutine[Any, Any, Response]]

PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", cluster.show),
    ("/brokers/{broker}", cluster.show_broker),
    ("/topics", topics.show),
    ("/topics/{topic}", topics.show_topic),
    ("/topics/{topic}/{partition}", partition.show),
    ("/groups", groups.show),
    ("/groups/{group:path}", groups.show_group),
    ("/records", records.choose),
    ("/records/{topic}", records.show),
    ("/changes", changes.show),
    ("/changes/{change}", changes.show_change),
    ("/events", events.show),
    ("/quotas", quotas.show),
    ("/moves", moves.show),
    ("/live/cluster", cluster.stream),
    ("/live/changes", changes.stream),
    ("/live/changes/{change}", changes.stream_change),
    ("/live/events", events.stream),
    ("/live/moves", moves.stream),
    ("/live/tail/{topic}", records.stream_tail),
    ("/live/search/{topic}", records.stream_search),
)
"""What is read, by path."""
CHANGES: Final[tuple[tuple[str, Handler], ...]] = (("/records/{topic}", records.produce),)
"""What changes something, by path: POST, with the page's token."""
STATIC: Final = {
    "console.css": ("regnum_console", "static", "text/css"),
    "console.js": ("regnum_console", "static", "text/javascript"),
    "kept.js": ("regnum_console", "static", "text/javascript"),
    "icon.svg": ("regnum_console", "static", "image/svg+xml"),
    # The pictures are those of the report.
    "svg.css": ("regnum_insight", "reporting", "text/css"),
}
"""Files that pages name: package, folder in it, type."""
STATUS: Final = {
    ExitStatus.WRONG_USE: 400,
    ExitStatus.NOT_ALLOWED: 403,
    ExitStatus.NOT_FOUND: 404,
    ExitStatus.CONFLICT: 409,
    ExitStatus.QUOTA: 429,
    ExitStatus.UNAVAILABLE: 503,
}
"""Status of HTTP for what the cluster refuses; 502 for all else."""
GONE: Final = 499
"""Status for a browser that hung up; it goes nowhere."""
TITLES: Final = {
    400: "That cannot be asked",
    403: "Not allowed",
    404: "Not found",
    405: "Not so",
    409: "Something stands against it",
    429: "A quota refuses it for now",
    503: "The cluster does not answer",
}


def application(of: Context | Visitors) -> Starlette:
    """The pages of one console, for everything that reaches it or for visitors; ``guard.Guard`` belongs around it."""
    context_of = of.context_of if isinstance(of, Visitors) else lambda _request: of
    routes = [Route(path, _bound(context_of, handler), methods=["GET"]) for path, handler in PAGES]
    routes += [Route(path, _bound(context_of, handler), methods=["POST"]) for path, handler in CHANGES]
    routes.append(Route("/static/{name}", _static, methods=["GET"]))
    if isinstance(of, Visitors):
        routes += [Route(SIGN_IN, of.sign_in, methods=["POST"]), Route(SIGN_OUT, of.sign_out, methods=["POST"])]
    return Starlette(
        routes=routes,
        exception_handlers={RegnumError: _refused, HTTPException: _failed, NotSignedInError: not_signed_in},
    )


def _bound(context_of: Callable[[Request], Context], handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        context = request.state.context = context_of(request)
        working = handler(context, request)
        return await (_while_there(request, working) if request.method in READING else working)

    return handle


async def _while_there(request: Request, working: Coroutine[Any, Any, Response]) -> Response:
    """The page; a browser that hangs up ends the work for it, or what waits for its turn would have no bound."""
    page = asyncio.create_task(working, name="page")
    leaving = asyncio.create_task(_left(request), name="end of a browser's connection")
    try:
        await asyncio.wait({page, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return page.result() if page.done() else Response(status_code=GONE)
    finally:
        page.cancel()
        leaving.cancel()
        await asyncio.wait({page, leaving})


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _context_of(request: Request) -> Context | None:
    """That of the page that failed; None: the request came to none."""
    context = getattr(request.state, "context", None)
    return context if isinstance(context, Context) else None


async def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "there is no such file")
    package, folder, media_type = found
    data = files(package).joinpath(folder, request.path_params["name"]).read_bytes()
    return Response(data, media_type=media_type)


async def _refused(request: Request, error: Exception) -> Response:
    """The cluster refused, or did not answer."""
    if not isinstance(error, RegnumError):
        raise error
    context = _context_of(request)
    if context is not None and context.visitor is not None and is_believed_no_more(error):
        # With its streams.
        context.streams.closing.set()
        return await not_signed_in(request, error)
    return _page(context, STATUS.get(error.traits.exit_status, 502), error.message)


async def _failed(request: Request, error: Exception) -> Response:
    """The address, or what was sent, is none that there is."""
    if not isinstance(error, HTTPException):
        raise error
    return _page(_context_of(request), error.status_code, error.detail)


def _page(context: Context | None, status: int, message: str) -> Response:
    title = TITLES.get(status, "That did not work")
    return layout.page(context, title, el("p", message, class_="bad"), status=status)
