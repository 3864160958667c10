"""A log directory: lock, identity, journal writes, failure of the disk."""

import errno
import json
import os
from pathlib import Path

import pytest
from regnum_broker.log.errors import (
    CorruptLogError,
    DirectoryFailedError,
    DirectoryInUseError,
    DirectoryUnusableError,
    MalformedDirectoryError,
    ResourceExhaustedError,
    UnknownReplicaError,
    WrongBrokerError,
    WrongClusterError,
)
from regnum_broker.log.replica.parts import Appended
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead


def key(number: int) -> PartitionKey:
    return PartitionKey(TopicId("AAAAAAAAAAAAAAAAAAAAAA"), number)


def test_a_directory_in_use_names_the_process(place):
    with pytest.raises(DirectoryInUseError, match=f"pid {os.getpid()}"):
        ReopenedDirectory(place.path).open()
    assert lead(place.replica(), b"still mine") == 0


def test_a_closed_directory_is_free(place):
    former = place.now
    former.close()
    former.close()
    place.open()
    assert place.now is not former


def test_another_brokers_directory_is_refused(place):
    place.kill()
    with pytest.raises(WrongBrokerError, match="belongs to broker 1, this is broker 2"):
        place.open(broker_id=2)
    place.open()


def test_a_directory_is_bound_to_one_cluster(place):
    assert place.now.cluster_id is None
    place.now.proof.bind_cluster("c1")
    place.now.proof.bind_cluster("c1")
    place.kill()
    place.open()
    assert place.now.cluster_id == "c1"
    with pytest.raises(WrongClusterError, match="cluster c1, this is cluster c2"):
        place.now.proof.bind_cluster("c2")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":2}', b"\xff", b'{"version":1,"broker_id":"1"}'])
def test_an_unreadable_format_file_is_refused(place, content):
    place.kill()
    (place.path / "meta.json").write_bytes(content)
    with pytest.raises(MalformedDirectoryError, match=r"meta\.json"):
        place.open()


def test_replicas_without_a_format_file_are_not_formatted_over(place):
    place.replica()
    place.kill()
    (place.path / "meta.json").unlink()
    with pytest.raises(MalformedDirectoryError, match=r"no meta\.json"):
        place.open()


def test_a_path_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DirectoryUnusableError, match="cannot be used"):
        ReopenedDirectory(tmp_path / "file").open()


def test_many_replicas_take_one_write_for_each_copy_of_the_journal_and_one_sync(place, disk):
    writes, syncs = disk.writes, disk.syncs
    place.now.create_replicas([(key(number), "t") for number in range(500)])
    assert (disk.writes, disk.syncs) == (writes + 2, syncs + 1)
    place.now.record_leader_epochs([(key(number), LeaderEpoch(1), 0) for number in range(500)])
    assert (disk.writes, disk.syncs) == (writes + 4, syncs + 2)
    place.now.record_leader_epochs([(key(number), LeaderEpoch(1), 0) for number in range(500)])
    place.now.create_replicas([(key(number), "t") for number in range(500)])
    assert (disk.writes, disk.syncs) == (writes + 4, syncs + 2)
    place.kill()
    assert len(place.open().replicas) == 500
    assert {replica.epochs.entries for replica in place.now.replicas.values()} == {((1, 0),)}
    assert list((place.path / "replicas").iterdir()) == []


def test_more_replicas_than_open_files(place):
    place.open_files_max = 4
    place.kill()
    place.open()
    for round_number in range(3):
        for number in range(20):
            assert lead(place.replica(key(number)), b"v") == round_number
    for number in range(20):
        assert len(place.replica(key(number)).read(0, bytes_max=1000)) > 100
    open_files = [Path(f"/proc/self/fd/{fd}").resolve() for fd in range(3, 200) if Path(f"/proc/self/fd/{fd}").exists()]
    assert sum(place.path in file.parents and file.suffix == ".log" for file in open_files) <= 4


def test_an_epoch_of_an_unknown_replica_records_nothing(place):
    place.replica()
    with pytest.raises(UnknownReplicaError):
        place.now.record_leader_epochs([(KEY, LeaderEpoch(1), 0), (key(9), LeaderEpoch(1), 0)])
    assert place.now.replicas[KEY].epochs.latest == -1


