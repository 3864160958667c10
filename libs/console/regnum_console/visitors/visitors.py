"""Signing in and out, and which visitor a request is of.

Goals: a request without a session learns nothing and costs the cluster nothing; a sign-in costs one question to it, and
so many at a time; another site can neither sign a browser in (as another person, whose records its visitor would then
produce) nor out.

Algorithm: the form's token goes to the cluster as it is, over a connection of its own, and the cluster says whether it
believes it. What the browser keeps is another secret (``sessions``), in a cookie that only pages of this console get
(``__Host-``: of this host alone, over TLS alone), that scripts cannot read, and that browsers send along only from here
(SameSite=Strict). A request that changes something says from which origin it comes (``guard``), shows that cookie, and
in its form the token of its session's pages.
"""

import asyncio
from typing import Final

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.tls.files import is_credential
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from regnum_console.context import Context
from regnum_console.forms import posted
from regnum_console.guard import NOT_THE_PAGE, is_token
from regnum_console.html import el
from regnum_console.pages.layout import SIGN_IN, SIGN_OUT, bare
from regnum_console.port import is_believed_no_more
from regnum_console.visitors.attempts import Attempts
from regnum_console.visitors.sessions import Session, Sessions

COOKIE: Final = "__Host-regnum"
"""Of the browser."""
FORM_BYTES_MAX: Final = 4_096
"""Of the form with a token."""
CHECKS_MAX: Final = 4
"""Tokens that the cluster is asked about at a time."""
WAITING_MAX: Final = 32
"""Tries that wait for that; what comes then is refused."""
LIVE: Final = "/live/"
"""How addresses of streams begin: a page opens them again by itself, so that they say nothing of a person."""


class NotSignedInError(Exception):
    """A request shows no session."""


class Visitors:
    """Of one console."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        """Only assigns."""
        self._sessions: Final = sessions
        self._clock: Final = clock
        self._attempts: Final = Attempts()
        self._checks: Final = asyncio.Semaphore(CHECKS_MAX)
        self._waiting = 0

    def context_of(self, request: Request) -> Context:
        """What the pages of a visitor are made of. Raises NotSignedInError."""
        session = self._session(request)
        if session is None:
            raise NotSignedInError
        if not request.url.path.startswith(LIVE):
            session.used_s = self._clock.monotonic()
        return session.context

    def _session(self, request: Request) -> Session | None:
        shown = request.cookies.get(COOKIE)
        return None if shown is None else self._sessions.find(shown)

    async def sign_in(self, request: Request) -> Response:
        """``POST /sign-in``."""
        if request.headers.get("origin") is None:
            # (Every browser says where a form was sent from; the guard has compared it.)
            raise HTTPException(403, "a sign-in says from which origin it comes: send the header Origin")
        wait_s = self._attempts.take(request.client.host if request.client else "", self._clock.monotonic())
        if wait_s:
            told = form("/", f"Too many tries from your address: wait {wait_s:.0f} s.", status=429)
            told.headers["Retry-After"] = f"{wait_s:.0f}"
            return told
        asked = await posted(request, bytes_max=FORM_BYTES_MAX)
        back, credential = _local(asked.get("next", "")), asked.get("token", "").strip()
        if not is_credential(credential):
            return form(back, "That is no delegation token: its text is two parts with a dot between them.", status=401)
        if self._waiting >= WAITING_MAX:
            return form(back, "Too many visitors are signing in just now: try again shortly.", status=503)
        self._waiting += 1
        try:
            async with self._checks:
                shown = await self._sessions.begin(credential)
        except RegnumError as error:
            if is_believed_no_more(error):
                return form(back, error.message, status=401)
            raise
        finally:
            self._waiting -= 1
        before = self._session(request)
        if before is not None:
            await self._sessions.end(before)
        answer = RedirectResponse(back, status_code=303)
        answer.set_cookie(COOKIE, shown, path="/", secure=True, httponly=True, samesite="strict")
        return answer

    async def sign_out(self, request: Request) -> Response:
        """``POST /sign-out``."""
        session = self._session(request)
        if session is None:
            raise NotSignedInError
        asked = await posted(request, bytes_max=FORM_BYTES_MAX)
        if not is_token(asked.get("token", ""), session.context.token):
            raise HTTPException(403, NOT_THE_PAGE)
        await self._sessions.end(session)
        return forgotten(RedirectResponse("/", status_code=303))


async def not_signed_in(request: Request, _error: Exception) -> Response:
    """In place of a page: the form, which leads back there. A stream is told that it is over."""
    if request.url.path.startswith(LIVE):
        return PlainTextResponse("sign in again\n", status_code=401)
    query = f"?{request.url.query}" if request.url.query else ""
    back = f"{request.url.path}{query}" if request.method == "GET" else "/"
    return forgotten(form(_local(back), "", status=401))


def forgotten(answer: Response) -> Response:
    """The answer, after which the browser has no session."""
    answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return answer


def form(back: str, told: str, *, status: int) -> Response:
    """The form that signs in; ``back``: where it leads to."""
    entry = el("input", type="password", name="token", required=True, autofocus=True, autocomplete="off", size=40)
    return bare(
        "Sign in",
        el("p", told, class_="bad", role="alert") if told else None,
        el(
            "form",
            el("input", type="hidden", name="next", value=back),
            el("label", "Delegation token ", entry),
            el("button", "Sign in"),
            method="post",
            action=SIGN_IN,
        ),
        el("p", "The console has no rights of its own: the cluster answers with yours, and its audit log names you."),
        el("p", "A token for an hour, made with your certificate:", class_="quiet"),
        el("pre", "regnum tokens create --max-life 3600"),
        status=status,
    )


def _local(back: str) -> str:
    """An address of this console; where it is none, the first page."""
    leads_away = not back.startswith("/") or back[1:2] in ("/", "\\") or not back.isprintable()
    return "/" if leads_away or back.startswith((SIGN_IN, SIGN_OUT)) else back
