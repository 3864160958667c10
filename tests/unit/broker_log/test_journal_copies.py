"""No single fault of the medium makes a log directory forget a replica; what is forgotten is found in its folder."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.disk.lines import encode_line, encode_lines
from regnum_broker.log.journal.entries import FilesBegun, JournalEntry, ReplicaCreated, ReplicaDeleted, fold, to_json
from regnum_broker.log.journal.file import merged
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import values_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

OTHER = PartitionKey(TopicId("BBBBBBBBBBBBBBBBBBBBBB"), 1)
COPIES = ("journal", "journal.copy")


def two_replicas(place: ReopenedDirectory) -> None:
    for key in (KEY, OTHER):
        for number in range(30):
            lead(place.replica(key), b"v%d" % number, epoch=number // 8)


def both_are_whole(place: ReopenedDirectory) -> None:
    assert not place.now.offline
    for key in (KEY, OTHER):
        replica = place.now.replicas[key]
        assert (replica.topic, replica.log_end_offset) == ("topic", 30)
        assert replica.epochs.entries == ((0, 0), (1, 8), (2, 16), (3, 24))
        assert values_of(replica.read(29, bytes_max=1)) == [b"v29"]


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "head", "cut"])
@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_one_damaged_copy_of_the_journal_costs_nothing(place, name, damage, stop):
    two_replicas(place)
    log_id = place.log_id
    place.now.close(clean=stop == "clean")
    file = place.path / name
    match damage:
        case "missing":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "flipped":
            place.flip(name, b'"created"')
        case "head":
            place.flip(name, b'"journal"')
        case "cut":
            lines = file.read_bytes().splitlines(keepends=True)
            file.write_bytes(b"".join(lines[:3]))
    place.open()
    both_are_whole(place)
    assert place.log_id == log_id
    assert (place.path / "journal").read_bytes() == (place.path / "journal.copy").read_bytes()
    assert bool(place.now.notes) == (name == "journal")
    place.kill()
    place.open()
    assert place.now.notes == ()
    assert place.log_id == log_id


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped"])
def test_replicas_that_both_copies_forgot_are_taken_up_from_their_folders(place, damage):
    two_replicas(place)
    log_id = place.log_id
    place.kill()
    for name in COPIES:
        match damage:
            case "missing":
                (place.path / name).unlink()
            case "empty":
                (place.path / name).write_bytes(b"")
            case "flipped":
                place.flip(name, b'"created"')
    place.open()
    both_are_whole(place)
    assert place.log_id != log_id, "nobody knows what else was forgotten"
    assert any(KEY.topic_id in note for note in place.now.notes)
    renewed = place.log_id
    place.kill()
    place.open()
    both_are_whole(place)
    assert (place.log_id, place.now.notes) == (renewed, ())


@pytest.mark.parametrize("damage", ["missing", "garbage", "another's"])
def test_a_folder_that_does_not_say_whose_it_is_is_refused_loudly(place, damage):
    two_replicas(place)
    place.kill()
    for name in COPIES:
        place.flip(name, b'"created"')
    name_file = place.folder(KEY) / "replica"
    match damage:
        case "missing":
            name_file.unlink()
        case "garbage":
            name_file.write_bytes(b"garbage")
        case "another's":
            name_file.write_bytes((place.folder(OTHER) / "replica").read_bytes())
    log_id = place.log_id
    place.open()
    assert list(place.now.replicas) == [OTHER]
    assert place.log_id != log_id
    assert any(place.folder(KEY).name in note and ".stray" in note for note in place.now.notes)


def test_an_older_folder_says_whose_it_is_from_its_next_append_on(place):
    lead(place.replica(), b"a")
    place.kill()
    (place.folder() / "replica").unlink()
    lead(place.open().replicas[KEY], b"b")
    place.kill()
    for name in COPIES:
        (place.path / name).unlink()
    assert place.open().replicas[KEY].log_end_offset == 2


def test_a_deleted_replica_is_not_taken_up_again(place):
    two_replicas(place)
    kept = {path.name: path.read_bytes() for path in place.folder().iterdir()}
    place.now.delete_replicas([KEY])
    place.kill()
    place.folder().mkdir()
    for name, data in kept.items():
        (place.folder() / name).write_bytes(data)
    place.flip("journal", b'"deleted"')
    assert list(place.open().replicas) == [OTHER]


def test_a_journal_that_is_removed_under_the_process_is_put_back(place):
    two_replicas(place)
    log_id = place.log_id
    (place.path / "journal").unlink()
    place.now.record_leader_epochs([(KEY, LeaderEpoch(9), 30)])
    place.kill()
    assert place.open().replicas[KEY].highest_leader_epoch == 9
    assert place.log_id == log_id


def test_copies_of_different_generations_are_not_mixed():
    """A kill between the two renames of a start: the copy is of the run before, and knows a replica that is gone."""
    created, deleted = ReplicaCreated(key=KEY, topic="t"), ReplicaDeleted(key=KEY)
    other = ReplicaCreated(key=OTHER, topic="t")
    before = journal(3, [created, deleted, other])
    after = journal(4, [other, FilesBegun(key=OTHER)])
    damaged = after.replace(b'"files"', b'"filex"')
    assert merged(after, before).replicas.keys() == {OTHER}
    assert merged(damaged + encode_line(to_json(other)), before).replicas.keys() == {OTHER}
    assert merged(None, before).replicas.keys() == {OTHER}


def journal(generation: int, entries: list[JournalEntry]) -> bytes:
    return encode_line(["journal", generation]) + encode_lines(map(to_json, entries))


ENTRIES: list[JournalEntry] = [
    ReplicaCreated(key=KEY, topic="t"),
    ReplicaCreated(key=OTHER, topic="t"),
    FilesBegun(key=KEY),
    ReplicaDeleted(key=OTHER),
    FilesBegun(key=OTHER),
    ReplicaCreated(key=OTHER, topic="t"),
]


@given(st.data())
def test_any_one_flipped_bit_in_each_copy_of_different_lines_is_made_good(data):
    whole = journal(1, ENTRIES)
    lines = whole.splitlines(keepends=True)
    first_line, copy_line = data.draw(st.sampled_from(list(combinations(range(len(lines)), 2))))
    if data.draw(st.booleans()):
        first_line, copy_line = copy_line, first_line

    def flipped(number: int) -> bytes:
        begin = sum(map(len, lines[:number]))
        # The newline belongs to two lines; the next test flips those.
        position = begin + data.draw(st.integers(0, len(lines[number]) - 2))
        damaged = bytearray(whole)
        damaged[position] ^= 1 << data.draw(st.integers(0, 7))
        return bytes(damaged)

    state = merged(flipped(first_line), flipped(copy_line))
    assert (state.replicas, state.deleted) == (fold(ENTRIES).replicas, fold(ENTRIES).deleted)
    assert state.damaged_lines == 0


@given(st.integers(min_value=0), st.integers(0, 7))
def test_any_flipped_bit_in_the_first_copy_is_made_good(position, bit):
    whole = journal(1, ENTRIES)
    damaged = bytearray(whole)
    damaged[position % len(whole)] ^= 1 << bit
    assert merged(bytes(damaged), whole).replicas == fold(ENTRIES).replicas
    assert merged(bytes(damaged), whole).damaged_lines == 0
    assert merged(whole, bytes(damaged)).replicas == fold(ENTRIES).replicas
