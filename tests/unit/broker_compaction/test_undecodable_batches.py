"""What compaction does with batches that no reader can decode: they stay as they are, and hold nothing up."""

import pytest
from regnum_broker.log.replica.cleaned import cleaned_until
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch, PartitionKey
from regnum_records.compacted import is_filler
from regnum_records.errors import CorruptBatchError
from regnum_records.header import assign, iterate
from regnum_records.read import read_records
from regnum_testing.batches import MALFORMED
from regnum_testing.compaction import compact, keyed_batch, prepared
from regnum_testing.log_directories import KEY, ReopenedDirectory

COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0)
COPY = PartitionKey(KEY.topic_id, 1)


def with_poison(place: ReopenedDirectory) -> ReplicaLog:
    """The log of a follower whose leader has many values of one key, and malformed batches among them."""
    log = place.replica()
    log.configure(COMPACT)
    for batch, _ in MALFORMED.values():
        for stored in (keyed_batch((b"key", b"." * 150)), batch, keyed_batch((b"key", b"." * 150))):
            log.append_replicated(assigned(stored, log))
    for _ in range(12):
        log.append_replicated(assigned(keyed_batch((b"key", b"last" + b"." * 150)), log))
    return log


def assigned(batch: bytes, log: ReplicaLog) -> bytes:
    """The batch as the log's leader stores it next."""
    return bytes(assign(batch, base_offset=log.log_end_offset, leader_epoch=0))


def batches(log: ReplicaLog) -> list[bytes]:
    """All batches but fillers, as they are stored."""
    found: list[bytes] = []
    at = log.log_start_offset
    while data := log.read(at, bytes_max=2_000):
        for position, header in iterate(data):
            at = header.next_offset
            if not is_filler(header):
                found.append(data[position : position + header.size_bytes])
    return found


def undecodable(batch: bytes) -> bool:
    """Whether readers meet an error."""
    try:
        list(read_records(batch))
    except CorruptBatchError:
        return True
    return False


def test_compaction_steps_over_batches_that_cannot_be_decoded_and_leaves_them_as_they_are(
    place: ReopenedDirectory,
) -> None:
    log = with_poison(place)
    bad = [batch for batch in batches(log) if undecodable(batch)]
    assert len(bad) >= len(MALFORMED) - 1, "all but one whose time only another decoder cannot hold"
    before, end = len(batches(log)), log.log_end_offset
    assert compact(log, now_ms=place.wall_ms)
    after = batches(log)
    assert [batch for batch in after if undecodable(batch)] == bad
    assert len(after) < before - len(MALFORMED), "the older values of the key are gone from around them"
    assert (log.log_end_offset, cleaned_until(log.cleaned) > 0) == (end, True)
    for _ in range(12):
        log.append_replicated(assigned(keyed_batch((b"key", b"later" + b"." * 150)), log))
    assert compact(log, now_ms=place.wall_ms), "and again, over what was compacted"
    assert [batch for batch in batches(log) if undecodable(batch)] == bad
    follower = place.replica(COPY)
    while data := log.read(follower.log_end_offset, bytes_max=2_000):
        follower.append_replicated(data)
    assert batches(follower) == batches(log), "a follower copies them"


def test_where_they_are_is_told(place: ReopenedDirectory) -> None:
    log = with_poison(place)
    work = prepared(log, now_ms=place.wall_ms)
    assert work is not None
    for group in work.groups:
        work.rewrite(group, went_on=lambda: None)
    assert work.retention.left[:2] == [1, 5], "of a batch each behind a value, of one and two records"
    assert len(work.retention.left) == 10
    assert work.retention.left_count >= len(MALFORMED) - 1


def test_a_wrong_checksum_still_ends_it(place: ReopenedDirectory) -> None:
    """That is damage, which a copy of the log has not."""
    log = place.replica()
    log.configure(COMPACT)
    for _ in range(20):
        log.append_as_leader([keyed_batch((b"key", b"." * 150))], leader_epoch=LeaderEpoch(0))
    path = place.folder() / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError, match="checksum"):
        compact(log, now_ms=place.wall_ms)
