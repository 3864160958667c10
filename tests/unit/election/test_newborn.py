"""Which members of a partition whose life has just begun may still have to make it (safety rule S10)."""

from dataclasses import replace

from regnum_election.dispatch.newborn import Newborn
from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_testing.election_values import broker, state, surroundings

KEY = PartitionKey(TopicId("A" * 22), 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
FIRST = state(1, (1, 2, 3), epoch=6)
SECOND = replace(FIRST, leader=TWO, leader_epoch=LeaderEpoch(7))
BEGAN = LeaderEpoch(6)


def nobody(_id: BrokerId) -> bool:
    return False


def new_to(newborn: Newborn) -> list[int]:
    return [id for id in (1, 2, 3) if newborn.is_new_to(KEY, BrokerId(id))]


def test_members_of_a_first_state_until_they_acknowledge() -> None:
    newborn = Newborn()
    assert new_to(newborn) == []
    newborn.written(KEY, None, FIRST, began=BEGAN, surroundings=surroundings(1, 2, 3), has_full_set=nobody)
    assert new_to(newborn) == [1, 2, 3]
    newborn.has_it(KEY, TWO)
    assert new_to(newborn) == [1, 3]
    # Without a leader none is made, so it is asked whether any may have to be.
    assert newborn.is_new_to(KEY, BrokerId(NO_LEADER))
    for id in (ONE, THREE):
        newborn.has_it(KEY, id)
    assert not newborn.is_new_to(KEY, BrokerId(NO_LEADER))
    assert len(newborn) == 0


def test_intact_members_when_another_is_elected_over_the_first_epoch() -> None:
    newborn = Newborn()
    live = (broker(1, epoch=FIRST.members[ONE].broker_epoch + 1), broker(2), broker(3, log="another"))
    newborn.written(KEY, FIRST, SECOND, began=BEGAN, surroundings=surroundings(*live), has_full_set=nobody)
    assert new_to(newborn) == [2]


def test_no_member_that_has_acknowledged_the_full_set() -> None:
    newborn = Newborn()
    live = surroundings(1, 2, 3)
    newborn.written(KEY, FIRST, SECOND, began=BEGAN, surroundings=live, has_full_set=TWO.__eq__)
    assert new_to(newborn) == [1, 3]


def test_nobody_when_another_was_elected_before_or_none_is_now() -> None:
    newborn = Newborn()
    third = replace(SECOND, leader=THREE, leader_epoch=LeaderEpoch(8))
    newborn.written(KEY, SECOND, third, began=BEGAN, surroundings=surroundings(1, 2, 3), has_full_set=nobody)
    newborn.written(
        KEY, FIRST, replace(FIRST, isr=(ONE,)), began=BEGAN, surroundings=surroundings(1, 2, 3), has_full_set=nobody
    )
    assert new_to(newborn) == []


def test_partitions_that_are_gone_are_forgotten() -> None:
    newborn = Newborn()
    newborn.add(KEY, (ONE,))
    newborn.forget([KEY])
    assert len(newborn) == 0
