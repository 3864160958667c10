"""The judge against one that tries every order, on histories small enough for that."""

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_testing.linearizability.by_hand import KEY
from regnum_testing.linearizability.register import Action, Operation, Outcome
from regnum_testing.linearizability.verdict import judge


def answers(order: Sequence[Operation]) -> bool:
    """Whether a node that is used in this order gives these answers; written apart from the judge's own rules."""
    data: str | None = None
    version = 0
    for one in order:
        match one.action:
            case Action.GET:
                answer = Outcome.NO_NODE if data is None else Outcome.OK
                if one.outcome is Outcome.OK and (one.value, one.version) != (data, version):
                    return False
            case Action.CREATE:
                answer = Outcome.OK if data is None else Outcome.NODE_EXISTS
            case _ if data is None:
                answer = Outcome.NO_NODE
            case _ if one.expected not in {None, version}:
                answer = Outcome.BAD_VERSION
            case _:
                answer = Outcome.OK
        if one.outcome not in {answer, Outcome.UNKNOWN}:
            return False
        if answer is Outcome.OK and one.action is Action.CREATE:
            data, version = one.value, 0
        elif answer is Outcome.OK and one.action is Action.SET:
            data, version = one.value, version + 1
        elif answer is Outcome.OK and one.action is Action.DELETE:
            data = None
    return True


def in_time(order: Sequence[Operation]) -> bool:
    """Whether nothing comes before what had returned before its call."""
    return not any(
        later.outcome is not Outcome.UNKNOWN and later.return_ns < earlier.call_ns
        for earlier, later in itertools.combinations(order, 2)
    )


def some_order_explains(history: Sequence[Operation]) -> bool:
    """Try every order of the answered operations with every choice of the others."""
    answered = [one for one in history if one.outcome is not Outcome.UNKNOWN]
    unanswered = [one for one in history if one.outcome is Outcome.UNKNOWN]
    return any(
        in_time(order) and answers(order)
        for count in range(len(unanswered) + 1)
        for happened in itertools.combinations(unanswered, count)
        for order in itertools.permutations([*answered, *happened])
    )


OUTCOMES = {
    Action.CREATE: [Outcome.OK, Outcome.NODE_EXISTS, Outcome.UNKNOWN],
    Action.GET: [Outcome.OK, Outcome.NO_NODE],
    Action.SET: [Outcome.OK, Outcome.NO_NODE, Outcome.BAD_VERSION, Outcome.UNKNOWN],
    Action.DELETE: [Outcome.OK, Outcome.NO_NODE, Outcome.BAD_VERSION, Outcome.UNKNOWN],
}


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    action = draw(st.sampled_from(Action))
    outcome = draw(st.sampled_from(OUTCOMES[action]))
    call_ns = draw(st.integers(0, 8))
    found = action is Action.GET and outcome is Outcome.OK
    writes = action in {Action.CREATE, Action.SET}
    return Operation(
        client=0,
        key=KEY,
        action=action,
        call_ns=call_ns,
        return_ns=call_ns + draw(st.integers(0, 4)),
        outcome=outcome,
        expected=draw(st.none() | st.integers(0, 2)) if action in {Action.SET, Action.DELETE} else None,
        version=draw(st.integers(0, 2)) if found else None,
        value=draw(st.sampled_from("ab")) if found or writes else None,
    )


@given(st.lists(operations(), max_size=5))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_judge_says_what_trying_every_order_says(history: list[Operation]) -> None:
    assert judge(history).is_linearizable == some_order_explains(history)


@st.composite
def plausible_histories(draw: st.DrawFn) -> list[Operation]:
    """Answers of a real order, some of them changed: so that about half of the histories are right."""
    data: str | None = None
    version = 0
    history: list[Operation] = []
    for moment, one in enumerate(draw(st.lists(operations(), min_size=3, max_size=6))):
        changed = draw(st.integers(0, 9)) == 0
        call_ns = max(0, moment * 2 - draw(st.integers(0, 4)))
        answer = Outcome.OK
        if one.action is Action.CREATE and data is not None:
            answer = Outcome.NODE_EXISTS
        elif one.action is not Action.CREATE and data is None:
            answer = Outcome.NO_NODE
        elif one.action in {Action.SET, Action.DELETE} and one.expected not in {None, version}:
            answer = Outcome.BAD_VERSION
        read = one.action is Action.GET and answer is Outcome.OK
        if one.outcome is Outcome.UNKNOWN or changed:
            answer = one.outcome
        history.append(
            Operation(
                client=0,
                key=KEY,
                action=one.action,
                call_ns=call_ns,
                return_ns=moment * 2 + draw(st.integers(0, 4)),
                outcome=answer,
                expected=one.expected,
                version=version if read and answer is Outcome.OK else one.version,
                value=data if read and answer is Outcome.OK else one.value,
            )
        )
        if answer is Outcome.OK and one.action is Action.CREATE:
            data, version = one.value, 0
        elif answer is Outcome.OK and one.action is Action.SET:
            data, version = one.value, version + 1
        elif answer is Outcome.OK and one.action is Action.DELETE:
            data = None
    return history


@given(plausible_histories())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_judge_says_what_trying_every_order_says_of_plausible_histories(history: list[Operation]) -> None:
    assert judge(history).is_linearizable == some_order_explains(history)
