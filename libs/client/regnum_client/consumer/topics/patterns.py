r"""Patterns of topic names, matched in a time that nobody can stretch. Pure.

Goals: a consumer reads all topics whose names match. Whoever may create topics chooses names, so no name may take long:
Python's own ``re`` tries one way after another, for hours where a pattern like ``(a+)+b`` meets a name of many a's, and
holds the interpreter meanwhile.

Algorithm: a pattern becomes an automaton with a bounded number of states (Thompson's construction), and a name is
followed through all of them at once: its length times the number of states, whatever both are. What it understands is
the common part of all dialects: characters, ``.``, ``[a-z]`` and ``[^a-z]``, ``\d``, ``\w`` and an escaped character,
``( )`` and ``(?: )``, ``|``, ``*``, ``+``, ``?``, ``{m}``, ``{m,}`` and ``{m,n}``. It matches whole names, as in Kafka;
``^`` at the beginning and ``$`` at the end change nothing. Anything else is refused, and not taken for a character.

Example: ``orders-(eu|us)-v[0-9]+`` matches orders-eu-v2 and not my-orders-eu-v2.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from regnum_model.topics import INTERNAL_TOPICS

STATES_MAX: Final = 1_000
"""Of one automaton: a topic's name has 249 characters at most, so it is followed in 249,000 steps."""
LENGTH_MAX: Final = 1_000
"""Characters of a pattern."""
DEPTH_MAX: Final = 50
"""Groups within one another."""

_DIGITS: Final = frozenset("0123456789")
_WORD: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD}
_SPECIAL: Final = frozenset("\\.[](){}|*+?^$")


class PatternError(ValueError):
    """What is no pattern. The message says why."""


@dataclass(frozen=True, slots=True)
class _Set:
    """Characters, or all but these."""

    characters: frozenset[str]
    negated: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.characters) is not self.negated


_ANY: Final = _Set(frozenset(), negated=True)


