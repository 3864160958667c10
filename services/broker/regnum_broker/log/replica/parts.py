"""Batches on their way into a log: their bytes, to be written without a copy, and their heads. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regnum_model.ids import NO_EPOCH, LeaderEpoch
from regnum_records.check import verify_crc
from regnum_records.compacted import filler, is_filler
from regnum_records.errors import CorruptBatchError
from regnum_records.header import (
    ASSIGNED_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    assigned_prefix,
    iterate,
    read_header,
)

from regnum_broker.log.errors import NotContiguousError
from regnum_broker.log.replica.producers.states import Accepted, Duplicate, Fenced, OutOfOrder, ProducerStates


class Part(NamedTuple):
    """One batch to be written."""

    buffers: tuple[Buffer, ...]
    """Its bytes, offset and leader epoch assigned."""
    header: BatchHeader
    """Its head, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append added."""

    base_offset: int
    """Offset of the first record."""
    last_offset: int
    """Offset of the last record."""


AppendOutcome = Appended | Duplicate | OutOfOrder | Fenced
"""What became of one batch that a leader was asked to append."""


def leader_part(batch: bytes, header: BatchHeader, *, base_offset: int, leader_epoch: LeaderEpoch) -> Part:
    """A producer's batch, with the offset and the leader epoch that its leader gives it."""
    prefix = assigned_prefix(batch, base_offset=base_offset, leader_epoch=leader_epoch)
    return Part(
        buffers=(prefix, memoryview(batch)[ASSIGNED_BYTES:]),
        header=header._replace(base_offset=base_offset, leader_epoch=leader_epoch),
    )


def admitted(
    batches: Sequence[bytes], *, base_offset: int, leader_epoch: LeaderEpoch, producers: ProducerStates
) -> tuple[list[AppendOutcome], list[Part]]:
    """What a leader may append of ``batches``, beginning at ``base_offset``: an outcome for each, and the parts."""
    outcomes: list[AppendOutcome] = []
    parts: list[Part] = []
    offset, ahead = base_offset, producers.trial()
    for number, batch in enumerate(batches, start=1):
        header = read_header(batch)
        match ahead.check(header):
            case Accepted():
                pass
            case refused:
                outcomes.append(refused)
                continue
        part = leader_part(batch, header, base_offset=offset, leader_epoch=leader_epoch)
        if number < len(batches):
            # Most appends are of one batch, which nobody comes behind.
            ahead.apply(part.header, seen_ms=0)
        parts.append(part)
        outcomes.append(Appended(base_offset=offset, last_offset=part.header.last_offset))
        offset = part.header.next_offset
    return outcomes, parts


def replicated_parts(buffer: bytes) -> list[Part]:
    """The whole batches of ``buffer``, checksums verified.

    Raises:
        CorruptBatchError: one is damaged.
    """
    view = memoryview(buffer)
    parts: list[Part] = []
    for position, header in iterate(buffer):
        if header.magic != MAGIC or header.last_offset_delta < 0 or header.leader_epoch < 0:
            raise CorruptBatchError(
                f"batch at offset {header.base_offset}: magic {header.magic}, last offset delta"
                f" {header.last_offset_delta}, leader epoch {header.leader_epoch}",
                base_offset=header.base_offset,
            )
        verify_crc(buffer, header, position)
        parts.append(Part(buffers=(view[position : position + header.size_bytes],), header=header))
    return parts


def continuing(parts: list[Part], *, log_end_offset: int, last_epoch: LeaderEpoch) -> list[Part]:
    """The parts, of the first only what is new where it stands for batches that compaction has taken out at the leader.

    A follower that was behind has some of these, and asks for the next: the leader has one batch for all of them. Any
    other batch has the extent that it was written with, on every replica.

    Those have one leader epoch, so a last record of another is none of them: the follower had it from a former leader,
    and brought it to the disk after it had asked (``flush.messages``).
    """
    if parts and is_filler(parts[0].header):
        header = parts[0].header
        known = last_epoch in {NO_EPOCH, header.leader_epoch}
        if known and header.base_offset < log_end_offset < header.next_offset:
            rest = filler(base_offset=log_end_offset, last_offset=header.last_offset, leader_epoch=header.leader_epoch)
            return [Part(buffers=(rest,), header=read_header(rest)), *parts[1:]]
    return parts


def check_leads(leader_epoch: LeaderEpoch, *, latest: LeaderEpoch) -> None:
    """Refuse to lead in an epoch that is over.

    Raises:
        NotContiguousError: a newer leader epoch is known here.
    """
    if leader_epoch < max(latest, 0):
        raise NotContiguousError(f"leader epoch {leader_epoch} is older than {latest}: another leader wrote since")


def check_continues(parts: Sequence[Part], *, log_end_offset: int, last_epoch: LeaderEpoch) -> None:
    """Refuse batches that do not follow the log and one another.

    Raises:
        NotContiguousError: an offset is not the next one, or a leader epoch goes back.
    """
    offset, epoch = log_end_offset, int(last_epoch)
    for part in parts:
        header = part.header
        if header.base_offset != offset:
            raise NotContiguousError(f"a batch at offset {header.base_offset} came where {offset} is next")
        if header.leader_epoch < epoch or header.leader_epoch < 0:
            raise NotContiguousError(
                f"the batch at offset {offset} has leader epoch {header.leader_epoch} after epoch {epoch}"
            )
        offset, epoch = header.next_offset, header.leader_epoch
