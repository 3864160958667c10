"""What the controller publishes (safety rules S17, S18)."""

from regnum.propagation.v1 import propagation_pb2
from regnum_election.publication.delta_log import (
    BASE_VERSION_MAX,
    PART_PARTITIONS,
    Announcer,
    Base,
    Journal,
    Publication,
)
from regnum_election.reign.reign import Reign
from regnum_model.ids import BrokerId, ControllerEpoch, ElectionId, PartitionKey
from regnum_model.nodes import Address
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_testing.election_values import broker, cluster, topic

EPOCH = ControllerEpoch(7)
REIGN = Reign(controller_id=ElectionId(2), epoch=EPOCH, epoch_version=3)


def at(number: int, epoch: int = 7) -> PictureVersion:
    return PictureVersion(ControllerEpoch(epoch), number)


def parts(publication: Publication | None) -> list[propagation_pb2.PublishChangesRequest]:
    assert publication is not None
    return list(Announcer(REIGN, cluster_id="c", client_listener=Address(host="h", port=1)).parts(publication))


def names(messages: list[propagation_pb2.PublishChangesRequest]) -> set[str]:
    return {item.name for message in messages for item in message.topics}


def test_nothing_before_the_first_publication() -> None:
    assert Journal(EPOCH).next_for(NO_PICTURE) is None


def test_a_new_process_gets_everything_and_then_nothing() -> None:
    journal = Journal(EPOCH)
    journal.publish(cluster(1, broker(2, epoch=40), topics=[topic("a", (1, 2)), topic("b", (2,))]))
    (message,) = parts(journal.next_for(NO_PICTURE))
    assert (message.from_version, message.to_version, message.part, message.last) == (0, 1, 0, True)
    assert (message.controller_id, message.controller_epoch, message.controller.id) == (2, 7, 2)
    assert names([message]) == {"a", "b"}
    assert [item.id for item in message.brokers] == [1, 2]
    assert (message.max_broker_epoch, message.cluster_id) == (40, "c")
    assert journal.next_for(at(1)) is None


def test_one_that_lags_gets_all_it_lacks_at_once() -> None:
    journal = Journal(EPOCH)
    picture = cluster(1, topics=[topic("a", (1,), (1,)), topic("b", (1,)), topic("c", (1,))])
    journal.publish(picture)
    journal.publish(picture, [PartitionKey(picture.names["a"], 1)])
    journal.publish(picture, [PartitionKey(picture.names["b"], 0), PartitionKey(picture.names["a"], 1)])
    (message,) = parts(journal.next_for(at(1)))
    assert (message.from_version, message.to_version) == (1, 3)
    assert {item.name: [state.partition for state in item.partitions] for item in message.topics} == {
        "a": [1],
        "b": [0],
    }
    (message,) = parts(journal.next_for(at(2)))
    assert (message.from_version, message.to_version, names([message])) == (2, 3, {"a", "b"})


def test_one_that_is_not_on_the_line_gets_everything() -> None:
    journal = Journal(EPOCH)
    picture = cluster(1, topics=[topic("a", (1,))])
    for _ in range(2_000):
        journal.publish(picture)
    for position in (NO_PICTURE, at(2_001), at(99_999), at(5, epoch=6), at(5, epoch=8)):
        found = journal.next_for(position)
        assert found is not None
        assert (found.from_version, found.to_version, found.base, found.all_brokers) == (0, 2_000, None, True)
    # However long ago, what is on the line is gone on from.
    found = journal.next_for(at(1))
    assert found is not None
    assert found.from_version == 1


def test_a_change_of_a_topic_carries_no_brokers() -> None:
    journal = Journal(EPOCH)
    picture = cluster(*range(500), topics=[topic("a", (1,))])
    journal.publish(picture)
    journal.publish(picture, [PartitionKey(picture.names["a"], 0)])
    (message,) = parts(journal.next_for(at(1)))
    assert (len(message.brokers), len(message.removed_brokers), message.all_brokers) == (0, 0, False)
    assert message.max_broker_epoch == 499
    assert message.ByteSize() < 300


def test_a_change_of_brokers_carries_those_that_came_changed_or_went() -> None:
    journal = Journal(EPOCH)
    before = cluster(*range(500), topics=[topic("a", (1,))])
    journal.publish(before)
    after = before.without_broker(BrokerId(3)).with_broker(broker(500)).with_broker(broker(7, epoch=900))
    journal.publish(after)
    journal.publish(after.without_broker(BrokerId(500)))
    (message,) = parts(journal.next_for(at(1)))
    assert [(item.id, item.epoch) for item in message.brokers] == [(7, 900)]
    assert list(message.removed_brokers) == [3, 500]
    assert (message.all_brokers, message.max_broker_epoch) == (False, 900)
    (message,) = parts(journal.next_for(at(2)))
    assert (list(message.brokers), list(message.removed_brokers)) == ([], [500])


