"""A kill between any two operations of a compaction leaves the log as it was before, or as it is after."""

import shutil
from pathlib import Path

import pytest
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_records.header import iterate
from regnum_testing.compaction import compact, keyed_batch, records_of
from regnum_testing.disk import KilledError, KillingDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory

COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, delete_retention_ms=0)


def write(log: ReplicaLog, numbers: range) -> None:
    """Append a batch for each number; every third comes from an idempotent producer, some are deletions."""
    for number in numbers:
        value = None if number % 11 == 7 else b"%d" % number + b"." * 120
        known = number % 3 == 0
        batch = keyed_batch(
            (b"key-%d" % (number % 5), value),
            producer_id=number % 2 + 1 if known else -1,
            base_sequence=number // 6 if known else -1,
        )
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(number // 20))


def opened(path: Path, disk: KillingDisk, *, boot_id: str = "boot-1") -> ReopenedDirectory:
    place = ReopenedDirectory(path, segment_bytes=1000, disk=disk)
    place.boot_id = boot_id
    place.open()
    place.now.replicas[KEY].configure(COMPACT)
    return place


def contents(log: ReplicaLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in records_of(log)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was compacted once and grew since: the next time, small segments become one."""
    path = tmp_path_factory.mktemp("template") / "logs"
    place = ReopenedDirectory(path, segment_bytes=1000)
    place.open()
    log = place.replica()
    log.configure(COMPACT)
    write(log, range(40))
    assert compact(log, now_ms=place.wall_ms)
    write(log, range(40, 70))
    place.now.remove_files()
    place.kill()
    return path


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.full)])
def test_of_a_compaction_that_is_killed_at_any_step_the_log_is_whole(
    template: Path, tmp_path: Path, stride: int
) -> None:
    disk = KillingDisk()
    shutil.copytree(template, tmp_path / "whole")
    place = opened(tmp_path / "whole", disk)
    log, begun = place.now.replicas[KEY], disk.done
    before, end, epochs, producers = contents(log), log.log_end_offset, log.epochs, log.producers.entries
    assert compact(log, now_ms=place.wall_ms)
    after, steps = contents(log), disk.done - begun
    place.kill()
    assert len(after) < len(before)
    assert steps > 30
    halfway = decided = 0
    for step in range(0, steps, stride):
        path = tmp_path / f"killed-{step}"
        shutil.copytree(template, path)
        disk = KillingDisk()
        place = opened(path, disk)
        disk.kill_at = disk.done + step
        with pytest.raises(KilledError):
            compact(place.now.replicas[KEY], now_ms=place.wall_ms)
        place.kill()
        decided += bool(list(place.folder().glob("*.swap")))
        place = opened(path, KillingDisk(), boot_id="boot-1" if step % 2 else "boot-2")
        log = place.now.replicas[KEY]
        found = contents(log)
        assert log.fault is None
        assert (log.log_end_offset, log.epochs) == (end, epochs)
        assert {id: entry.batches[-1] for id, entry in log.producers.entries.items()} == {
            id: entry.batches[-1] for id, entry in producers.items()
        }
        assert after.items() <= found.items() <= before.items(), f"step {step}"
        halfway += after != found != before
        offset = log.log_start_offset
        while data := log.read(offset, bytes_max=400):
            for _, header in iterate(data):
                assert header.base_offset == offset, "no hole"
                offset = header.next_offset
        assert compact(log, now_ms=place.wall_ms)
        assert contents(log) == after, f"step {step}: what was begun can be done again"
        assert contents(place.kill_and_open()) == after
        place.kill()
        shutil.rmtree(path)
    assert halfway, "some kills come between two segments"
    assert decided, "some come when one of several is to take their place"
