"""The image: what applies, what does not, and what it becomes (safety rule S17)."""

import pytest
from regnum.types.v1 import types_pb2
from regnum_metadata.image import PARTITIONS_PER_STEP, Image, Verdict
from regnum_testing.metadata_values import broker, change, done, gone, image, leaders, topic


@pytest.mark.parametrize(
    ("from_version", "to_version", "epoch", "verdict"),
    [
        (4, 5, 3, Verdict.APPLIES),
        (2, 5, 3, Verdict.APPLIES),
        (0, 5, 3, Verdict.APPLIES),
        (0, 1, 4, Verdict.APPLIES),
        (3, 4, 3, Verdict.KNOWN),
        (0, 4, 3, Verdict.KNOWN),
        (5, 6, 3, Verdict.GAP),
        (1, 2, 4, Verdict.GAP),
        (4, 5, 2, Verdict.STALE),
        (0, 9, 2, Verdict.STALE),
    ],
)
def test_a_change_applies_only_where_it_joins_on(
    from_version: int, to_version: int, epoch: int, verdict: Verdict
) -> None:
    known = image(change(0, 4, epoch=3))
    assert known.judge(change(from_version, to_version, epoch=epoch)) is verdict


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ((3, 4), Verdict.GAP),
        ((3, 5), Verdict.APPLIES),
        ((3, 7), Verdict.APPLIES),
        ((3, 8), Verdict.GAP),
        ((2, 6), Verdict.GAP),
        ((5, 9), Verdict.GAP),
        ((5, 10), Verdict.KNOWN),
        ((6, 1), Verdict.STALE),
    ],
)
def test_a_change_with_a_base_applies_only_between_its_beginning_and_its_base(
    own: tuple[int, int], verdict: Verdict
) -> None:
    known = image(change(0, own[1], epoch=own[0]))
    assert known.judge(change(5, 10, epoch=5, base=(3, 7))) is verdict


def test_brokers_are_changed_as_topics_are() -> None:
    known = image(change(0, 1, brokers=[broker(1), broker(2), broker(3)]))
    after = done(known.with_change(change(1, 2, brokers=[broker(2, epoch=9), broker(4)], gone=[3, 8])))
    assert [(item.id, item.epoch) for item in after.head.brokers] == [(1, 1), (2, 9), (4, 4)]
    same = done(after.with_change(change(2, 3, topic("a", 1))))
    assert same.head.brokers is after.head.brokers
    whole = done(same.with_change(change(3, 5, brokers=[broker(4)], epoch=2, base=(1, 3))))
    assert [item.id for item in whole.head.brokers] == [4]


def test_nothing_but_everything_applies_to_nothing() -> None:
    assert Image().judge(change(1, 2)) is Verdict.GAP
    assert Image().judge(change(0, 2)) is Verdict.APPLIES


def test_absolute_values_replace_what_they_name_and_nothing_else() -> None:
    before = image(change(0, 1, topic("a", 1, 2), topic("b", 3), brokers=[broker(1)]))
    after = done(before.with_change(change(1, 2, topic("a", 9, first=1), brokers=[broker(2)])))
    assert leaders(after) == {"a": {0: 1, 1: 9}, "b": {0: 3}}
    assert [item.id for item in after.head.brokers] == [1, 2]
    assert leaders(before) == {"a": {0: 1, 1: 2}, "b": {0: 3}}
    assert after.topics["b"] is before.topics["b"]


def test_a_full_image_forgets_what_it_does_not_name() -> None:
    known = image(change(0, 1, topic("a", 1)), change(0, 2, topic("b", 2)))
    assert leaders(known) == {"b": {0: 2}}


def test_a_deletion_that_names_no_life_is_of_the_present_one() -> None:
    """Brokers take it the same way: both know the same topics."""
    known = image(change(0, 1, topic("a", 1), topic("b", 2)))
    after = done(known.with_change(change(1, 2, types_pb2.TopicState(name="a", deleted=True))))
    assert leaders(after) == {"b": {0: 2}}


def test_a_deletion_of_an_earlier_life_leaves_the_present_one() -> None:
    known = image(change(0, 1, topic("a", 1, id="new")))
    assert leaders(done(known.with_change(change(1, 2, gone("a", id="old"))))) == {"a": {0: 1}}
    assert leaders(done(known.with_change(change(1, 2, gone("a", id="new"))))) == {}
    assert leaders(done(known.with_change(change(1, 2, gone("never", id="old"))))) == {"a": {0: 1}}


def test_a_new_life_of_a_name_starts_without_the_old_partitions() -> None:
    known = image(change(0, 1, topic("a", 1, 1, 1, id="old")), change(1, 2, topic("a", 2, id="new")))
    assert leaders(known) == {"a": {0: 2}}


def test_a_large_change_gives_the_loop_its_turns() -> None:
    many = Image().with_change(change(0, 1, *(topic(f"t{n}", 1) for n in range(5 * PARTITIONS_PER_STEP // 2))))
    assert sum(1 for _ in many) == 5
    wide = Image().with_change(change(0, 1, *(topic(f"t{n}", *[1] * PARTITIONS_PER_STEP) for n in range(5))))
    assert sum(1 for _ in wide) == 5


def test_a_removed_partition_is_gone_and_its_topic_stays() -> None:
    before = image(change(0, 1, topic("a", 1, 2, 3)))
    removed = types_pb2.PartitionState(partition=2, leader=-1, removed=True)
    state = types_pb2.TopicState(name="a", topic_id="id-a", partitions=[removed])
    after = done(before.with_change(change(1, 2, state)))
    assert leaders(after) == {"a": {0: 1, 1: 2}}
    # Also for whoever never heard of it.
    again = done(after.with_change(change(2, 3, state)))
    assert leaders(again) == {"a": {0: 1, 1: 2}}
