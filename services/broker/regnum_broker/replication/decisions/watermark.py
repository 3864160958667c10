"""Where the high watermark of a leader goes. Pure.

Goals: everything below it is on every broker that may be elected next, so it is never lost and may be shown to
consumers.

Constraints: an ISR write whose outcome is not known yet may have happened or not (safety rule S1), so both ISRs
count. Eligible replicas (safety rule S10) hold what was below it when they left, so it stands still while the ISR is
below min.insync.replicas, and while there are any: min.insync.replicas may have been lowered since.

Algorithm: the smallest log end over the leader, the union of the current and the proposed ISR, and the followers that
are about to join (without these, a follower under steady load would always be one fetch behind and never join). It
never goes back; a result below the present one, or a member that has not fetched yet, leaves it where it is.

Example: leader ends at 12, ISR {1, 2} with 2 at 10, proposed {1, 2, 3} with 3 at 9: 9, if that is not below the
present one.
"""

from collections.abc import Collection, Mapping

from regnum_model.ids import BrokerId
from regnum_model.insync import may_commit
from regnum_model.nodes import LeaderAndIsr

from regnum_broker.replication.decisions.isr import UNKNOWN_OFFSET, FollowerProgress


class WatermarkError(AssertionError):
    """A high watermark above the log end: the log lost records that were acknowledged. Nothing may go on from there."""


def advanced(
    present: int,
    *,
    leader: BrokerId,
    leader_end: int,
    counted: Collection[BrokerId],
    followers: Mapping[BrokerId, FollowerProgress],
    state: LeaderAndIsr,
    min_insync: int,
) -> int:
    """The high watermark after something moved.

    Args:
        present: where it is.
        leader: the leader's own id; always counted.
        leader_end: its log end.
        counted: union of the current and the proposed ISR, and the followers about to join.
        followers: what is known of each follower.
        state: what the store is known to hold.
        min_insync: effective min.insync.replicas.

    Raises:
        WatermarkError: ``present`` lies above the log end.
    """
    if present > leader_end:
        raise WatermarkError(f"high watermark {present} lies above the log end {leader_end}")
    if not may_commit(state, min_insync=min_insync):
        return present
    lowest = leader_end
    for id in counted:
        if id == leader:
            continue
        follower = followers.get(id)
        end = UNKNOWN_OFFSET if follower is None else follower.log_end_offset
        lowest = min(lowest, end)
    return max(present, lowest)


def of_follower(present: int, *, leader_high_watermark: int, log_start: int, log_end: int) -> int:
    """The high watermark of a follower after an answer of its leader: the leader's, within the follower's own log."""
    return max(present, min(max(leader_high_watermark, log_start), log_end))
