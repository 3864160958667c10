"""What a start reads after a kill in the same boot, and that it comes to the same as if it had read all."""

import os
import random
import threading
from pathlib import Path

import pytest
from regnum_broker.log.contents import Recovery
from regnum_broker.log.errors import DirectoryFailedError
from regnum_broker.log.opening import open_directory
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.starting.recovery import TAIL_BYTES
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_records.header import HEADER_BYTES
from regnum_testing.batches import batch_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

LARGE = 4 * TAIL_BYTES


def history(log: ReplicaLog, *, size_bytes: int, seed: int) -> None:
    """Batches of many sizes, of several producers and none, in several epochs, with timestamps that go back."""
    chance = random.Random(seed)
    epoch, sequences, epochs = 0, dict.fromkeys(range(6), 0), dict.fromkeys(range(6), 0)
    while log.size_bytes < size_bytes:
        epoch += chance.random() < 0.01
        producer = chance.choice([-1, *sequences])
        if producer >= 0 and chance.random() < 0.02:
            sequences[producer], epochs[producer] = 0, epochs[producer] + 1
        values = [os.urandom(chance.choice([1, 50, 900])) for _ in range(chance.randint(1, 4))]
        if chance.random() < 0.005:
            values.append(bytes(2 * TAIL_BYTES))
        batch = batch_of(
            *values,
            timestamp_ms=1_000 + chance.randint(0, 10_000),
            producer_id=producer,
            producer_epoch=epochs.get(producer, -1),
            base_sequence=sequences.get(producer, -1),
        )
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(epoch))
        if producer >= 0:
            sequences[producer] += len(values)


def shown(log: ReplicaLog) -> list[object]:
    """What a start has found out."""
    last = log.segments[-1]
    producers = {id: (entry.epoch, entry.batches) for id, entry in log.producers.entries.items()}
    return [log.log_start_offset, log.log_end_offset, log.epochs, log.highest_leader_epoch, producers, last.summary]


@pytest.mark.parametrize("seed", range(6))
def test_after_a_kill_heads_say_what_all_of_the_bytes_would(tmp_path: Path, seed: int) -> None:
    place = ReopenedDirectory(tmp_path, segment_bytes=1 << 30)
    place.open()
    log = place.replica()
    history(log, size_bytes=LARGE, seed=seed)
    before = shown(log)
    log = place.kill_and_open()
    quick, index = shown(log), log.segments[-1].index
    log = place.lose_power_and_open()
    assert quick == shown(log) == before
    assert list(index.entries()) == list(log.segments[-1].index.entries())
    # And a truncation finds what it needs to know of producers.
    end = log.log_end_offset * 3 // 4
    log.truncate(end)
    cut = shown(log)
    place.kill()
    assert shown(place.kill_and_open()) == cut
    place.kill()


