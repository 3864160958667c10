"""The token of one user: asked for with the password, sent with every call, and asked for again when it is refused.

A server that asks for no user gives no token, and may ask for one later: then calls without one are refused.

A server forgets tokens: those that nobody used for some minutes, and all of them when it starts again or when somebody
changes a user or a role. It refuses before it does anything, so that the same call may be sent again.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

import grpc
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc

from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.errors import ConnectionLoss, NoAuth

Metadata = tuple[tuple[str, str], ...]
"""What goes with a call besides its message."""

UNREACHABLE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Statuses that say nothing of the password."""

NOT_ENABLED: Final = "authentication is not enabled"
"""In the answer of a server that asks for no user."""

PAUSE_S: Final = 1.0
"""Time in which a password that was refused, and a token that was given, are not asked about again: a server spends a
tenth of a second of its processor on each password."""


class TokenSource:
    """The token in use; one for all members."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], credentials: Credentials, *, timeout_s: float) -> None:
        self._members = itertools.cycle([rpc_pb2_grpc.AuthStub(channel) for channel in channels])
        self._auth = next(self._members)
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._renewing = asyncio.Lock()
        self._token: str | None = None
        self._given_s = -PAUSE_S
        self._refused: tuple[float, NoAuth] | None = None

    @property
    def has_user(self) -> bool:
        """Whether there is a user to ask for a token with."""
        return self._credentials.user is not None

    @property
    def is_new(self) -> bool:
        """Whether the token was given a moment ago."""
        return asyncio.get_running_loop().time() - self._given_s < PAUSE_S

    @property
    def metadata(self) -> Metadata:
        """What to send with a call; empty without a user."""
        return () if self._token is None else (("token", self._token),)

    async def renew(self, refused: Metadata) -> None:
        """Another token than the refused one, unless somebody has fetched it meanwhile; nothing without a user.

        Raises NoAuth when the user or password is wrong, ConnectionLoss when no server answers.
        """
        if self._credentials.user is None:
            return
        async with self._renewing:
            if self.metadata != refused:
                return
            now_s = asyncio.get_running_loop().time()
            if self._refused is not None and now_s - self._refused[0] < PAUSE_S:
                raise self._refused[1]
            try:
                self._token = await self._authenticate(self._credentials.user)
            except NoAuth as error:
                self._refused = (now_s, error)
                raise
            self._given_s = now_s

    async def _authenticate(self, user: str) -> str | None:
        """A token; None from a server that asks for no user."""
        try:
            password = await asyncio.to_thread(self._credentials.password)
        except ValueError as error:
            raise NoAuth(str(error)) from None
        request = rpc_pb2.AuthenticateRequest(name=user, password=password)
        try:
            answer: Any = await self._auth.Authenticate(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() in UNREACHABLE:
                self._auth = next(self._members)
                raise ConnectionLoss(f"etcd: {error.code().name}: {error.details()}; no token, try again") from None
            if NOT_ENABLED in (error.details() or ""):
                return None
            raise NoAuth(
                f"etcd does not take the user {user} ({error.details()}); check user= and password_file= in the URL"
            ) from None
        return str(answer.token)
