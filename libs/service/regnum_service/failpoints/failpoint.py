"""What a failpoint says, and which steps of the process it is about. Pure.

A failpoint is one line of words ``key=value``, in any order:

    action=kill when=before step=write n=2 operation=set path=/brokers/topics/t*|/admin/*
    action=stop when=after step=order n=1 kind=StopReplica broker=3 topic=t
    action=delay ms=200 times=all when=before step=append topic=t

Each step of the process that matches counts one; the n-th ends the process (SIGKILL), stops it (SIGSTOP) or is delayed,
before it is taken or after its answer. With ``times`` those behind the n-th are delayed as well, so many in all.
Patterns are those of a shell, several of them between ``|``; what is not given matches everything.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, TypeVar

from regnum_model.ids import BrokerId

_T = TypeVar("_T")

BYTES_MAX: Final = 4_096
"""Longest failpoint that is read."""


class FailpointError(ValueError):
    """A text is no failpoint; the message says what is wrong with it."""


class Action(enum.Enum):
    """What happens to the process."""

    KILL = "kill"
    """SIGKILL: it is gone, and its connections with it."""
    STOP = "stop"
    """SIGSTOP: it stands still with its connections open, until somebody sends SIGCONT; then it goes on."""
    DELAY = "delay"
    """The step alone waits; everything else in the process goes on."""


class Moment(enum.Enum):
    """Which side of the step."""

    BEFORE = "before"
    """Nothing of it was sent."""
    AFTER = "after"
    """It was answered, and the process has done nothing with the answer."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of the store that happens as a whole: a call, or a group of a batch."""

    operations: tuple[tuple[str, str], ...]
    """Operation (``create``, ``set``, ``delete``, ``delete_below``) and path of each that is no check."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order to a broker."""

    kind: str
    """``LeaderAndIsr`` or ``StopReplica``."""
    broker: BrokerId
    """Whom it goes to."""
    topics: tuple[str, ...]
    """Names of the topics that it is about, each once."""


@dataclass(frozen=True, slots=True)
class Point:
    """Any other step, by its name."""

    name: str
    """One of POINTS."""
    topics: tuple[str, ...] = ()
    """Names of the topics that it is about, each once; none where it is about no topic, or not known."""
    broker: BrokerId | None = None
    """Whom it goes to; None: that is not known."""


POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lifeline": "controller: takes up a message of a broker's lifeline, or its end",
        "knock": "controller: tries to connect to a broker whose lifeline has ended",
        "decide": "controller: decides about partitions",
        "receive": "broker: takes a LeaderAndIsr up, before its span begins",
        "journal": "broker: brings its journal to the disk, before it leads",
        "append": "broker: appends what producers sent, on the writer thread",
        "replicate": "broker: answers a follower's fetch with records",
        "metadata": "broker: takes a message of a change of metadata up",
        "learn": "client: asks for metadata, or takes a change up that a broker tells of",
        "connect": "producer: begins a stream to a leader",
        "send": "producer: sends batches to a leader; when=after: takes their answer up",
    }
)
"""Names of points, with process and step."""

Step = Write | Order | Point
"""What a failpoint can be about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """One of them."""

    action: Action
    """What is done."""
    moment: Moment
    """Before or after the step."""
    n: int
    """The how manieth matching step, from 1."""
    step: type[Write] | type[Order] | type[Point]
    """Kind of step."""
    point: str = ""
    """Of a point: its name."""
    delay_ms: int = 0
    """Of a delay: how long."""
    times: int | None = 1
    """Of a delay: how many steps from the n-th on; None: all of them."""
    operation: str = "*"
    """Of a write: pattern of an operation."""
    path: str = "*"
    """Of a write: pattern of that operation's path."""
    kind: str = "*"
    """Of an order: pattern of its kind."""
    broker: BrokerId | None = None
    """Of an order or a point: whom it goes to; None: anybody."""
    topic: str = "*"
    """Of an order or a point: pattern of one of its topics."""

    def is_due(self, count: int) -> bool:
        """Whether it is about the matching step of that number, from 1."""
        return self.n <= count and (self.times is None or count < self.n + self.times)

    def is_last(self, count: int) -> bool:
        """Whether it is about no step behind that one."""
        return self.times is not None and count >= self.n + self.times - 1

    def matches(self, step: Step) -> bool:
        """Whether a step counts."""
        if not isinstance(step, self.step):
            return False
        if isinstance(step, Write):
            return any(_fits(name, self.operation) and _fits(path, self.path) for name, path in step.operations)
        if isinstance(step, Point):
            return step.name == self.point and self.broker in {None, step.broker} and self._is_about(step.topics)
        return _fits(step.kind, self.kind) and self.broker in {None, step.broker} and self._is_about(step.topics)

    def _is_about(self, topics: tuple[str, ...]) -> bool:
        return self.topic == "*" or any(_fits(topic, self.topic) for topic in topics)


