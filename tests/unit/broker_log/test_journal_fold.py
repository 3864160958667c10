"""The journal: lines that prove themselves, and the fold over them."""

from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.disk.lines import decode_line, encode_line, encode_lines
from regnum_broker.log.journal.checkpoint import decode_checkpoint, encode_checkpoint
from regnum_broker.log.journal.entries import (
    EpochBegun,
    FilesBegun,
    JournalEntry,
    ReplicaCreated,
    ReplicaDeleted,
    Truncated,
    compacted,
    fold,
    from_json,
    to_json,
)
from regnum_broker.log.journal.file import merged
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId

KEY = PartitionKey(TopicId("A" * 22), 0)
OTHER = PartitionKey(TopicId("B" * 22), 3)


def keys() -> st.SearchStrategy[PartitionKey]:
    return st.sampled_from([KEY, OTHER])


ENTRIES: st.SearchStrategy[JournalEntry] = st.one_of(
    st.builds(ReplicaCreated, key=keys(), topic=st.just("t"), highest_epoch=st.integers(-1, 3).map(LeaderEpoch)),
    st.builds(ReplicaDeleted, key=keys()),
    st.builds(FilesBegun, key=keys()),
    st.builds(EpochBegun, key=keys(), epoch=st.integers(0, 9).map(LeaderEpoch), start_offset=st.integers(0, 50)),
    st.builds(Truncated, key=keys(), offset=st.integers(0, 50)),
)


def test_a_replica_and_its_epochs():
    state = fold(
        [
            ReplicaCreated(key=KEY, topic="t"),
            EpochBegun(key=KEY, epoch=LeaderEpoch(0), start_offset=0),
            FilesBegun(key=KEY),
            EpochBegun(key=KEY, epoch=LeaderEpoch(4), start_offset=20),
            Truncated(key=KEY, offset=10),
        ]
    )
    replica = state.replicas[KEY]
    assert (replica.topic, replica.has_files, replica.epochs.entries) == ("t", True, ((0, 0),))
    assert replica.highest_epoch == 4


def test_a_deleted_replica_is_gone_until_it_is_created_again():
    entries: list[JournalEntry] = [ReplicaCreated(key=KEY, topic="t"), FilesBegun(key=KEY), ReplicaDeleted(key=KEY)]
    assert fold(entries).deleted == {KEY}
    assert fold(entries).replicas == {}
    again = fold([*entries, ReplicaCreated(key=KEY, topic="t")])
    assert again.deleted == set()
    assert not again.replicas[KEY].has_files


def test_entries_about_unknown_replicas_change_nothing():
    assert fold([FilesBegun(key=KEY), EpochBegun(key=KEY, epoch=LeaderEpoch(1), start_offset=0)]).replicas == {}


@given(st.lists(ENTRIES, max_size=30))
def test_the_compacted_journal_has_the_same_replicas(entries):
    state = fold(entries)
    assert fold(compacted(state)).replicas == state.replicas


@given(st.lists(ENTRIES, min_size=1, max_size=10), st.integers(1, 200))
def test_a_torn_tail_is_dropped_without_damage(entries, cut):
    data = encode_lines(map(to_json, entries))
    prefixes = [fold(entries[:count]).replicas for count in range(len(entries) + 1)]
    torn = merged(data[:-cut] if cut < len(data) else b"", None)
    assert torn.replicas in prefixes
    assert torn.damaged_lines == 0
    assert merged(data, None) == fold(entries)


def test_a_bad_line_before_good_ones_is_damage():
    lines = [encode_line(to_json(FilesBegun(key=KEY))) for _ in range(3)]
    bad = bytearray(lines[1])
    bad[12] ^= 1
    assert merged(lines[0] + bytes(bad) + lines[2], None).damaged_lines == 1
    assert merged(lines[0] + lines[2] + bytes(bad), None).damaged_lines == 0


@given(st.binary(max_size=80))
def test_any_bytes_are_a_line_or_not(data):
    assert decode_line(data) is None
    merged(data, data)
    assert decode_checkpoint(data) == {}


def test_json_of_another_shape_is_no_entry():
    for value in (None, 3, [], ["created"], ["epoch", KEY.topic_id, 0, -1, 0], ["unknown", KEY.topic_id, 0]):
        assert from_json(value) is None


def test_a_checkpoint_is_read_as_written_or_not_at_all():
    data = encode_checkpoint({KEY: 5, OTHER: 2**40})
    assert decode_checkpoint(data) == {KEY: 5, OTHER: 2**40}
    assert decode_checkpoint(data.replace(b"5", b"6", 1)) == {}
    assert decode_checkpoint(encode_line([["x", 0, -1]])) == {}
