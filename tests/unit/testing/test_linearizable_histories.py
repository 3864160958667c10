"""The judge on histories whose verdict is known: each wrong in one way, each right for one reason."""

import random

import pytest
from regnum_testing.linearizability.broken_history import BREAKAGES, phantom_read
from regnum_testing.linearizability.by_hand import create, get, get_nothing, put, remove
from regnum_testing.linearizability.random_history import Shape, random_shape, right_history
from regnum_testing.linearizability.register import Action, Operation, Outcome, Present
from regnum_testing.linearizability.search import UndecidedError, longest_order
from regnum_testing.linearizability.verdict import beginning, judge

UNKNOWN, NO_NODE, NODE_EXISTS, BAD_VERSION = (
    Outcome.UNKNOWN,
    Outcome.NO_NODE,
    Outcome.NODE_EXISTS,
    Outcome.BAD_VERSION,
)

WRONG = {
    "a stale read": (create("a", at=(1, 2)), put("b", 0, at=(3, 4)), get("a", 0, at=(5, 6))),
    "a read of the future": (create("a", at=(1, 2)), get("b", 1, at=(3, 4)), put("b", 0, at=(5, 6))),
    "reads that go back": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 20)),
        get("b", 1, at=(4, 5)),
        get("a", 0, at=(6, 7)),
    ),
    "data that nobody wrote": (create("a", at=(1, 2)), get("x", 0, at=(3, 4))),
    "a version that never was": (create("a", at=(1, 2)), get("a", 1, at=(3, 4))),
    "a lost update": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4)),
        put("c", 1, at=(5, 6)),
        get("c", 1, at=(7, 8)),
    ),
    "two successes at one version": (create("a", at=(1, 2)), put("b", 0, at=(3, 6)), put("c", 0, at=(4, 7))),
    "two creations": (create("a", at=(1, 4)), create("b", at=(2, 3))),
    "a refusal of what must happen": (create("a", at=(1, 2)), put("b", 0, at=(3, 4), outcome=BAD_VERSION)),
    "a refusal of what has happened": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=BAD_VERSION),
        get("b", 1, at=(5, 6)),
    ),
    "a node that exists where there is none": (create("a", at=(1, 2), outcome=NODE_EXISTS),),
    "an update of nothing": (put("a", None, at=(1, 2)),),
    "a set that finds nothing where a node is": (create("a", at=(1, 2)), put("b", 0, at=(3, 4), outcome=NO_NODE)),
    "an absence where a node is": (create("a", at=(1, 2)), get_nothing(at=(3, 4))),
    "a node that survives its deletion": (create("a", at=(1, 2)), remove(0, at=(3, 4)), get("a", 0, at=(5, 6))),
    "a deletion at another version": (create("a", at=(1, 2)), put("b", 0, at=(3, 4)), remove(0, at=(5, 6))),
    "a version that does not start again at 0": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4)),
        remove(1, at=(5, 6)),
        create("c", at=(7, 8)),
        get("c", 2, at=(9, 10)),
    ),
    "a version that starts again without a creation": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4)),
        get("b", 0, at=(5, 6)),
    ),
    "an unknown write that happens before its call": (
        create("a", at=(1, 2)),
        get("b", 1, at=(3, 4)),
        put("b", 0, at=(5, 6), outcome=UNKNOWN),
    ),
    "an unknown write that happens twice": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        get("b", 1, at=(5, 6)),
        remove(1, at=(7, 8)),
        create("c", at=(9, 10)),
        get("b", 1, at=(11, 12)),
    ),
    "an unknown write that comes at a version that is gone": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        put("c", 0, at=(5, 6)),
        get("b", 2, at=(7, 8)),
    ),
    "an unknown write that is taken back": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        get("b", 1, at=(5, 6)),
        get("a", 0, at=(7, 8)),
    ),
    "an unknown deletion at another version": (
        create("a", at=(1, 2)),
        remove(1, at=(3, 4), outcome=UNKNOWN),
        get_nothing(at=(5, 6)),
    ),
}

