"""Where a follower's log leaves its leader's, and how far it must go back. Pure.

Goals: after truncation the follower's log is a prefix of the leader's; nothing that both have is thrown away.

Constraints: the high watermark cannot decide it (KIP-101: it lags one fetch behind, and acknowledged records were
lost). Leader epochs can: two logs that hold a batch of the same epoch at the same offset are equal up to there.

Algorithm: the follower names the epoch of its last batch. The leader answers with the largest epoch E that it knows
not above that, and where E ends in its own log (X). The follower goes back to where its own E ends or to X, whichever
is lower; if it does not know E (KIP-279), to the end of its own largest epoch below E, and asks again from there.

Example: the follower ends at 200 in epoch 5 and the leader answers (5, 156): truncate to 156. It answers (4, 202) and
the follower has no batch of epoch 4 or below: truncate to 200, which means nothing but the end.
"""

from dataclasses import dataclass

from regnum_model.ids import NO_EPOCH, LeaderEpoch

from regnum_broker.log.epochs import UNDEFINED_OFFSET, EpochEnd


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a follower has to do."""

    offset: int
    """New log end."""
    done: bool
    """False: the place is not certain; ask the leader again from there."""


def diverges(of_leader: EpochEnd, *, last_fetched_epoch: LeaderEpoch, fetch_offset: int) -> bool:
    """Whether a follower that ends with ``last_fetched_epoch`` at ``fetch_offset`` has left the leader's log.

    ``of_leader`` is the leader's answer for that epoch.
    """
    if last_fetched_epoch == NO_EPOCH:
        return False
    return of_leader.epoch != last_fetched_epoch or of_leader.end_offset < fetch_offset


def misleads(of_leader: EpochEnd, *, last_fetched_epoch: LeaderEpoch, fetch_offset: int, log_start: int) -> bool:
    """Whether a client that read up to ``fetch_offset``, where the last record was of that epoch, read what is no more.

    As ``diverges``, for somebody who may have records that the log does not have any more: those before the log start,
    of which no epoch may be left here. There only the end offset says something, which is all that Kafka's consumers go
    by (KIP-320). It is not enough where an older leader's log is longer: one that ends epoch 1 at 100 never had what
    was read at 50 to 60 of epoch 2. Compaction makes no difference: what stands for records that it took out has their
    offsets and their epoch (``regnum_records.compacted``), in this log and in every copy of it.
    """
    if of_leader.end_offset < fetch_offset:
        return True
    return fetch_offset > log_start and of_leader.epoch != last_fetched_epoch


def decide(of_leader: EpochEnd, *, of_follower: EpochEnd, log_end: int, high_watermark: int) -> Truncation:
    """How far the follower goes back.

    Args:
        of_leader: the leader's answer.
        of_follower: the follower's own answer for ``of_leader.epoch``.
        log_end: the follower's log end.
        high_watermark: the follower's; where it starts when the leader cannot tell.
    """
    if of_leader.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, log_end), done=True)
    if of_leader.epoch == NO_EPOCH or of_follower.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(of_leader.end_offset, log_end), done=True)
    if of_follower.epoch != of_leader.epoch:
        return Truncation(min(of_follower.end_offset, log_end), done=False)
    return Truncation(min(of_follower.end_offset, of_leader.end_offset, log_end), done=True)
