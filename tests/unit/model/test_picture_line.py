"""Which names changed between two versions (safety rule S17)."""

import random

import pytest
from regnum_model.ids import BrokerId, ControllerEpoch, TopicId
from regnum_model.picture_line import (
    CHANGES_KEPT,
    NAMES_KEPT,
    NAMES_MAX,
    News,
    PictureLine,
    PictureVersion,
    TopicNews,
)


def at(number: int, epoch: int = 4) -> PictureVersion:
    return PictureVersion(ControllerEpoch(epoch), number)


def news(*numbers: int, topic: str = "t") -> News:
    return News(topics={TopicId(topic): TopicNews(topic, frozenset(numbers))})


def changed(found: News | None) -> set[int]:
    assert found is not None
    return {number for item in found.topics.values() for number in item.partitions}


def test_what_is_lacking_is_all_that_came_after() -> None:
    line = PictureLine(at(7))
    line.extend(at(8), news(1))
    line.extend(at(12), news(2, 3))
    assert changed(line.since(at(7))) == {1, 2, 3}
    assert changed(line.since(at(8))) == {2, 3}
    # In between: what another one was told in smaller steps is in the larger one.
    assert changed(line.since(at(10))) == {2, 3}
    assert changed(line.since(at(12))) == set()


@pytest.mark.parametrize("version", [at(6), at(13), at(7, epoch=3), at(7, epoch=5), at(0, epoch=0)])
def test_what_is_not_on_the_line_lacks_everything(version: PictureVersion) -> None:
    line = PictureLine(at(7))
    line.extend(at(12), news(1))
    assert line.since(version) is None


def test_a_reign_goes_on_from_the_last_version_that_it_knew_of() -> None:
    line = PictureLine(at(7))
    line.extend(at(8), news(1))
    line.extend(at(11, epoch=6), news(2), base=9)
    assert changed(line.since(at(7))) == {1, 2}
    # Up to the base, also where the line itself had not come so far; and from there, whoever was told in smaller steps.
    assert changed(line.since(at(9))) == {2}
    assert changed(line.since(at(10, epoch=6))) == {2}
    assert line.since(at(10)) is None
    assert line.since(at(9, epoch=6)) is None
    assert (line.last_of(ControllerEpoch(4)), line.last_of(ControllerEpoch(6))) == (9, 11)


def test_a_difference_between_two_pictures_is_true_of_these_two_only() -> None:
    line = PictureLine(at(7))
    line.extend(at(11, epoch=6), news(2))
    assert changed(line.since(at(7))) == {2}
    assert line.since(at(8)) is None
    assert line.since(at(10, epoch=6)) is None


def test_versions_only_grow() -> None:
    line = PictureLine(at(7))
    for version in (at(7), at(6), at(9, epoch=3)):
        with pytest.raises(ValueError, match="does not come after"):
            line.extend(version, news(1))


def test_a_topic_that_came_and_went_is_one_that_is_gone() -> None:
    line = PictureLine(at(1))
    line.extend(at(2), news(0, topic="a"))
    line.extend(at(3), News(deleted={TopicId("a"): "a"}))
    found = line.since(at(1))
    assert found is not None
    assert (dict(found.topics), dict(found.deleted)) == ({}, {"a": "a"})


def test_names_are_bounded_by_what_exists_and_not_by_changes() -> None:
    line = PictureLine(at(0))
    chance = random.Random(4)
    for number in range(1, 20_000):
        line.extend(at(number), news(*(chance.randrange(5_000) for _ in range(20))))
    assert line.names <= NAMES_KEPT + 3 * 5_001
    assert line.changes <= CHANGES_KEPT
    assert line.since(at(1)) is not None


def test_whatever_was_merged_nothing_is_skipped() -> None:
    line, chance = PictureLine(at(0)), random.Random(7)
    told: list[set[int]] = [set()]
    for number in range(1, 3 * CHANGES_KEPT):
        told.append({chance.randrange(1_000) for _ in range(30)})
        line.extend(at(number), news(*told[-1]))
    for number in range(0, 3 * CHANGES_KEPT - 1, 41):
        assert changed(line.since(at(number))) >= set().union(*told[number + 1 :])


def test_when_too_many_names_are_held_the_oldest_versions_are_out_of_reach() -> None:
    line = PictureLine(at(0))
    for number in range(1, 8):
        gone = {TopicId(f"{number}-{each}"): "t" for each in range(NAMES_MAX // 5)}
        line.extend(at(number), News(deleted=gone, brokers=frozenset({BrokerId(number)})))
        assert line.names <= NAMES_MAX
    assert line.since(at(0)) is None
    assert not line.reaches(at(0))
    found = line.since(at(6))
    assert found is not None
    assert found.brokers == {7}


def test_a_change_of_everything_is_not_kept_and_the_line_goes_on_after_it() -> None:
    line = PictureLine(at(1))
    line.extend(at(2), news(1))
    line.extend(at(9, epoch=6), news(*range(NAMES_MAX)), base=3)
    assert (line.names, line.changes) == (0, 0)
    assert all(line.since(at(number)) is None for number in (1, 2, 3))
    assert changed(line.since(at(9, epoch=6))) == set()
    line.extend(at(10, epoch=6), news(7))
    assert changed(line.since(at(9, epoch=6))) == {7}
