"""An order of one node's operations that explains every answer (Wing and Gong's search, with Lowe's memory).

Goals: decide whether the operations of one node are linearizable: whether each can be given one moment between its
call and its return, so that a register which carries them out one after the other in the order of those moments gives
exactly the answers that were given. Thousands of operations with some ten at the same time take a second or two.

Constraints: an operation without an answer may have its moment at any time after its call, or none at all. The problem
is NP-complete; what helps is that few operations overlap. So that a search ends, the number of places that it may
look at is bounded.

Algorithm: place operations one after the other. Next may come any operation that was called before the first return
among those that still have to be placed: were it placed later, that one would have returned before it. If none fits the
register, take the last one back and try its neighbour. What is done when all operations with an answer are placed;
those without one stay out if they are not needed, and are tried last.

Four things keep the search small. Where the same operations have been placed and left the same register, the rest of
the search is the same, so such a place is entered once; a place for which more of the unanswered ones were spent can
do no more than one for which fewer were. Data that no get found is all the same to the register. Unanswered
operations that do the same are spent in the order of their calls: once called, they never cease to be possible. And
data that one operation alone writes is written at a version at which it was found, if it was found at all.

The operations still to be placed form a linked list in the order of their calls, from which one is unlinked when it is
placed and linked again at the same spot when it is taken back. What has been placed is remembered as the number of the
first that has not, and bits for those after it.

Example: get -> 1 called at 3, returned at 4; set 1 called at 1, no answer: placed as set 1, get. Had the get returned
at 0, before the call of the set, nothing would fit: not linearizable.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from regnum_testing.linearizability.register import (
    ABSENT,
    Action,
    Operation,
    Outcome,
    Present,
    Register,
    follow,
    perform,
)

PLACES_MAX: Final = 1_000_000
"""Places that a search looks at before it gives up."""


class UndecidedError(Exception):
    """The search gave up: too many operations at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The longest order that was found."""

    operations: tuple[Operation, ...]
    """In the order in which they happened; without those that have no answer and are not needed."""
    left: Register
    """What the register holds after them."""
    next: tuple[Operation, ...]
    """Operations one of which would have to come next, and none of which fits. Empty: the history is explained."""

    @property
    def explains_all(self) -> bool:
        """Whether every operation that was answered has its place."""
        return not self.next


@dataclass(slots=True, kw_only=True)
class _Step:
    """An operation that has been placed, and what has not been tried in its stead."""

    placed: int | None
    """Number of the operation; None at the start."""
    left: Register
    """What the register holds after it."""
    choices: Iterator[int] = field(default_factory=lambda: iter(()))
    """What may be tried next."""


def longest_order(operations: Sequence[Operation], *, places_max: int = PLACES_MAX) -> Order:
    """The order that explains all operations of one node, or the longest that explains some.

    Raises UndecidedError after ``places_max`` places.
    """
    return _Search(operations).run(places_max)


class _Search:
    """One search; numbers are places in the order of calls, the operations without an answer counted apart."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        by_call = sorted(operations, key=lambda operation: operation.call_ns)
        found: dict[str | None, set[int | None]] = defaultdict(set)
        writers: Counter[str | None] = Counter()
        for operation in operations:
            if operation.action is not Action.GET:
                writers[operation.value] += 1
            elif operation.outcome is Outcome.OK:
                found[operation.value].add(operation.version)
        self._answered = [operation for operation in by_call if operation.outcome is not Outcome.UNKNOWN]
        # A read without an answer changes nothing and tells nothing.
        self._open = [
            operation
            for operation in by_call
            if operation.outcome is Outcome.UNKNOWN and operation.action is not Action.GET
        ]
        count = len(self._answered)
        self._end = count
        self._effects = [
            operation if operation.value in found else replace(operation, value=None)
            for operation in (*self._answered, *self._open)
        ]
        self._versions = [
            found[one.value]
            if one.action is not Action.GET and one.value in found and writers[one.value] == 1
            else None
            for one in self._effects
        ]
        self._twins = [(one.action, one.expected, one.value) for one in self._effects[count:]]
        # Links go round through the end, so that the first is what follows the end.
        self._next = [*range(1, count + 1), 0]
        self._previous = [count, *range(count)]
        self._placed_bits = 0
        self._first_unplaced = 0
        self._open_bits = 0
        self._unplaced = count

    def run(self, places_max: int) -> Order:
        """Search; see the head of the module."""
        start = _Step(placed=None, left=ABSENT)
        start.choices = iter(self._choices())
        steps = [start]
        longest, fewest_unplaced = [start], self._unplaced
        seen: dict[tuple[int, int, Register], list[int]] = {}
        places = 0
        while self._unplaced:
            step = steps[-1]
            for number in step.choices:
                after = follow(self._effects[number], step.left)
                if after is None or self._contradicts_reads(number, after):
                    continue
                self._place(number)
                spent = seen.setdefault((self._first_unplaced, self._placed_bits, after), [])
                if any(bits & ~self._open_bits == 0 for bits in spent):
                    self._take_back(number)
                    continue
                spent.append(self._open_bits)
                places += 1
                if places > places_max:
                    raise UndecidedError(f"undecided after {places_max} places; record fewer clients for each node")
                taken = _Step(placed=number, left=after)
                taken.choices = iter(self._choices())
                steps.append(taken)
                if self._unplaced < fewest_unplaced:
                    fewest_unplaced, longest = self._unplaced, list(steps)
                break
            else:
                steps.pop()
                if step.placed is None:
                    break
                self._take_back(step.placed)
        return self._order(longest)

    def _contradicts_reads(self, number: int, after: Register) -> bool:
        versions = self._versions[number]
        return versions is not None and isinstance(after, Present) and after.version not in versions

    def _choices(self) -> list[int]:
        """Operations that may come next: those called before the first return of what is still to be placed."""
        choices: list[int] = []
        first_return_ns: int | None = None
        number = self._next[self._end]
        while number != self._end:
            operation = self._answered[number]
            if first_return_ns is not None and operation.call_ns > first_return_ns:
                break
            choices.append(number)
            if first_return_ns is None or operation.return_ns < first_return_ns:
                first_return_ns = operation.return_ns
            number = self._next[number]
        tried: set[tuple[Action, int | None, str | None]] = set()
        for index, operation in enumerate(self._open):
            if first_return_ns is None or operation.call_ns > first_return_ns:
                break
            if not self._open_bits >> index & 1 and self._twins[index] not in tried:
                tried.add(self._twins[index])
                choices.append(self._end + index)
        return choices

    def _place(self, number: int) -> None:
        if number >= self._end:
            self._open_bits |= 1 << (number - self._end)
            return
        self._next[self._previous[number]] = self._next[number]
        self._previous[self._next[number]] = self._previous[number]
        self._unplaced -= 1
        self._placed_bits |= 1 << (number - self._first_unplaced)
        self._move_window()

    def _take_back(self, number: int) -> None:
        if number >= self._end:
            self._open_bits &= ~(1 << (number - self._end))
            return
        self._next[self._previous[number]] = number
        self._previous[self._next[number]] = number
        self._unplaced += 1
        # The window never begins behind the first that is unplaced: everything in between is placed.
        back = self._first_unplaced - number
        if back > 0:
            self._placed_bits = (self._placed_bits << back) | ((1 << back) - 1)
            self._first_unplaced = number
        self._placed_bits &= ~(1 << (number - self._first_unplaced))

    def _move_window(self) -> None:
        first = self._next[self._end]
        self._placed_bits >>= first - self._first_unplaced
        self._first_unplaced = first

    def _order(self, steps: list[_Step]) -> Order:
        placed = [step.placed for step in steps if step.placed is not None]
        operations = tuple(
            self._answered[number] if number < self._end else self._open[number - self._end] for number in placed
        )
        left: Register = ABSENT
        for operation in operations:
            _, left = perform(operation, left)
        rest: tuple[Operation, ...] = ()
        missing = sorted(set(range(self._end)) - set(placed))
        if missing:
            first_return_ns = min(self._answered[number].return_ns for number in missing)
            rest = tuple(self._answered[n] for n in missing if self._answered[n].call_ns <= first_return_ns)
        return Order(operations=operations, left=left, next=rest)
