"""Histories with one thing wrong: what a store that breaks its promises lets its clients see.

    stale_read          a get that finds what had been overwritten before it was called
    phantom_read        a get that finds data that nobody ever wrote
    wrong_version       a get that finds the right data at another version
    false_absence       a get that finds no node where there is one
    double_success      a write that is told to have happened, though another at the same version came before it
    false_refusal       a write that happened and is told to have been refused
    lost_write          a write that nobody knows of, and whose data was read
    forgotten_effect    a second acknowledged write that left no trace
    moved_in_time       an operation that happened at another time than between its call and its return

By chance a broken history may still be linearizable: what it is, is for judges to say.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from regnum_testing.linearizability.register import Action, Operation, Outcome

Breakage = Callable[[random.Random, Sequence[Operation]], list[Operation] | None]
"""What breaks a history; None where the history has nothing of the kind to break."""


def broken_history(chance: random.Random, history: Sequence[Operation]) -> list[Operation]:
    """The history with one thing wrong, chosen by chance."""
    ways = list(BREAKAGES.values())
    chance.shuffle(ways)
    return next(broken for way in ways if (broken := way(chance, history)) is not None)


def _chosen(
    chance: random.Random, history: Sequence[Operation], fits: Callable[[Operation], bool]
) -> tuple[int, Operation] | None:
    found = [(place, operation) for place, operation in enumerate(history) if fits(operation)]
    return chance.choice(found) if found else None


def _with(history: Sequence[Operation], place: int, operation: Operation) -> list[Operation]:
    return [*history[:place], operation, *history[place + 1 :]]


def _found_something(operation: Operation) -> bool:
    return operation.action is Action.GET and operation.outcome is Outcome.OK


def _is_answered_write(operation: Operation) -> bool:
    return operation.action is not Action.GET and operation.outcome is not Outcome.UNKNOWN


def stale_read(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A get answers what an earlier one had found."""
    if (chosen := _chosen(chance, history, lambda one: one.action is Action.GET)) is None:
        return None
    place, read = chosen
    earlier = [
        one
        for one in history
        if _found_something(one)
        and one.key == read.key
        and one.return_ns < read.call_ns
        and (one.version, one.value) != (read.version, read.value)
    ]
    if not earlier:
        return None
    seen = chance.choice(earlier)
    return _with(history, place, replace(read, outcome=Outcome.OK, version=seen.version, value=seen.value))


def phantom_read(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A get answers data that nobody wrote."""
    if (chosen := _chosen(chance, history, _found_something)) is None:
        return None
    place, read = chosen
    return _with(history, place, replace(read, value="written by nobody"))


def wrong_version(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A get answers another version."""
    if (chosen := _chosen(chance, history, _found_something)) is None:
        return None
    place, read = chosen
    version = 0 if read.version is None else read.version
    return _with(history, place, replace(read, version=0 if version and chance.random() < 0.3 else version + 1))


def false_absence(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A get answers that there is no node."""
    if (chosen := _chosen(chance, history, _found_something)) is None:
        return None
    place, read = chosen
    return _with(history, place, replace(read, outcome=Outcome.NO_NODE, version=None, value=None))


def double_success(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A refused write answers that it happened."""
    refused = {Outcome.BAD_VERSION, Outcome.NODE_EXISTS, Outcome.NO_NODE}
    chosen = _chosen(chance, history, lambda one: one.action is not Action.GET and one.outcome in refused)
    if chosen is None:
        return None
    place, write = chosen
    return _with(history, place, replace(write, outcome=Outcome.OK))


def false_refusal(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A write that happened answers that it was refused."""
    if (chosen := _chosen(chance, history, lambda one: _is_answered_write(one) and one.outcome is Outcome.OK)) is None:
        return None
    place, write = chosen
    if write.action is Action.CREATE:
        refusal = Outcome.NODE_EXISTS
    else:
        refusal = chance.choice([Outcome.NO_NODE, Outcome.BAD_VERSION])
    return _with(history, place, replace(write, outcome=refusal))


def lost_write(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A write is missing."""
    if (chosen := _chosen(chance, history, lambda one: _is_answered_write(one) and one.outcome is Outcome.OK)) is None:
        return None
    place, _ = chosen
    return [*history[:place], *history[place + 1 :]]


def forgotten_effect(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """A write is there twice."""
    if (chosen := _chosen(chance, history, lambda one: _is_answered_write(one) and one.outcome is Outcome.OK)) is None:
        return None
    _, write = chosen
    return [*history, replace(write, client=write.client + 1_000)]


def moved_in_time(chance: random.Random, history: Sequence[Operation]) -> list[Operation] | None:
    """An operation is somewhere else in time."""
    if (chosen := _chosen(chance, history, lambda one: one.outcome is not Outcome.UNKNOWN)) is None:
        return None
    place, operation = chosen
    by_ns = chance.choice([-50_000, -5_000, 5_000, 50_000])
    moved = replace(operation, call_ns=operation.call_ns + by_ns, return_ns=operation.return_ns + by_ns)
    return _with(history, place, moved)


BREAKAGES: Final[dict[str, Breakage]] = {
    "stale read": stale_read,
    "phantom read": phantom_read,
    "wrong version": wrong_version,
    "false absence": false_absence,
    "double success": double_success,
    "false refusal": false_refusal,
    "lost write": lost_write,
    "forgotten effect": forgotten_effect,
    "moved in time": moved_in_time,
}
"""Every way to break a history."""
