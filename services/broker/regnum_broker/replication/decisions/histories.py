"""Whether two logs that agree by their leader epochs are of one history. Pure.

Goals: two logs of different histories are never taken for one, as far as the batches show it that are compared; and two
of one history never for two, for that would take a sound replica out of use.

Constraints: epochs prove that logs agree only while each is led by one broker. A coordination store that is put back to
an earlier copy gives epochs out a second time. Then two logs have other records at equal offsets in one epoch.

Algorithm: followers append what their leader has, byte for byte, so within one history a batch has one extent, one
leader epoch and one checksum, on all replicas, for as long as nothing rewrites it. Compaction does, on each replica by
itself; but what it has rewritten has fewer records than offsets, and a producer's batch has as many. So batches with as
many are compared, and others say nothing. And a leader cuts nothing of what it appends, in the epoch in which it leads.

Example: offsets 3 to 5 are one batch of epoch 6 here, and there 3 to 4 are one: one of the two was never here.
"""

from typing import NamedTuple

from regnum_model.ids import LeaderEpoch
from regnum_records.header import BatchHeader


class BatchMark(NamedTuple):
    """What tells a batch from any other one that may stand at its place."""

    base_offset: int
    """Offset of its first record."""
    next_offset: int
    """Offset after its last record."""
    leader_epoch: int
    """In which it was appended."""
    crc: int
    """CRC32C in its head; base offset and leader epoch lie outside of it."""

    def __str__(self) -> str:
        last = self.next_offset - 1
        return f"offsets {self.base_offset} to {last} of leader epoch {self.leader_epoch} with checksum {self.crc:08x}"


def mark_of(header: BatchHeader | None) -> BatchMark | None:
    """The mark of a batch that is as its producer wrote it; None: it may be rewritten, or there is none."""
    if header is None or header.record_count != header.last_offset_delta + 1:
        return None
    return BatchMark(header.base_offset, header.next_offset, header.leader_epoch, header.crc)


def contradict(one: BatchMark | None, other: BatchMark | None, *, agreed: bool) -> bool:
    """Whether no log has both batches, and no order of the epochs sets that right. None says nothing.

    Args:
        one: a batch of one log.
        other: a batch of the other.
        agreed: whether the logs agree by their epochs as far as these go; else batches of different epochs say nothing.
    """
    if one is None or other is None or one == other:
        return False
    share_offsets = one.base_offset < other.next_offset and other.base_offset < one.next_offset
    return share_offsets and (agreed or one.leader_epoch == other.leader_epoch)


def leader_lacks(*, leader_end: int, leader_epoch: LeaderEpoch, end: int, last_epoch: LeaderEpoch) -> bool:
    """Whether a follower has records of its leader's own epoch that the leader has not, though none was cut there.

    Args:
        leader_end: where the leader's log ends.
        leader_epoch: in which it leads.
        end: where the follower's log ends.
        last_epoch: of the follower's last record.
    """
    return leader_end < end and last_epoch == leader_epoch
