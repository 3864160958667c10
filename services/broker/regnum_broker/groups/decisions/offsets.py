"""Committed offsets: who may commit, and when they expire. Pure.

A commit is taken from a member of the present generation, or from somebody who consumes without a group's assignment
(generation -1, no member id) while the group has no members. A zombie, whose generation is over, is refused: what it
processed has been given to another one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regnum_broker.groups.decisions.membership import spoken_for
from regnum_broker.groups.decisions.rebalance import REBALANCING
from regnum_broker.groups.decisions.state import Group, GroupError, GroupState, Identity, Member, Refusal


class Place(NamedTuple):
    """A partition of a topic by its name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group goes on in one partition."""

    offset: int
    """The next record to be processed."""
    leader_epoch: int = -1
    """Leader epoch of the last record that was processed (KIP-320). -1: not known."""
    metadata: str = ""
    """The client's note."""
    committed_ms: int
    """When, milliseconds since 1970."""
    topic_id: str = ""
    """Id of the topic that it is an offset of. Empty: not known."""
    metadata_version: int = 0
    """Version of the metadata that had this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLimits:
    """What a commit may be like."""

    offsets_max: int = 10_000
    """Partitions of one commit, and partitions that a group may have offsets of."""
    metadata_bytes_max: int = 4_096
    """Bytes of the note on one offset."""


def may_commit(group: Group, identity: Identity) -> Member | Refusal | None:
    """The member that commits, or why it may not; None: somebody without a membership may."""
    if identity.generation < 0 and not identity.member_id and not identity.instance_id:
        if group.state is GroupState.EMPTY:
            return None
        return Refusal(
            error=GroupError.UNKNOWN_MEMBER_ID,
            message="the group has members: only they commit; stop them first, or commit as one of them",
        )
    if group.is_vacant and not group.members:
        return Refusal(
            error=GroupError.ILLEGAL_GENERATION, message="no such group (any more), or it was never joined: join again"
        )
    found = spoken_for(group, identity)
    if isinstance(found, Member) and group.state is GroupState.COMPLETING_REBALANCE:
        # It has joined the generation and has no assignment yet: what it would commit is of the one before.
        return REBALANCING
    return found


def wrong_offsets(
    offsets: Sequence[tuple[Place, CommittedOffset]], *, new: int, count: int, limits: OffsetLimits
) -> Refusal | None:
    """Why offsets may not be committed at all; what one of them has wrong is ``wrong_offset``.

    Args:
        offsets: what is to be committed.
        new: how many of them are of partitions of which the group has none yet.
        count: of how many partitions it would have some then, commits under way included.
        limits: what a group may have.
    """
    if len({place for place, _ in offsets}) < len(offsets):
        return Refusal(error=GroupError.INVALID_REQUEST, message="a partition is named twice; nothing was committed")
    if len(offsets) > limits.offsets_max or (new and count > limits.offsets_max):
        # A group that has more, however that came, goes on with those.
        return too_many_offsets(limits)
    return None


def too_many_offsets(limits: OffsetLimits) -> Refusal:
    """The answer to a commit that goes beyond the limit."""
    return Refusal(
        error=GroupError.INVALID_COMMIT_OFFSET_SIZE,
        message=f"a group may have offsets of {limits.offsets_max} partitions; nothing was committed",
    )


def wrong_offset(offset: CommittedOffset, *, limits: OffsetLimits) -> Refusal | None:
    """Why one offset is not committed."""
    if offset.offset < 0:
        return Refusal(error=GroupError.INVALID_REQUEST, message="an offset is not negative")
    if len(offset.metadata.encode()) > limits.metadata_bytes_max:
        return Refusal(
            error=GroupError.OFFSET_METADATA_TOO_LARGE,
            message=f"the note on an offset may have {limits.metadata_bytes_max} bytes",
        )
    return None


def of_another_topic(place: Place) -> Refusal:
    """The answer to an offset of a topic that had the name before."""
    return Refusal(
        error=GroupError.UNKNOWN_TOPIC_ID,
        message=f"the offset is one of another topic than {place.topic} is now, as far as the coordinator knows;"
        " refresh metadata",
    )


def may_expire(group: Group, *, now_ms: int, retention_ms: int) -> bool:
    """Whether any of its offsets can be over: while a group has members none is."""
    return group.state is GroupState.EMPTY and group.emptied_ms + retention_ms <= now_ms


def expired(
    group: Group, offsets: Iterable[tuple[Place, CommittedOffset]], *, now_ms: int, retention_ms: int
) -> list[Place]:
    """Offsets that are over: of a group that has had no members for so long, and committed as long ago."""
    if not may_expire(group, now_ms=now_ms, retention_ms=retention_ms):
        return []
    return [place for place, offset in offsets if offset.committed_ms + retention_ms <= now_ms]
