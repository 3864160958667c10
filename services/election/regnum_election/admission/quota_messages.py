"""Quotas between messages of AdminService and the controller's own words."""

from collections.abc import Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.quota.v1 import quota_pb2
from regnum_model.quotas import Default, QuotaEntity
from regnum_service.limits.threads import for_caller
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import slices

ENTITIES_MAX: Final = 5_000
"""Entities of one call that changes quotas, and of one page."""

ENTITIES_PER_TURN: Final = 2_000
"""Entities looked at between two turns of the event loop (safety rule S22)."""


async def page_of_quotas(
    found: Sequence[tuple[QuotaEntity, Mapping[str, float]]], *, token: str, size: int
) -> tuple[list[tuple[QuotaEntity, Mapping[str, float]]], str]:
    """A page of quotas in the order of their nodes' paths, and the token of the next one; empty: there is none.

    Raises:
        RegnumError: INVALID_REQUEST, no answer gave that token, or the size is negative.
    """
    behind = place_of(token, str)
    size = page_size(size, default=ENTITIES_MAX, maximum=ENTITIES_MAX)
    places: list[tuple[str, int]] = []
    async for some in slices(enumerate(found), ENTITIES_PER_TURN):
        places += [(entity.path, index) for index, (entity, _) in some]
    rest = places if behind is None else [one for one in places if one[:1] > behind]
    # Beside the loop: it compares all of them (safety rule S22).
    page = await for_caller(partial(nsmallest, size, rest))
    return [found[index] for _, index in page], page_token(page[-1][:1]) if len(page) < len(rest) else ""


def entity_message(entity: QuotaEntity) -> admin_pb2.QuotaEntity:
    """The message that means an entity."""
    message = admin_pb2.QuotaEntity()
    if entity.user is not None:
        message.user.CopyFrom(_subject_message(entity.user))
    if entity.client_id is not None:
        message.client_id.CopyFrom(_subject_message(entity.client_id))
    return message


def usage_message(bucket: quota_pb2.BucketDescription) -> admin_pb2.QuotaUsage:
    """What is shown of a bucket."""
    key = bucket.state.key
    return admin_pb2.QuotaUsage(
        user=key.user if key.HasField("user") else None,
        client_id=key.client_id if key.HasField("client_id") else None,
        mutation_rate=bucket.mutation_rate,
        refused_rate=bucket.refused_rate,
        tokens=bucket.state.tokens,
        limit_rate=bucket.rate,
        limit_burst=bucket.burst,
        throttle_time_ms=bucket.throttle_time_ms,
        idle_ms=bucket.idle_ms,
    )


def _subject_message(subject: str | Default) -> admin_pb2.QuotaSubject:
    if isinstance(subject, Default):
        return admin_pb2.QuotaSubject(default_for_all=True)
    return admin_pb2.QuotaSubject(name=subject)
