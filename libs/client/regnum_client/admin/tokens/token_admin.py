"""Delegation tokens (KIP-48). Every call needs TLS and a certificate: a token is of no use here."""

from collections.abc import Sequence

from regnum.admin.v1 import tokens_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.wire_times import unix_ms_of
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.repeating import until_answered
from regnum_client.admin.session import AdminSession
from regnum_client.admin.tokens.views import DelegationTokenView, NewDelegationToken
from regnum_client.cluster.connections import call


class TokenAdmin(AdminSession):
    """Tokens. What changes something carries a mutation id, and is sent again until its outcome is known (S20)."""

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_s: float | None = None
    ) -> NewDelegationToken:
        """Make a token.

        Args:
            owner: principal that it stands for, such as ``User:alice``; None: the caller.
            renewers: who may renew and end it besides.
            max_lifetime_s: how long it lives at most; None: as long as the cluster allows.

        Raises:
            RegnumError: also where the answer came too late for the credential to be shown.
        """
        request = tokens_pb2.CreateDelegationTokenRequest(
            header=RequestHeader(client_id=self._client_id),
            owner=owner or "",
            renewers=renewers,
            max_lifetime_ms=-1 if max_lifetime_s is None else max(1, round(1000 * max_lifetime_s)),
            mutation_id=self._mutation_id(),
        )

        async def ask(address: Address, left_s: float) -> tokens_pb2.CreateDelegationTokenResponse:
            return await call(self._connections.admin(address).CreateDelegationToken, request, timeout_s=left_s)

        answer = await until_answered(self._search(), ask, look="regnum tokens list")
        if not answer.credential:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                f"the token {answer.token.token_id} was made minutes ago by a try whose answer was lost, and what"
                " proves it is shown no more; end it, and ask for another one",
            )
        return NewDelegationToken(token=DelegationTokenView.from_wire(answer.token), credential=answer.credential)

    async def renew_delegation_token(self, token_id: str, *, period_s: float | None = None) -> int:
        """Let a token live so long from now, None: as long as the cluster says. Answers when it ends, in ms."""
        request = tokens_pb2.RenewDelegationTokenRequest(
            header=RequestHeader(client_id=self._client_id), token_id=token_id, mutation_id=self._mutation_id()
        )
        if period_s is not None:
            request.renew_period_ms = round(1000 * period_s)

        async def ask(address: Address, left_s: float) -> tokens_pb2.RenewDelegationTokenResponse:
            return await call(self._connections.admin(address).RenewDelegationToken, request, timeout_s=left_s)

        answer = await until_answered(self._search(), ask, look="regnum tokens list")
        return unix_ms_of(answer.expiry_time)

    async def expire_delegation_token(self, token_id: str, *, period_s: float | None = None) -> int:
        """End a token in so long, None: at once. Answers when it ends or ended, in milliseconds since 1970."""
        request = tokens_pb2.ExpireDelegationTokenRequest(
            header=RequestHeader(client_id=self._client_id), token_id=token_id, mutation_id=self._mutation_id()
        )
        if period_s is not None:
            request.expiry_period_ms = round(1000 * period_s)

        async def ask(address: Address, left_s: float) -> tokens_pb2.ExpireDelegationTokenResponse:
            return await call(self._connections.admin(address).ExpireDelegationToken, request, timeout_s=left_s)

        answer = await until_answered(self._search(), ask, look="regnum tokens list")
        return unix_ms_of(answer.expiry_time)

    async def describe_delegation_tokens(self, owners: Sequence[str] = ()) -> tuple[DelegationTokenView, ...]:
        """Tokens that the caller may see, by id: those that one of the owners owns or may renew, or all."""
        request = tokens_pb2.DescribeDelegationTokenRequest(
            header=RequestHeader(client_id=self._client_id), owners=owners
        )

        async def ask(address: Address, left_s: float) -> tokens_pb2.DescribeDelegationTokenResponse:
            return await call(self._connections.admin(address).DescribeDelegationToken, request, timeout_s=left_s)

        found: list[DelegationTokenView] = []
        while True:
            answer = await until_answered(self._search(), ask)
            found.extend(map(DelegationTokenView.from_wire, answer.tokens))
            request.page_token = answer.next_page_token
            if not request.page_token:
                return tuple(found)
