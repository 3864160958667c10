"""What a broker is sent, by the version it has (safety rules S17, S18)."""

from regnum_metadata.intervals import CHANGES_KEPT, History, Wanted, after_full
from regnum_metadata.payload import Payload
from regnum_model.ids import BrokerEpoch, ControllerEpoch

EPOCH = ControllerEpoch(4)
ANY = BrokerEpoch(0)


def payload(from_version: int, to_version: int, *, size: int = 1, newest: int = 10) -> Payload:
    return Payload(
        controller_epoch=EPOCH,
        from_version=from_version,
        to_version=to_version,
        max_broker_epoch=newest,
        parts=(b"x" * size,),
    )


def history(*changes: Payload, full: int = 1) -> History:
    result = after_full(payload(0, full))
    for change in changes:
        result = result.with_change(change)
    return result


def test_who_has_everything_gets_nothing() -> None:
    kept = history(payload(1, 2))
    assert kept.next_for(ANY, EPOCH, 2) is None
    assert kept.next_for(ANY, EPOCH, 7) is None


def test_who_lags_gets_the_change_that_joins_on() -> None:
    second, third, sixth = payload(1, 2), payload(2, 3), payload(3, 6)
    kept = history(second, third, sixth)
    assert kept.next_for(ANY, EPOCH, 1) is second
    assert kept.next_for(ANY, EPOCH, 2) is third
    assert kept.next_for(ANY, EPOCH, 4) is sixth


def test_who_has_nothing_gets_the_full_picture_and_then_what_follows() -> None:
    second = payload(1, 2)
    kept = history(second)
    first = kept.next_for(ANY, EPOCH, 0)
    assert isinstance(first, Payload)
    assert (first.from_version, first.to_version) == (0, 1)
    assert kept.next_for(ANY, EPOCH, first.to_version) is second


def test_a_version_of_another_reign_counts_for_nothing() -> None:
    kept = history(payload(1, 2))
    found = kept.next_for(ANY, ControllerEpoch(3), 2)
    assert isinstance(found, Payload)
    assert found.from_version == 0


def test_who_missed_too_much_needs_a_new_full_picture() -> None:
    kept = history(*(payload(version, version + 1) for version in range(1, CHANGES_KEPT + 10)))
    assert kept.full is None
    assert kept.next_for(ANY, EPOCH, 3) is Wanted.FULL
    made = kept.with_full(payload(0, kept.version))
    assert made.next_for(ANY, EPOCH, 3) is made.full


def test_large_changes_are_kept_by_size_and_the_newest_always() -> None:
    kept = history(*(payload(version, version + 1, size=9 * 1024 * 1024) for version in range(1, 5)))
    assert [change.to_version for change in kept.changes] == [5]


def test_a_full_picture_made_too_late_is_not_kept() -> None:
    kept = history(*(payload(version, version + 1) for version in range(1, CHANGES_KEPT + 10)))
    assert kept.with_full(payload(0, 2)) == kept
    later = after_full(payload(0, 1))
    other = Payload(
        controller_epoch=ControllerEpoch(3), from_version=0, to_version=1, max_broker_epoch=0, parts=(b"x",)
    )
    assert later.with_full(other) == later


def test_what_was_made_before_a_broker_registered_is_not_for_it() -> None:
    """It would refuse it for ever: its own epoch is above the highest in the payload."""
    kept = history(payload(1, 2, newest=10), payload(2, 3, newest=12))
    assert kept.next_for(BrokerEpoch(12), EPOCH, 0) is Wanted.FULL
    assert kept.next_for(BrokerEpoch(12), EPOCH, 1) is Wanted.FULL
    joining = kept.next_for(BrokerEpoch(12), EPOCH, 2)
    assert isinstance(joining, Payload)
    made = kept.with_full(payload(0, 3, newest=12))
    assert made.next_for(BrokerEpoch(12), EPOCH, 0) is made.full
