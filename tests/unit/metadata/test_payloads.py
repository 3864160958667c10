"""Payloads: made once, in parts, from one snapshot (safety rule S18)."""

from dataclasses import replace

from regnum.broker.v1 import control_pb2
from regnum_metadata.payload import PART_BYTES, Payload, PayloadBuilder, question
from regnum_testing.metadata_values import broker, change, done, gone, image, topic


def read(payload: Payload) -> list[control_pb2.UpdateMetadataRequest]:
    return [control_pb2.UpdateMetadataRequest.FromString(part) for part in payload.parts]


def names(messages: list[control_pb2.UpdateMetadataRequest]) -> set[str]:
    return {item.name for message in messages for item in message.topics}


def test_a_change_carries_only_what_changed_and_all_brokers() -> None:
    first = change(0, 3, topic("a", 1, 2), topic("b", 2), brokers=[broker(1), broker(2, epoch=40)], epoch=5)
    second = change(3, 4, topic("a", 9, first=1), gone("b"), brokers=[broker(1), broker(2, epoch=40)], epoch=5)
    (message,) = read(done(PayloadBuilder().change(image(first, second), second)))
    assert (message.controller_id, message.controller_epoch) == (7, 5)
    assert (message.from_version, message.to_version, message.part, message.parts) == (3, 4, 0, 1)
    assert (message.max_broker_epoch, message.cluster_id) == (40, "cluster")
    assert [item.id for item in message.brokers] == [1, 2]
    assert [(item.name, item.deleted) for item in message.topics] == [("a", False), ("b", True)]
    assert [state.partition for state in message.topics[0].partitions] == [1]


def test_a_full_payload_carries_everything() -> None:
    whole = image(change(0, 1, topic("a", 1, 2)), change(1, 2, topic("b", 2)), change(2, 3, topic("a", 5, first=1)))
    (message,) = read(done(PayloadBuilder().full(whole)))
    assert (message.from_version, message.to_version) == (0, 3)
    assert {item.name: [s.leader for s in item.partitions] for item in message.topics} == {"a": [1, 5], "b": [2]}


def test_large_pictures_come_in_parts_of_about_the_right_size() -> None:
    whole = image(change(0, 1, *(topic(f"t{n:05}", *[1] * 10) for n in range(15_000)), brokers=[broker(1)]))
    payload = done(PayloadBuilder().full(whole))
    messages = read(payload)
    assert len(messages) > 2
    assert max(len(part) for part in payload.parts) < PART_BYTES * 1.1
    assert [message.part for message in messages] == list(range(len(messages)))
    assert {message.parts for message in messages} == {len(messages)}
    assert [len(message.brokers) for message in messages] == [1] + [0] * (len(messages) - 1)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 150_000


def test_a_topic_too_large_for_a_part_is_split_and_whole_again_at_the_receiver() -> None:
    whole = image(change(0, 1, topic("wide", *range(100_000))))
    messages = read(done(PayloadBuilder().full(whole)))
    assert len(messages) > 1
    assert names(messages) == {"wide"}
    assert [state.partition for m in messages for item in m.topics for state in item.partitions] == list(range(100_000))


def test_a_topic_without_partitions_is_named() -> None:
    whole = image(change(0, 1, topic("bare")))
    assert names(read(done(PayloadBuilder().full(whole)))) == {"bare"}


def test_kept_bytes_of_topics_never_outlive_their_state() -> None:
    builder = PayloadBuilder()
    first = image(change(0, 1, topic("a", 1), topic("b", 1)))
    done(builder.full(first))
    second = done(first.with_change(change(1, 2, topic("a", 2), gone("b"))))
    (message,) = read(done(builder.full(second)))
    assert {item.name: [s.leader for s in item.partitions] for item in message.topics} == {"a": [2]}


def test_each_payload_counts_once() -> None:
    builder = PayloadBuilder()
    whole = image(change(0, 1, topic("a", 1)))
    done(builder.full(whole))
    done(builder.change(whole, change(0, 1, topic("a", 1))))
    assert builder.serialisations == 2


def test_the_cause_of_a_change_travels_in_its_first_part_only() -> None:
    caused = replace(change(0, 1, *(topic(f"t{n:05}", *[1] * 10) for n in range(10_000))), traceparent="00-a-b-01")
    messages = read(done(PayloadBuilder().change(image(caused), caused)))
    assert [message.traceparent for message in messages] == ["00-a-b-01"] + [""] * (len(messages) - 1)
    assert len(messages) > 1


def test_a_question_says_nothing_and_applies_to_nobody() -> None:
    whole = image(change(0, 6, topic("a", 1), brokers=[broker(3)], epoch=2))
    (message,) = read(question(whole))
    assert (message.controller_epoch, message.from_version, message.to_version, message.parts) == (2, 6, 6, 1)
    assert message.max_broker_epoch == 3
    assert names([message]) == set()


def test_a_large_payload_gives_the_loop_its_turns() -> None:
    whole = image(change(0, 1, *(topic(f"t{n}", 1) for n in range(10_000))))
    assert sum(1 for _ in PayloadBuilder().full(whole)) >= 5
    wide = change(0, 1, topic("wide", *[1] * 10_000))
    assert sum(1 for _ in PayloadBuilder().full(image(wide))) >= 4
    assert sum(1 for _ in PayloadBuilder().change(image(wide), replace(wide, from_version=1))) >= 4