def test_after_a_kill_a_start_reads_little_of_large_batches(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place = ReopenedDirectory(tmp_path, segment_bytes=1 << 30, disk=disk)
    place.open()
    log = place.replica()
    for _ in range(60):
        lead(log, os.urandom(500_000))
    place.kill()
    disk.read_bytes = 0
    place.open()
    assert disk.read_bytes < 60 * 17 * 1024 + 2 * 500_100, "heads, and the last batch"
    place.kill()
    place.boot_id += "+"
    disk.read_bytes = 0
    place.open()
    assert disk.read_bytes > 60 * 500_000, "after a loss of power all of it"
    place.kill()


@pytest.mark.parametrize("lost", ["by a kill", "by hand"])
def test_a_start_after_a_clean_stop_reads_no_batch_also_where_the_start_before_had_to(
    tmp_path: Path, lost: str
) -> None:
    """What that one found out was in memory only: each further start went through all of it, until an append."""
    disk = FaultyDisk()
    place = ReopenedDirectory(tmp_path, segment_bytes=1 << 30, disk=disk)
    place.open()
    log = place.replica()
    for sequence in range(20):
        batch = batch_of(os.urandom(500_000), producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    if lost == "by a kill":
        place.kill()
    else:
        place.now.close()
        for file in place.folder().glob("*.index"):
            file.unlink()
    log = place.open().replicas[KEY]
    before = shown(log)
    place.now.close()
    disk.read_bytes = 0
    log = place.open().replicas[KEY]
    assert disk.read_bytes < HEADER_BYTES
    assert shown(log) == before
    place.kill()


def flipped(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("position", "usable"),
    [(HEADER_BYTES + 20, True), (7, False), (8, False), (11, False), (16, False), (-HEADER_BYTES, False)],
    ids=["records far from the end", "an offset", "a huge length", "a length", "the magic byte", "records at the end"],
)
def test_after_a_kill_damage_to_the_chain_or_the_end_is_found(tmp_path: Path, position: int, usable: bool) -> None:
    """And damage to records further up when somebody reads them, as in closed segments."""
    place = ReopenedDirectory(tmp_path, segment_bytes=1 << 30)
    place.open()
    log = place.replica()
    while log.size_bytes < LARGE:
        lead(log, bytes(1_000))
    place.kill()
    flipped(place.segments()[-1], position)
    directory = place.open()
    assert (KEY in directory.replicas) == usable
    assert (KEY in directory.offline) != usable
    place.kill()


@pytest.mark.parametrize("batches", [1, 3])
def test_after_a_kill_a_last_batch_with_a_length_beyond_the_end_is_damaged_and_one_that_is_cut_is_not(
    tmp_path: Path, batches: int
) -> None:
    place = ReopenedDirectory(tmp_path)
    place.open()
    log = place.replica()
    for _ in range(batches):
        last = log.size_bytes
        lead(log, bytes(1_000))
    place.kill()
    (file,) = place.segments()
    whole = file.read_bytes()
    flipped(file, last + 8)
    assert KEY in place.open().offline
    place.kill()
    for size in range(last, len(whole), 97):
        file.write_bytes(whole[:size])
        assert place.open().replicas[KEY].log_end_offset == batches - 1
        assert file.stat().st_size == last
        place.kill()


def test_after_a_loss_of_power_damage_anywhere_ends_the_log_there(tmp_path: Path) -> None:
    place = ReopenedDirectory(tmp_path, segment_bytes=1 << 30)
    place.open()
    log = place.replica()
    while log.size_bytes < LARGE:
        lead(log, bytes(1_000))
    place.kill()
    flipped(place.segments()[-1], HEADER_BYTES + 20)
    place.boot_id += "+"
    assert place.open().replicas[KEY].log_end_offset == 0
    place.kill()


def key(number: int) -> PartitionKey:
    """A replica."""
    return PartitionKey(TopicId("T" * 22), number)


def filled(path: Path, count: int) -> ReopenedDirectory:
    place = ReopenedDirectory(path)
    directory = place.open()
    directory.create_replicas([(key(number), "t") for number in range(count)])
    for number in range(count):
        lead(directory.replicas[key(number)], b"%d" % number)
    return place


def reopened(place: ReopenedDirectory, recovery: Recovery, disk: FaultyDisk | None = None) -> None:
    """Open it again as a start does."""
    directory = open_directory(
        place.path,
        broker_id=BrokerId(1),
        mint_id=place.mint_id,
        boot_id=place.boot_id,
        wall_ms=lambda: place.wall_ms,
        reserve_bytes=0,
        recovery=recovery,
        disk=disk,
    )
    place._directory = directory


class OneSlowFile(FaultyDisk):
    """A disk on which one file is not read before all others were."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.others = threading.Event()
        self.waited = False

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read, or wait first."""
        if Path(f"/proc/self/fd/{descriptor}").readlink() == self._path:
            self.waited = self.others.wait(20)
        return super().pread(descriptor, size, position)


def test_a_log_that_is_slow_to_read_holds_up_no_other(tmp_path: Path) -> None:
    place = filled(tmp_path, 50)
    slow = place.segments(key(0))[0]
    place.kill()
    disk = OneSlowFile(slow)

    def told(done: int, count: int) -> None:
        if done == count - 1:
            disk.others.set()

    reopened(place, Recovery(threads=2, told=told), disk)
    assert disk.waited, "the others did not wait for it"
    assert set(place.now.replicas) == {key(number) for number in range(50)}
    place.kill()


def test_damaged_logs_among_many_are_offline_and_the_others_are_not(tmp_path: Path) -> None:
    place = filled(tmp_path, 40)
    damaged = {3, 17, 39}
    place.kill()
    for number in damaged:
        flipped(place.segments(key(number))[0], 20)
    said: list[tuple[int, int]] = []
    reopened(place, Recovery(threads=4, told=lambda done, count: said.append((done, count))))
    assert set(place.now.offline) == {key(number) for number in damaged}
    assert set(place.now.replicas) == {key(number) for number in range(40) if number not in damaged}
    assert said == [(done, 40) for done in range(1, 41)], "it is told how far it is, offline ones included"
    assert all("have this one copied again" in str(error) for error in place.now.offline.values())
    place.kill()


def test_a_disk_that_fails_ends_the_start(tmp_path: Path) -> None:
    place = filled(tmp_path, 40)
    place.kill()
    with (place.segments(key(20))[0]).open("ab") as file:
        file.write(b"torn")

    class Failing(FaultyDisk):
        def ftruncate(self, descriptor: int, size: int) -> None:
            raise OSError(5, "EIO")

    with pytest.raises(DirectoryFailedError):
        reopened(place, Recovery(threads=3), Failing())
    reopened(place, Recovery(threads=3))
    assert len(place.now.replicas) == 40, "and a disk that works again has lost nothing"
    place.kill()


def test_what_was_never_finished_is_removed(tmp_path: Path) -> None:
    place = filled(tmp_path, 1)
    place.kill()
    folder = place.folder(key(0))
    left = [
        folder / name for name in ("00000000000000000000.index.new", "00000000000000000000.log.cleaned", "cleaned.new")
    ]
    for path in left:
        path.write_bytes(b"half")
    reopened(place, Recovery())
    assert not any(path.exists() for path in left)
    assert place.now.replicas[key(0)].log_end_offset == 1
    place.kill()
