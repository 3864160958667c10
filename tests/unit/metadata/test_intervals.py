"""What a broker is sent, by the version it has (safety rules S17, S18)."""

from regnum_metadata.intervals import FULL_REUSED, Intervals, WantedFull, WantedInterval
from regnum_metadata.payload import Payload
from regnum_model.ids import BrokerEpoch, ControllerEpoch, TopicId
from regnum_model.picture_line import NO_PICTURE, News, PictureVersion, TopicNews

ANY = BrokerEpoch(0)
NEWEST = 20


def at(number: int, epoch: int = 4) -> PictureVersion:
    return PictureVersion(ControllerEpoch(epoch), number)


def news(*topics: str) -> News:
    return News(topics={TopicId(name): TopicNews(name, frozenset({0})) for name in topics})


def payload(from_version: int, to: PictureVersion, *, newest: int = 10, base: PictureVersion | None = None) -> Payload:
    return Payload(
        controller_epoch=to.epoch,
        from_version=from_version,
        to_version=to.number,
        base=base,
        max_broker_epoch=newest,
        parts=(b"x",),
    )


def line(last: int, *, first: int = 1) -> Intervals:
    """A full image, and changes of one topic each."""
    kept = Intervals()
    kept.restarted(at(first))
    for number in range(first + 1, last + 1):
        kept.extended(at(number), news(f"t{number}"), base=None)
    return kept


def wanted(kept: Intervals, position: PictureVersion) -> WantedInterval:
    found = kept.next_for(ANY, position, NEWEST)
    assert isinstance(found, WantedInterval), found
    return found


def test_who_has_everything_gets_nothing() -> None:
    kept = line(2)
    assert kept.next_for(ANY, at(2), NEWEST) is None
    assert Intervals().next_for(ANY, NO_PICTURE, NEWEST) is None


def test_who_says_that_it_has_more_gets_nothing_until_there_is_more() -> None:
    kept = line(2)
    assert kept.next_for(ANY, at(2**31 - 1), NEWEST) is None


def test_who_lags_gets_one_change_to_the_present() -> None:
    found = wanted(line(9), at(8))
    assert (found.start, set(found.news.topics)) == (at(8), {"t9"})
    found = wanted(line(9), at(7))
    assert set(found.news.topics) >= {"t8", "t9"}


def test_who_lags_alike_gets_the_very_same_payload() -> None:
    kept = line(1000)
    starts = {wanted(kept, at(number)).start for number in range(1, 1000)}
    assert len(starts) <= 20
    assert all(wanted(kept, at(number)).start.number <= number for number in range(1, 1000))
    found = wanted(kept, at(997))
    made = payload(found.start.number, at(1000))
    kept.made(made)
    assert kept.next_for(ANY, at(996), NEWEST) is made
    assert kept.next_for(ANY, at(997), NEWEST) is made


def test_what_was_made_is_for_the_present_only() -> None:
    kept = line(9)
    kept.made(payload(8, at(9)))
    kept.extended(at(10), news("t10"), base=None)
    assert set(wanted(kept, at(8)).news.topics) == {"t9", "t10"}
    kept.made(payload(8, at(9)))
    assert isinstance(kept.next_for(ANY, at(8), NEWEST), WantedInterval)


def test_who_has_nothing_gets_the_full_picture_and_then_what_follows() -> None:
    kept = line(2)
    assert isinstance(kept.next_for(ANY, NO_PICTURE, NEWEST), WantedFull)
    full = payload(0, at(2))
    kept.made(full)
    kept.extended(at(3), news("t3"), base=None)
    assert kept.next_for(ANY, NO_PICTURE, NEWEST) is full
    assert wanted(kept, at(2)).start == at(2)


def test_a_full_picture_is_made_anew_when_much_has_changed_since() -> None:
    kept = line(2)
    kept.made(payload(0, at(2)))
    for number in range(3, 4 + FULL_REUSED):
        kept.extended(at(number), news("t"), base=None)
    assert isinstance(kept.next_for(ANY, NO_PICTURE, NEWEST), WantedFull)


def test_who_followed_the_reign_before_goes_on_from_there() -> None:
    kept = line(8)
    kept.extended(at(9, epoch=5), news("moved"), base=8)
    found = wanted(kept, at(8))
    assert (found.start, found.last, set(found.news.topics)) == (at(8), 8, {"moved"})
    # One that was behind gets both reigns at once.
    found = wanted(kept, at(6))
    assert (found.start, found.last, set(found.news.topics)) == (at(6), 8, {"t7", "t8", "moved"})


def test_who_is_beyond_the_base_of_a_reign_gets_everything() -> None:
    kept = line(8)
    kept.made(payload(0, at(8)))
    kept.extended(at(9, epoch=5), news("moved"), base=8)
    for position in (at(9), at(2**31 - 1), at(8, epoch=3), at(8, epoch=6)):
        assert isinstance(kept.next_for(ANY, position, NEWEST), WantedFull), position


def test_nothing_of_a_picture_that_was_replaced_is_used() -> None:
    kept = line(8)
    kept.made(payload(0, at(8)))
    kept.restarted(at(3, epoch=5))
    assert isinstance(kept.next_for(ANY, at(8), NEWEST), WantedFull)
    assert isinstance(kept.next_for(ANY, at(2, epoch=5), NEWEST), WantedFull)


def test_who_was_where_the_line_does_not_reach_needs_everything() -> None:
    """A process that has started again knows nothing of what came before its first picture."""
    for number in (1, 2, 5, 7):
        assert isinstance(line(8, first=8).next_for(ANY, at(number), NEWEST), WantedFull), number
        assert isinstance(line(12, first=8).next_for(ANY, at(number), NEWEST), WantedFull), number


def test_what_was_made_before_a_broker_registered_is_not_for_it() -> None:
    """It would refuse it for ever: its own epoch is above the highest in the payload."""
    kept = line(2)
    full = payload(0, at(2), newest=10)
    kept.made(full)
    kept.extended(at(3), news("t3"), base=None)
    assert kept.next_for(BrokerEpoch(10), NO_PICTURE, NEWEST) is full
    assert isinstance(kept.next_for(BrokerEpoch(12), NO_PICTURE, NEWEST), WantedFull)


def test_nothing_is_for_a_broker_that_the_image_does_not_know() -> None:
    """It would refuse whatever is made of it."""
    kept = line(3)
    for position in (NO_PICTURE, at(2)):
        assert kept.next_for(BrokerEpoch(21), position, NEWEST) is None
