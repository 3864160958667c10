"""Delegation tokens as clients meet them: kept in memory, without rights and without anything that proves them."""

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from regnum.admin.v1 import tokens_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.wire_times import timestamp_of, unix_ms_of
from regnum_service.errors import RegnumError

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""

NOW_MS: Final = 1_700_000_000_000
"""When every call comes."""
DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class TokenAnswers:
    """Tokens, and what was asked."""

    tokens: dict[str, tokens_pb2.DelegationToken] = field(default_factory=dict)
    """By id."""
    mutations: dict[str, str] = field(default_factory=dict)
    """Token ids by mutation id."""
    requests: list[Any] = field(default_factory=list)
    """In their order."""
    page: int = 1_000
    """Tokens of one answer."""
    shows_credentials: bool = True
    """False: as to a repeat that comes too late."""

    def create(self, request: tokens_pb2.CreateDelegationTokenRequest) -> tokens_pb2.CreateDelegationTokenResponse:
        """Make one; a repeat is answered with the same."""
        self.requests.append(request)
        id = self.mutations.get(request.mutation_id) or secrets.token_urlsafe(16)
        if request.mutation_id:
            self.mutations[request.mutation_id] = id
        life_ms = request.max_lifetime_ms if request.max_lifetime_ms > 0 else 7 * DAY_MS
        token = self.tokens.setdefault(
            id,
            tokens_pb2.DelegationToken(
                token_id=id,
                owner=request.owner or "User:alice",
                requester="User:alice",
                renewers=request.renewers,
                issue_time=timestamp_of(NOW_MS),
                expiry_time=timestamp_of(NOW_MS + min(life_ms, DAY_MS)),
                max_time=timestamp_of(NOW_MS + life_ms),
            ),
        )
        credential = f"{id}.{'h' * 86}" if self.shows_credentials else ""
        return tokens_pb2.CreateDelegationTokenResponse(token=token, credential=credential)

    def renew(self, request: tokens_pb2.RenewDelegationTokenRequest) -> tokens_pb2.RenewDelegationTokenResponse:
        """Another expiry."""
        self.requests.append(request)
        token = self._token(request.token_id)
        period_ms = request.renew_period_ms if request.HasField("renew_period_ms") else DAY_MS
        token.expiry_time.CopyFrom(timestamp_of(min(NOW_MS + period_ms, unix_ms_of(token.max_time))))
        return tokens_pb2.RenewDelegationTokenResponse(expiry_time=token.expiry_time)

    def expire(self, request: tokens_pb2.ExpireDelegationTokenRequest) -> tokens_pb2.ExpireDelegationTokenResponse:
        """An earlier one."""
        self.requests.append(request)
        token = self._token(request.token_id)
        if not request.HasField("expiry_period_ms") or request.expiry_period_ms < 0:
            del self.tokens[request.token_id]
            return tokens_pb2.ExpireDelegationTokenResponse(expiry_time=timestamp_of(NOW_MS))
        token.expiry_time.CopyFrom(timestamp_of(NOW_MS + request.expiry_period_ms))
        return tokens_pb2.ExpireDelegationTokenResponse(expiry_time=token.expiry_time)

    def describe(
        self, request: tokens_pb2.DescribeDelegationTokenRequest
    ) -> tokens_pb2.DescribeDelegationTokenResponse:
        """Those of the owners that are named."""
        self.requests.append(request)
        wanted = [
            token
            for id, token in sorted(self.tokens.items())
            if id > request.page_token and (not request.owners or token.owner in request.owners)
        ]
        page = wanted[: self.page]
        following = page[-1].token_id if len(wanted) > len(page) else ""
        return tokens_pb2.DescribeDelegationTokenResponse(tokens=page, next_page_token=following)

    def _token(self, id: str) -> tokens_pb2.DelegationToken:
        if id not in self.tokens:
            raise RegnumError(errors_pb2.ERROR_CODE_DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        return self.tokens[id]


class FakeTokens:
    """The part of a fake election process that is about tokens."""

    cluster: Any

    async def CreateDelegationToken(  # noqa: N802
        self, request: tokens_pb2.CreateDelegationTokenRequest, _context: Context
    ) -> tokens_pb2.CreateDelegationTokenResponse:
        """Make a token."""
        answers = self._answers("CreateDelegationToken")
        answer = answers.create(request)
        self._answer_or_not()
        return answer

    async def RenewDelegationToken(  # noqa: N802
        self, request: tokens_pb2.RenewDelegationTokenRequest, _context: Context
    ) -> tokens_pb2.RenewDelegationTokenResponse:
        """Let a token live longer."""
        return self._answers("RenewDelegationToken").renew(request)

    async def ExpireDelegationToken(  # noqa: N802
        self, request: tokens_pb2.ExpireDelegationTokenRequest, _context: Context
    ) -> tokens_pb2.ExpireDelegationTokenResponse:
        """End a token."""
        return self._answers("ExpireDelegationToken").expire(request)

    async def DescribeDelegationToken(  # noqa: N802
        self, request: tokens_pb2.DescribeDelegationTokenRequest, _context: Context
    ) -> tokens_pb2.DescribeDelegationTokenResponse:
        """Show tokens."""
        return self._answers("DescribeDelegationToken").describe(request)

    def _authority(self) -> None:
        """Raises RegnumError at those that are not the controller."""
        raise TypeError("mixed into an election process")

    def _answer_or_not(self) -> None:
        """Raises RegnumError where the answer is to be lost."""
        raise TypeError("mixed into an election process")

    def _answers(self, call: str) -> TokenAnswers:
        self.cluster.calls[call] += 1
        self._authority()
        answers: TokenAnswers = self.cluster.tokens
        return answers
