"""Clients that compete for a few nodes: compare-and-set, read, create and delete, as chance has it.

Each client writes at the version that it saw last, so that of several only one can be right. Refused, or without an
answer, it reads before it writes again: so clients that reach no store leave no heap of unknown writes behind. Few
writes are without a version: where one of them got no answer, little can be told apart. Every other creation happens
only while another node is absent.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from regnum_testing.linearizability.recorder import Recorder
from regnum_testing.linearizability.register import Action, Operation, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often a client does what, in parts of the whole."""

    gets: int = 40
    """Reads."""
    sets: int = 52
    """Sets of a node that it saw."""
    deletes: int = 4
    """Deletes of a node that it saw."""
    careless: int = 1
    """Creates, and sets without a version, of a node that it saw."""


class Competitor:
    """One client; its choices are its own, from its own source of chance."""

    def __init__(self, recorder: Recorder, keys: Sequence[str], chance: random.Random, *, name: str) -> None:
        self._recorder = recorder
        self._keys = tuple(keys)
        self._chance = chance
        self._name = name
        self._habits = Habits()
        # Nodes that the client has not seen since it last lost track are not in it; None: it found no node.
        self._seen: dict[str, int | None] = {}
        self._values = 0

    async def act(self) -> Operation:
        """One operation."""
        key = self._chance.choice(self._keys)
        operation = await self._ask(self._choose(key), key)
        self._learn(operation)
        return operation

    def _choose(self, key: str) -> Action:
        habits = self._habits
        if key not in self._seen:
            return Action.GET
        if self._seen[key] is None:
            return self._chance.choice([Action.GET, Action.CREATE])
        weights = [habits.careless, habits.gets, habits.sets, habits.deletes]
        return self._chance.choices(list(Action), weights=weights)[0]

    async def _ask(self, action: Action, key: str) -> Operation:
        version = self._seen.get(key)
        match action:
            case Action.GET:
                return await self._recorder.get(key)
            case Action.CREATE:
                other = self._chance.choice(self._keys)
                if other != key and self._chance.randrange(2):
                    return await self._recorder.create_beside(key, self._value(), absent=other)
                return await self._recorder.create(key, self._value())
            case Action.SET:
                careless = self._chance.randrange(100) < self._habits.careless
                return await self._recorder.set(key, self._value(), version=None if careless else version)
            case Action.DELETE:
                return await self._recorder.delete(key, version=version)
            case _:
                assert_never(action)

    def _value(self) -> str:
        """Data that nobody else writes."""
        self._values += 1
        return f"{self._name}.{self._values}"

    def _learn(self, operation: Operation) -> None:
        match operation.action, operation.outcome:
            case Action.GET, Outcome.OK:
                self._seen[operation.key] = operation.version
            case (Action.GET, Outcome.NO_NODE) | (Action.DELETE, Outcome.OK):
                self._seen[operation.key] = None
            case Action.CREATE, Outcome.OK:
                self._seen[operation.key] = 0
            case Action.SET, Outcome.OK if operation.expected is not None:
                self._seen[operation.key] = operation.expected + 1
            case _:
                self._seen.pop(operation.key, None)
