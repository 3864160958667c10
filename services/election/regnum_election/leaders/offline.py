"""Partitions without a leader, with the reason of each, for those who ask. Costs what is without a leader."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import Final, cast

from regnum.types.v1 import errors_pb2
from regnum_model.ids import PartitionKey
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import Turns, slices

from regnum_election.decisions.cluster import Partition
from regnum_election.decisions.partitions import Offline, why_offline
from regnum_election.state.context import ControllerContext

PAGE_MAX: Final = 10_000
"""Partitions of one answer."""

TOPICS_MAX: Final = 1_000
"""Topics that one request names."""

PARTITIONS_PER_TURN: Final = 1_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartition:
    """A partition without a leader."""

    topic: str
    """Topic name."""
    number: int
    """Partition number."""
    partition: Partition
    """As the controller knows it."""
    why: Offline
    """Why it has none."""
    unclean_allowed: bool
    """Whether another replica may be elected by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineList:
    """A page."""

    partitions: tuple[OfflinePartition, ...]
    """By topic name and number."""
    total: int
    """How many there are in all."""
    next_page_token: str
    """Where the next page begins; empty: this is the last."""


async def list_offline(
    context: ControllerContext, topics: Sequence[str], *, token: str = "", size: int = 0
) -> OfflineList:
    """A page of partitions that nobody leads.

    Args:
        context: the reign.
        topics: only those of these; empty: of all.
        token: where the page begins, as an answer said; empty: the first.
        size: partitions of the page; 0: PAGE_MAX.

    Raises:
        RegnumError: INVALID_REQUEST.
    """
    if len(topics) > TOPICS_MAX:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {TOPICS_MAX} topics: split the request")
    size = page_size(size, default=PAGE_MAX, maximum=PAGE_MAX)
    behind = cast("tuple[str, int] | None", place_of(token, str, int))
    picture, wanted = context.picture, frozenset(topics)
    named: list[tuple[str, int, PartitionKey]] = []
    total = 0
    async for some in slices(picture.unled, PARTITIONS_PER_TURN):
        for key in some:
            name = picture.topics[key.topic_id].name
            if not wanted or name in wanted:
                total += 1
                if behind is None or (name, key.partition) > behind:
                    named.append((name, key.partition, key))
    found: list[OfflinePartition] = []
    turns = Turns(PARTITIONS_PER_TURN)
    # Beside the loop: it compares all of them (safety rule S22).
    page = await for_caller(partial(nsmallest, size, named))
    for name, number, key in page:
        await turns.took()
        partition = picture.partitions[key]
        found.append(
            OfflinePartition(
                topic=name,
                number=number,
                partition=partition,
                why=why_offline(partition, context.surroundings_of(key)),
                unclean_allowed=picture.settings.unclean_allowed(name),
            )
        )
    following = "" if len(named) <= size else page_token((found[-1].topic, found[-1].number))
    return OfflineList(partitions=tuple(found), total=total, next_page_token=following)
