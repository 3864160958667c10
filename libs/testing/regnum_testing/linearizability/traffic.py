"""Clients that compete for a few nodes: compare-and-set, read, create and delete, as chance has it.

Each client writes at the version that it saw last, so that of several only one can be right; now and then it reads
again. Few operations are without a version: after one that got no answer, little can be told apart.
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
        self._versions: dict[str, int | None] = dict.fromkeys(keys)
        self._values = 0

    async def act(self) -> Operation:
        """One operation."""
        key = self._chance.choice(self._keys)
        operation = await self._ask(key, self._versions[key])
        self._learn(operation)
        return operation

    async def _ask(self, key: str, version: int | None) -> Operation:
        habits = self._habits
        if version is None:
            action = self._chance.choices([Action.GET, Action.CREATE], weights=[2, 1])[0]
        else:
            weights = [habits.careless, habits.gets, habits.sets, habits.deletes]
            action = self._chance.choices(list(Action), weights=weights)[0]
        match action:
            case Action.GET:
                return await self._recorder.get(key)
            case Action.CREATE:
                return await self._recorder.create(key, self._value())
            case Action.SET:
                careless = self._chance.randrange(100) < habits.careless
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
        """What the client believes of the node now; None where it had better read."""
        match operation.action, operation.outcome:
            case Action.GET, Outcome.OK:
                known = operation.version
            case Action.CREATE, Outcome.OK:
                known = 0
            case Action.SET, Outcome.OK:
                known = None if operation.expected is None else operation.expected + 1
            case _:
                known = None
        self._versions[operation.key] = known
