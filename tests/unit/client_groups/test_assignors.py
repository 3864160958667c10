"""Assignors: Kafka's results by name, and promises that hold for whoever comes and goes."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_client.consumer.groups.assignors import ASSIGNORS, Assignment, GroupMember, is_cooperative
from regnum_client.consumer.groups.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    assignment_bytes,
    assignment_of,
    subscription_bytes,
    subscription_of,
)
from regnum_client.records import TopicPartition


def member(name: str, *topics: str, owned: Sequence[str] = (), generation: int = NO_GENERATION) -> GroupMember:
    return GroupMember(
        member_id=name,
        subscription=Subscription(
            topics=frozenset(topics), owned=frozenset(map(partition_of, owned)), generation=generation
        ),
    )


def partition_of(name: str) -> TopicPartition:
    return TopicPartition(name[:-1], int(name[-1]))


def shown(assignment: Assignment) -> dict[str, str]:
    return {
        name: " ".join(f"{one.topic}{one.partition}" for one in sorted(given)) for name, given in assignment.items()
    }


AB = ("a", "b")
KAFKA = [
    # RangeAssignorTest and RoundRobinAssignorTest of Kafka 3.9: members x, y, z want topics a and b.
    ("range", [member("x", "a")], {"a": 3}, {"x": "a0 a1 a2"}),
    ("range", [member("x", "a")], {}, {"x": ""}),
    ("range", [member("x", "a"), member("y", "a")], {"a": 1}, {"x": "a0", "y": ""}),
    ("range", [member("x", *AB), member("y", *AB)], {"a": 3, "b": 3}, {"x": "a0 a1 b0 b1", "y": "a2 b2"}),
    (
        "range",
        [member("x", "a"), member("y", *AB), member("z", "a")],
        {"a": 3, "b": 2},
        {"x": "a0", "y": "a1 b0 b1", "z": "a2"},
    ),
    ("roundrobin", [member("x", "a"), member("y", "a")], {"a": 1}, {"x": "a0", "y": ""}),
    ("roundrobin", [member("x", *AB), member("y", *AB)], {"a": 3, "b": 3}, {"x": "a0 a2 b1", "y": "a1 b0 b2"}),
    (
        "roundrobin",
        [member("x", "a"), member("y", *AB), member("z", "a")],
        {"a": 3, "b": 2},
        {"x": "a0", "y": "a1 b0 b1", "z": "a2"},
    ),
    ("cooperative-sticky", [member("x", "a")], {"a": 3}, {"x": "a0 a1 a2"}),
    ("cooperative-sticky", [member("x", *AB), member("y", *AB)], {"a": 1, "b": 1}, {"x": "a0", "y": "b0"}),
]


@pytest.mark.parametrize(("name", "members", "partitions", "expected"), KAFKA)
def test_results_are_those_of_kafka(
    name: str, members: list[GroupMember], partitions: dict[str, int], expected: dict[str, str]
) -> None:
    assign = ASSIGNORS[name].assign
    assert shown(assign(members, partitions)) == expected
    assert shown(assign(members[::-1], partitions)) == expected, "whoever assigns, in whatever order it is told"


def test_static_members_keep_their_place_in_the_order_when_their_ids_change() -> None:
    def named(member_id: str, instance_id: str) -> GroupMember:
        return GroupMember(
            member_id=member_id, instance_id=instance_id, subscription=Subscription(topics=frozenset("a"))
        )

    before = ASSIGNORS["range"].assign([named("1", "left"), named("2", "right")], {"a": 2})
    again = ASSIGNORS["range"].assign([named("9", "left"), named("2", "right")], {"a": 2})
    assert before["1"] == again["9"]


def test_what_another_one_still_has_is_given_to_nobody_yet() -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    x = member("x", "a", owned=["a0", "a1", "a2", "a3"], generation=4)
    first = assign([x, member("y", "a")], {"a": 4})
    assert shown(first) == {"x": "a0 a1", "y": ""}
    x = member("x", "a", owned=["a0", "a1"], generation=5)
    assert shown(assign([x, member("y", "a", generation=5)], {"a": 4})) == {"x": "a0 a1", "y": "a2 a3"}


def test_of_two_claims_the_later_generation_is_right_and_of_equals_neither() -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    ghost = member("x", "a", owned=["a0", "a1"], generation=3)
    owner = member("y", "a", owned=["a0", "a1"], generation=4)
    given = assign([ghost, owner], {"a": 2})
    assert all(one not in given["x"] for one in map(partition_of, ["a0", "a1"])), "they have to be given up first"
    twins = [member(name, "a", owned=["a0"], generation=4) for name in "xy"]
    assert shown(assign(twins, {"a": 1})) == {"x": "", "y": ""}


def test_a_group_is_cooperative_when_all_its_assignors_are() -> None:
    assert is_cooperative(["cooperative-sticky"])
    assert not is_cooperative(["cooperative-sticky", "range"])


TOPICS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)
NAMES = st.sampled_from([f"m{number}" for number in range(8)])
WANTED = st.dictionaries(NAMES, st.frozensets(st.sampled_from("abcd"), min_size=1), min_size=1)


def in_turn(
    assign_name: str, wanted: Mapping[str, frozenset[str]], had: Assignment, generation: int, partitions: dict[str, int]
) -> Assignment:
    members = [
        GroupMember(
            member_id=name,
            subscription=Subscription(
                topics=topics,
                owned=had.get(name, frozenset()),
                generation=generation if name in had else NO_GENERATION,
            ),
        )
        for name, topics in wanted.items()
    ]
    return ASSIGNORS[assign_name].assign(members, partitions)


def settled(
    wanted: Mapping[str, frozenset[str]],
    had: Assignment,
    generation: int,
    partitions: dict[str, int],
    *,
    rounds: int = 2,
) -> Assignment:
    """What members have after the rounds that it takes; each gives up what it is not assigned."""
    for turn in range(rounds + 1):
        given = in_turn("cooperative-sticky", wanted, had, generation + turn, partitions)
        owners = [one for name in given for one in given[name]]
        assert len(set(owners)) == len(owners)
        for name, more in given.items():
            for other in had.keys() & wanted.keys() - {name}:
                assert not more & had[other], "nobody gets what another one has not given up"
        if given == had:
            return given
        had = given
    raise AssertionError(f"it takes more than {rounds} rounds")


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@settings(deadline=None)
@given(wanted=WANTED, partitions=TOPICS)
def test_each_partition_that_is_wanted_has_one_owner_who_wants_it(
    name: str, wanted: dict[str, frozenset[str]], partitions: dict[str, int]
) -> None:
    check_owners(in_turn(name, wanted, {}, 0, partitions), wanted, partitions)


def check_owners(given: Assignment, wanted: Mapping[str, frozenset[str]], partitions: Mapping[str, int]) -> None:
    assert given.keys() == wanted.keys()
    owned = sorted(one for member_id in given for one in given[member_id])
    everybody = frozenset().union(*wanted.values())
    assert owned == [TopicPartition(t, n) for t in sorted(partitions) if t in everybody for n in range(partitions[t])]
    assert all(one.topic in wanted[member_id] for member_id in given for one in given[member_id])


@settings(deadline=None)
@given(wanted=WANTED, later=WANTED, partitions=TOPICS, more=TOPICS)
def test_sticky_groups_settle_in_a_few_rounds_balanced_and_complete(
    wanted: dict[str, frozenset[str]],
    later: dict[str, frozenset[str]],
    partitions: dict[str, int],
    more: dict[str, int],
) -> None:
    # What is on its way counts for nobody, so where members want different topics something may move once more.
    before = settled(wanted, {}, 1, partitions, rounds=6)
    check_owners(before, wanted, partitions)
    after = settled(later, {name: had for name, had in before.items() if name in later}, 10, more, rounds=6)
    check_owners(after, later, more)
    for one, other in combinations(later, 2):
        for rich, poor in ((one, other), (other, one)):
            if len(after[rich]) >= len(after[poor]) + 2:
                assert not any(partition.topic in later[poor] for partition in after[rich]), "it could relieve it"


@settings(deadline=None)
@given(names=st.sets(NAMES, min_size=1), later=st.sets(NAMES, min_size=1), partitions=TOPICS)
def test_members_that_want_the_same_are_even_and_nothing_moves_without_need(
    names: set[str], later: set[str], partitions: dict[str, int]
) -> None:
    topics = frozenset(partitions)
    before = settled(dict.fromkeys(sorted(names), topics), {}, 1, partitions)
    kept = {name: had for name, had in before.items() if name in later}
    after = settled(dict.fromkeys(sorted(later), topics), kept, 10, partitions)
    sizes = sorted(len(given) for given in after.values())
    assert sizes[-1] - sizes[0] <= 1
    # The larger shares belong to those that had the most: no other choice keeps more.
    each, larger = divmod(sum(partitions.values()), len(later))
    had = sorted((len(kept.get(name, ())) for name in later), reverse=True)
    most = sum(min(count, each + (place < larger)) for place, count in enumerate(had))
    assert sum(len(after[name] & kept[name]) for name in kept) == most


@settings(deadline=None)
@given(
    topics=st.frozensets(st.text(max_size=5)),
    owned=st.frozensets(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 99))),
    generation=st.integers(-1, 2**31 - 1),
)
def test_what_members_say_is_read_as_it_was_said(
    topics: frozenset[str], owned: frozenset[TopicPartition], generation: int
) -> None:
    said = Subscription(topics=topics, owned=owned, generation=generation)
    assert subscription_of(subscription_bytes(said)) == said
    assert assignment_of(assignment_bytes(owned)) == owned


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_of_others_end_nobody(data: bytes) -> None:
    assert isinstance(subscription_of(data), Subscription)
    assert isinstance(assignment_of(data), frozenset)


def test_a_large_group_is_assigned_in_steps_that_grow_with_its_partitions() -> None:
    names = [f"m{number:03}" for number in range(100)]
    members = [member(name, "a") for name in names]
    given = ASSIGNORS["cooperative-sticky"].assign(members, {"a": 5_000})
    assert {len(one) for one in given.values()} == {50}
