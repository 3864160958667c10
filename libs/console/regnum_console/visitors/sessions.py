"""Sessions of visitors: what the browser keeps, and what it stands for.

Constraints: a session is worth as much as its token for as long as it lives. It ends when its visitor signs out, when
the cluster no longer believes its token, IDLE_S after the last page that was asked for (open pages that are kept up to
date do not count: their visitor may have left), and after LIFETIME_S in any case. Its streams and its connections end
with it.

What the browser shows is chance of 256 bits; only its digest is kept here. The token's credential is in the
connections of the session and nowhere else.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_console.context import Context
from regnum_console.port import Ports

IDLE_S: Final = 1_800.0
"""A session of which no page is asked for ends after so long."""
LIFETIME_S: Final = 43_200.0
"""Every session ends after so long."""
SESSIONS_MAX: Final = 64
"""Sessions at a time, each with connections to brokers of its own: of more, the one that was idle longest ends."""
OF_TOKEN_MAX: Final = 4
"""The same of one token, so that a visitor takes no place of another one's."""

Enter: TypeAlias = Callable[[str], AbstractAsyncContextManager[Ports]]
"""The cluster as the owner of a credential sees it. Entering raises RegnumError when it is not believed."""


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    """Of one visitor, in one browser."""

    token_id: str
    """Of the delegation token: no secret."""
    context: Context
    """What pages are made of."""
    begin_s: float
    """Monotonic time of the sign-in."""
    used_s: float
    """Monotonic time of the last page that was asked for."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its connections are closed."""

    @property
    def end_s(self) -> float:
        """When it ends unless it is used."""
        return min(self.used_s + IDLE_S, self.begin_s + LIFETIME_S)


class Sessions:
    """All of a console. ``close`` ends them."""

    def __init__(self, clock: Clock, enter: Enter, make: Callable[[Ports, str], Context]) -> None:
        """Only assigns.

        Args:
            clock: source of time.
            enter: opens the cluster for a visitor.
            make: what the pages of a visitor are given, from the ports and the token's id.
        """
        self._clock: Final = clock
        self._enter: Final = enter
        self._make: Final = make
        self._sessions: Final[dict[bytes, Session]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._sessions)

    async def begin(self, credential: str) -> str:
        """Sign in. Returns what the browser is to show. Raises RegnumError when the cluster does not let it in."""
        shown = secrets.token_urlsafe(32)
        entered: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        keeper = asyncio.create_task(self._keep(_digest(shown), credential, entered), name="session of a visitor")
        try:
            session = await asyncio.shield(entered)
        except asyncio.CancelledError:
            # The browser has gone while the cluster was asked.
            keeper.cancel()
            raise
        of_token = [one for one in self._sessions.values() if one.token_id == session.token_id]
        for crowd, most in ((of_token, OF_TOKEN_MAX), (list(self._sessions.values()), SESSIONS_MAX)):
            if len(crowd) > most:
                await self.end(min(crowd, key=lambda one: one.used_s))
        return shown

    def find(self, shown: str) -> Session | None:
        """The session that a browser shows; None: there is none, or it has ended."""
        session = self._sessions.get(_digest(shown))
        if session is None or session.context.streams.closing.is_set() or session.end_s <= self._clock.monotonic():
            return None
        return session

    async def end(self, session: Session) -> None:
        """End one, with its streams and its connections."""
        session.context.streams.closing.set()
        await session.ended.wait()

    async def close(self) -> None:
        """End all."""
        for session in list(self._sessions.values()):
            await self.end(session)

    async def _keep(self, key: bytes, credential: str, entered: asyncio.Future[Session]) -> None:
        """The life of a session: it is there from the moment in which it is ``entered`` until this returns."""
        token_id = credential.partition(".")[0]
        try:
            async with self._enter(credential) as ports:
                now_s = self._clock.monotonic()
                session = self._sessions[key] = Session(
                    token_id=token_id,
                    context=self._make(ports, token_id),
                    begin_s=now_s,
                    used_s=now_s,
                )
                entered.set_result(session)
                await self._over(session)
        except RegnumError as error:
            if entered.done():
                raise
            entered.set_exception(error)
        finally:
            ended = self._sessions.pop(key, None)
            if ended is not None:
                ended.ended.set()

    async def _over(self, session: Session) -> None:
        """Return when a session is over, for whatever reason; its streams end, too."""
        closing = session.context.streams.closing
        told = asyncio.create_task(closing.wait(), name="end of a session")
        while not told.done() and (left_s := session.end_s - self._clock.monotonic()) > 0:
            passing = asyncio.create_task(self._clock.sleep(left_s), name="rest of a session")
            await asyncio.wait({told, passing}, return_when=asyncio.FIRST_COMPLETED)
            passing.cancel()
        told.cancel()
        closing.set()


def _digest(shown: str) -> bytes:
    return sha256(shown.encode("utf-8", "surrogateescape")).digest()
