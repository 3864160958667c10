"""Who is in sync: when a follower leaves the ISR and when it may join. Pure.

Goals: no member of the ISR lacks a record below the high watermark; a follower that stopped holds acknowledgements up
no longer than the lag limit; a follower that only waits for records that do not come is never thrown out.

Constraints: the leader sees fetches, nothing else. A fetch at offset f says that the follower holds everything below f.

Algorithm: *caught up* means that the follower's log end equals the leader's, or that it has been so within the lag
limit. The second part is measured by fetches: one that asks for the leader's log end counts as of now. Otherwise the
leader's log end is noted, and the fetch that reaches it counts as of the moment of the note; then it is noted anew.
(A follower under steady load is always one fetch behind, and one that is far away as many as are on their way.) A
follower may join under three conditions: its log end reaches the high watermark, it reaches the start of the leader's
epoch (the high watermark of a new leader may be behind the true one), and it has fetched in the leader's epoch. The
registration that must be live as well (safety rule S3) is checked by the write itself. One that has left must have
stored something since, or have all, and one that says that it stores nothing leaves at once.

Example: the leader ends at 10. The follower fetches at 5 at t1, and the leader grows to 15: fetch at 10 at t2 proves
that it was caught up at t1. Fetch at 15 at t3, with the leader still at 15: caught up at t3. Had it fetched at 8 at
t2, the 10 of t1 would still be what it has to reach.
"""

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regnum_model.ids import BrokerId

UNKNOWN_OFFSET: Final = -1
"""Log end of a follower that has not fetched in this leader epoch."""

NEVER_S: Final = -math.inf
"""Time of what has not happened. Not zero: a monotonic clock may start there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerProgress:
    """What a leader knows of one follower in the present leader epoch."""

    log_end_offset: int = UNKNOWN_OFFSET
    """Offset of the follower's newest fetch; UNKNOWN_OFFSET before the first."""
    caught_up_s: float = NEVER_S
    """Newest moment (monotonic seconds) at which it is known to have been caught up."""
    fetched_s: float = NEVER_S
    """Moment of the fetch at which the leader's log end was noted: the newest, or the last that it has yet to reach."""
    leader_end_at_fetch: int = UNKNOWN_OFFSET
    """Log end of the leader at that moment."""
    left_at: int = UNKNOWN_OFFSET
    """Its log end when it left the ISR last in this epoch; UNKNOWN_OFFSET: it has not."""

    @property
    def has_fetched(self) -> bool:
        """Whether it has fetched in this leader epoch."""
        return self.log_end_offset != UNKNOWN_OFFSET


UNSEEN: Final = FollowerProgress()
"""Progress of one that has not been heard of."""


def at_new_epoch(*, in_sync: bool, now_s: float) -> FollowerProgress:
    """Progress of a follower as a leader epoch begins: members get the whole lag limit to appear."""
    return FollowerProgress(caught_up_s=now_s) if in_sync else UNSEEN


def at_same_epoch(progress: FollowerProgress, *, in_sync: bool, leader_end: int, now_s: float) -> FollowerProgress:
    """Progress after the controller repeated its order in the same epoch: positions stay, times start anew."""
    at_s = now_s if in_sync else NEVER_S
    return replace(progress, caught_up_s=at_s, fetched_s=at_s, leader_end_at_fetch=leader_end)


def after_fetch(progress: FollowerProgress, *, offset: int, leader_end: int, now_s: float) -> FollowerProgress:
    """Progress after a fetch at ``offset`` while the leader ends at ``leader_end``."""
    noted = progress.leader_end_at_fetch
    if noted != UNKNOWN_OFFSET and offset < min(noted, leader_end):
        return replace(progress, log_end_offset=offset)
    caught_up_s = progress.caught_up_s
    if offset >= leader_end:
        caught_up_s = max(caught_up_s, now_s)
    elif noted != UNKNOWN_OFFSET:
        caught_up_s = max(caught_up_s, progress.fetched_s)
    return FollowerProgress(
        log_end_offset=offset,
        caught_up_s=caught_up_s,
        fetched_s=now_s,
        leader_end_at_fetch=leader_end,
        left_at=progress.left_at,
    )


def is_caught_up(progress: FollowerProgress, *, leader_end: int, now_s: float, lag_s: float) -> bool:
    """Whether a follower counts as caught up."""
    return progress.log_end_offset == leader_end or now_s - progress.caught_up_s <= lag_s


def lagging(
    members: Iterable[BrokerId],
    followers: Mapping[BrokerId, FollowerProgress],
    *,
    leader: BrokerId,
    leader_end: int,
    now_s: float,
    lag_s: float,
    storing_nothing: Container[BrokerId] = (),
) -> tuple[BrokerId, ...]:
    """Members of the ISR that have to leave it. The leader never does.

    One of ``storing_nothing`` has to as soon as it lacks a record: it will not come any nearer within the lag limit.
    """
    leaving = []
    for id in members:
        if id == leader:
            continue
        progress = followers.get(id, UNSEEN)
        lag_allowed_s = -1.0 if id in storing_nothing else lag_s
        if not is_caught_up(progress, leader_end=leader_end, now_s=now_s, lag_s=lag_allowed_s):
            leaving.append(id)
    return tuple(leaving)


def may_join(progress: FollowerProgress, leader_end: int, *, high_watermark: int, epoch_start: int) -> bool:
    """Whether a follower meets the conditions that concern its log.

    Besides the three, one that has left must have stored something since, or have all. Where nothing is committed,
    because the ISR is too small, the high watermark stands still: one that stores nothing would join, lag and leave for
    ever.
    """
    end = progress.log_end_offset
    has_moved = end > progress.left_at or end >= leader_end
    return progress.has_fetched and has_moved and end >= high_watermark and end >= epoch_start
