"""Producers over forty days: who goes on is known, who has gone is forgotten, and memory is of those who write."""

from pathlib import Path

import pytest
from regnum_broker.log.replica.parts import Appended
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import LeaderEpoch
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import ReopenedDirectory

DAY_MS = 86_400_000
EXPIRATION_MS = DAY_MS
"""As brokers have it unless told otherwise, and Kafka's (producer.id.expiration.ms, which is a broker's there, too)."""
STEADY = 7
NEW_A_DAY = 25


def write(log: ReplicaLog, producer: int, sequence: int) -> None:
    batch = batch_of(b"a", producer_id=producer, producer_epoch=0, base_sequence=sequence)
    (outcome,) = log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    assert isinstance(outcome, Appended)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_forty_days_of_producers_take_the_memory_of_two(tmp_path: Path, is_clean: bool) -> None:
    place = ReopenedDirectory(tmp_path, segment_bytes=10_000)
    # Files are written by the machine's clock.
    place.wall_ms = SystemClock().wall_ms()
    place.open()
    log, most, sequence = place.replica(), 0, 0
    for day in range(40):
        for number in range(NEW_A_DAY):
            write(log, 1_000 + day * NEW_A_DAY + number, 0)
        for _ in range(4):
            place.wall_ms += DAY_MS // 4
            write(log, STEADY, sequence)
            sequence += 1
            log.expire_producers(place.wall_ms - EXPIRATION_MS)
        most = max(most, len(log.producers.entries))
        if day % 7 == 6:
            log = place.stop_and_open() if is_clean else place.kill_and_open()
            # What was forgotten does not come back for longer than it takes to forget it again.
            assert len(log.producers.entries) <= (2 if is_clean else 9) * NEW_A_DAY + 1
    assert most <= 2 * NEW_A_DAY + 1 if is_clean else most <= 10 * NEW_A_DAY
    assert log.producers.entries[STEADY].batches[-1].last_sequence == sequence - 1
    place.wall_ms += EXPIRATION_MS + 1
    known = len(log.producers.entries)
    assert log.expire_producers(place.wall_ms - EXPIRATION_MS) == known > 0
    assert not log.producers.entries
    write(log, STEADY, 12_345)
    assert set(log.producers.entries) == {STEADY}, "who was forgotten may go on anywhere"
    place.kill()
