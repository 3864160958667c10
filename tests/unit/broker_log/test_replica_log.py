"""A replica: append, read, truncate."""

import threading

import pytest
from regnum_broker.log.errors import CorruptLogError, NotContiguousError, OffsetOutOfRangeError, UnknownReplicaError
from regnum_broker.log.replica.parts import Appended
from regnum_broker.log.replica.producers.states import Duplicate, OutOfOrder
from regnum_model.ids import LeaderEpoch
from regnum_records.errors import CorruptBatchError
from regnum_records.header import iterate
from regnum_testing.batches import assigned_batch, batch_of, values_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead, offset_at

EPOCH = LeaderEpoch(0)
PAUSE_S = 0.0005
"""Between two looks of a thread beside another: as good as none, but the interpreter changes hands."""


def filled(place: ReopenedDirectory, batches: int = 40, *, records: int = 2):
    """A replica with several segments; the record at offset n has value n, batch b has timestamp 1000 + 10 b."""
    replica = place.replica()
    for number in range(batches):
        first = number * records
        lead(replica, *[b"%d" % (first + i) for i in range(records)], timestamp_ms=1000 + 10 * number)
    return replica


def everything(replica, *, start: int | None = None, bytes_max: int = 1000) -> list[bytes | None]:
    offset = replica.log_start_offset if start is None else start
    found: list[bytes | None] = []
    while data := replica.read(offset, bytes_max=bytes_max):
        found += values_of(data)
        offset = list(iterate(data))[-1][1].next_offset
    return found


def test_a_new_replica_is_empty_and_has_no_files(place):
    replica = place.replica()
    assert (replica.log_start_offset, replica.log_end_offset, replica.high_watermark, replica.size_bytes) == (
        0,
        0,
        0,
        0,
    )
    assert (replica.epochs.latest, replica.last_record_epoch, replica.highest_leader_epoch) == (-1, -1, -1)
    assert replica.read(0, bytes_max=100) == b""
    assert offset_at(replica, 0) is None
    assert not place.folder().exists()


def test_offsets_and_epochs_are_assigned(place):
    replica = place.replica()
    outcomes = replica.append_as_leader([batch_of(b"a", b"b"), batch_of(b"c")], leader_epoch=LeaderEpoch(3))
    assert outcomes == [Appended(base_offset=0, last_offset=1), Appended(base_offset=2, last_offset=2)]
    stored = [(header.base_offset, header.leader_epoch) for _, header in iterate(replica.read(0, bytes_max=1000))]
    assert stored == [(0, 3), (2, 3)]
    assert (replica.log_end_offset, replica.last_record_epoch, replica.epochs.entries) == (3, 3, ((3, 0),))


def test_one_write_for_one_append(place, disk):
    place.segment_bytes = 1 << 20
    replica = place.replica()
    lead(replica, b"x")
    place.stop_and_open()
    replica = place.now.replicas[KEY]
    before = disk.writes
    replica.append_as_leader([batch_of(b"a") for _ in range(100)], leader_epoch=EPOCH)
    assert disk.writes == before + 1


def test_short_writes_are_completed(place, disk):
    disk.short_writes = 17
    replica = filled(place)
    assert everything(replica) == [b"%d" % number for number in range(80)]


def test_everything_is_read_back_across_segments(place):
    replica = filled(place)
    assert len(place.segments()) > 3
    for bytes_max in (1, 100, 350, 100_000):
        assert everything(replica, bytes_max=bytes_max) == [b"%d" % number for number in range(80)]


