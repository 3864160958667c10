"""Calls about delegation tokens as callers meet them; what is decided is in ``regnum_model.delegation_tokens``.

Each change is one conditional write of one node with its mutation record and its announcement. The id of a token that
is asked for with a mutation id follows from that id and from who asks, so that a repeat, at whatever controller, finds
the token that it asked for before; its HMAC is made again and never kept.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import Final, cast

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Node
from regnum_coordination.recipes.mutating import Carried, Change, MutableStore, Mutation, NodeMutations
from regnum_model.access import Operation, ResourceType
from regnum_model.delegation_tokens import (
    Creation,
    DelegationToken,
    Lives,
    Secrets,
    created,
    described,
    expired,
    is_token_id,
    may_deal,
    no_room,
    path_of,
    renewed,
    same,
    token_id_for,
    token_id_of,
)
from regnum_model.mutations import digest_of
from regnum_model.principals import Principal
from regnum_model.rejection import Rejection
from regnum_service.access.authorization import Authorizer
from regnum_service.access.identity import caller
from regnum_service.access.tokens.check import credential_of
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import slices

PAGE_DEFAULT: Final = 1_000
PAGE_MAX: Final = 10_000
"""Tokens of one answer."""

SHOWN_AGAIN_MS: Final = 5 * 60_000
"""So long after a token was made a repeat of the call that made it is shown what proves it: the answer may have been
lost (safety rule S20). Later nobody is."""

TOKENS_PER_TURN: Final = 1_000
"""Tokens looked at between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Tokens that somebody may see."""

    tokens: Sequence[DelegationToken]
    """By id."""
    next_page_token: str
    """Where the next page begins; empty: this is the last."""


class TokenCalls:
    """Of one process, whoever reigns. Every method raises RegnumError."""

    def __init__(
        self, tokens: ProcessTokens, *, lives: Lives, authorizer: Authorizer, clock: Clock, chance: random.Random
    ) -> None:
        """Only assigns.

        Args:
            tokens: those that there are, and the secrets.
            lives: for how long tokens live.
            authorizer: says who deals with tokens of others.
            clock: says when.
            chance: makes ids of those whose caller brings no mutation id.
        """
        self._tokens: Final = tokens
        self._lives: Final = lives
        self._authorizer: Final = authorizer
        self._clock: Final = clock
        self._chance: Final = chance
        self._turn: Final = asyncio.Lock()
        """Of many that announce a change at a time one gets through in each round: so one after another."""

    async def create(
        self, store: MutableStore, wanted: Creation, *, mutation: str | None
    ) -> tuple[DelegationToken, str]:
        """Make a token: it, and the credential that proves it; empty: it was made by the same call longer ago."""
        secrets = self._secrets()
        who, now_ms = caller(), self._clock.wall_ms()
        principal = who.principal
        seed = self._chance.getrandbits(256).to_bytes(32, "big")
        id = token_id_of(seed) if mutation is None else token_id_for(principal, mutation)

        def may_create_for(owner: Principal) -> bool:
            return self._authorizer.allows(who, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))

        made = _taken(
            created(
                wanted,
                id=id,
                who=principal,
                now_ms=now_ms,
                lives=self._lives,
                may_create_for=may_create_for,
            )
        )

        def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
            there = nodes.get(path_of(id))
            if there is not None:
                # Its log has forgotten the creation: it is the same token all the same, and stays as it is.
                return Change(data=DelegationToken.decode(id, there.data).encode())
            table = self._tokens.table
            of_one = max(table.count_of(made.owner), table.count_of(principal))
            return no_room(total=len(table), of_one=of_one) or Change(data=made.encode())

        digest = digest_of(
            "create delegation token",
            (str(principal), str(made.owner), str(wanted.life_ms), *map(str, wanted.renewers)),
        )
        token = await self._carried(store, id, mutation, digest, decide)
        if token is not None and not same(token.requester, principal):
            raise RegnumError(
                errors_pb2.ERROR_CODE_DELEGATION_TOKEN_OWNER_MISMATCH,
                "somebody else has asked for the token of that mutation id; ask for another one",
            )
        shown = token is not None and now_ms - token.issued_ms <= SHOWN_AGAIN_MS
        return token or made, credential_of(id, secrets.prove(id)) if shown else ""

    async def renew(self, store: MutableStore, id: str, *, period_ms: int, mutation: str | None) -> int:
        """Let a token live longer; answers when it ends, in milliseconds since 1970."""
        self._secrets()
        who, now_ms = caller().principal, self._clock.wall_ms()

        def change(token: DelegationToken | None) -> DelegationToken | Rejection:
            return renewed(token, who=who, period_ms=period_ms, now_ms=now_ms, lives=self._lives)

        return await self._moved(store, id, "renew", str(period_ms), mutation, change)

    async def expire(self, store: MutableStore, id: str, *, period_ms: int, mutation: str | None) -> int:
        """Have a token end; answers when it ends, in milliseconds since 1970."""
        self._secrets()
        who, now_ms = caller().principal, self._clock.wall_ms()

        def change(token: DelegationToken | None) -> DelegationToken | Rejection:
            return expired(token, who=who, period_ms=period_ms, now_ms=now_ms)

        return await self._moved(store, id, "expire", str(period_ms), mutation, change)

    async def describe(self, owners: Sequence[Principal], *, token: str, size: int) -> Page:
        """Tokens that the caller may see, by id."""
        self._secrets()
        size = page_size(size, default=PAGE_DEFAULT, maximum=PAGE_MAX)
        behind = cast("tuple[str] | None", place_of(token, str))
        who, allows = caller(), self._authorizer.allows

        def may_describe(one: DelegationToken) -> bool:
            return allows(who, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, one.id, audit=False) or allows(
                who, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(one.owner), audit=False
            )

        now_ms = self._clock.wall_ms()
        found: list[DelegationToken] = []
        async for some in slices(tuple(self._tokens.table), TOKENS_PER_TURN):
            wanted = (one for one in some if (behind is None or one.id > behind[0]) and not one.is_dead(now_ms))
            found += described(wanted, who=who.principal, owners=owners or None, may_describe=may_describe)
        # Beside the loop: it compares all of them (safety rule S22).
        page = await for_caller(partial(nsmallest, size + 1, found, key=lambda one: one.id))
        following = page_token((page[size - 1].id,)) if len(page) > size else ""
        return Page(tokens=page[:size], next_page_token=following)

    async def _moved(
        self,
        store: MutableStore,
        id: str,
        kind: str,
        period: str,
        mutation: str | None,
        change: Callable[[DelegationToken | None], DelegationToken | Rejection],
    ) -> int:
        """Write another expiry. A repeat is told what was answered first."""
        if not is_token_id(id):
            raise RegnumError(
                errors_pb2.ERROR_CODE_DELEGATION_TOKEN_NOT_FOUND,
                "that is no token id: it has 22 characters of A-Z a-z 0-9 _ -, the part of a credential before the dot",
            )
        answered: list[int] = []

        def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
            node = nodes.get(path_of(id))
            after = change(None if node is None else DelegationToken.decode(id, node.data))
            if isinstance(after, Rejection):
                return after
            answered[:] = [after.expiry_ms]
            # One that is ended at once stays, revoked, for its log of mutations: the sweep takes it.
            return Change(data=after.encode(), result=str(after.expiry_ms))

        digest = digest_of(f"{kind} delegation token", (str(caller().principal), id, period))
        await self._carried(store, id, mutation, digest, decide, answered)
        return answered[0]

    async def _carried(
        self,
        store: MutableStore,
        id: str,
        mutation: str | None,
        digest: str,
        decide: Callable[[Mapping[str, Node]], Change | Rejection],
        answered: list[int] | None = None,
    ) -> DelegationToken | None:
        """The token as it is then; None: there is none any more."""
        mutations = NodeMutations(store, wall_ms=self._clock.wall_ms, turn=self._turn)
        done = await mutations.carry_out(Mutation(path=path_of(id), id=mutation, digest=digest, decide=decide))
        if isinstance(done, Rejection):
            raise RegnumError(done.code, done.message)
        if done.repeated and answered is not None:
            answered[:] = [int(done.result)]
        return self._learned(id, done)

    def _learned(self, id: str, done: Carried) -> DelegationToken | None:
        """What was written is known here before it is announced: the next call of the same client may be about it."""
        token = None if done.data is None else DelegationToken.decode(id, done.data)
        if token is None:
            self._tokens.table.drop(id)
        else:
            self._tokens.table.put(token)
        self._tokens.changed((id,))
        return token

    def _secrets(self) -> Secrets:
        """The secrets, for a caller that may deal with tokens at all."""
        who = caller()
        refused = may_deal(who=who.principal, encrypted=who.encrypted)
        if refused is not None:
            raise RegnumError(refused.code, refused.message)
        secrets = self._tokens.secrets
        if secrets is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTH_DISABLED,
                "this cluster has no delegation tokens; give its processes a secret: --delegation-token-secret-file",
            )
        if not self._tokens.is_known:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
                "the controller has not read the delegation tokens yet; try again shortly",
            )
        return secrets


def _taken(found: DelegationToken | Rejection) -> DelegationToken:
    if isinstance(found, Rejection):
        raise RegnumError(found.code, found.message)
    return found
