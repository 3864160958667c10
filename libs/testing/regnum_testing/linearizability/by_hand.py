"""Histories of one node written by hand, in few words; times are whole nanoseconds.

(create("a", at=(1, 2)), put("b", 0, at=(3, 4), outcome=Outcome.UNKNOWN), get("b", 1, at=(5, 6)))
"""

from typing import Final

from regnum_testing.linearizability.register import Action, Operation, Outcome

KEY: Final = "/node"
"""The node."""


def _operation(
    action: Action,
    at: tuple[int, int],
    outcome: Outcome,
    *,
    expected: int | None = None,
    version: int | None = None,
    value: str | None = None,
) -> Operation:
    call_ns, return_ns = at
    return Operation(
        client=call_ns,
        key=KEY,
        action=action,
        call_ns=call_ns,
        return_ns=return_ns,
        outcome=outcome,
        expected=expected,
        version=version,
        value=value,
    )


def create(value: str, *, at: tuple[int, int], outcome: Outcome = Outcome.OK) -> Operation:
    """Create the node."""
    return _operation(Action.CREATE, at, outcome, value=value)


def put(value: str, expected: int | None, *, at: tuple[int, int], outcome: Outcome = Outcome.OK) -> Operation:
    """Set the node's data."""
    return _operation(Action.SET, at, outcome, expected=expected, value=value)


def remove(expected: int | None, *, at: tuple[int, int], outcome: Outcome = Outcome.OK) -> Operation:
    """Delete the node."""
    return _operation(Action.DELETE, at, outcome, expected=expected)


def get(value: str, version: int, *, at: tuple[int, int]) -> Operation:
    """Find the node."""
    return _operation(Action.GET, at, Outcome.OK, version=version, value=value)


def get_nothing(*, at: tuple[int, int], outcome: Outcome = Outcome.NO_NODE) -> Operation:
    """Find no node, or get no answer."""
    return _operation(Action.GET, at, outcome)