def test_reading_begins_with_the_batch_that_contains_the_offset(place):
    replica = filled(place)
    for offset in range(80):
        data = replica.read(offset, bytes_max=1)
        assert values_of(data) == [b"%d" % (offset // 2 * 2), b"%d" % (offset // 2 * 2 + 1)]


def test_reading_stops_at_the_end_offset(place):
    replica = filled(place, 5)
    assert values_of(replica.read(0, bytes_max=10_000, end_offset=4)) == [b"0", b"1", b"2", b"3"]
    assert replica.read(4, bytes_max=10_000, end_offset=4) == b""
    assert replica.read(6, bytes_max=10_000, end_offset=4) == b""
    assert replica.read(10, bytes_max=10_000) == b""


def test_a_batch_larger_than_asked_for_is_returned_whole(place):
    replica = place.replica()
    lead(replica, b"small")
    lead(replica, b"x" * 50_000)
    lead(replica, b"small")
    assert values_of(replica.read(1, bytes_max=10)) == [b"x" * 50_000]
    assert values_of(replica.read(0, bytes_max=10)) == [b"small"]


def test_reading_outside_the_log(place):
    replica = place.replica()
    replica.truncate_fully_and_start_at(10)
    lead(replica, b"a")
    for offset in (9, 12, -1):
        with pytest.raises(OffsetOutOfRangeError, match="from 10 to 11"):
            replica.read(offset, bytes_max=100)


def test_a_producer_that_repeats_itself_is_stored_once(place):
    replica = place.replica()
    first = batch_of(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    second = batch_of(b"c", producer_id=5, producer_epoch=0, base_sequence=2)
    gap = batch_of(b"e", producer_id=5, producer_epoch=0, base_sequence=9)
    outcomes = replica.append_as_leader([first, first, gap, second], leader_epoch=EPOCH)
    assert outcomes == [
        Appended(base_offset=0, last_offset=1),
        Duplicate(base_offset=0, last_offset=1),
        OutOfOrder(expected=2, found=9),
        Appended(base_offset=2, last_offset=2),
    ]
    assert replica.append_as_leader([second], leader_epoch=EPOCH) == [Duplicate(base_offset=2, last_offset=2)]
    assert everything(replica) == [b"a", b"b", b"c"]


def test_the_last_five_batches_of_a_producer_are_known_again(place):
    replica = place.replica()
    batches = [batch_of(b"v", producer_id=5, producer_epoch=0, base_sequence=number) for number in range(8)]
    for batch in batches:
        replica.append_as_leader([batch], leader_epoch=EPOCH)
    assert replica.append_as_leader(batches[3:], leader_epoch=EPOCH) == [
        Duplicate(base_offset=number, last_offset=number) for number in range(3, 8)
    ]


def test_a_leader_of_an_older_epoch_cannot_append(place):
    replica = place.replica()
    place.now.record_leader_epochs([(KEY, LeaderEpoch(4), 0)])
    with pytest.raises(NotContiguousError, match="older than 4"):
        lead(replica, b"a", epoch=3)
    assert replica.log_end_offset == 0


def test_assigned_batches_must_continue_the_log(place):
    replica = place.replica()
    replica.append_replicated(assigned_batch(b"a", b"b", base_offset=0, leader_epoch=2))
    for bad in (
        [assigned_batch(b"c", base_offset=1, leader_epoch=2)],
        [assigned_batch(b"c", base_offset=3, leader_epoch=2)],
        [assigned_batch(b"c", base_offset=2, leader_epoch=1)],
        [assigned_batch(b"c", base_offset=2, leader_epoch=2), assigned_batch(b"d", base_offset=4, leader_epoch=2)],
    ):
        with pytest.raises(NotContiguousError):
            replica.append_replicated(b"".join(bad))
    assert replica.log_end_offset == 2


def test_a_follower_takes_what_the_leader_has(place, tmp_path):
    other = ReopenedDirectory(tmp_path / "follower", segment_bytes=700)
    other.open()
    leader, follower = filled(place), other.replica()
    lead(leader, b"new", epoch=5)
    while data := leader.read(follower.log_end_offset, bytes_max=400):
        assert follower.append_replicated(data + data[:30]) is not None
    assert follower.append_replicated(b"") is None
    assert everything(follower) == everything(leader)
    assert follower.epochs == leader.epochs
    assert b"".join(path.read_bytes() for path in other.segments()) == b"".join(
        path.read_bytes() for path in place.segments()
    )
    other.kill()


def test_a_follower_refuses_damaged_batches_and_appends_nothing(place):
    replica = place.replica()
    good, bad = assigned_batch(b"a", base_offset=0), bytearray(assigned_batch(b"b", base_offset=1))
    bad[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        replica.append_replicated(good + bytes(bad))
    assert replica.log_end_offset == 0


def test_an_epoch_without_records_gives_way_to_the_leaders_older_batches(place):
    """1. leads in epoch 5 from offset 2 on and writes nothing; 2. another leader has batches of epoch 4 there."""
    replica = place.replica()
    replica.append_replicated(assigned_batch(b"a", b"b", base_offset=0, leader_epoch=4))
    place.now.record_leader_epochs([(KEY, LeaderEpoch(5), 2)])
    replica.append_replicated(assigned_batch(b"c", base_offset=2, leader_epoch=4))
    assert replica.epochs.entries == ((4, 0),)
    assert replica.highest_leader_epoch == 5
    assert place.kill_and_open().epochs.entries == ((4, 0),)


@pytest.mark.parametrize("offset", [0, 1, 2, 13, 14, 40, 78, 79])
def test_truncation_removes_from_the_batch_on(place, offset):
    replica = filled(place)
    boundary = offset // 2 * 2
    assert replica.truncate(offset) == boundary == replica.log_end_offset
    assert everything(replica) == [b"%d" % number for number in range(boundary)]
    assert lead(replica, b"again", epoch=1) == boundary
    assert everything(replica)[boundary:] == [b"again"]
    assert everything(place.kill_and_open())[boundary:] == [b"again"]


def test_truncation_at_the_log_end_takes_epochs_without_records(place):
    replica = filled(place, 3)
    place.now.record_leader_epochs([(KEY, LeaderEpoch(2), 6)])
    assert replica.truncate(6) == 6
    assert replica.epochs.entries == ((0, 0),)
    assert replica.highest_leader_epoch == 2
    place.now.record_leader_epochs([(KEY, LeaderEpoch(3), 6)])
    assert replica.truncate(7) == 6
    assert replica.epochs.entries == ((0, 0), (3, 6))


def test_truncation_takes_epochs_and_producers_with_it(place):
    replica = place.replica()
    for number in range(30):
        batch = batch_of(b"v", producer_id=5, producer_epoch=0, base_sequence=number)
        replica.append_as_leader([batch], leader_epoch=LeaderEpoch(number // 10))
    replica.truncate(15)
    assert replica.epochs.entries == ((0, 0), (1, 10))
    again = [batch_of(b"v", producer_id=5, producer_epoch=0, base_sequence=number) for number in (14, 15)]
    assert replica.append_as_leader(again, leader_epoch=LeaderEpoch(4)) == [
        Duplicate(base_offset=14, last_offset=14),
        Appended(base_offset=15, last_offset=15),
    ]


def test_producers_of_truncated_records_do_not_come_back(place):
    """1. a snapshot at a roll; 2. truncation below it; 3. other records beyond it in one segment; 4. truncation."""
    replica = place.replica()
    for number in range(4):
        batch = batch_of(b"x" * 400, producer_id=5, producer_epoch=0, base_sequence=number)
        replica.append_as_leader([batch], leader_epoch=EPOCH)
    snapshot = max(int(path.stem) for path in place.folder().glob("*.producers"))
    assert snapshot > 1
    replica.truncate(1)
    while replica.log_end_offset < snapshot + 3:
        lead(replica, b"y")
    replica.append_as_leader([batch_of(b"z", producer_id=6, producer_epoch=0, base_sequence=0)], leader_epoch=EPOCH)
    replica.truncate(snapshot + 3)
    assert list(replica.producers.entries) == [5]
    assert replica.producers.entries[5].batches[-1].last_sequence == 0


def test_truncating_before_the_start_begins_there(place):
    replica = place.replica()
    replica.truncate_fully_and_start_at(100)
    lead(replica, b"a")
    assert replica.truncate(50) == 50
    assert (replica.log_start_offset, replica.log_end_offset) == (50, 50)


def test_starting_anew_elsewhere_is_kept(place):
    replica = filled(place)
    replica.truncate_fully_and_start_at(1000)
    assert (replica.log_start_offset, replica.log_end_offset, replica.epochs.entries) == (1000, 1000, ())
    replica = place.kill_and_open()
    assert (replica.log_start_offset, replica.log_end_offset, replica.epochs.entries) == (1000, 1000, ())
    assert lead(replica, b"a", epoch=2) == 1000
    replica = place.stop_and_open()
    assert everything(replica) == [b"a"]
    assert replica.epochs.entries == ((2, 1000),)


def test_first_batch_at_or_after_a_timestamp(place):
    replica = filled(place)
    assert [offset_at(replica, time) for time in (0, 1000, 1001, 1010, 1390)] == [0, 0, 2, 2, 78]
    assert offset_at(replica, 1391) is None
    assert offset_at(place.stop_and_open(), 1201) == 42


def test_timestamps_may_go_back(place):
    replica = place.replica()
    for timestamp in (100, 50, 70, 200, 10):
        lead(replica, b"x" * 300, timestamp_ms=timestamp)
    assert [offset_at(replica, time) for time in (60, 101, 200)] == [0, 3, 3]


def test_damage_found_while_reading_names_the_replica(place):
    replica = filled(place)
    with place.segments()[1].open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptLogError, match=KEY.topic_id):
        everything(replica)


def test_a_deleted_replica_cannot_be_read(place):
    replica = filled(place)
    place.now.delete_replicas([KEY])
    with pytest.raises(UnknownReplicaError):
        replica.read(0, bytes_max=100)
    assert not place.folder().exists()


def test_a_read_amid_a_truncation_is_all_old_or_all_new(place, disk):
    replica = place.replica()
    for number in range(2):
        lead(replica, b"%d" % number * 4000, epoch=0)

    def rewrite() -> None:
        replica.truncate(0)
        for value in (b"a", b"b"):
            lead(replica, value * 4000, epoch=1)

    disk.amid_read = rewrite
    assert values_of(replica.read(0, bytes_max=20_000)) == [b"a" * 4000]


def test_a_read_amid_a_deletion_is_refused_and_so_is_the_next_one(place, disk):
    """What it found may be of the replica that was created again in the meantime."""
    replica = filled(place)
    disk.amid_read = lambda: place.now.delete_replicas([KEY])
    for _ in range(2):
        with pytest.raises(UnknownReplicaError):
            replica.read(0, bytes_max=100)


def test_reads_beside_appends_and_truncations_are_whole(place):
    """A reader may see a log before or after a truncation, never a mixture: epochs in a read never go back."""
    replica = place.replica()
    problems: list[str] = []
    reads = 0
    done = threading.Event()

    def read() -> None:
        nonlocal reads
        # A reader that never waits would hold the interpreter, and the writer would wait for it most of the time.
        while not done.wait(PAUSE_S):
            try:
                data = replica.read(max(0, replica.log_end_offset - 5), bytes_max=2000)
                heads = [header for _, header in iterate(data)]
                values = values_of(data)
            except OffsetOutOfRangeError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is fails the test
                problems.append(repr(error))
                return
            epochs = [header.leader_epoch for header in heads]
            if epochs != sorted(epochs) or any(value is None or not value.startswith(b"v") for value in values):
                problems.append(f"{epochs} {values}")
            reads += bool(values)

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    try:
        for epoch in range(60):
            for number in range(10):
                lead(replica, b"v%d" % number * (number + 1), epoch=epoch)
            replica.truncate(replica.log_end_offset - 3)
        pause = threading.Event()
        while reads == 0 and not problems and not pause.wait(PAUSE_S):
            lead(replica, b"v", epoch=60)
    finally:
        done.set()
        reader.join()
    assert problems == []
    assert reads > 0