def _fits(text: str, patterns: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns.split("|"))


_OF: Final[Mapping[type[Step], frozenset[str]]] = MappingProxyType(
    {
        Write: frozenset({"operation", "path"}),
        Order: frozenset({"kind", "broker", "topic"}),
        Point: frozenset({"broker", "topic"}),
    }
)
"""Words that only steps of some kinds have."""
_OF_DELAYS: Final = frozenset({"ms", "times"})
_REQUIRED: Final = ("action", "when", "step")
_OF_SOME: Final = frozenset[str]().union(*_OF.values())
_KEYS: Final = (*_REQUIRED, "n", *sorted(_OF_DELAYS), *sorted(_OF_SOME))


def parse(text: str) -> Failpoint:
    """Read a failpoint; raises FailpointError."""
    words = _words(text)
    for key in _REQUIRED:
        if key not in words:
            raise FailpointError(f"a failpoint needs {key}=; this is {text.strip()!r}")
    action = _one_of("action", words["action"], {one.value: one for one in Action})
    moment = _one_of("when", words["when"], {one.value: one for one in Moment})
    step = _one_of("step", words["step"], _STEPS)
    strange = words.keys() & (_OF_SOME - _OF[step])
    if strange:
        raise FailpointError(f"step={words['step']} has no {min(strange)}=")
    if action is Action.DELAY:
        if "ms" not in words:
            raise FailpointError("action=delay needs ms=")
    elif not _OF_DELAYS.isdisjoint(words):
        raise FailpointError(f"action={words['action']} has no {min(words.keys() & _OF_DELAYS)}=")
    times = words.get("times", "1")
    return Failpoint(
        action=action,
        moment=moment,
        step=step,
        point=words["step"] if step is Point else "",
        delay_ms=_number("ms", words["ms"], low=1) if "ms" in words else 0,
        times=None if times == "all" else _number("times", times, low=1),
        n=_number("n", words.get("n", "1"), low=1),
        operation=words.get("operation", "*"),
        path=words.get("path", "*"),
        kind=words.get("kind", "*"),
        broker=BrokerId(_number("broker", words["broker"], low=0)) if "broker" in words else None,
        topic=words.get("topic", "*"),
    )


_STEPS: Final[Mapping[str, type[Write] | type[Order] | type[Point]]] = MappingProxyType(
    {"write": Write, "order": Order, **dict.fromkeys(POINTS, Point)}
)


def _words(text: str) -> dict[str, str]:
    if len(text) > BYTES_MAX:
        raise FailpointError(f"a failpoint has at most {BYTES_MAX} characters")
    words: dict[str, str] = {}
    for word in text.split():
        key, sign, value = word.partition("=")
        if key not in _KEYS or not sign:
            raise FailpointError(f"{word!r} is not one of {', '.join(f'{key}=' for key in _KEYS)}")
        if key in words:
            raise FailpointError(f"{key}= is given twice")
        if not value:
            raise FailpointError(f"{key}= has no value")
        words[key] = value
    return words


def _one_of(key: str, value: str, known: Mapping[str, _T]) -> _T:
    if value not in known:
        raise FailpointError(f"{key}={value} is not one of {', '.join(known)}")
    return known[value]


def _number(key: str, value: str, *, low: int) -> int:
    if not value.isascii() or not value.isdigit() or not low <= int(value) < 2**31:
        raise FailpointError(f"{key}={value} is not a number from {low}")
    return int(value)