def test_a_reign_goes_on_from_the_one_before() -> None:
    base = Base(epoch=ControllerEpoch(6), version=40)
    journal = Journal(EPOCH, base)
    assert journal.next_for(at(40, epoch=6)) is None
    picture = cluster(1, 2, topics=[topic("a", (1,), (2,)), topic("b", (1,))])
    journal.publish(picture, [PartitionKey(picture.names["a"], 1)])
    journal.publish(picture, [PartitionKey(picture.names["b"], 0)])
    (message,) = parts(journal.next_for(at(40, epoch=6)))
    assert (message.base_epoch, message.base_version, message.from_version, message.to_version) == (6, 40, 40, 42)
    assert {item.name: [state.partition for state in item.partitions] for item in message.topics} == {
        "a": [1],
        "b": [0],
    }
    # The reign before may have had other brokers: the whole list, whoever changed.
    assert ([item.id for item in message.brokers], message.all_brokers) == ([1, 2], True)
    (message,) = parts(journal.next_for(at(41)))
    assert (message.base_epoch, message.base_version, message.from_version, message.to_version) == (0, 0, 41, 42)
    assert (message.controller_epoch, len(message.brokers)) == (7, 0)


def test_who_is_beside_the_base_of_a_reign_gets_everything() -> None:
    journal = Journal(EPOCH, Base(epoch=ControllerEpoch(6), version=40))
    picture = cluster(1, topics=[topic("a", (1,))])
    journal.publish(picture, [PartitionKey(picture.names["a"], 0)])
    for position in (at(41, epoch=6), at(39, epoch=6), at(40, epoch=5), at(40), at(42), NO_PICTURE):
        found = journal.next_for(position)
        assert found is not None, position
        assert (found.from_version, found.to_version, found.base) == (0, 41, None)


def test_a_base_that_cannot_be_or_leaves_no_room_is_none() -> None:
    for base in (
        Base(epoch=EPOCH, version=3),
        Base(epoch=ControllerEpoch(8), version=3),
        Base(epoch=ControllerEpoch(6), version=0),
        Base(epoch=ControllerEpoch(6), version=BASE_VERSION_MAX + 1),
    ):
        journal = Journal(EPOCH, base)
        assert journal.base is None
        assert journal.publish(cluster(1)) == 1


def test_deleted_topics_are_said_to_be_gone() -> None:
    journal = Journal(EPOCH)
    before = cluster(1, topics=[topic("a", (1,)), topic("b", (1,))])
    id = before.names["a"]
    journal.publish(before)
    journal.publish(before, [PartitionKey(id, 0)])
    journal.publish(before.without_topics([id]), (), {id: "a"})
    (message,) = parts(journal.next_for(at(1)))
    assert [(item.name, item.deleted) for item in message.topics] == [("a", True)]
    assert names(parts(journal.next_for(NO_PICTURE))) == {"b"}


def test_large_images_come_in_parts() -> None:
    journal = Journal(EPOCH)
    topics = [topic(f"t{n:03}", *[(1, 2)] * 30) for n in range(100)]
    topics.append(topic("wide", *[(1,)] * (2 * PART_PARTITIONS + 5)))
    journal.publish(cluster(1, 2, topics=topics))
    messages = parts(journal.next_for(NO_PICTURE))
    assert [message.part for message in messages] == list(range(len(messages)))
    assert [message.last for message in messages] == [False] * (len(messages) - 1) + [True]
    assert [len(message.brokers) for message in messages] == [2] + [0] * (len(messages) - 1)
    assert all(sum(len(item.partitions) for item in message.topics) <= PART_PARTITIONS for message in messages)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 3_000 + 2_005


def test_the_first_cause_of_what_is_lacking_travels_along() -> None:
    journal = Journal(EPOCH)
    picture = cluster(1, topics=[topic("a", (1,))])
    journal.publish(picture)
    journal.publish(picture, traceparent="00-first")
    journal.publish(picture, traceparent="00-second")
    (message,) = parts(journal.next_for(at(1)))
    assert message.traceparent == "00-first"
    (message,) = parts(journal.next_for(at(2)))
    assert message.traceparent == "00-second"
