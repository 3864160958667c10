"""What many states have in common is made once, and not kept for ever."""

from regnum_model.ids import BrokerEpoch, BrokerId, LogId
from regnum_model.nodes import Membership
from regnum_model.sharing import Shared, broker_ids, memberships


def test_a_value_is_made_once_and_shared() -> None:
    asked: list[tuple[int, ...]] = []

    def make(key: tuple[int, ...]) -> tuple[BrokerId, ...]:
        asked.append(key)
        return broker_ids(key)

    shared = Shared(make)
    assert shared[1, 2] is shared[1, 2]
    assert asked == [(1, 2)]


def test_what_has_no_value_is_found_out_once() -> None:
    asked: list[int] = []
    shared: Shared[int, int | None] = Shared(asked.append)
    assert (shared[7], shared[7]) == (None, None)
    assert asked == [7]


def test_no_more_are_kept_than_there_is_room_for() -> None:
    shared = Shared(lambda key: (key,), room=3)
    first = shared[0]
    sizes = []
    for key in range(1, 100):
        assert shared[key] == (key,)
        sizes.append(len(shared))
    assert max(sizes) == 3
    assert first == (0,), "whoever has a value keeps it"


def test_members_are_found_by_broker() -> None:
    members = memberships(((1, 5, "a"), (2, 6, "b")))
    assert members == {
        BrokerId(1): Membership(broker_epoch=BrokerEpoch(5), log_id=LogId("a")),
        BrokerId(2): Membership(broker_epoch=BrokerEpoch(6), log_id=LogId("b")),
    }
