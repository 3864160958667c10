"""Options as other tools spell them, written as these commands spell them. Pure.

Goals: an option of this command keeps its meaning; a spelling of another tool is taken where this command has none of
that name, or where the value tells which is meant; any other one is told at once, with what is valid.

Algorithm: one pass over the arguments with what the command's options are, so that the value of an option is never
taken for an option itself.

Example: of ``consume orders -C -o beginning -c 5 -e`` comes
``consume orders --from=beginning --max-messages=5 --until-end``.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

VALUE: Final = "{}"
"""Stands for the value of an option in ``Habit.becomes``; alone: the value is an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """An option of another tool."""

    becomes: tuple[str, ...] = ()
    """What it is here, with VALUE where its own value goes; none: it says what the command does anyway."""
    argument: str = ""
    """Where ``becomes`` is VALUE alone: what the argument of the command is called."""
    only: Callable[[str], bool] | None = None
    """For which values, where the command has an option of the same name; None: for none then."""
    answer: str = ""
    """What to do instead; not empty: it is not accepted."""

    @property
    def takes_value(self) -> bool:
        """Whether a value belongs to it."""
        return any(VALUE in one for one in self.becomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a command takes."""

    options: Mapping[str, bool]
    """Its options in all their spellings, and whether each takes a value."""
    arguments: Sequence[str] = ()
    """What its arguments are called in the help."""

    def can_take(self, habit: Habit) -> bool:
        """Whether what an option becomes is there."""
        if habit.argument:
            return any(habit.argument in one for one in self.arguments)
        return all(one.partition("=")[0] in self.options for one in habit.becomes)


class HabitError(Exception):
    """An option is none of this command, and means nothing else here. The message says what to do instead."""


class MissingValueError(Exception):
    """An option stands without its value. The message is its name."""


class UnknownOptionError(Exception):
    """An option is none of any tool that is known. The message is its name."""


def rewritten(arguments: Sequence[str], known: Known, habits: Mapping[str, Habit]) -> list[str]:
    """The arguments as the command takes them. Raises HabitError, MissingValueError and UnknownOptionError."""
    left = deque(arguments)
    first: list[str] = []
    rest: list[str] = []
    while left:
        word = left.popleft()
        if word == "--":
            rest += [word, *left]
            break
        if len(word) < 2 or not word.startswith("-"):
            rest.append(word)
            continue
        name, value = _split(word)
        habit = habits.get(name)
        if habit is not None and _is_meant(habit, name, value or (left[0] if left else ""), known):
            given = _given(habit, name, value, left)
            (first if habit.argument else rest).extend(one.replace(VALUE, given) for one in habit.becomes)
        elif name not in known.options:
            raise UnknownOptionError(name)
        elif not known.options[name] and value is not None and not name.startswith("--"):
            # Several letters behind one dash.
            rest.append(name)
            left.appendleft(f"-{value}")
        else:
            rest.append(word)
            if known.options[name] and value is None:
                rest.append(_next(name, left))
    return first + rest


def _split(word: str) -> tuple[str, str | None]:
    """An option and its value, where both are one word; None: the value is not in it."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:] or None


def _is_meant(habit: Habit, name: str, value: str, known: Known) -> bool:
    if name in known.options:
        return habit.only is not None and bool(value) and habit.only(value)
    return bool(habit.answer) or known.can_take(habit)


def _given(habit: Habit, name: str, value: str | None, left: deque[str]) -> str:
    """The value that goes with it; empty: none does."""
    if habit.answer:
        raise HabitError(f"{name} is no option here: {habit.answer}")
    if not habit.takes_value:
        if value is not None and not name.startswith("--"):
            left.appendleft(f"-{value}")
        return ""
    if value is not None:
        return value
    return _next(name, left)


def _next(name: str, left: deque[str]) -> str:
    if not left:
        raise MissingValueError(name)
    return left.popleft()
