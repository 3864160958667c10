"""When a registration is over beyond doubt (safety rules S8 and S9)."""

import pytest
from regnum_election.decisions.registrations import broker_named, ended_epochs, is_over
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_testing.election_values import broker

ELECTED_AT = BrokerEpoch(50)


@pytest.mark.parametrize(
    ("epoch", "registered", "ended", "over"),
    [
        (70, 70, None, False),
        (60, 70, None, True),
        # It registered a moment ago, and the picture will show it.
        (80, 70, None, False),
        (60, None, None, False),
        (60, None, 60, True),
        (61, None, 60, False),
        # Registered before the election, and not found by the reading after it.
        (40, None, None, True),
        (40, 40, None, False),
        # It says itself that it has no registration.
        (0, None, 60, False),
        (0, 70, None, False),
    ],
)
def test_only_what_is_gone_for_certain_is_over(
    epoch: int, registered: int | None, ended: int | None, over: bool
) -> None:
    assert over is is_over(
        BrokerEpoch(epoch),
        registered=None if registered is None else broker(1, epoch=registered),
        ended=None if ended is None else BrokerEpoch(ended),
        elected_at=ELECTED_AT,
    )


def test_a_registration_ends_when_it_goes_and_when_another_takes_its_place() -> None:
    before = {BrokerId(id): broker(id, epoch=10 + id) for id in (1, 2, 3)}
    now = {BrokerId(1): before[BrokerId(1)], BrokerId(2): broker(2, epoch=20)}
    assert ended_epochs(before, now) == {2: 12, 3: 13}


@pytest.mark.parametrize("name", ["", "-1", "07", "seven", "\u0663", str(2**31), "9" * 10, "9" * 5_000])
def test_a_name_that_is_no_id_is_no_brokers(name: str) -> None:
    assert broker_named(name) is None


@pytest.mark.parametrize("id", [0, 7, 2**31 - 1])
def test_every_id_that_a_message_carries_is_a_brokers(id: int) -> None:
    assert broker_named(str(id)) == id
