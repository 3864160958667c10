"""Metadata as intervals of changes (safety rules S17, S18)."""

from regnum.broker.v1 import control_pb2
from regnum_election.metadata_image import CHANGES_KEPT, MetadataImage, Payload
from regnum_election.reign import Reign
from regnum_model.ids import ControllerEpoch, ElectionId, PartitionKey
from regnum_model.nodes import Address
from regnum_testing.election_values import broker, cluster, topic


def image() -> MetadataImage:
    reign = Reign(controller_id=ElectionId(2), epoch=ControllerEpoch(7), epoch_version=3)
    return MetadataImage(reign, cluster_id="c", client_listener=Address(host="h", port=1))


def read(payload: Payload | None) -> list[control_pb2.UpdateMetadataRequest]:
    assert payload is not None
    return [control_pb2.UpdateMetadataRequest.FromString(part) for part in payload.parts]


def names(messages: list[control_pb2.UpdateMetadataRequest]) -> set[str]:
    return {item.name for message in messages for item in message.topics}


def test_a_new_receiver_gets_everything_and_then_nothing() -> None:
    metadata = image()
    metadata.publish(cluster(1, broker(2, epoch=40), topics=[topic("a", (1, 2)), topic("b", (2,))]))
    payload = metadata.next_for(0)
    (message,) = read(payload)
    assert (message.from_version, message.to_version, message.parts) == (0, 1, 1)
    assert (message.controller_id, message.controller_epoch, message.controller.id) == (2, 7, 2)
    assert names([message]) == {"a", "b"}
    assert [item.id for item in message.brokers] == [1, 2]
    assert message.max_broker_epoch == 40
    assert message.cluster_id == "c"
    assert metadata.next_for(1) is None


def test_one_that_lags_gets_each_change_it_missed() -> None:
    metadata = image()
    picture = cluster(1, topics=[topic("a", (1,)), topic("b", (1,))])
    metadata.publish(picture)
    metadata.publish(picture, [PartitionKey(picture.names["a"], 0)])
    metadata.publish(picture, [PartitionKey(picture.names["b"], 0)])
    first, second = metadata.next_for(1), metadata.next_for(2)
    assert first is not None
    assert second is not None
    assert (first.from_version, first.to_version, names(read(first))) == (1, 2, {"a"})
    assert (second.from_version, second.to_version, names(read(second))) == (2, 3, {"b"})


def test_one_that_missed_too_much_gets_everything() -> None:
    metadata = image()
    picture = cluster(1, topics=[topic("a", (1,))])
    for _ in range(CHANGES_KEPT + 5):
        metadata.publish(picture)
    payload = metadata.next_for(1)
    assert payload is not None
    assert (payload.from_version, payload.to_version) == (0, CHANGES_KEPT + 5)


def test_one_from_the_future_of_another_reign_gets_everything() -> None:
    metadata = image()
    metadata.publish(cluster(1))
    payload = metadata.next_for(99)
    assert payload is not None
    assert payload.from_version == 0


def test_deleted_topics_are_said_to_be_gone() -> None:
    metadata = image()
    full = cluster(1, topics=[topic("a", (1,))])
    id = full.names["a"]
    metadata.publish(full)
    metadata.publish(full.without_topics([id]), (), {id: "a"})
    (message,) = read(metadata.next_for(1))
    assert [(item.name, item.deleted) for item in message.topics] == [("a", True)]
    assert names(read(metadata.full())) == set()


def test_the_same_bytes_for_all() -> None:
    metadata = image()
    metadata.publish(cluster(1, topics=[topic("a", (1,))]))
    assert metadata.next_for(0) is metadata.next_for(0)


def test_large_pictures_come_in_parts() -> None:
    metadata = image()
    topics = [topic(f"t{n:04}", *[(1, 2, 3)] * 10) for n in range(1_500)]
    metadata.publish(cluster(1, 2, 3, topics=topics))
    messages = read(metadata.next_for(0))
    assert len(messages) > 1
    assert [message.part for message in messages] == list(range(len(messages)))
    assert {message.parts for message in messages} == {len(messages)}
    assert [len(message.brokers) for message in messages] == [3] + [0] * (len(messages) - 1)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 15_000


def test_a_change_of_one_partition_does_not_stick_in_the_full_picture() -> None:
    metadata = image()
    picture = cluster(1, topics=[topic("a", (1,), (1,))])
    metadata.publish(picture)
    metadata.full()
    metadata.publish(picture, [PartitionKey(picture.names["a"], 1)])
    (message,) = read(metadata.full())
    assert [item.partition for item in message.topics[0].partitions] == [0, 1]
