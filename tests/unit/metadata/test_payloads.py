"""Payloads: made once, in parts, from one snapshot (safety rule S18)."""

from dataclasses import replace

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_metadata.differences import compared, named_by
from regnum_metadata.image import Change, Image
from regnum_metadata.payload import PART_BYTES, Payload, PayloadBuilder, question
from regnum_testing.metadata_values import broker, change, done, gone, image, topic


def read(payload: Payload) -> list[control_pb2.UpdateMetadataRequest]:
    return [control_pb2.UpdateMetadataRequest.FromString(part) for part in payload.parts]


def names(messages: list[control_pb2.UpdateMetadataRequest]) -> set[str]:
    return {item.name for message in messages for item in message.topics}


def interval(builder: PayloadBuilder, before: Image, one: Change) -> Payload:
    """What takes a broker from the image before to the one after a change."""
    after = done(before.with_change(one))
    last = before.version if one.base is None else one.base.number
    return done(builder.interval(after, done(named_by(one, before)), before.position, last))


def test_a_change_carries_only_what_changed() -> None:
    first = change(0, 3, topic("a", 1, 2), topic("b", 2), brokers=[broker(1), broker(2, epoch=40)], epoch=5)
    second = change(3, 4, topic("a", 9, first=1), gone("b"), epoch=5, newest=40)
    (message,) = read(interval(PayloadBuilder(), image(first), second))
    assert (message.controller_id, message.controller_epoch) == (7, 5)
    assert (message.from_version, message.to_version, message.parts, message.base_epoch) == (3, 4, 1, 0)
    assert (message.max_broker_epoch, message.cluster_id) == (40, "cluster")
    assert (len(message.brokers), len(message.removed_brokers), message.all_brokers) == (0, 0, False)
    assert [(item.name, item.deleted) for item in message.topics] == [("b", True), ("a", False)]
    assert [state.partition for state in message.topics[1].partitions] == [1]


def test_a_change_of_one_partition_is_small_whatever_the_number_of_brokers() -> None:
    """It was 60 KB at 500 brokers, and went to each of them."""
    first = change(0, 1, topic("a", 1, 2), brokers=[broker(id) for id in range(500)])
    (message,) = interval(PayloadBuilder(), image(first), change(1, 2, topic("a", 9, first=1), newest=499)).parts
    assert len(message) < 200


def test_a_change_of_brokers_carries_those_that_came_changed_or_went() -> None:
    first = change(0, 1, brokers=[broker(1), broker(2), broker(3)])
    second = change(1, 2, brokers=[broker(2, epoch=9), broker(4)], gone=[3])
    (message,) = read(interval(PayloadBuilder(), image(first), second))
    assert [(item.id, item.epoch) for item in message.brokers] == [(2, 9), (4, 4)]
    assert (list(message.removed_brokers), message.all_brokers) == ([3], False)


def test_what_joins_on_to_an_earlier_reign_names_it_and_all_brokers() -> None:
    first = change(0, 3, topic("a", 1), topic("b", 1), brokers=[broker(1), broker(2)], epoch=5)
    second = change(2, 6, topic("a", 2), brokers=[broker(1), broker(3)], epoch=6, base=(5, 4))
    (message,) = read(interval(PayloadBuilder(), image(first), second))
    assert (message.controller_epoch, message.base_epoch, message.base_version) == (6, 5, 4)
    assert (message.from_version, message.to_version) == (3, 6)
    assert ([item.id for item in message.brokers], message.all_brokers) == ([1, 3], True)
    assert names([message]) == {"a"}


def test_a_full_payload_carries_everything() -> None:
    whole = image(
        change(0, 1, topic("a", 1, 2), brokers=[broker(1)]),
        change(1, 2, topic("b", 2)),
        change(2, 3, topic("a", 5, first=1)),
    )
    head, body = read(done(PayloadBuilder().full(whole)))
    assert (head.from_version, head.to_version, head.parts, head.all_brokers) == (0, 3, 2, True)
    assert [item.id for item in head.brokers] == [1]
    assert {item.name: [s.leader for s in item.partitions] for item in body.topics} == {"a": [1, 5], "b": [2]}


