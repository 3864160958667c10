"""Which requests are served at all, and what every answer says to the browser.

Goals: a page of another origin can neither change nor read anything here, also where its name is made to point to
this address (DNS rebinding); an answer that is read as HTML runs no script but ours.

Algorithm: the Host of a request has to be one that the console is reached by: an address of this machine with its port,
or a name of its certificate, at any port (another machine may forward one). An Origin, where a browser sends one,
has to be that host's. What a browser says of the request's site (Sec-Fetch-Site) has to be ours, but for a person who
follows a link to a page. Whatever is no GET or HEAD shows the token that the page was given, as a field of its form:
another origin cannot read it, for there is no CORS.
"""

import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer."""
READING: Final = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
NOT_THE_PAGE: Final = "the page's token is missing: it was not this page that asked, or it is an old one"
"""Why a form is refused."""
_OWN_SITE: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """What the console is reached by."""

    scheme: str
    """http or https."""
    names: Collection[str]
    """Lower case, addresses of IPv6 in brackets; ``*.example.com`` stands for every name with one label there."""
    port: int | None = None
    """None: any."""

    def has(self, host: str) -> bool:
        """Whether a Host of a request, lower case, is one of them."""
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, {"http": "80", "https": "443"}[self.scheme]
        # (Not read as a number: it may have any length.)
        if not (port.isascii() and port.isdigit()) or (self.port is not None and port != str(self.port)):
            return False
        return name in self.names or f"*.{name.partition('.')[2]}" in self.names


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served."""

    status: int
    """Of HTTP."""
    reason: str
    """For a person."""


def refusal_of(method: str, headers: Mapping[str, str], hosts: Hosts) -> Refusal | None:
    """Why a request is not served; None: it is. ``headers``: by names in lower case."""
    host = headers.get("host", "").lower()
    if not hosts.has(host):
        known = ", ".join(sorted(hosts.names))
        return Refusal(421, f"this console is not {host or 'a host without a name'}: it is reached as {known}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{hosts.scheme}://{host}":
        return Refusal(403, "the request comes from a page of another origin")
    site = headers.get("sec-fetch-site", "none")
    follows_link = method in READING and headers.get("sec-fetch-mode") == "navigate"
    if site not in _OWN_SITE and not follows_link:
        return Refusal(403, "the request comes from a page of another site")
    return None


class Guard:
    """Around the application: refuses what ``refusal_of`` does, and puts HEADERS on every answer."""

    def __init__(self, app: ASGIApp, hosts: Callable[[], Hosts]) -> None:
        """Only assigns; ``hosts`` are looked up for each request: a certificate is renewed."""
        self._app: Final = app
        self._hosts: Final = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            raise ValueError(f"no such connection is served: {scope['type']}")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = refusal_of(scope["method"], headers, self._hosts())

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                written = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    written.setdefault(name, value)
            await send(message)

        app = self._app if refusal is None else PlainTextResponse(f"{refusal.reason}\n", status_code=refusal.status)
        await app(scope, receive, send_guarded)


def is_token(shown: str, token: str) -> bool:
    """Whether a form shows the page's token."""
    return hmac.compare_digest(shown.encode(), token.encode())