@dataclass(slots=True)
class _State:
    """What leads on from here: one character of a set, or nothing."""

    by: _Set | None = None
    then: int = -1
    free: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the automaton."""

    begin: int
    end: int


class TopicPattern:
    """A pattern of topic names."""

    def __init__(self, text: str) -> None:
        """Raises PatternError for what is no pattern, or one that is too large."""
        self.text: Final = text
        """As it was given."""
        if not 0 < len(text) <= LENGTH_MAX:
            raise _invalid(text, f"it has {len(text)} characters, and may have 1 to {LENGTH_MAX}")
        self._states: Final[list[_State]] = []
        body = text.removeprefix("^")
        if body.endswith("$") and not body.endswith("\\$"):
            body = body[:-1]
        self._body: Final = body
        self._at = 0
        whole = self._alternatives(0)
        if self._at < len(body):
            raise self._unexpected()
        self._begin: Final = self._closed([whole.begin])
        self._end: Final = whole.end

    def matches(self, name: str) -> bool:
        """Whether a whole name is as the pattern says."""
        now = self._begin
        for character in name:
            now = self._closed(
                self._states[at].then for at in now if (by := self._states[at].by) is not None and character in by
            )
            if not now:
                return False
        return self._end in now

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match, without the cluster's own topics."""
        return frozenset(name for name in names if name not in INTERNAL_TOPICS and self.matches(name))

    def _closed(self, states: Iterable[int]) -> frozenset[int]:
        """These states, and those that they lead to by nothing."""
        left, found = list(states), set[int]()
        while left:
            at = left.pop()
            if at not in found:
                found.add(at)
                left.extend(self._states[at].free)
        return frozenset(found)

    # Reading the pattern, by descent.

    def _alternatives(self, depth: int) -> _Part:
        if depth > DEPTH_MAX:
            raise _invalid(self.text, f"it has more than {DEPTH_MAX} groups within one another")
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        begin, end = self._state(), self._state()
        for part in parts:
            self._states[begin].free.append(part.begin)
            self._states[part.end].free.append(end)
        return _Part(begin, end)

    def _sequence(self, depth: int) -> _Part:
        at = self._state()
        whole = _Part(at, at)
        while self._at < len(self._body) and self._body[self._at] not in "|)":
            begins = self._at
            part = self._one(depth)
            whole = self._joined(whole, self._repeated(part, begins, depth))
        return whole

    def _repeated(self, part: _Part, begins: int, depth: int) -> _Part:
        least, most = self._times()
        if (least, most) == (1, 1):
            return part
        ends = self._at
        if (least, most) == (0, None):
            loop = self._state()
            self._states[loop].free.append(part.begin)
            self._states[part.end].free.append(loop)
            return _Part(loop, loop)
        copies = least if most is None else most
        at = self._state()
        whole, end = _Part(at, at), self._state()
        for number in range(copies):
            if number >= least:
                self._states[whole.end].free.append(end)
            # A piece has one place in the automaton: each repetition but the first is read anew.
            last = self._again(begins, depth) if number else part
            whole = self._joined(whole, last)
            if most is None and number == copies - 1:
                self._states[last.end].free.append(last.begin)
        self._states[whole.end].free.append(end)
        self._at = ends
        return _Part(whole.begin, end)

    def _again(self, begins: int, depth: int) -> _Part:
        self._at = begins
        return self._one(depth)

    def _times(self) -> tuple[int, int | None]:
        """How often what stands before is there: at least, and at most; None: any number."""
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return self._only(times)
        if not self._take("{"):
            return 1, 1
        inside, closed, _ = self._body[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        if not closed or not _is_count(least) or not (most == "" or _is_count(most)):
            raise _invalid(self.text, f"{{{inside}}} is none of {{m}}, {{m,}} and {{m,n}}")
        self._at += len(inside) + 1
        fewest = int(least)
        if not comma:
            return self._only((fewest, fewest))
        if most and int(most) < fewest:
            raise _invalid(self.text, f"{{{inside}}} ends before it begins")
        return self._only((fewest, int(most) if most else None))

    def _only(self, times: tuple[int, int | None]) -> tuple[int, int | None]:
        """Refuse a sign behind a sign: other dialects mean other things by it."""
        if self._at < len(self._body) and self._body[self._at] in "*+?{":
            raise self._unexpected()
        return times

    def _one(self, depth: int) -> _Part:
        character = self._body[self._at]
        self._at += 1
        if character == "(":
            if self._take("?") and not self._take(":"):
                raise _invalid(self.text, "of groups with a question mark, there is only (?: )")
            inside = self._alternatives(depth + 1)
            if not self._take(")"):
                raise _invalid(self.text, "a group is not closed")
            return inside
        if character == "[":
            return self._by(self._set())
        if character == ".":
            return self._by(_ANY)
        if character == "\\":
            return self._by(self._escaped())
        if character in _SPECIAL:
            self._at -= 1
            raise self._unexpected()
        return self._by(_Set(frozenset(character)))

    def _escaped(self) -> _Set:
        if self._at == len(self._body):
            raise _invalid(self.text, "it ends with a backslash")
        character = self._body[self._at]
        self._at += 1
        if character in _CLASSES:
            return _Set(_CLASSES[character])
        if character.isalnum():
            raise _invalid(self.text, f"of \\{character} and the like, there are only \\d and \\w")
        return _Set(frozenset(character))

    def _set(self) -> _Set:
        negated, found, first = self._take("^"), set[str](), True
        while first or not self._take("]"):
            if self._at == len(self._body):
                raise _invalid(self.text, "a set of characters is not closed")
            one = self._in_set()
            first = False
            if len(one) == 1 and self._body[self._at : self._at + 1] == "-" and self._body[self._at + 1 :][:1] != "]":
                self._at += 1
                if self._at == len(self._body):
                    raise _invalid(self.text, "a set of characters is not closed")
                last = self._in_set()
                if len(last) != 1 or min(last) < min(one) or ord(min(last)) > 127:
                    raise _invalid(self.text, "a range of characters ends before it begins, or not in a character")
                one = frozenset(chr(code) for code in range(ord(min(one)), ord(min(last)) + 1))
            found |= one
        return _Set(frozenset(found), negated=negated)

    def _in_set(self) -> frozenset[str]:
        character = self._body[self._at]
        self._at += 1
        return self._escaped().characters if character == "\\" else frozenset(character)

    def _by(self, characters: _Set) -> _Part:
        begin, end = self._state(), self._state()
        self._states[begin].by, self._states[begin].then = characters, end
        return _Part(begin, end)

    def _joined(self, first: _Part, second: _Part) -> _Part:
        self._states[first.end].free.append(second.begin)
        return _Part(first.begin, second.end)

    def _state(self) -> int:
        if len(self._states) >= STATES_MAX:
            raise _invalid(self.text, f"it is too large: it has more than {STATES_MAX} states")
        self._states.append(_State())
        return len(self._states) - 1

    def _take(self, character: str) -> bool:
        if self._body[self._at : self._at + 1] != character:
            return False
        self._at += 1
        return True

    def _unexpected(self) -> PatternError:
        return _invalid(self.text, f"{self._body[self._at]!r} does not belong where it stands; put \\ before it")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3


def _invalid(text: str, why: str) -> PatternError:
    return PatternError(f"{text[:100]!r} is no pattern of topics: {why}")
