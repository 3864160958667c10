"""When a partition that pauses comes up again, and what those cost that do not."""

from regnum_broker.replication.pauses import Pauses
from regnum_model.ids import PartitionKey, TopicId
from regnum_testing.log_directories import KEY


def key(number: int) -> PartitionKey:
    return PartitionKey(TopicId(KEY.topic_id), number)


def test_what_pauses_comes_up_once_in_the_order_of_time_and_not_before_it() -> None:
    pauses = Pauses()
    for number, until_s in enumerate((3.0, 1.0, 2.0, 1.0)):
        pauses.add(key(number), until_s)
    assert pauses.soonest_s == 1.0
    assert pauses.ended(0.9) is None
    assert [pauses.ended(2.0) for _ in range(4)] == [key(1), key(3), key(2), None]
    assert pauses.soonest_s == 3.0
    assert [pauses.ended(3.0), pauses.ended(9.0)] == [key(0), None]
    assert pauses.soonest_s == float("inf")


def test_who_looks_pays_for_what_has_ended_and_not_for_what_pauses() -> None:
    compared = 0

    class Moment(float):
        """Counts what it is compared with."""

        def __lt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float.__lt__(self, other)

        def __le__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float.__le__(self, other)

    pauses = Pauses()
    for number in range(20_000):
        pauses.add(key(number), Moment(10.0 + number))
    compared = 0
    for _ in range(100):
        assert pauses.ended(1.0) is None
    assert compared <= 100
