"""Delegation tokens of one process: what there is, who shows one, and which streams end; put together once."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

from regnum_coordination.port import Store
from regnum_model.delegation_tokens import Secrets

from regnum_service.access.authentication import TokenCheck
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.tokens.check import TokenAuthentication, TokensOff
from regnum_service.access.tokens.following import TokenFollower
from regnum_service.access.tokens.streams import token_streams
from regnum_service.access.tokens.table import TokenTable
from regnum_service.clock import Clock
from regnum_service.supervisor import Supervisor


class ProcessTokens:
    """Belongs to one event loop. Without secrets nothing is followed, and who shows a token is told so."""

    def __init__(self, secrets: Secrets | None, clock: Clock) -> None:
        """Only assigns."""
        self.secrets: Final = secrets
        """Prove tokens; None: tokens are off."""
        self.table: Final = TokenTable()
        """Tokens as this process knows them."""
        self._streams: Final = token_streams(self.table, clock)
        self._follower: Final = TokenFollower(self.table, clock, changed=self._streams.changed)
        self._check: Final[TokenCheck] = (
            TokensOff()
            if secrets is None
            else TokenAuthentication(
                self.table, secrets, is_known=lambda: self._follower.is_known, wall_ms=clock.wall_ms
            )
        )

    @property
    def streams(self) -> int:
        """Streams that are open and were opened with a token."""
        return len(self._streams)

    @property
    def is_known(self) -> bool:
        """Whether all tokens of the cluster were read once."""
        return self._follower.is_known

    def changed(self, token_ids: Iterable[str]) -> None:
        """This process itself has changed those tokens in the store, and in the table."""
        self._streams.changed(token_ids)

    def taken_at(self, listener: ListenerAccess) -> ListenerAccess:
        """A listener that takes tokens; a plaintext one of a process without secrets is left as it is."""
        if self.secrets is None and listener.tls is None:
            return listener
        return replace(listener, tokens=self._check, token_streams=self._streams)

    def start(self, supervisor: Supervisor, wait_store: Callable[[], Awaitable[Store]] | None = None) -> None:
        """End streams by the clock, and follow the store; without ``wait_store`` somebody calls ``follow``."""
        if self.secrets is None:
            return
        supervisor.start("token-expiry", self._streams.run())
        if wait_store is not None:
            supervisor.start("follow-tokens", self.follow(wait_store))

    async def follow(self, wait_store: Callable[[], Awaitable[Store]]) -> None:
        """Follow the store, for ever: a task of the supervisor. Returns at once where tokens are off."""
        if self.secrets is not None:
            await self._follower.follow(wait_store)
