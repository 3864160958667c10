"""Random histories, right by construction.

A register is used by a few clients at the same time: every operation takes effect at one moment between its call and
its return, one without an answer at some moment after its call, also long after its client has gone on, or never.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from regnum_testing.linearizability.register import (
    ABSENT,
    Action,
    Operation,
    Outcome,
    Present,
    Register,
    perform,
)

_WAY_NS = 1_000
"""Longest way of a request to the register, and of an answer back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large and how confused a history is."""

    clients: int = 5
    """Clients, each with one operation at a time."""
    operations: int = 40
    """Operations, on all nodes."""
    keys: int = 1
    """Nodes."""
    unknown_share: float = 0.1
    """Chance that an operation gets no answer."""


def random_shape(chance: random.Random) -> Shape:
    """Some shape, small enough to be judged at once."""
    return Shape(
        clients=chance.randint(1, 5),
        operations=chance.randint(4, 50),
        keys=chance.choice([1, 1, 1, 2, 3]),
        unknown_share=chance.choice([0.0, 0.05, 0.1, 0.3]),
    )


def right_history(chance: random.Random, shape: Shape) -> list[Operation]:
    """A linearizable history, in the order of the returns."""
    return _Simulation(chance, shape).run()


class _Simulation:
    """Clients that use registers, on a clock of nanoseconds that moves from event to event."""

    def __init__(self, chance: random.Random, shape: Shape) -> None:
        self._chance = chance
        self._shape = shape
        self._registers: dict[str, Register] = {f"/node{number}": ABSENT for number in range(shape.keys)}
        self._known: dict[tuple[int, str], Register] = {}
        self._history: list[Operation] = []
        self._asked = 0
        self._order = itertools.count()
        self._events: list[tuple[int, int, Callable[[int], None]]] = []

    def run(self) -> list[Operation]:
        """Let the clients work until all operations are done."""
        for client in range(self._shape.clients):
            self._at(self._chance.randrange(_WAY_NS), partial(self._call, client))
        while self._events:
            now_ns, _, event = heapq.heappop(self._events)
            event(now_ns)
        return self._history

    def _at(self, moment_ns: int, event: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (moment_ns, next(self._order), event))

    def _way_ns(self) -> int:
        return self._chance.randrange(_WAY_NS)

    def _call(self, client: int, now_ns: int) -> None:
        if self._asked == self._shape.operations:
            return
        self._asked += 1
        asked = self._choose(client, now_ns)
        if self._chance.random() >= self._shape.unknown_share:
            self._at(now_ns + self._way_ns(), partial(self._arrive, asked))
            return
        if self._chance.random() < 0.6:
            late_ns = self._chance.choice([0, 5 * _WAY_NS, 50 * _WAY_NS])
            self._at(now_ns + self._way_ns() + late_ns, partial(self._arrive_late, asked))
        self._at(now_ns + 2 * _WAY_NS, lambda at_ns: self._return(replace(asked, return_ns=at_ns)))

    def _choose(self, client: int, now_ns: int) -> Operation:
        """What the client asks for, from what it saw last."""
        key = self._chance.choice(list(self._registers))
        known = self._known.get((client, key), ABSENT)
        if isinstance(known, Present):
            action = self._chance.choices(list(Action), weights=[1, 6, 10, 2])[0]
        else:
            action = self._chance.choices(list(Action), weights=[5, 4, 1, 1])[0]
        expected: int | None = None
        if action in {Action.SET, Action.DELETE} and self._chance.random() < 0.8:
            expected = known.version if isinstance(known, Present) else self._chance.randrange(3)
        return Operation(
            client=client,
            key=key,
            action=action,
            call_ns=now_ns,
            return_ns=now_ns,
            outcome=Outcome.UNKNOWN,
            expected=expected,
            value=f"value {self._asked}" if action in {Action.CREATE, Action.SET} else None,
        )

    def _perform(self, asked: Operation) -> Operation:
        """Let it take effect; the operation with its answer."""
        before = self._registers[asked.key]
        outcome, after = perform(asked, before)
        self._registers[asked.key] = after
        if asked.action is Action.GET and isinstance(before, Present):
            return replace(asked, outcome=outcome, version=before.version, value=before.value)
        return replace(asked, outcome=outcome)

    def _arrive_late(self, asked: Operation, now_ns: int) -> None:
        del now_ns
        self._perform(asked)

    def _arrive(self, asked: Operation, now_ns: int) -> None:
        answered = self._perform(asked)
        seen = self._registers[asked.key]
        back_ns = now_ns + self._way_ns()

        def come_back(at_ns: int) -> None:
            self._known[asked.client, asked.key] = seen
            self._return(replace(answered, return_ns=at_ns))

        self._at(back_ns, come_back)

    def _return(self, done: Operation) -> None:
        self._history.append(done)
        pause_ns = self._chance.choice([1, 100, 2 * _WAY_NS])
        self._at(done.return_ns + pause_ns, partial(self._call, done.client))
