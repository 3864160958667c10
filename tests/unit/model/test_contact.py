"""Which attempts to connect prove that a process is gone."""

import pytest
from regnum_model.contact import KNOCKS_AFTER_BREAK, Contact, knock_pause_s, proves_death


@pytest.mark.parametrize(
    ("contacts", "dead"),
    [
        ([Contact.REFUSED, Contact.REFUSED], True),
        ([Contact.REFUSED], False),
        ([], False),
        ([Contact.REFUSED, Contact.ACCEPTED], False),
        ([Contact.NO_ANSWER, Contact.REFUSED], False),
        ([Contact.NO_ANSWER, Contact.NO_ANSWER], False),
    ],
)
def test_only_two_refusals_prove_death(contacts: list[Contact], dead: bool) -> None:
    assert proves_death(contacts) is dead


def test_the_second_knock_comes_20_ms_after_a_refused_one_whatever_was_before() -> None:
    for before in ([], [Contact.ACCEPTED] * 7, [Contact.REFUSED, Contact.ACCEPTED, Contact.NO_ANSWER]):
        assert knock_pause_s([*before, Contact.REFUSED]) == 0.02


def test_what_still_listens_is_asked_more_seldom_for_a_second() -> None:
    pauses_s = [knock_pause_s([Contact.ACCEPTED] * count) for count in range(1, KNOCKS_AFTER_BREAK)]
    assert pauses_s[:4] == [0.02, 0.04, 0.08, 0.1]
    assert set(pauses_s[4:]) == {0.1}
    assert 0.9 <= sum(pauses_s) <= 1.1
