"""Which quota counts for a caller, and which bucket it draws on. Pure.

Goals: the most specific quota counts (KIP-599 and KIP-257: eight levels); everyone under a default quota has a bucket
of his own.

    1 user and client id             bucket of the pair
    2 user, any client id            bucket of the pair
    3 user                           bucket of the user
    4 any user, client id            bucket of the pair
    5 any user, any client id        bucket of the pair
    6 any user                       bucket of the user
    7 client id                      bucket of the client id
    8 any client id                  bucket of the client id

The cluster's own quota counts besides, whatever else does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from regnum_model.bucket import Limit
from regnum_model.quotas import DEFAULT, QuotaEntity


@dataclass(frozen=True, slots=True)
class BucketKey:
    """Which bucket."""

    user: str | None
    """User; None when the bucket is for no particular one."""
    client_id: str | None
    """Client id; None when the bucket is for no particular one."""


CLUSTER_KEY = BucketKey(None, None)
"""The bucket of the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A quota that counts."""

    entity: QuotaEntity
    """Whose quota it is."""
    key: BucketKey
    limit: Limit
    """Rate and burst."""


def levels(user: str, client_id: str) -> tuple[tuple[QuotaEntity, BucketKey], ...]:
    """Whose quotas may count for a caller, the most specific first, and which bucket each leads to."""
    pair, of_user, of_client = BucketKey(user, client_id), BucketKey(user, None), BucketKey(None, client_id)
    return (
        (QuotaEntity(user=user, client_id=client_id), pair),
        (QuotaEntity(user=user, client_id=DEFAULT), pair),
        (QuotaEntity(user=user), of_user),
        (QuotaEntity(user=DEFAULT, client_id=client_id), pair),
        (QuotaEntity(user=DEFAULT, client_id=DEFAULT), pair),
        (QuotaEntity(user=DEFAULT), of_user),
        (QuotaEntity(client_id=client_id), of_client),
        (QuotaEntity(client_id=DEFAULT), of_client),
    )


def match(limits: Mapping[QuotaEntity, Limit], user: str, client_id: str) -> Match | None:
    """The quota of a caller; None when there is none for him."""
    for entity, key in levels(user, client_id):
        limit = limits.get(entity)
        if limit is not None:
            return Match(entity=entity, key=key, limit=limit)
    return None


def limit_of(limits: Mapping[QuotaEntity, Limit], key: BucketKey) -> Limit | None:
    """What a bucket is held to, given that somebody draws on it; None when no quota fills it any more."""
    for entity in _entities(key):
        limit = limits.get(entity)
        if limit is not None:
            return limit
    return None


def _entities(key: BucketKey) -> tuple[QuotaEntity, ...]:
    """Whose quotas lead to a bucket, in the order of precedence."""
    user, client_id = key.user, key.client_id
    match user, client_id:
        case None, None:
            return (QuotaEntity(),)
        case None, _:
            return (QuotaEntity(client_id=client_id), QuotaEntity(client_id=DEFAULT))
        case _, None:
            return (QuotaEntity(user=user), QuotaEntity(user=DEFAULT))
        case _:
            return (
                QuotaEntity(user=user, client_id=client_id),
                QuotaEntity(user=user, client_id=DEFAULT),
                QuotaEntity(user=DEFAULT, client_id=client_id),
                QuotaEntity(user=DEFAULT, client_id=DEFAULT),
            )


def limits_on(limits: Mapping[QuotaEntity, Limit], user: str, client_id: str) -> tuple[Match, ...]:
    """All quotas that count for a caller: his own and the cluster's."""
    own = match(limits, user, client_id)
    cluster = limits.get(QuotaEntity())
    found = () if own is None else (own,)
    return found if cluster is None else (*found, Match(entity=QuotaEntity(), key=CLUSTER_KEY, limit=cluster))
