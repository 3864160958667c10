"""How a leader that cannot be reached is tried again."""

from regnum_client.producer.unreachable import UnreachableLeaders
from regnum_model.ids import BrokerEpoch, BrokerId

ONE, OTHER = BrokerId(1), BrokerId(2)
LIFE, NEXT_LIFE = BrokerEpoch(10), BrokerEpoch(20)


def test_the_pause_grows_with_the_trouble_and_ends_with_any_answer() -> None:
    leaders = UnreachableLeaders()
    assert leaders.pause_until_s(ONE, LIFE) is None
    leaders.failed(ONE, LIFE, now_s=10.0, chance=0.5)
    assert leaders.pause_until_s(ONE, LIFE) == 10.02
    leaders.failed(ONE, LIFE, now_s=12.0, chance=0.5)
    assert leaders.pause_until_s(ONE, LIFE) == 12.1
    assert leaders.pause_until_s(OTHER, LIFE) is None
    leaders.answered(ONE)
    assert leaders.pause_until_s(ONE, LIFE) is None
    leaders.failed(ONE, LIFE, now_s=20.0, chance=0.5)
    assert leaders.pause_until_s(ONE, LIFE) == 20.02


def test_a_broker_that_has_registered_anew_is_in_reach_until_shown_otherwise() -> None:
    """It is the successor of the next one that dies: its partitions would wait for one of them to be acknowledged."""
    leaders = UnreachableLeaders()
    leaders.failed(ONE, LIFE, now_s=10.0, chance=0.5)
    leaders.failed(ONE, LIFE, now_s=30.0, chance=0.5)
    assert leaders.pause_until_s(ONE, NEXT_LIFE) is None
    leaders.failed(ONE, NEXT_LIFE, now_s=40.0, chance=0.5)
    assert leaders.pause_until_s(ONE, NEXT_LIFE) == 40.02