def test_large_pictures_come_in_parts_of_about_the_right_size() -> None:
    whole = image(change(0, 1, *(topic(f"t{n:05}", *[1] * 10) for n in range(15_000)), brokers=[broker(1)]))
    payload = done(PayloadBuilder().full(whole))
    messages = read(payload)
    assert len(messages) > 2
    assert max(len(part) for part in payload.parts) < PART_BYTES * 1.1
    assert [message.parts for message in messages] == [len(messages)] + [0] * (len(messages) - 1)
    assert [len(message.brokers) for message in messages] == [1] + [0] * (len(messages) - 1)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 150_000


def test_full_pictures_share_the_bytes_of_what_did_not_change() -> None:
    """Whoever still reads an old one holds little more than whoever reads the newest."""
    builder = PayloadBuilder()
    before = image(change(0, 1, *(topic(f"t{n:05}", *[1] * 10) for n in range(15_000)), brokers=[broker(1)]))
    first = done(builder.full(before))
    after = done(before.with_change(change(1, 2, topic("t00077", 5), gone("t14999"), topic("new", 1))))
    second = done(builder.full(after))
    shared = {id(part) for part in first.parts} & {id(part) for part in second.parts}
    assert len(shared) >= len(first.parts) - 4
    messages = read(second)
    assert sum(len(item.partitions) for message in messages for item in message.topics) == 149_991
    leaders_ = {item.name: item.partitions[0].leader for message in messages for item in message.topics}
    assert (leaders_["t00077"], leaders_["new"], "t14999" in leaders_) == (5, 1, False)


def test_a_topic_too_large_for_a_part_is_split_and_whole_again_at_the_receiver() -> None:
    whole = image(change(0, 1, topic("wide", *range(100_000))))
    messages = read(done(PayloadBuilder().full(whole)))
    assert len(messages) > 2
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
    _, body = read(done(builder.full(second)))
    assert {item.name: [s.leader for s in item.partitions] for item in body.topics} == {"a": [2]}


def test_each_payload_counts_once() -> None:
    builder = PayloadBuilder()
    whole = image(change(0, 1, topic("a", 1)))
    done(builder.full(whole))
    interval(builder, whole, change(1, 2, topic("a", 1)))
    assert builder.serialisations == 2


def test_the_cause_of_a_change_travels_in_its_first_part_only() -> None:
    caused = replace(change(1, 2, *(topic(f"t{n:05}", *[1] * 10) for n in range(10_000))), traceparent="00-a-b-01")
    messages = read(interval(PayloadBuilder(), image(change(0, 1)), caused))
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
    news = done(named_by(wide, Image()))
    after = image(wide)
    assert sum(1 for _ in PayloadBuilder().interval(after, news, after.position, 1)) >= 4


def test_a_partition_that_was_removed_is_named_as_such_and_left_out_of_full_pictures() -> None:
    first = change(0, 3, topic("a", 1, 2), brokers=[broker(1)], epoch=5)
    removed = types_pb2.PartitionState(partition=1, leader=-1, removed=True)
    second = change(3, 4, types_pb2.TopicState(name="a", topic_id="id-a", partitions=[removed]), epoch=5, newest=1)
    (message,) = read(interval(PayloadBuilder(), image(first), second))
    assert [(state.partition, state.removed) for state in message.topics[0].partitions] == [(1, True)]
    _, part = read(done(PayloadBuilder().full(image(first, second))))
    assert [(state.partition, state.removed) for state in part.topics[0].partitions] == [(0, False)]


def test_a_full_image_of_the_next_reign_names_what_was_removed_meanwhile() -> None:
    before = image(change(0, 3, topic("a", 1, 2), topic("b", 1), epoch=5))
    after = image(change(0, 1, topic("a", 1), topic("b", 1), epoch=6))
    found = done(compared(before, after, ""))
    assert {id: item.partitions for id, item in found.news.topics.items()} == {"id-a": {1}}
