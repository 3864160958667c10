"""What a log directory remembers of replicas that it deleted in this run."""

from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.journal.deleted import UNKNOWN, DeletedReplicas
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import KEY, ReopenedDirectory


def test_the_highest_epoch_of_each_in_this_run(place: ReopenedDirectory) -> None:
    deleted = place.now.deleted
    place.replica().append_as_leader([batch_of(b"a")], leader_epoch=LeaderEpoch(4))
    assert deleted.epoch_of(KEY) is None
    place.now.delete_replicas([KEY])
    assert deleted.epoch_of(KEY) == 4
    # It is made again, by following, and goes before it has heard of any epoch.
    place.now.create_replicas([(KEY, "t")])
    place.now.delete_replicas([KEY])
    assert deleted.epoch_of(KEY) == 4
    place.kill()
    assert place.open().deleted.epoch_of(KEY) is None


def test_of_one_that_could_not_be_read_no_epoch_is_surely_higher(place: ReopenedDirectory) -> None:
    place.replica()
    place.now.take_offline(CorruptLogError(KEY, "a test says so"))
    place.now.delete_replicas([KEY])
    assert place.now.deleted.epoch_of(KEY) == UNKNOWN


def test_the_oldest_are_forgotten() -> None:
    deleted = DeletedReplicas(room=2)
    first, second, third = (PartitionKey(TopicId("T" * 22), number) for number in range(3))
    deleted.note([first, second], {})
    deleted.note([first], {})
    deleted.note([third], {})
    assert [deleted.epoch_of(key) for key in (first, second, third)] == [UNKNOWN, None, UNKNOWN]
