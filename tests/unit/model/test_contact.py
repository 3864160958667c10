"""Which attempts to connect prove that a process is gone."""

import pytest
from regnum_model.contact import Contact, proves_death


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
