"""Clients choose producer ids: what is remembered of them is bounded, and what it costs to save goes by what came."""

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from immutables import Map
from regnum_broker.log.disk.lines import encode_line
from regnum_broker.log.disk.names import SNAPSHOT_SUFFIX
from regnum_broker.log.replica.producers.snapshots import SMALL_BYTES, encode_snapshot
from regnum_broker.log.replica.producers.states import (
    PRODUCERS_KEPT,
    PRODUCERS_MAX,
    Accepted,
    Duplicate,
    KeptBatch,
    OutOfOrder,
    ProducerEntry,
    ProducerStates,
)
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import LeaderEpoch
from regnum_records.header import BatchHeader, assign, read_header
from regnum_testing.batches import batch_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory

STEADY: Final = 1
"""A producer that appends again and again; the ids of those that come once begin at a thousand."""


class SnapshotsDisk(FaultyDisk):
    """Knows the sizes of the snapshots that were saved."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[int] = []

    def rename(self, source: str, target: str) -> None:
        """Note and rename."""
        if target.endswith(SNAPSHOT_SUFFIX):
            self.saved.append(Path(source).stat().st_size)
        super().rename(source, target)


def opened(path: Path, disk: SnapshotsDisk, segment_bytes: int) -> ReopenedDirectory:
    place = ReopenedDirectory(path, segment_bytes=segment_bytes, disk=disk)
    place.open()
    return place


def sent(offsets: Iterable[int], *, steady_each: int = 1_000_000) -> list[bytes]:
    """Batches of one record at these offsets, each of another producer, but for those of ``STEADY``."""
    return [
        bytes(assign(_batch(offset, steady_each=steady_each), base_offset=offset, leader_epoch=0)) for offset in offsets
    ]


def _batch(offset: int, *, steady_each: int) -> bytes:
    if offset % steady_each == 0:
        return batch_of(b"", producer_id=STEADY, producer_epoch=0, base_sequence=offset // steady_each)
    return batch_of(b"", producer_id=1_000 + offset, producer_epoch=0, base_sequence=7)


def append(log: ReplicaLog, batches: list[bytes], *, together: int) -> None:
    for at in range(0, len(batches), together):
        log.append_replicated(b"".join(batches[at : at + together]))


def heads(offsets: Iterable[int], *, steady_each: int) -> list[BatchHeader]:
    return [read_header(batch) for batch in sent(offsets, steady_each=steady_each)]


def remembered(log: ReplicaLog) -> dict[int, tuple[int, tuple[KeptBatch, ...]]]:
    return {id: (entry.epoch, entry.batches) for id, entry in log.producers.entries.items()}


def test_those_are_forgotten_that_most_others_have_overtaken() -> None:
    known, each = ProducerStates(), 5_000
    for header in heads(range(2 * PRODUCERS_MAX), steady_each=each):
        known.apply(header, seen_ms=1_000)
        assert len(known.entries) <= PRODUCERS_MAX
    newest = {
        head.producer_id for head in heads(range(2 * PRODUCERS_MAX - PRODUCERS_KEPT + 4, 40_000), steady_each=each)
    }
    assert newest <= set(known.entries)
    (last,) = heads([2 * PRODUCERS_MAX - 1], steady_each=each)
    assert known.check(last) == Duplicate(base_offset=last.base_offset, last_offset=last.base_offset)
    steady = known.entries[STEADY].batches[-1].last_sequence
    (again,) = heads([(steady + 2) * each], steady_each=each)
    assert known.check(again) == OutOfOrder(expected=steady + 1, found=steady + 2)
    (first,) = heads([1], steady_each=each)
    assert known.check(first) == Accepted(), "who was forgotten may begin anywhere"


def test_one_append_and_many_remember_the_same(tmp_path: Path) -> None:
    """As a leader and a follower that was behind have them."""
    batches = sent(range(PRODUCERS_MAX + 3_000), steady_each=700)
    place = opened(tmp_path / "one", SnapshotsDisk(), 1 << 30)
    append(place.replica(), batches, together=len(batches))
    other = opened(tmp_path / "many", SnapshotsDisk(), 1 << 20)
    for at in range(0, len(batches), 500):
        other.replica().append_as_leader(batches[at : at + 500], leader_epoch=LeaderEpoch(0))
    assert remembered(place.replica()) == remembered(other.replica())
    assert len(place.replica().producers.entries) <= PRODUCERS_MAX
    place.kill()
    other.kill()


@pytest.mark.parametrize("stop", ["stop_and_open", "kill_and_open", "lose_power_and_open"])
def test_a_start_remembers_what_the_log_did(tmp_path: Path, stop: str) -> None:
    place = opened(tmp_path, SnapshotsDisk(), 1 << 20)
    append(place.replica(), sent(range(PRODUCERS_MAX + 9_000), steady_each=700), together=1_000)
    before = remembered(place.replica())
    log = getattr(place, stop)()
    assert remembered(log) == before
    assert len(before) <= PRODUCERS_MAX
    place.kill()


def test_a_cut_remembers_whom_the_log_knew_then(tmp_path: Path) -> None:
    place = opened(tmp_path, SnapshotsDisk(), 1 << 20)
    log = place.replica()
    append(log, sent(range(PRODUCERS_MAX - 10), steady_each=700), together=1)
    before = remembered(log)
    append(log, sent(range(PRODUCERS_MAX - 10, PRODUCERS_MAX + 100), steady_each=700), together=1)
    assert len(remembered(log)) < len(before)
    log.truncate(PRODUCERS_MAX - 10)
    assert remembered(log) == before
    place.kill()


@pytest.mark.parametrize("segment_bytes", [20_000, 1 << 20])
def test_snapshots_cost_in_proportion_to_what_is_appended(tmp_path: Path, segment_bytes: int) -> None:
    disk = SnapshotsDisk()
    place = opened(tmp_path, disk, segment_bytes)
    append(place.replica(), sent(range(12_000)), together=20)
    size_bytes, segments = place.replica().size_bytes, place.segments()
    assert sum(disk.saved) <= 2 * size_bytes + SMALL_BYTES * len(segments)
    place.kill()
    read_before = disk.read_bytes
    place.open()
    # From the newest snapshot on, which is no further back than it is large.
    assert disk.read_bytes - read_before <= 2 * max(disk.saved) + 2 * segment_bytes + 200 * len(segments)
    place.kill()


@pytest.mark.parametrize("stop", ["stop_and_open", "kill_and_open", "lose_power_and_open"])
@pytest.mark.parametrize("is_rested", [False, True])
def test_who_is_known_by_removed_segments_only_is_known_after_a_start(
    tmp_path: Path, *, is_rested: bool, stop: str
) -> None:
    """Of a log that is smaller than a snapshot of its producers, which is not saved with each segment."""
    disk = SnapshotsDisk()
    place = opened(tmp_path, disk, 20_000)
    append(place.replica(), sent(range(3_000)), together=20)
    append(place.replica(), sent(range(3_000, 3_700), steady_each=1), together=20)
    log = place.stop_and_open() if is_rested else place.replica()
    starts = place.now.starts
    assert max(disk.saved) > SMALL_BYTES
    before, base, log_id = remembered(log), log.segments[-1].base_offset, place.log_id
    recorded = starts.record({KEY: base})
    starts.sync()
    starts.apply(recorded)
    assert log.segments[0].base_offset == base
    assert remembered(getattr(place, stop)()) == before
    if stop != "lose_power_and_open":
        assert place.log_id == log_id, "nothing is missing"
    place.kill()


def test_a_full_disk_does_not_keep_segments_for_the_sake_of_producers(tmp_path: Path) -> None:
    disk = SnapshotsDisk()
    place = opened(tmp_path, disk, 20_000)
    append(place.replica(), sent(range(3_000)), together=20)
    append(place.replica(), sent(range(3_000, 3_700), steady_each=1), together=20)
    log, starts = place.replica(), place.now.starts
    base, records = log.segments[-1].base_offset, log.log_end_offset
    recorded = starts.record({KEY: base})
    starts.sync()
    disk.fail_writes = errno.ENOSPC
    assert starts.apply(recorded) == {KEY: base}
    disk.fail_writes = None
    assert log.segments[0].base_offset == base
    append(log, sent(range(records, records + 40), steady_each=1), together=20)
    assert place.kill_and_open().log_end_offset == records + 40
    place.kill()


def test_a_snapshot_is_the_same_bytes_as_by_an_encoder_of_json() -> None:
    batches = (KeptBatch(2**31 - 1, 0, 2**62, 2**62 + 1), KeptBatch(1, 1, 2**63 - 2, 2**63 - 1))
    entries = Map(
        {2**63 - 1: ProducerEntry(2**15 - 1, batches, 1_700_000_000_000), 0: ProducerEntry(0, batches[:1], 0)}
    )
    values = [
        [
            id,
            entry.epoch,
            [[b.first_sequence, b.last_sequence, b.base_offset, b.last_offset] for b in entry.batches],
            entry.seen_ms,
        ]
        for id, entry in entries.items()
    ]
    assert encode_snapshot(entries) == encode_line(values)
    assert encode_snapshot(Map()) == encode_line([])
