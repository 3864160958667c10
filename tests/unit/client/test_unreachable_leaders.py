"""How a leader that cannot be reached is tried again."""

from regnum_client.unreachable import UnreachableLeaders
from regnum_model.ids import BrokerId

ONE, OTHER = BrokerId(1), BrokerId(2)


def test_the_pause_grows_with_the_trouble_and_ends_with_any_answer() -> None:
    leaders = UnreachableLeaders()
    assert leaders.pause_until_s(ONE) is None
    leaders.failed(ONE, now_s=10.0, chance=0.5)
    assert leaders.pause_until_s(ONE) == 10.02
    leaders.failed(ONE, now_s=12.0, chance=0.5)
    assert leaders.pause_until_s(ONE) == 12.1
    assert leaders.pause_until_s(OTHER) is None
    leaders.answered(ONE)
    assert leaders.pause_until_s(ONE) is None
    leaders.failed(ONE, now_s=20.0, chance=0.5)
    assert leaders.pause_until_s(ONE) == 20.02
