"""Which epochs are believed."""

import pytest
from regnum_model.epochs import EPOCH_LEAP_MAX, is_plausible


@pytest.mark.parametrize("epoch", [0, 7, 8, 7 + EPOCH_LEAP_MAX])
def test_an_epoch_within_reach_of_the_one_read_last_is_believed(epoch: int) -> None:
    assert is_plausible(epoch, 7)


@pytest.mark.parametrize("epoch", [8 + EPOCH_LEAP_MAX, 2**31 - 1, 2**63 - 1])
def test_a_leap_that_no_number_of_elections_explains_is_not_believed(epoch: int) -> None:
    assert not is_plausible(epoch, 7)
