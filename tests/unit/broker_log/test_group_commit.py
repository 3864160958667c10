"""Records that count once they are on the disk: who waits for that, and who does not."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from regnum_broker.flushing import LogFlusher
from regnum_broker.log.errors import CorruptLogError, DirectoryFailedError, ResourceExhaustedError, UnknownReplicaError
from regnum_broker.storage import FLUSH_BYTES_WAITING_MAX
from regnum_broker.writing.group_commit import GroupCommit
from regnum_model.configs import ReplicaSettings
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.disk import FaultyDisk, ForgetfulDisk, HangingDisk
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, until

FLUSHED, OTHER = 0, 1
"""Partitions: with flush.messages=1, and without."""


async def flushed_leader(leader: LeadingReplicas) -> None:
    """Two appends, after which nothing but what is appended next is to be brought to the disk."""
    leader.replicas.configure(leader.partition(FLUSHED), ReplicaSettings(flush_messages=1))
    await leader.append(FLUSHED)
    await leader.append(OTHER)


async def test_a_slow_flush_of_one_topic_holds_up_no_other(tmp_path: Path) -> None:
    disk = HangingDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        await flushed_leader(leader)
        log, other = leader.partition(FLUSHED).log, leader.partition(OTHER).log
        disk.syncs.clear()
        waiting = asyncio.ensure_future(leader.append(FLUSHED))
        await until(disk.syncing.is_set)
        for _ in range(20):
            await leader.append(OTHER)
        assert other.log_end_offset == 21
        assert not waiting.done()
        assert log.log_end_offset == 1
        disk.syncs.set()
        await waiting
        assert log.log_end_offset == 2


async def test_one_fsync_does_for_all_that_came_while_the_one_before_was_under_way(tmp_path: Path) -> None:
    disk = HangingDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        await flushed_leader(leader)
        log = leader.partition(FLUSHED).log
        disk.syncs.clear()
        syncs = disk.synced
        waiting = [asyncio.ensure_future(leader.append(FLUSHED))]
        await until(disk.syncing.is_set)
        waiting += [asyncio.ensure_future(leader.append(FLUSHED)) for _ in range(100)]
        await until(lambda: log.segments[-1].next_offset == 102)
        disk.syncs.set()
        await asyncio.gather(*waiting)
        assert log.log_end_offset == 102
        assert disk.synced - syncs == 2


async def test_a_stop_waits_for_what_is_being_flushed(tmp_path: Path) -> None:
    disk = HangingDisk()
    leader = LeadingReplicas(tmp_path, disk=disk)
    # Its end is the test's.
    await leader.__aenter__()
    await flushed_leader(leader)
    log_id = leader.files.log_id
    disk.syncs.clear()
    waiting = asyncio.ensure_future(leader.append(FLUSHED))
    await until(disk.syncing.is_set)
    closing = asyncio.ensure_future(leader.storage.close(clean=True))
    # Turns enough for a close that would not wait.
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    disk.syncs.set()
    await closing
    await waiting
    leader.files.boot_id += "+"
    directory = leader.files.open()
    assert directory.log_id == log_id, "the stop was clean"
    assert directory.replicas[leader.partition(FLUSHED).key].log_end_offset == 2
    directory.close(clean=False)


async def test_an_fsync_that_fails_is_no_acknowledgement_and_ends_the_directory(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        await flushed_leader(leader)
        disk.fail_syncs = errno.EIO
        with pytest.raises(DirectoryFailedError):
            await leader.append(FLUSHED)
        with pytest.raises(DirectoryFailedError):
            await leader.storage.run_until_failed()
        assert leader.partition(FLUSHED).log.log_end_offset == 1


async def test_without_a_descriptor_an_append_waits_until_there_is_one(tmp_path: Path) -> None:
    clock, disk = FakeClock(), ForgetfulDisk()
    async with LeadingReplicas(tmp_path, clock=clock, disk=disk) as leader:
        leader.files.wall_ms = clock.wall_ms()
        flusher = LogFlusher(storage=leader.storage, clock=clock)
        leader.replicas.configure(leader.partition(FLUSHED), ReplicaSettings(flush_messages=1))
        disk.fail_folders = errno.EMFILE
        waiting = asyncio.ensure_future(leader.append(FLUSHED))
        for _ in range(3):
            await until(lambda: leader.storage.directory.unflushed)
            await flusher.look()
            clock.skip(1.0)
            leader.files.wall_ms = clock.wall_ms()
            await flusher.look()
            assert not waiting.done()
        await until(lambda: leader.storage.directory.unflushed)
        await flusher.look()
        disk.fail_folders = None
        clock.skip(1.0)
        await flusher.look()
        await asyncio.wait_for(waiting, DEADLINE_S)
        assert leader.partition(FLUSHED).log.log_end_offset == 1


async def test_who_waits_for_a_descriptor_is_told_when_the_replica_is_deleted_and_its_bytes_count_no_more(
    tmp_path: Path,
) -> None:
    clock, disk = FakeClock(), ForgetfulDisk()
    async with LeadingReplicas(tmp_path, clock=clock, disk=disk) as leader:
        leader.files.wall_ms = clock.wall_ms()
        flusher = LogFlusher(storage=leader.storage, clock=clock)
        for number in (FLUSHED, OTHER):
            leader.replicas.configure(leader.partition(number), ReplicaSettings(flush_messages=1))
        log, epoch = leader.partition(FLUSHED).log, leader.leadership(FLUSHED).state.leader_epoch
        disk.fail_folders = errno.EMFILE
        waiting = await leader.storage.write_later(
            lambda: log.append_as_leader([batch_of(b"a")], leader_epoch=epoch), size_bytes=FLUSH_BYTES_WAITING_MAX + 1
        )
        await asyncio.wait_for(leader.storage.unflushed.wait(), DEADLINE_S)
        disk.fail_folders = None
        await leader.storage.delete([leader.partition(FLUSHED).key])
        await flusher.look()
        clock.skip(1.0)
        await flusher.look()
        with pytest.raises(UnknownReplicaError):
            await asyncio.wait_for(waiting, DEADLINE_S)
        await leader.append(OTHER)


async def test_a_file_that_was_removed_is_its_partitions_trouble(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path) as leader:
        await flushed_leader(leader)
        log = leader.partition(FLUSHED).log
        path = Path(log.segments[-1].path)

        def remove_after() -> None:
            log.append_as_leader([batch_of(b"a")], leader_epoch=leader.leadership(FLUSHED).state.leader_epoch)
            path.unlink()

        with pytest.raises(CorruptLogError):
            await leader.storage.write(remove_after)
        assert log.fault is not None
        assert log.log_end_offset == 1
        await leader.append(OTHER)


async def test_a_disk_that_is_too_far_behind_takes_no_more_of_what_waits_for_it_and_all_else(tmp_path: Path) -> None:
    disk = HangingDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        await flushed_leader(leader)
        disk.syncs.clear()
        log, epoch = leader.partition(FLUSHED).log, leader.leadership(FLUSHED).state.leader_epoch

        async def append() -> asyncio.Future[object]:
            return await leader.storage.write_later(
                lambda: log.append_as_leader([batch_of(b"a")], leader_epoch=epoch),
                size_bytes=FLUSH_BYTES_WAITING_MAX // 4,
            )

        waiting = [await append() for _ in range(5)]
        await leader.append(OTHER)
        with pytest.raises(ResourceExhaustedError):
            await (await append())
        assert log.written_end_offset == 6, "nothing was appended"
        assert leader.storage.takes(1), "others have room"
        disk.syncs.set()
        await asyncio.gather(*waiting)
        await (await append())
        assert log.log_end_offset == 7


class PlayedLog:
    """A log that is flushed when it is told to."""

    def __init__(self, name: str, flushed: list[str], at_flush: Callable[[], None] = lambda: None) -> None:
        self.name, self._flushed, self.at_flush = name, flushed, at_flush
        self.answers: list[bool | Exception] = []

    def flush_beside(self) -> bool:
        """Flush."""
        self.at_flush()
        self._flushed.append(self.name)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


class Told:
    """Who waits, and was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []
        self._told = threading.Semaphore(0)

    def __call__(self, error: BaseException | None) -> None:
        """Be told."""
        self.errors.append(error)
        self._told.release()

    def wait(self, count: int = 1) -> None:
        """Until so many were told."""
        for _ in range(count):
            assert self._told.acquire(timeout=DEADLINE_S)


