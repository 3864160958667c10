"""Plans that spread partitions over brokers: even, with the fewest moves, over as many racks as can be."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_client.admin.reassignment.plan import Place, PlanError, PlannedMove, drain_plan, even_plan

Partitions = dict[Place, tuple[int, ...]]


def after(partitions: Mapping[Place, Sequence[int]], moves: Sequence[PlannedMove]) -> Partitions:
    changed = {(move.topic, move.partition): move.after for move in moves}
    return {place: changed.get(place, tuple(replicas)) for place, replicas in partitions.items()}


def loads(partitions: Mapping[Place, Sequence[int]], brokers: Sequence[int]) -> Counter[int]:
    counted = Counter(dict.fromkeys(brokers, 0))
    counted.update(id for replicas in partitions.values() for id in replicas)
    return counted


def moved(partitions: Mapping[Place, Sequence[int]], then: Mapping[Place, Sequence[int]]) -> int:
    return sum(len(set(then[place]) - set(replicas)) for place, replicas in partitions.items())


@st.composite
def clusters(draw: st.DrawFn, *, partitions_max: int, brokers_max: int) -> tuple[Partitions, list[int]]:
    everybody = list(range(1, brokers_max + 2))
    factor = draw(st.integers(1, 3))
    named = draw(st.lists(st.sampled_from(everybody), min_size=factor, max_size=brokers_max, unique=True))
    replicas = st.lists(st.sampled_from(everybody), min_size=factor, max_size=factor, unique=True).map(tuple)
    placed = draw(st.lists(replicas, min_size=1, max_size=partitions_max))
    return {("t", number): one for number, one in enumerate(placed)}, named


def fewest(partitions: Partitions, brokers: Sequence[int]) -> int:
    """By trying all."""
    best = 10**9
    ways = [list(combinations(brokers, len(replicas))) for replicas in partitions.values()]
    for chosen in product(*ways):
        counted = loads(dict(zip(partitions, chosen, strict=True)), brokers)
        if max(counted.values()) - min(counted.values()) <= 1:
            best = min(best, moved(partitions, dict(zip(partitions, chosen, strict=True))))
    return best


@settings(max_examples=120, deadline=None)
@given(clusters(partitions_max=5, brokers_max=4))
def test_no_even_plan_moves_fewer_replicas(found: tuple[Partitions, list[int]]) -> None:
    partitions, brokers = found
    then = after(partitions, even_plan(partitions, dict.fromkeys(brokers)))
    counted = loads(then, brokers)
    assert max(counted.values()) - min(counted.values()) <= 1
    assert moved(partitions, then) == fewest(partitions, brokers)


@settings(max_examples=50, deadline=None)
@given(clusters(partitions_max=60, brokers_max=9))
def test_every_plan_is_even_and_keeps_to_the_brokers_and_to_the_number_of_replicas(
    found: tuple[Partitions, list[int]],
) -> None:
    partitions, brokers = found
    moves = even_plan(partitions, dict.fromkeys(brokers))
    then = after(partitions, moves)
    counted, led = loads(then, brokers), Counter(dict.fromkeys(brokers, 0))
    led.update(replicas[0] for replicas in then.values())
    assert max(counted.values()) - min(counted.values()) <= 1
    assert set(counted) == set(brokers)
    for place, replicas in then.items():
        assert len(set(replicas)) == len(replicas) == len(partitions[place])
    assert even_plan(then, dict.fromkeys(brokers)) == (), "what is even stays"
    assert sum(led.values()) == len(partitions)


@settings(max_examples=50, deadline=None)
@given(clusters(partitions_max=40, brokers_max=8), st.integers(2, 4))
def test_with_racks_the_replicas_of_a_partition_stand_on_as_many_as_they_can(
    found: tuple[Partitions, list[int]], racks: int
) -> None:
    partitions, brokers = found
    rack = {id: f"r{id % racks}" for id in brokers}
    then = after(partitions, even_plan(partitions, rack))
    for replicas in then.values():
        assert len({rack[id] for id in replicas}) == min(len(replicas), len(set(rack.values())))


def test_a_broker_that_comes_gets_its_share_and_nobody_else_moves() -> None:
    partitions = {("t", n): ((1, 2), (2, 1))[n % 2] for n in range(30)}
    moves = even_plan(partitions, dict.fromkeys((1, 2, 3)))
    assert {id for move in moves for id in move.added} == {3}
    assert sum(len(move.added) for move in moves) == 20
    then = after(partitions, moves)
    assert set(Counter(replicas[0] for replicas in then.values()).values()) == {10}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="name more brokers"):
        even_plan({("t", 0): (1, 2, 3)}, {1: None, 2: None})


def test_a_drained_broker_has_nothing_and_nothing_else_moves() -> None:
    partitions = {("t", n): ((1, 2, 3), (2, 3, 1), (3, 4, 5), (4, 5, 1))[n % 4] for n in range(40)}
    moves = drain_plan(partitions, dict.fromkeys((1, 2, 3, 4, 5)), broker=1)
    then = after(partitions, moves)
    assert not any(1 in replicas for replicas in then.values())
    assert len(moves) == sum(1 in replicas for replicas in partitions.values()) == 30
    assert all(len(move.added) == 1 for move in moves)
    counted = loads(then, (2, 3, 4, 5))
    assert max(counted.values()) - min(counted.values()) <= 1


def test_a_broker_without_which_a_partition_has_no_place_cannot_be_drained() -> None:
    with pytest.raises(PlanError, match="start another broker"):
        drain_plan({("t", 0): (1, 2)}, {1: None, 2: None}, broker=1)


def test_a_drained_replica_goes_to_another_rack_where_there_is_one() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    (move,) = drain_plan({("t", 0): (1, 2), ("u", 0): (3, 2)}, racks, broker=1)
    assert move.after in {(3, 2), (2, 3)}


class CountedPlace(tuple[str, int]):
    """A place that counts how often it is looked for."""

    __slots__ = ()
    looked_for = 0

    def __hash__(self) -> int:
        CountedPlace.looked_for += 1
        return super().__hash__()


@pytest.mark.parametrize("racked", [False, True])
def test_what_a_plan_costs_grows_with_the_partitions_and_not_with_their_square(racked: bool) -> None:
    """A sixth broker comes to five, on three racks or none: with 20,000 partitions it took 49 s of processor time."""

    def looked_for(count: int) -> int:
        partitions = {
            CountedPlace(("t", number)): tuple((number + place) % 5 for place in range(3)) for number in range(count)
        }
        CountedPlace.looked_for = 0
        moves = even_plan(partitions, {id: f"rack-{id % 3}" if racked else None for id in range(6)})
        assert sum(len(move.added) for move in moves) >= count // 2
        return CountedPlace.looked_for

    assert looked_for(2_000) < 6 * looked_for(500)
