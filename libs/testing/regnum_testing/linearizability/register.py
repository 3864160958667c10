"""A node as a register with versions: created, set, read, deleted.

The promise of the coordination port for one node (safety rules S1 and S2): versions count the sets since the creation
and start again at 0 with the next one; a set or delete that names a version happens at that version only.
"""

import enum
from dataclasses import dataclass
from typing import Final, assert_never


class Action(enum.Enum):
    """What a client asks for."""

    CREATE = "create"
    GET = "get"
    SET = "set"
    DELETE = "delete"


class Outcome(enum.Enum):
    """What a client was told."""

    OK = "ok"
    """It happened, or the node was read."""
    NODE_EXISTS = "node_exists"
    """Not created: the node is there."""
    NO_NODE = "no_node"
    """The node is not there."""
    BAD_VERSION = "bad_version"
    """The node is at another version than expected."""
    UNKNOWN = "unknown"
    """No answer: it may happen at any time after the call, or never (safety rule S1)."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such node."""


@dataclass(frozen=True, slots=True)
class Present:
    """The node is there."""

    version: int
    """Sets since its creation."""
    value: str | None
    """Its data; None where a search does not care."""


Register = Absent | Present
"""State of one node."""

ABSENT: Final = Absent()
"""How every node begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one client on one node, from its call to its return."""

    client: int
    """Who asked; a client has one operation at a time, and goes on after an unknown one."""
    key: str
    """Path of the node."""
    action: Action
    """What was asked for."""
    call_ns: int
    """Before the request was sent, on the clock that all clients share."""
    return_ns: int
    """After the answer came; for an unknown outcome, when the client gave up: it means nothing to the order."""
    outcome: Outcome
    """What was answered."""
    expected: int | None = None
    """Version that a set or delete names; None: any."""
    version: int | None = None
    """Version that a get found; None otherwise."""
    value: str | None = None
    """Data that was to be written, or that a get found; None for a delete and for a get that found nothing."""


def perform(operation: Operation, register: Register) -> tuple[Outcome, Register]:
    """What the store must answer, and what it holds afterwards."""
    match operation.action:
        case Action.GET:
            return (Outcome.OK if isinstance(register, Present) else Outcome.NO_NODE), register
        case Action.CREATE:
            if isinstance(register, Present):
                return Outcome.NODE_EXISTS, register
            return Outcome.OK, Present(0, operation.value)
        case Action.SET | Action.DELETE:
            return _change(operation, register)
        case _:
            assert_never(operation.action)


def _change(operation: Operation, register: Register) -> tuple[Outcome, Register]:
    if isinstance(register, Absent):
        return Outcome.NO_NODE, register
    if operation.expected is not None and operation.expected != register.version:
        return Outcome.BAD_VERSION, register
    if operation.action is Action.DELETE:
        return Outcome.OK, ABSENT
    return Outcome.OK, Present(register.version + 1, operation.value)


def follow(operation: Operation, register: Register) -> Register | None:
    """What the register holds after the operation; None if the operation cannot have its place here.

    One without an answer has its place where it changes something: elsewhere it may as well not have happened.
    """
    answer, after = perform(operation, register)
    if operation.outcome is Outcome.UNKNOWN:
        return None if after == register else after
    if operation.outcome is not answer:
        return None
    if operation.action is Action.GET and isinstance(register, Present):
        return after if (operation.version, operation.value) == (register.version, register.value) else None
    return after