def ended(flushes: GroupCommit) -> None:
    flushes.close().result(DEADLINE_S)


def commit(threads: int = 1, refused: list[bool] | None = None, bytes_max: int = 100) -> GroupCommit:
    """One that tells nobody but, if asked, whether it refuses."""
    refuse = (lambda _: None) if refused is None else refused.append
    return GroupCommit(refuse=refuse, put_off=lambda: None, bytes_max=bytes_max, threads=threads)


def test_a_log_that_is_written_to_without_end_keeps_no_other_waiting() -> None:
    flushed: list[str] = []
    told, others = Told(), Told()
    flushes = commit()
    busy, other = PlayedLog("busy", flushed), PlayedLog("other", flushed)

    def again() -> None:
        if len(flushed) < 50:
            flushes.flush([busy], told)
        if len(flushed) == 5:
            flushes.flush([other], others)

    busy.at_flush = again
    flushes.flush([busy], told)
    others.wait()
    assert flushed.index("other") <= 7, "it has its turn in the middle"
    ended(flushes)


def test_who_comes_during_a_turn_without_a_descriptor_has_a_turn_of_its_own() -> None:
    """Whoever looks after the flushes waits so, and gives nobody another turn before it is told."""
    flushed: list[str] = []
    patient, impatient = Told(), Told()
    flushes = commit()
    log = PlayedLog("full", flushed)

    def come() -> None:
        if not flushed:
            flushes.flush([log], impatient, is_patient=False)

    log.at_flush, log.answers = come, [False, False]
    flushes.flush([log], patient)
    impatient.wait()
    assert patient.errors == [], "there is none yet"
    flushes.again()
    patient.wait()
    assert patient.errors == impatient.errors == [None]
    ended(flushes)