@pytest.mark.parametrize("topic_id", ["../x", "a/b", "", "a\0b", "ü"])
def test_a_topic_id_cannot_leave_the_directory(place, topic_id):
    with pytest.raises(ValueError, match="not a topic id"):
        place.now.create_replicas([(PartitionKey(TopicId(topic_id), 0), "t")])


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failed_write_is_final(place, disk, code):
    replica = place.replica()
    lead(replica, b"a")
    disk.fail_writes = code
    with pytest.raises(DirectoryFailedError, match="the broker must stop"):
        lead(replica, b"b")
    assert place.now.failed
    assert replica.log_end_offset == 1
    disk.fail_writes = None
    with pytest.raises(DirectoryFailedError):
        lead(replica, b"c")
    with pytest.raises(DirectoryFailedError):
        place.now.create_replicas([(key(7), "t")])
    with pytest.raises(DirectoryFailedError):
        place.now.checkpoint_high_watermarks({KEY: 1})


def test_a_failed_sync_is_final_and_the_log_is_not_taken_for_complete(place, disk):
    """The second fsync after a failed one succeeds although the data is gone (defect D32): it must not be tried."""
    replica = place.replica()
    lead(replica, b"a")
    log_id = place.log_id
    disk.fail_syncs = errno.EIO
    with pytest.raises(DirectoryFailedError):
        replica.flush()
    disk.fail_syncs = None
    syncs = disk.syncs
    with pytest.raises(DirectoryFailedError):
        replica.flush()
    assert disk.syncs == syncs
    place.now.close()
    assert not (place.path / "clean-stop").exists()
    place.open()
    assert place.log_id != log_id


def test_a_failed_journal_sync_creates_nothing(place, disk):
    disk.fail_syncs = errno.EIO
    with pytest.raises(DirectoryFailedError):
        place.now.create_replicas([(KEY, "t")])
    assert KEY not in place.now.replicas


def test_a_sector_that_cannot_be_read_takes_one_replica_offline(place, disk):
    replica, other = place.replica(), place.replica(key(7))
    lead(replica, b"a")
    lead(other, b"b")
    found: list[CorruptLogError] = []
    place.now.on_damage(found.append)
    disk.fail_reads = errno.EIO
    with pytest.raises(CorruptLogError, match="cannot be read"):
        replica.read(0, bytes_max=100)
    disk.fail_reads = None
    with pytest.raises(CorruptLogError):
        replica.read(0, bytes_max=100)
    with pytest.raises(CorruptLogError):
        lead(replica, b"more")
    assert [error.key for error in found] == [KEY]
    assert place.now.take_offline(found[0])
    assert not place.now.take_offline(found[0])
    assert list(place.now.offline) == [KEY]
    assert not place.now.failed
    assert lead(other, b"on") == 1
    log_id = place.log_id
    place.now.close()
    place.open()
    assert place.log_id == log_id


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_read_without_a_descriptor_is_refused_and_may_be_repeated(place, disk, code):
    replica = place.replica()
    lead(replica, b"a")
    disk.fail_reads = code
    with pytest.raises(ResourceExhaustedError):
        replica.read(0, bytes_max=100)
    disk.fail_reads = None
    assert len(replica.read(0, bytes_max=100)) > 0


def test_the_marker_is_gone_before_the_first_append(place):
    lead(place.replica(), b"a")
    replica = place.stop_and_open()
    assert (place.path / "clean-stop").exists()
    replica.read(0, bytes_max=100)
    assert (place.path / "clean-stop").exists()
    lead(replica, b"b")
    assert not (place.path / "clean-stop").exists()


def test_the_format_file_is_readable_by_people(place):
    content = json.loads((place.path / "meta.json").read_bytes())
    assert content["broker_id"] == 1
    assert (content["directory_id"], content["log_id"]) == (place.now.directory_id, place.now.log_id)


def test_flush_syncs_only_what_was_written(place, disk):
    replica = place.replica()
    lead(replica, b"a")
    replica.flush()
    syncs = disk.syncs
    replica.flush()
    assert disk.syncs == syncs
    lead(replica, b"b")
    replica.flush()
    assert disk.syncs == syncs + 1


def test_replicas_created_together_know_nothing_of_one_another(place):
    """The same producer begins with sequence 0 in each partition: that repeats nothing."""
    place.now.create_replicas([(key(7), "t"), (key(8), "t")])
    produced = [batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0) for _ in range(2)]
    outcomes = [
        place.now.replicas[key(number)].append_as_leader([batch], leader_epoch=LeaderEpoch(0))
        for number, batch in zip((7, 8), produced, strict=True)
    ]
    assert outcomes == [[Appended(base_offset=0, last_offset=0)]] * 2
