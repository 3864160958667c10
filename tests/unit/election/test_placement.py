"""Placement against Kafka's vectors and properties (AdminRackAwareTest, AdminUtilsTest)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_election.decisions.placement import Assignment, PlacementError, alternate_racks, place, place_more
from regnum_model.ids import BrokerId

RACKS = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r1"}


def brokers(racks: dict[int, str]) -> dict[BrokerId, str | None]:
    return {BrokerId(id): rack for id, rack in racks.items()}


def bare(count: int) -> dict[BrokerId, str | None]:
    return dict.fromkeys((BrokerId(id) for id in range(count)), None)


def racks_of(assignment: Assignment, racks: dict[int, str]) -> list[int]:
    return [len({racks[id] for id in ids}) for ids in assignment.values()]


def leaders(assignment: Assignment) -> Counter[int]:
    return Counter(int(ids[0]) for ids in assignment.values())


def load(assignment: Assignment) -> Counter[int]:
    return Counter(int(id) for ids in assignment.values() for id in ids)


def test_rack_unaware_vector() -> None:
    placed = place(bare(5), partitions=10, replication_factor=3, start=0, shift=0)
    expected = ["012", "123", "234", "340", "401", "023", "134", "240", "301", "412"]
    assert ["".join(str(id) for id in placed[p]) for p in range(10)] == expected


def test_alternated_list_vectors() -> None:
    mixed = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    as_ids = {BrokerId(id): rack for id, rack in mixed.items()}
    assert alternate_racks(as_ids) == (0, 3, 1, 5, 4, 2)
    del as_ids[BrokerId(5)]
    assert alternate_racks(as_ids) == (0, 3, 1, 4, 2)
    even = {BrokerId(id): f"r{id // 3}" for id in range(9)}
    assert alternate_racks(even) == (0, 3, 6, 1, 4, 7, 2, 5, 8)


@pytest.mark.parametrize(
    ("racks", "partitions", "factor", "start", "shift", "first"),
    [
        (RACKS, 6, 3, 2, 2, 0),
        (RACKS, 6, 3, 4, 1, 0),
        (RACKS, 12, 2, 0, 0, 0),
        (RACKS, 6, 2, 1, 3, 0),
        ({id + 6: rack for id, rack in RACKS.items()}, 12, 2, 0, 0, 12),
        ({0: "r1", 1: "r2", 2: "r3"}, 3, 2, 0, 0, 0),
        ({id: f"r{id % 3}" for id in range(12)}, 96, 3, 5, 7, 0),
    ],
)
def test_rack_aware_is_distinct_and_even(
    racks: dict[int, str], partitions: int, factor: int, start: int, shift: int, first: int
) -> None:
    placed = place(
        brokers(racks),
        partitions=partitions,
        replication_factor=factor,
        start=start,
        shift=shift,
        first_partition=first,
    )
    assert list(placed) == list(range(first, first + partitions))
    assert set(racks_of(placed, racks)) == {factor}
    assert set(leaders(placed).values()) == {partitions // len(racks)}
    assert set(load(placed).values()) == {partitions * factor // len(racks)}


@pytest.mark.parametrize(
    ("racks", "partitions"), [(RACKS, 13), ({0: "r1", 1: "r1", 5: "r1", 2: "r2", 3: "r3", 4: "r3"}, 12)]
)
def test_rack_aware_uneven_is_distinct(racks: dict[int, str], partitions: int) -> None:
    placed = place(brokers(racks), partitions=partitions, replication_factor=3, start=1, shift=1)
    assert set(racks_of(placed, racks)) == {3}


def test_more_replicas_than_racks_uses_every_rack() -> None:
    placed = place(brokers(RACKS), partitions=6, replication_factor=5, start=0, shift=0)
    assert set(racks_of(placed, RACKS)) == {3}
    assert all(len(set(ids)) == 5 for ids in placed.values())


def test_fewer_replicas_than_racks_uses_as_many_racks() -> None:
    placed = place(brokers(RACKS), partitions=6, replication_factor=2, start=0, shift=0)
    assert set(racks_of(placed, RACKS)) == {2}


def test_single_rack_spreads_leaders() -> None:
    one = dict.fromkeys(range(6), "r")
    placed = place(brokers(one), partitions=6, replication_factor=3, start=0, shift=0)
    assert set(leaders(placed).values()) == {1}


@pytest.mark.parametrize(("partitions", "factor"), [(0, 1), (-1, 1), (1, 0), (1, 4)])
def test_numbers_that_do_not_fit_are_refused(partitions: int, factor: int) -> None:
    with pytest.raises(PlacementError):
        place(bare(3), partitions=partitions, replication_factor=factor, start=0, shift=0)


def test_some_racks_and_some_none_is_refused() -> None:
    with pytest.raises(PlacementError, match="no rack"):
        place({BrokerId(1): "r", BrokerId(2): None}, partitions=1, replication_factor=1, start=0, shift=0)


@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9),
    partitions=st.integers(1, 30),
    data=st.data(),
)
def test_replicas_are_distinct_whatever_the_racks(racks: dict[int, str], partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    for given_brokers in (brokers(racks), dict.fromkeys(brokers(racks), None)):
        placed = place(given_brokers, partitions=partitions, replication_factor=factor, start=start, shift=shift)
        assert all(len(set(ids)) == factor for ids in placed.values())
        counts = leaders(placed)
        assert max(counts.values()) - min(counts.get(id, 0) for id in racks) <= 1


@given(
    count=st.integers(1, 12),
    factor=st.integers(1, 4),
    existing=st.integers(1, 40),
    added=st.integers(1, 40),
    start=st.integers(0, 11),
    shift=st.integers(0, 30),
)
def test_partitions_added_on_the_same_brokers_are_where_creation_would_have_put_them(
    count: int, factor: int, existing: int, added: int, start: int, shift: int
) -> None:
    factor = min(factor, count)
    whole = place(bare(count), partitions=existing + added, replication_factor=factor, start=start % count, shift=shift)
    more = place_more(bare(count), whole[0], existing=existing, partitions=added)
    assert more == {number: whole[number] for number in range(existing, existing + added)}


def test_with_racks_the_leaders_go_on_in_the_ring_and_racks_stay_distinct() -> None:
    whole = place(brokers(RACKS), partitions=12, replication_factor=3, start=2, shift=1)
    more = place_more(brokers(RACKS), whole[0], existing=6, partitions=6)
    assert [ids[0] for ids in more.values()] == [whole[number][0] for number in range(6, 12)]
    assert racks_of(more, RACKS) == [3] * 6
    assert set(load(more).values()) == {3}


def test_where_the_first_broker_is_gone_the_next_higher_one_begins() -> None:
    """Kafka's rule: the first broker with an id not below that of partition 0's first replica, or the lowest."""
    left = {BrokerId(id): None for id in (0, 1, 4, 5)}
    more = place_more(left, (BrokerId(2), BrokerId(3)), existing=0, partitions=1)
    assert more[0][0] == 4
    assert place_more(left, (BrokerId(9),), existing=0, partitions=1)[0][0] == 0
    with pytest.raises(PlacementError, match="does not fit"):
        place_more(left, tuple(map(BrokerId, range(5))), existing=1, partitions=1)


def walked(
    racks: dict[BrokerId, str | None], *, partitions: int, replication_factor: int, start: int, shift: int
) -> Assignment:
    """Kafka's walk, step by step."""
    ring = alternate_racks({id: rack for id, rack in racks.items() if rack is not None})
    size, rack_count = len(ring), len(set(racks.values()))
    placed: Assignment = {}
    for partition in range(partitions):
        shift += partition > 0 and partition % size == 0
        leader = (partition + start) % size
        replicas, step = [ring[leader]], 0
        while len(replicas) < replication_factor:
            candidate = ring[(leader + 1 + (shift * rack_count + step) % (size - 1)) % size]
            step += 1
            used = {racks[id] for id in replicas}
            if candidate not in replicas and (racks[candidate] not in used or len(used) == rack_count):
                replicas.append(candidate)
        placed[partition] = tuple(replicas)
    return placed