def test_who_waits_for_several_logs_is_told_when_all_are_on_the_disk_and_of_the_worst() -> None:
    flushed: list[str] = []
    told = Told()
    flushes = commit(threads=2)
    go = threading.Event()
    slow, quick = PlayedLog("slow", flushed, lambda: go.wait(20) or None), PlayedLog("quick", flushed)
    slow.answers = [DirectoryFailedError("failed")]
    quick.answers = [ResourceExhaustedError("of no matter", space=False)]
    flushes.flush([quick, slow], told)
    early = Told()
    flushes.flush([quick], early)
    early.wait()
    assert told.errors == []
    go.set()
    told.wait()
    assert isinstance(told.errors[0], DirectoryFailedError)
    ended(flushes)


def test_what_waits_is_counted_and_too_much_is_refused_until_it_is_less() -> None:
    flushed: list[str] = []
    refused: list[bool] = []
    told = Told()
    flushes = commit(refused=refused)
    go = threading.Event()
    log = PlayedLog("log", flushed, lambda: go.wait(20) or None)
    flushes.flush([log], told, size_bytes=100)
    assert refused == []
    flushes.flush([log], told, size_bytes=1)
    assert (refused, flushes.bytes_waiting) == ([True], 101)
    go.set()
    told.wait(2)
    assert (refused, flushes.bytes_waiting) == ([True, False], 0)
    ended(flushes)


def test_an_error_that_nobody_expected_is_told_as_well() -> None:
    told = Told()
    flushes = commit()
    log = PlayedLog("log", [])
    log.answers = [AssertionError("a mistake")]
    flushes.flush([log], told)
    told.wait()
    assert isinstance(told.errors[0], AssertionError)
    flushes.flush([log], told)
    told.wait()
    assert told.errors[1] is None, "and the thread goes on"
    ended(flushes)