RIGHT = {
    "nothing": (),
    "one after the other": (create("a", at=(1, 2)), put("b", 0, at=(3, 4)), get("b", 1, at=(5, 6))),
    "at the same time, in either order": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 10)),
        get("b", 1, at=(4, 5)),
        get("b", 1, at=(6, 7)),
    ),
    "a return at the moment of a call": (create("a", at=(1, 2)), put("b", 0, at=(3, 5)), get("a", 0, at=(5, 6))),
    "one winner at a version": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 6)),
        put("c", 0, at=(4, 7), outcome=BAD_VERSION),
    ),
    "an unknown write that never happens": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        get("a", 0, at=(5, 6)),
        put("c", 0, at=(7, 8)),
    ),
    "an unknown write that happens late (S1)": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        get("a", 0, at=(5, 6)),
        get("b", 1, at=(7, 8)),
    ),
    "an unknown write that meets the next node of that name (S2)": (
        create("a", at=(1, 2)),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        remove(0, at=(5, 6)),
        create("c", at=(7, 8)),
        get("b", 1, at=(9, 10)),
    ),
    "two unknown writes in the order that is needed": (
        create("a", at=(1, 2)),
        put("c", 1, at=(3, 4), outcome=UNKNOWN),
        put("b", 0, at=(3, 4), outcome=UNKNOWN),
        get("c", 2, at=(5, 6)),
    ),
    "a read without an answer": (get_nothing(at=(1, 2), outcome=UNKNOWN), create("a", at=(3, 4))),
    "an unknown creation that is found": (
        create("a", at=(1, 2), outcome=UNKNOWN),
        create("b", at=(3, 4), outcome=NODE_EXISTS),
        get("a", 0, at=(5, 6)),
    ),
    "any version": (create("a", at=(1, 2)), put("b", None, at=(3, 4)), remove(None, at=(5, 6)), get_nothing(at=(7, 8))),
}


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_what_no_order_explains_is_found(history: tuple[Operation, ...]) -> None:
    (violation,) = judge(history).violations
    before = beginning(history, violation.culprit.return_ns - 1)
    assert longest_order(before).explains_all
    assert not longest_order(beginning(history, violation.culprit.return_ns)).explains_all


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_what_an_order_explains_is_accepted(history: tuple[Operation, ...]) -> None:
    assert judge(history).is_linearizable


def test_the_order_of_the_lines_means_nothing() -> None:
    for history in (*WRONG.values(), *RIGHT.values()):
        assert judge(reversed(history)).is_linearizable == judge(history).is_linearizable


def test_nodes_are_judged_apart() -> None:
    verdict = judge([*right_history(random.Random(1), Shape(keys=3, unknown_share=0)), *WRONG["a stale read"]])
    assert verdict.keys == 4
    assert [violation.key for violation in verdict.violations] == ["/node"]


def test_a_failure_says_what_does_not_fit() -> None:
    (violation,) = judge(WRONG["a stale read"]).violations
    assert violation.culprit.action is Action.GET
    assert violation.longest.left == Present(1, "b")
    assert violation.longest.next == (violation.culprit,)
    text = str(violation)
    assert "not linearizable: /node (3 operations)" in text
    assert "get -> version 0, 'a'" in text
    assert "then the node is at version 1, 'b'" in text


@pytest.mark.parametrize("way", BREAKAGES.values(), ids=BREAKAGES)
def test_each_way_to_break_a_history_is_found_more_often_than_not(way: object) -> None:
    assert callable(way)
    found = tried = 0
    for seed in range(40):
        chance = random.Random(seed)
        history = right_history(chance, random_shape(chance))
        assert judge(history).is_linearizable
        broken = way(chance, history)
        if broken is not None and broken != history:
            tried += 1
            found += not judge(broken).is_linearizable
    assert found * 2 > tried > 10


@pytest.mark.full
def test_thousands_of_operations_on_one_node_are_judged() -> None:
    history = right_history(random.Random(3), Shape(clients=10, operations=2000, unknown_share=0.01))
    assert judge(history).is_linearizable
    broken = phantom_read(random.Random(3), history)
    assert broken is not None
    assert not judge(broken).is_linearizable


def test_a_search_gives_up_rather_than_go_on_for_ever() -> None:
    history = right_history(random.Random(3), Shape(clients=10, operations=400))
    with pytest.raises(UndecidedError, match="fewer clients"):
        longest_order(history, places_max=100)
