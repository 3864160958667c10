"""Delegation tokens (KIP-48): who may have one, for how long, and what proves it. Pure: the caller brings the time.

A token stands for its owner, for as long as it has not expired. It is a token id, which is no secret, and an HMAC of
the id under a secret of the cluster. The store holds the former and never the latter, so that who can read the store
cannot be anybody.

    expiry        lets it end early; renewed by the owner and the renewers, as often as they like
    max           ends it in any case; fixed when it is made

The order of the checks is Kafka's (KafkaApis, DelegationTokenManager). A token is dead once the time is *after* its
expiry or its max.

The node ``/delegation_tokens/<token id>``:

    {"version":1,"owner":"User:alice","requester":"User:alice","renewers":["User:yarn"],"issued":1700000000000,
     "expiry":1700086400000,"max":1700604800000}

One that was ended at once has ``"revoked":true`` besides, for as long as its node is kept for the log of its mutations.

Example: alice asks for a token for two days with renewer yarn. It expires after one; yarn renews it each night; after
two days nobody can.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from regnum.types.v1 import errors_pb2

from regnum_model.nodes.reading import MalformedNodeError, dumped, int_of, loaded, str_of, versioned
from regnum_model.principals import NAME_LENGTH_MAX, NOBODY, USER, Principal
from regnum_model.rejection import Rejection

FOLDER: Final = "/delegation_tokens"
"""Folder of the nodes."""

DAY_MS: Final = 86_400_000
TIME_MS_MAX: Final = 2**62
"""Times that a node may name end there."""

RENEWERS_MAX: Final = 20
"""Renewers of a token."""

TOKENS_MAX: Final = 100_000
"""Tokens of a cluster: every process holds all of them."""

OF_ONE_MAX: Final = 1_000
"""Tokens that one principal owns or asked for; those that have expired count until they are swept up."""

SECRET_BYTES_MIN: Final = 32
"""A shorter secret can be guessed."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_LIST: Final = "a list of principals such as User:yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """For how long tokens live, as the cluster's settings say, in milliseconds."""

    max_ms: int = 7 * DAY_MS
    """In any case (Kafka's ``delegation.token.max.lifetime.ms``)."""
    renew_ms: int = DAY_MS
    """Without being renewed (``delegation.token.expiry.time.ms``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token, without what proves it."""

    id: str
    """22 characters, from 128 bits; no secret."""
    owner: Principal
    """Whom it stands for."""
    requester: Principal
    """Who asked for it."""
    renewers: tuple[Principal, ...] = ()
    """Who may renew and end it besides its owner."""
    issued_ms: int
    """When it was made, in milliseconds since 1970."""
    expiry_ms: int
    """When it ends unless it is renewed."""
    max_ms: int
    """When it ends in any case."""
    revoked: bool = False
    """It was ended at once."""

    @property
    def ends_ms(self) -> int:
        """It is dead after that moment, if not before."""
        return min(self.expiry_ms, self.max_ms)

    def is_dead(self, now_ms: int) -> bool:
        """Whether it proves nothing any more."""
        return self.revoked or self.ends_ms < now_ms

    def is_of(self, somebody: Principal) -> bool:
        """Whether they own it or may renew it."""
        return same(self.owner, somebody) or any(same(renewer, somebody) for renewer in self.renewers)

    def encode(self) -> bytes:
        """The node."""
        return dumped(
            {
                "version": 1,
                "owner": str(self.owner),
                "requester": str(self.requester),
                "renewers": [str(renewer) for renewer in self.renewers],
                "issued": self.issued_ms,
                "expiry": self.expiry_ms,
                "max": self.max_ms,
                **({"revoked": True} if self.revoked else {}),
            }
        )

    @classmethod
    def decode(cls, id: str, data: bytes) -> Self:
        """Read a node. Raises MalformedNodeError."""
        if not is_token_id(id):
            raise MalformedNodeError("the name of the node is no token id")
        content = versioned(loaded(data), "a delegation token")
        int_of(content.get("version"), "version", low=1)
        renewers = content.get("renewers", [])
        if not isinstance(renewers, list) or len(renewers) > RENEWERS_MAX:
            raise MalformedNodeError(f"renewers is not {_LIST}, at most {RENEWERS_MAX}")
        owner = _principal(content.get("owner"), "owner")
        return cls(
            id=id,
            owner=owner,
            requester=_principal(content["requester"], "requester") if "requester" in content else owner,
            renewers=tuple(_principal(renewer, "a renewer") for renewer in renewers),
            issued_ms=int_of(content.get("issued"), "issued", low=0, high=TIME_MS_MAX),
            expiry_ms=int_of(content.get("expiry"), "expiry", low=0, high=TIME_MS_MAX),
            max_ms=int_of(content.get("max"), "max", low=0, high=TIME_MS_MAX),
            # Whatever somebody wrote there, a token lives only if nothing says that it does not.
            revoked=content.get("revoked", False) is not False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A token that somebody asks for."""

    owner: Principal | None = None
    """Whom it is to stand for; None: who asks."""
    renewers: Sequence[Principal] = ()
    """Who may renew it."""
    life_ms: int = -1
    """How long it lives at most; 0 or less: as long as the cluster allows."""


def may_deal(*, who: Principal, encrypted: bool) -> Rejection | None:
    """Why somebody may have nothing to do with tokens, whatever their rights; None if they may.

    Args:
        who: whose call it is.
        encrypted: whether it came over TLS, and on all of its way.
    """
    if who.token_authenticated:
        return _not_allowed("a call that shows a delegation token; use the certificate of its owner")
    if not encrypted:
        return _not_allowed("a connection without TLS; use the TLS listener")
    if same(who, NOBODY):
        return _not_allowed("somebody who did not say who they are; use a client certificate")
    return None


def created(
    wanted: Creation,
    *,
    id: str,
    who: Principal,
    now_ms: int,
    lives: Lives,
    may_create_for: Callable[[Principal], bool],
) -> DelegationToken | Rejection:
    """The token, or why there is none. ``may_deal`` was asked before.

    Args:
        wanted: what is asked for.
        id: of the token.
        who: asks.
        now_ms: milliseconds since 1970.
        lives: for how long tokens live.
        may_create_for: whether they have CREATE_TOKENS on a user that is not themselves.
    """
    owner = who if wanted.owner is None else wanted.owner
    if not same(owner, who) and not may_create_for(owner):
        return Rejection(
            code=errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            message="no right CREATE_TOKENS on that owner; ask for a token of your own, or for the right",
        )
    wrong = _wrong_principal(owner, wanted.renewers)
    if wrong is not None:
        return wrong
    max_ms = now_ms + (lives.max_ms if wanted.life_ms <= 0 else min(wanted.life_ms, lives.max_ms))
    return DelegationToken(
        id=id,
        owner=_plain(owner),
        requester=_plain(who),
        renewers=tuple(dict.fromkeys(map(_plain, wanted.renewers))),
        issued_ms=now_ms,
        expiry_ms=min(max_ms, now_ms + lives.renew_ms),
        max_ms=max_ms,
    )


def renewed(
    token: DelegationToken | None, *, who: Principal, period_ms: int, now_ms: int, lives: Lives
) -> DelegationToken | Rejection:
    """The token with its new expiry, or why not. A negative period means the cluster's."""
    refused = _refused(token, who)
    if token is None or refused is not None:
        return refused or _NOT_FOUND
    if token.is_dead(now_ms):
        return _EXPIRED
    return replace(token, expiry_ms=min(token.max_ms, now_ms + (lives.renew_ms if period_ms < 0 else period_ms)))


def expired(
    token: DelegationToken | None, *, who: Principal, period_ms: int, now_ms: int
) -> DelegationToken | Rejection:
    """The token with its new expiry, or why not. A negative period ends it at once: it is revoked then."""
    refused = _refused(token, who)
    if token is None or refused is not None:
        return refused or _NOT_FOUND
    if period_ms < 0:
        return replace(token, expiry_ms=now_ms, revoked=True)
    if token.is_dead(now_ms):
        return _EXPIRED
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def described(
    tokens: Iterable[DelegationToken],
    *,
    who: Principal,
    owners: Sequence[Principal] | None,
    may_describe: Callable[[DelegationToken], bool],
) -> list[DelegationToken]:
    """Those that somebody may see.

    Args:
        tokens: any.
        who: asks.
        owners: only tokens that one of them owns or may renew; None: of everybody.
        may_describe: whether they have DESCRIBE on a token that is not theirs, or DESCRIBE_TOKENS on its owner.
    """
    return [
        token
        for token in tokens
        if (owners is None or any(token.is_of(owner) for owner in owners)) and (token.is_of(who) or may_describe(token))
    ]


def no_room(*, total: int, of_one: int) -> Rejection | None:
    """Why there can be no further token; None: there can.

    Args:
        total: tokens of the cluster.
        of_one: those that its owner owns or asked for, or that its requester does, whichever is more.
    """
    if of_one >= OF_ONE_MAX:
        return _full(f"{OF_ONE_MAX} tokens of this owner, or of those that you asked for; expire some")
    if total >= TOKENS_MAX:
        return _full(f"{TOKENS_MAX} tokens in this cluster; wait until some have expired, or expire some")
    return None


class Secrets:
    """The secrets of the cluster: one that makes tokens, and perhaps another one that still proves them."""

    __slots__ = ("_all",)

    def __init__(self, first: bytes, *others: bytes) -> None:
        """Raises ValueError for one that can be guessed."""
        self._all: Final = (first, *others)
        if any(len(secret) < SECRET_BYTES_MIN for secret in self._all):
            raise ValueError(f"a secret of delegation tokens has at least {SECRET_BYTES_MIN} bytes")

    def __repr__(self) -> str:
        """Says nothing of them."""
        return f"Secrets({len(self._all)})"

    def prove(self, token_id: str) -> bytes:
        """The HMAC of a token: 64 bytes, a secret."""
        return _hmac(self._all[0], token_id)

    def holds(self, token_id: str, shown: bytes) -> bool:
        """Whether that is the HMAC of the token under any of the secrets; takes as long for every answer."""
        found = False
        for secret in self._all:
            found |= hmac.compare_digest(_hmac(secret, token_id), shown)
        return found


def is_token_id(text: str) -> bool:
    """Whether it can be the id of a token, and so a part of a path."""
    return _ID.fullmatch(text) is not None


def token_id_of(seed: bytes) -> str:
    """A token id from anything that is told apart from all others."""
    return base64.urlsafe_b64encode(hashlib.sha256(seed).digest()[:16]).decode("ascii").rstrip("=")


def token_id_for(who: Principal, mutation_id: str) -> str:
    """The id of the token that somebody asks for with a mutation id: a repeat asks for the same."""
    return token_id_of(
        b"\0".join((b"delegation token", str(who).encode("utf-8", "surrogatepass"), mutation_id.encode()))
    )


def path_of(token_id: str) -> str:
    """The node of a token. Raises ValueError."""
    if not is_token_id(token_id):
        raise ValueError("no token id")
    return f"{FOLDER}/{token_id}"


def same(one: Principal, other: Principal) -> bool:
    """Whether they are the same somebody, however they proved it."""
    return one.name == other.name and one.type == other.type


def _hmac(secret: bytes, token_id: str) -> bytes:
    return hmac.digest(secret, token_id.encode("utf-8", "surrogatepass"), "sha512")


def _refused(token: DelegationToken | None, who: Principal) -> Rejection | None:
    if token is None:
        return _NOT_FOUND
    if not token.is_of(who):
        return Rejection(
            code=errors_pb2.ERROR_CODE_DELEGATION_TOKEN_OWNER_MISMATCH,
            message="only the owner and the renewers of a token renew and end it; ask one of them",
        )
    return None


def _wrong_principal(owner: Principal, renewers: Sequence[Principal]) -> Rejection | None:
    if len(renewers) > RENEWERS_MAX:
        return Rejection(
            code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=f"a token has at most {RENEWERS_MAX} renewers"
        )
    for one in (owner, *renewers):
        if one.type != USER or not one.name:
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_PRINCIPAL_TYPE,
                message=f"owner and renewers are users, such as User:yarn, not {str(one)[:80]!r}",
            )
        if same(one, NOBODY):
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_PRINCIPAL_TYPE,
                message=f"{NOBODY} is everybody who does not say who they are; name a user",
            )
        if len(str(one)) > NAME_LENGTH_MAX:
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message=f"a principal has at most {NAME_LENGTH_MAX} characters",
            )
    return None


def _plain(somebody: Principal) -> Principal:
    return Principal(somebody.name, somebody.type)


def _principal(value: object, what: str) -> Principal:
    try:
        return Principal.parse(str_of(value, what))
    except ValueError as error:
        raise MalformedNodeError(f"{what}: {error}") from None


def _not_allowed(of_whom: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        message=f"delegation tokens are not dealt with on behalf of {of_whom}",
    )


def _full(of_what: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=f"there are {of_what}")


_NOT_FOUND: Final = Rejection(
    code=errors_pb2.ERROR_CODE_DELEGATION_TOKEN_NOT_FOUND,
    message="there is no such token; it may have expired and gone: regnum tokens list",
)
_EXPIRED: Final = Rejection(
    code=errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED, message="the token has expired; create another one"
)
