"""Streams that were opened with a token end with it: by its expiry, or when somebody ends it."""

from typing import Any

from regnum_service.access.identity import caller
from regnum_service.access.streams import EndingStreams
from regnum_service.access.tokens.check import ended, shown_in
from regnum_service.access.tokens.table import TokenTable
from regnum_service.clock import Clock

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


def token_streams(table: TokenTable, clock: Clock) -> EndingStreams[str]:
    """Open streams by the id of their token."""

    def ends_ms(token_id: str) -> int:
        token = table.find(token_id)
        return 0 if token is None or token.revoked else token.ends_ms

    return EndingStreams(clock, ends_ms=ends_ms, refusal=lambda _token_id: ended())


def token_of(context: Context) -> str | None:
    """Id of the token that the caller of this call was told apart by."""
    if not caller().principal.token_authenticated:
        return None
    shown = shown_in(context.invocation_metadata())
    return None if shown is None else shown[0]
