"""The console as an ASGI application."""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from regnum_service.errors import ExitStatus, RegnumError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regnum_console.context import Context
from regnum_console.html import el
from regnum_console.pages import changes, cluster, events, groups, layout, moves, partition, quotas, records, topics

Handler = Callable[[Context, Request], Awaitable[Response]]

PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", cluster.show),
    ("/brokers/{broker:int}", cluster.show_broker),
    ("/topics", topics.show),
    ("/topics/{topic}", topics.show_topic),
    ("/topics/{topic}/{partition:int}", partition.show),
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
TITLES: Final = {
    400: "That cannot be asked",
    403: "Not allowed",
    404: "Not found",
    405: "Not so",
    409: "Something stands against it",
    429: "A quota refuses it for now",
    503: "The cluster does not answer",
}


def application(context: Context) -> Starlette:
    """The pages of one console. ``guard.Guard`` belongs around it."""
    routes = [Route(path, _bound(context, handler), methods=["GET"]) for path, handler in PAGES]
    routes += [Route(path, _bound(context, handler), methods=["POST"]) for path, handler in CHANGES]
    routes.append(Route("/static/{name}", _static, methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={RegnumError: _refused, HTTPException: _failed})


def _bound(context: Context, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await handler(context, request)

    return handle


async def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "there is no such file")
    package, folder, media_type = found
    data = files(package).joinpath(folder, request.path_params["name"]).read_bytes()
    return Response(data, media_type=media_type)


async def _refused(_request: Request, error: Exception) -> Response:
    """The cluster refused, or did not answer."""
    if not isinstance(error, RegnumError):
        raise error
    return _page(STATUS.get(error.traits.exit_status, 502), error.message)


async def _failed(_request: Request, error: Exception) -> Response:
    """The address, or what was sent, is none that there is."""
    if not isinstance(error, HTTPException):
        raise error
    return _page(error.status_code, error.detail)


def _page(status: int, message: str) -> Response:
    title = TITLES.get(status, "That did not work")
    return layout.page(title, el("p", message, class_="bad"), status=status)
