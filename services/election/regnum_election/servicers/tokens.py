"""AdminService, the part about delegation tokens."""

from regnum.admin.v1 import tokens_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.wire_times import timestamp_of
from regnum_service.errors import RegnumError

from regnum_election.candidacy.role import ControllerRole
from regnum_election.reign.request_queue import beside
from regnum_election.servicers.callers import wait_s
from regnum_election.servicers.leaders import Context, LeaderServicer
from regnum_election.tokens.calls import TokenCalls
from regnum_election.tokens.messages import creation_of, principals_of, token_message

_LATE = "it may have been done; repeat the call with the same mutation id"


class TokenServicer(LeaderServicer):
    """Tokens made, renewed, ended and shown."""

    def __init__(self, role: ControllerRole, *, tokens: TokenCalls | None = None) -> None:
        """Only assigns. ``tokens`` None: there are none in this process."""
        super().__init__(role)
        self._tokens = tokens

    async def CreateDelegationToken(  # noqa: N802 - the name in the proto
        self, request: tokens_pb2.CreateDelegationTokenRequest, context: Context
    ) -> tokens_pb2.CreateDelegationTokenResponse:
        """Make a token."""
        store = (await self._role.controller()).health.context.store
        creating = self._calls().create(store, creation_of(request), mutation=request.mutation_id or None)
        token, credential = await beside(creating, wait_s(0, context), late=_LATE)
        return tokens_pb2.CreateDelegationTokenResponse(token=token_message(token), credential=credential)

    async def RenewDelegationToken(  # noqa: N802 - the name in the proto
        self, request: tokens_pb2.RenewDelegationTokenRequest, context: Context
    ) -> tokens_pb2.RenewDelegationTokenResponse:
        """Let a token live longer."""
        store = (await self._role.controller()).health.context.store
        period_ms = request.renew_period_ms if request.HasField("renew_period_ms") else -1
        renewing = self._calls().renew(
            store, request.token_id, period_ms=period_ms, mutation=request.mutation_id or None
        )
        expiry_ms = await beside(renewing, wait_s(0, context), late=_LATE)
        return tokens_pb2.RenewDelegationTokenResponse(expiry_time=timestamp_of(expiry_ms))

    async def ExpireDelegationToken(  # noqa: N802 - the name in the proto
        self, request: tokens_pb2.ExpireDelegationTokenRequest, context: Context
    ) -> tokens_pb2.ExpireDelegationTokenResponse:
        """End a token."""
        store = (await self._role.controller()).health.context.store
        period_ms = request.expiry_period_ms if request.HasField("expiry_period_ms") else -1
        expiring = self._calls().expire(
            store, request.token_id, period_ms=period_ms, mutation=request.mutation_id or None
        )
        expiry_ms = await beside(expiring, wait_s(0, context), late=_LATE)
        return tokens_pb2.ExpireDelegationTokenResponse(expiry_time=timestamp_of(expiry_ms))

    async def DescribeDelegationToken(  # noqa: N802 - the name in the proto
        self,
        request: tokens_pb2.DescribeDelegationTokenRequest,
        context: Context,  # noqa: ARG002
    ) -> tokens_pb2.DescribeDelegationTokenResponse:
        """Tokens that the caller may see."""
        await self._role.controller()
        page = await self._calls().describe(
            principals_of(request.owners), token=request.page_token, size=request.page_size
        )
        return tokens_pb2.DescribeDelegationTokenResponse(
            tokens=map(token_message, page.tokens), next_page_token=page.next_page_token
        )

    def _calls(self) -> TokenCalls:
        if self._tokens is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTH_DISABLED, "this process deals with no delegation tokens"
            )
        return self._tokens
