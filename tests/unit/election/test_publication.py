"""What the controller publishes (safety rules S17, S18)."""

from regnum.metadata.v1 import propagation_pb2
from regnum_election.publication import CHANGES_KEPT, PART_PARTITIONS, Announcer, Journal, Publication
from regnum_election.reign import Reign
from regnum_model.ids import ControllerEpoch, ElectionId, PartitionKey
from regnum_model.nodes import Address
from regnum_testing.election_values import broker, cluster, topic

REIGN = Reign(controller_id=ElectionId(2), epoch=ControllerEpoch(7), epoch_version=3)


def parts(publication: Publication | None) -> list[propagation_pb2.PublishChangesRequest]:
    assert publication is not None
    return list(Announcer(REIGN, cluster_id="c", client_listener=Address(host="h", port=1)).parts(publication))


def names(messages: list[propagation_pb2.PublishChangesRequest]) -> set[str]:
    return {item.name for message in messages for item in message.topics}


def test_nothing_before_the_first_publication() -> None:
    assert Journal().next_for(0) is None


def test_a_new_process_gets_everything_and_then_nothing() -> None:
    journal = Journal()
    journal.publish(cluster(1, broker(2, epoch=40), topics=[topic("a", (1, 2)), topic("b", (2,))]))
    (message,) = parts(journal.next_for(0))
    assert (message.from_version, message.to_version, message.part, message.last) == (0, 1, 0, True)
    assert (message.controller_id, message.controller_epoch, message.controller.id) == (2, 7, 2)
    assert names([message]) == {"a", "b"}
    assert [item.id for item in message.brokers] == [1, 2]
    assert (message.max_broker_epoch, message.cluster_id) == (40, "c")
    assert journal.next_for(1) is None


def test_one_that_lags_gets_all_it_lacks_at_once() -> None:
    journal = Journal()
    picture = cluster(1, topics=[topic("a", (1,), (1,)), topic("b", (1,)), topic("c", (1,))])
    journal.publish(picture)
    journal.publish(picture, [PartitionKey(picture.names["a"], 1)])
    journal.publish(picture, [PartitionKey(picture.names["b"], 0), PartitionKey(picture.names["a"], 1)])
    (message,) = parts(journal.next_for(1))
    assert (message.from_version, message.to_version) == (1, 3)
    assert {item.name: [state.partition for state in item.partitions] for item in message.topics} == {
        "a": [1],
        "b": [0],
    }
    (message,) = parts(journal.next_for(2))
    assert (message.from_version, message.to_version, names([message])) == (2, 3, {"a", "b"})


def test_one_that_missed_too_much_or_comes_from_the_future_gets_everything() -> None:
    journal = Journal()
    picture = cluster(1, topics=[topic("a", (1,))])
    for _ in range(CHANGES_KEPT + 5):
        journal.publish(picture)
    for version in (1, 4, CHANGES_KEPT + 6, 99_999):
        found = journal.next_for(version)
        assert found is not None
        assert (found.from_version, found.to_version) == (0, CHANGES_KEPT + 5)
    found = journal.next_for(5)
    assert found is not None
    assert found.from_version == 5


def test_deleted_topics_are_said_to_be_gone() -> None:
    journal = Journal()
    before = cluster(1, topics=[topic("a", (1,)), topic("b", (1,))])
    id = before.names["a"]
    journal.publish(before)
    journal.publish(before, [PartitionKey(id, 0)])
    journal.publish(before.without_topics([id]), (), {id: "a"})
    (message,) = parts(journal.next_for(1))
    assert [(item.name, item.deleted) for item in message.topics] == [("a", True)]
    assert names(parts(journal.next_for(0))) == {"b"}


def test_large_images_come_in_parts() -> None:
    journal = Journal()
    topics = [topic(f"t{n:03}", *[(1, 2)] * 30) for n in range(100)]
    topics.append(topic("wide", *[(1,)] * (2 * PART_PARTITIONS + 5)))
    journal.publish(cluster(1, 2, topics=topics))
    messages = parts(journal.next_for(0))
    assert [message.part for message in messages] == list(range(len(messages)))
    assert [message.last for message in messages] == [False] * (len(messages) - 1) + [True]
    assert [len(message.brokers) for message in messages] == [2] + [0] * (len(messages) - 1)
    assert all(sum(len(item.partitions) for item in message.topics) <= PART_PARTITIONS for message in messages)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 3_000 + 2_005


def test_the_first_cause_of_what_is_lacking_travels_along() -> None:
    journal = Journal()
    picture = cluster(1, topics=[topic("a", (1,))])
    journal.publish(picture)
    journal.publish(picture, traceparent="00-first")
    journal.publish(picture, traceparent="00-second")
    (message,) = parts(journal.next_for(1))
    assert message.traceparent == "00-first"
    (message,) = parts(journal.next_for(2))
    assert message.traceparent == "00-second"
