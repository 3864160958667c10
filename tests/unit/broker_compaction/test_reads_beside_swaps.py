"""A read goes on to what is there, however many segments are swapped under it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.shown import READ_ATTEMPTS
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_testing.compaction import compact, keyed_batch
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import ReopenedDirectory, offset_at

COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0)
READER_S = 2.0
"""A swap that is not done after this time waits for the reader: it can only be done when the read has ended.

One that a busy machine holds up must not be taken for it: with a tenth of this, one in some hundred runs was."""


class Compactions:
    """One after another, by a thread of their own, as the writer's: each in the middle of a read."""

    def __init__(self, place: ReopenedDirectory, disk: FaultyDisk) -> None:
        self.place = place
        self.disk = disk
        self.done = 0
        self.reader = threading.get_ident()
        self.thread = ThreadPoolExecutor(1)

    def arm(self) -> None:
        self.disk.amid_read = self.happen

    def happen(self) -> None:
        """Swap in the middle of this read, and arm for the reader's next one."""
        wait_for([self.thread.submit(self.compact)], timeout=READER_S)
        self.arm()

    def compact(self) -> None:
        log = self.place.replica()
        self.disk.amid_read = None
        for _ in range(8):
            log.append_as_leader([keyed_batch((b"key", b"%d" % self.done + b"." * 150))], leader_epoch=LeaderEpoch(0))
        assert compact(log, now_ms=self.place.wall_ms)
        self.done += 1


@pytest.fixture
def compactions(place: ReopenedDirectory, disk: FaultyDisk) -> Iterator[Compactions]:
    found = Compactions(place, disk)
    yield found
    disk.amid_read = None
    found.thread.shutdown()


def written(place: ReopenedDirectory) -> ReplicaLog:
    log = place.replica()
    log.configure(COMPACT)
    for number in range(30):
        log.append_as_leader([keyed_batch((b"key", b"%d" % number + b"." * 150))], leader_epoch=LeaderEpoch(0))
    return log


def test_a_read_that_every_swap_disturbs_returns_what_is_there(
    place: ReopenedDirectory, compactions: Compactions
) -> None:
    log = written(place)
    compactions.arm()
    found = log.read(3, bytes_max=10_000)
    assert compactions.done >= READ_ATTEMPTS, "each of its attempts was disturbed"
    assert found, "nothing is what a reader is told who has come to the end"


def test_a_search_by_time_that_every_swap_disturbs_finds_what_is_there(
    place: ReopenedDirectory, compactions: Compactions
) -> None:
    log = written(place)
    timestamp_ms = log.segments[-1].timestamp_ms_max
    compactions.arm()
    found = offset_at(log, timestamp_ms)
    assert found is not None
