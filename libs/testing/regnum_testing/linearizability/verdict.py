"""A whole history judged, and in words what does not fit.

The nodes are independent: a history is linearizable exactly if that of every node is. Of a node whose history is not,
the shortest beginning that cannot be explained is found by halving: up to the return of some operation, whose answer
is then what makes the history impossible. Operations still under way at that moment count as unanswered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from regnum_testing.linearizability.register import Absent, Action, Operation, Outcome, Present, Register
from regnum_testing.linearizability.search import Order, UndecidedError, longest_order

_SHOWN: Final = 12
"""Operations shown of the end of an order; what came before them is rarely to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A node whose history no order explains."""

    key: str
    """Path of the node."""
    operations: int
    """Operations on it."""
    culprit: Operation
    """The answer that makes it impossible: up to just before its return the history can be explained."""
    longest: Order
    """The longest order of the history up to that return."""

    def __str__(self) -> str:
        """What does not fit, for people."""
        order = self.longest.operations
        start_ns = min(operation.call_ns for operation in (*order, *self.longest.next))
        lines = [
            f"not linearizable: {self.key} ({self.operations} operations)",
            "  all is explained up to just before this answer:",
            f"    {describe(self.culprit, start_ns)}",
            f"  the longest order up to its return has {len(order)} operations; its end:",
        ]
        lines += [f"    {describe(operation, start_ns)}" for operation in order[-_SHOWN:]]
        lines += [f"  then the node {_held(self.longest.left)}, and one of these would have to come next:"]
        lines += [f"    {describe(operation, start_ns)}" for operation in self.longest.next]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in a history."""

    operations: int
    """Operations judged."""
    unknown: int
    """Of these without an answer."""
    keys: int
    """Nodes."""
    violations: tuple[Violation, ...] = ()
    """Nodes that are not linearizable."""
    undecided: tuple[str, ...] = ()
    """Nodes whose search gave up."""

    @property
    def is_linearizable(self) -> bool:
        """Whether every node's history was explained."""
        return not self.violations and not self.undecided

    def __str__(self) -> str:
        """The result, for people."""
        if self.is_linearizable:
            return f"linearizable: {self.operations} operations ({self.unknown} unknown) on {self.keys} nodes"
        found = [str(violation) for violation in self.violations]
        return "\n".join(found + [f"undecided: {key}" for key in self.undecided])


def judge(history: Iterable[Operation]) -> Verdict:
    """Judge every node of a history."""
    by_key: dict[str, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    violations: list[Violation] = []
    undecided: list[str] = []
    for key, operations in by_key.items():
        try:
            if not longest_order(operations).explains_all:
                violations.append(_violation(key, operations))
        except UndecidedError:
            undecided.append(key)
    return Verdict(
        operations=sum(len(operations) for operations in by_key.values()),
        unknown=sum(one.outcome is Outcome.UNKNOWN for operations in by_key.values() for one in operations),
        keys=len(by_key),
        violations=tuple(violations),
        undecided=tuple(undecided),
    )


def beginning(operations: Sequence[Operation], until_ns: int) -> list[Operation]:
    """What had been called by that moment; what had not returned by then has no answer yet."""
    return [
        operation if operation.return_ns <= until_ns else replace(operation, outcome=Outcome.UNKNOWN)
        for operation in operations
        if operation.call_ns <= until_ns
    ]


def _violation(key: str, operations: Sequence[Operation]) -> Violation:
    """Halve until the return that makes the history impossible is found."""
    returns = sorted(
        (operation for operation in operations if operation.outcome is not Outcome.UNKNOWN),
        key=lambda operation: operation.return_ns,
    )
    explained, impossible = -1, len(returns) - 1
    while impossible - explained > 1:
        middle = (explained + impossible) // 2
        if longest_order(beginning(operations, returns[middle].return_ns)).explains_all:
            explained = middle
        else:
            impossible = middle
    culprit = returns[impossible]
    longest = longest_order(beginning(operations, culprit.return_ns))
    return Violation(key=key, operations=len(operations), culprit=culprit, longest=longest)


def describe(operation: Operation, start_ns: int) -> str:
    """One operation in words, with milliseconds since the start."""
    asked = operation.action.value
    if operation.action in {Action.CREATE, Action.SET}:
        asked += f" {operation.value!r}"
    if operation.action in {Action.SET, Action.DELETE}:
        asked += " at any version" if operation.expected is None else f" at version {operation.expected}"
    if operation.action is Action.GET and operation.outcome is Outcome.OK:
        answer = f"version {operation.version}, {operation.value!r}"
    else:
        answer = operation.outcome.value
    call_ms = (operation.call_ns - start_ns) / 1e6
    until = "..." if operation.outcome is Outcome.UNKNOWN else f"{(operation.return_ns - start_ns) / 1e6:.3f}"
    return f"[{call_ms:.3f} - {until} ms] client {operation.client}: {asked} -> {answer}"


def _held(register: Register) -> str:
    match register:
        case Absent():
            return "does not exist"
        case Present(version=version, value=value):
            return f"is at version {version}, {value!r}"