@given(
    sizes=st.lists(st.sampled_from([1, 1, 2, 5, 40, 90]), min_size=1, max_size=6),
    factor=st.integers(1, 5),
    start=st.integers(0, 200),
    shift=st.integers(0, 200),
)
def test_uneven_racks_are_walked_as_step_by_step(sizes: list[int], factor: int, start: int, shift: int) -> None:
    names = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    racks = brokers({id: f"r{rack}" for id, rack in enumerate(names)})
    given_numbers = {
        "partitions": len(racks) + 5,
        "replication_factor": min(factor, len(racks)),
        "start": start,
        "shift": shift,
    }
    assert place(racks, **given_numbers) == walked(racks, **given_numbers)


class CountedRack(str):
    """Counts how often a rack is looked up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        CountedRack.looked_up += 1
        return super().__hash__()


@pytest.mark.parametrize("apart", [(500,), (500, 501), ()])
def test_a_rack_of_one_broker_does_not_make_each_partition_a_walk_round_the_ring(apart: tuple[int, ...]) -> None:
    """With 1,000 brokers 10,000 partitions held the controller's loop for more than a second (safety rule S22)."""
    racks = {BrokerId(id): CountedRack(f"apart-{id}" if id in apart else f"r{id % 2}") for id in range(1_000)}
    before = CountedRack.looked_up
    placed = place(dict(racks), partitions=1_000, replication_factor=3, start=5, shift=7)
    assert len(placed) == 1_000
    assert CountedRack.looked_up - before < 60 * len(placed)
