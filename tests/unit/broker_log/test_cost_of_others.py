"""What happens to some replicas costs what they are, however many others the directory has."""

from pathlib import Path

import pytest
from regnum_broker.log.errors import CorruptLogError
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.log_directories import KEY, ReopenedDirectory

OTHERS = 500
NEIGHBOURS = 20
"""Others that may be looked up all the same: those beside which a map puts the new one."""


class CountedKey(PartitionKey):
    """A key that counts how often any of its kind is looked up or copied into a mapping."""

    hashes = 0

    def __hash__(self) -> int:
        CountedKey.hashes += 1
        return super().__hash__()


@pytest.fixture
def others(place: ReopenedDirectory) -> list[PartitionKey]:
    """So many replicas, each with a high watermark."""
    keys: list[PartitionKey] = [CountedKey(TopicId("C" * 22), number) for number in range(OTHERS)]
    place.now.create_replicas([(key, "others") for key in keys])
    place.now.checkpoint_high_watermarks(dict.fromkeys(keys, 1))
    CountedKey.hashes = 0
    return keys


def test_creating_leading_and_deleting_a_replica_looks_at_no_other(
    place: ReopenedDirectory, others: list[PartitionKey]
) -> None:
    place.now.create_replicas([(KEY, "topic")])
    place.now.record_leader_epochs([(KEY, LeaderEpoch(0), 0)])
    place.now.checkpoint_high_watermarks({KEY: 1})
    place.now.delete_replicas([KEY])
    assert CountedKey.hashes <= NEIGHBOURS
    assert set(place.now.replicas) == set(others)


def test_a_replica_that_is_damaged_costs_the_others_nothing(
    place: ReopenedDirectory, others: list[PartitionKey]
) -> None:
    place.replica()
    assert place.now.take_offline(CorruptLogError(KEY, "told so"))
    place.now.delete_replicas([KEY])
    assert CountedKey.hashes <= NEIGHBOURS
    assert set(place.now.replicas) == set(others)


def test_who_iterates_over_the_replicas_sees_those_of_one_moment(place: ReopenedDirectory) -> None:
    place.replica()
    seen = place.now.replicas
    place.now.create_replicas([(PartitionKey(KEY.topic_id, number), "topic") for number in range(1, 50)])
    place.now.delete_replicas([KEY])
    assert set(seen) == {KEY}
    assert len(place.now.replicas) == 49


def test_a_checkpoint_writes_what_changed(place: ReopenedDirectory, others: list[PartitionKey]) -> None:
    file = place.path / "high-watermarks"
    before = file.stat()
    for value in range(2, 12):
        place.now.checkpoint_high_watermarks({others[0]: value})
    after = file.stat()
    assert after.st_ino == before.st_ino
    assert 0 < after.st_size - before.st_size < 10 * 100
    place.kill()
    assert place.open().stored_high_watermark(others[0]) == 11


def test_the_checkpoint_does_not_grow_for_ever(place: ReopenedDirectory) -> None:
    place.replica()
    for value in range(1, 1_000):
        place.now.checkpoint_high_watermarks({KEY: value})
    assert Path(place.path / "high-watermarks").stat().st_size < 8_192
    place.kill()
    assert place.open().stored_high_watermark(KEY) == 999
