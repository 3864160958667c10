"""What is asked of the brokers next, and when. Pure. All times are monotonic seconds.

Goals: what a new topic costs does not grow with the topics that are known; whoever has seen something fail gets a
picture of everything that was asked for after it; no broker is asked more than needed.

Constraints: one question is under way at a time. A topic may be so new that few brokers know it, or not exist at all.

Algorithm: there are two kinds of question, as in Kafka's producer since KIP-526. A *whole* one names every topic in
use; it is due when somebody asked for it (something failed) or when the last is a minute old, and there is at most one
each 20 ms. A *partial* one names the topics that somebody looks for and nothing else; all that are looked for at the
moment go into one. It needs no pause while it brings something: names that it did not bring are asked for again 20 ms
later at the earliest, and after one that brought nothing new, other new names wait as long. A whole question that may
go goes first, and names what is looked for too: neither kind keeps the other waiting for longer than one question.

Names come into use and go out of it (Kafka: metadata.max.idle.ms). Beside an answer to a whole question, once a minute,
whoever uses the client's picture (``release``) is shown the names that nobody asked for in five minutes, says when it
used them last, and lets go of the others itself. Name, picture and what the watched broker was told go together: a
picture of a topic that nobody refreshes would be worse than none. Where there is no ``release`` (an Admin, whose calls
may last), nothing is forgotten.

Example: 1,000 topics, each written to for the first time when the one before has been acknowledged, are 1,000
questions of one name each; written to at once they are one question of 1,000 names.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_client.cluster.view import ClusterView, without

PACE_S: Final = 0.02
"""Between two whole questions at least, and between two for a topic that the first did not bring."""
AGE_MAX_S: Final = 60.0
"""A picture this old is fetched anew without a reason, so that new partitions are noticed."""
IDLE_MAX_S: Final = 300.0
"""A topic that is not used for so long is forgotten (Kafka: metadata.max.idle.ms)."""
LOOK_S: Final = 60.0
"""Between two looks."""

Release = Callable[[Sequence[str], float], Mapping[str, float]]
"""Takes topics that may be idle, and the moment (monotonic seconds); returns when those of them were used last that are
to stay, and has let go of the others."""
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question to the brokers."""

    topics: tuple[str, ...] | None
    """Names, in order; None: all topics that there are."""
    whole: bool
    """It names everything in use: the picture is then as of its moment."""
    sought: frozenset[str]
    """The names that somebody waits for."""


class Questions:
    """Of one client."""

    def __init__(self) -> None:
        self._kept: dict[str, float] = {}
        """Topics in use, and when they were last, as far as that was said."""
        self._everything = False
        self._whole_wanted = False
        self._whole_asked_s = _NEVER
        self._sought: dict[str, None] = {}
        self._missed: dict[str, float] = {}
        """Names that an answer did not bring, and when they may be asked for again."""
        self._new_not_before_s = _NEVER

    @property
    def kept(self) -> Collection[str]:
        """Topics in use."""
        return self._kept.keys()

    def keep(self, topic: str, used_s: float) -> bool:
        """Whole questions name that topic, which was used at that moment, from now on. False: they did not before."""
        kept = topic in self._kept
        self._kept[topic] = used_s
        return kept

    def unused_since(self, moment_s: float) -> list[str]:
        """Topics in use that were not used after that moment, as far as was said."""
        return [topic for topic, used_s in self._kept.items() if used_s <= moment_s]

    def forget(self, topics: Iterable[str]) -> None:
        """They are in use no more."""
        for topic in topics:
            self._kept.pop(topic, None)

    def seek(self, topic: str) -> None:
        """Somebody waits for an answer about that topic; said again for each answer."""
        self._sought[topic] = None

    def want_whole(self, *, everything: bool = False) -> None:
        """A whole question is due; ``everything``: about all topics that there are."""
        self._whole_wanted = True
        self._everything = self._everything or everything

    @property
    def due_s(self) -> float:
        """When there is something to ask."""
        return min([self._whole_due_s, *map(self._due_s, self._sought)])

    def take(self, now_s: float) -> Question | None:
        """The question to ask now, which is then on its way: tell ``answered`` or ``failed``. None: not yet."""
        if now_s >= self._whole_due_s:
            sought, self._sought = frozenset(self._sought), {}
            topics = None if self._everything else tuple(sorted(self._kept.keys() | sought))
            self._everything = self._whole_wanted = False
            self._whole_asked_s = now_s
            return Question(topics=topics, whole=True, sought=sought)
        sought = frozenset(topic for topic in self._sought if self._due_s(topic) <= now_s)
        for topic in sought:
            del self._sought[topic]
        return Question(topics=tuple(sorted(sought)), whole=False, sought=sought) if sought else None

    def answered(self, question: Question, known: Container[str], *, asked_s: float) -> None:
        """The question that was asked at ``asked_s`` was answered; ``known`` are the topics that are known now."""
        new = [topic for topic in question.sought if topic not in self._missed]
        if new and not any(topic in known for topic in new):
            self._new_not_before_s = asked_s + PACE_S
        self._missed = {topic: at_s for topic, at_s in self._missed.items() if at_s > asked_s and topic not in known}
        self._missed.update((topic, asked_s + PACE_S) for topic in question.sought if topic not in known)

    def failed(self, question: Question) -> None:
        """Nobody answered it. Whoever looks for a topic says so again."""
        if question.whole:
            self.want_whole(everything=question.topics is None)

    @property
    def _whole_due_s(self) -> float:
        return self._whole_asked_s + (PACE_S if self._whole_wanted else AGE_MAX_S)

    def _due_s(self, topic: str) -> float:
        return self._missed.get(topic, self._new_not_before_s)


class IdleTopics:
    """Of one client."""

    def __init__(self, questions: Questions, forgotten: Callable[[], None], forbidden: set[str]) -> None:
        """Only assigns.

        Args:
            questions: those of the client.
            forgotten: hears that topics were forgotten.
            forbidden: topics that this client may not know, as far as it was told.
        """
        self._questions: Final = questions
        self._forgotten: Final = forgotten
        self._forbidden: Final = forbidden
        self._look_at_s = float("-inf")
        self.release: Release | None = None
        """Who uses topics; None: nothing is forgotten."""
        self.times = 0
        """How often topics were forgotten."""

    def forget(self, view: ClusterView, question: Question, now_s: float, *, sought: Collection[str]) -> ClusterView:
        """The picture after an answer, without the topics that are in use no more.

        Args:
            view: the picture.
            question: what was answered.
            now_s: when it was asked, monotonic seconds.
            sought: topics that somebody waits for.
        """
        if self.release is None or not question.whole or now_s < self._look_at_s:
            return view
        self._look_at_s = now_s + LOOK_S
        idle = [
            name
            for name in self._questions.unused_since(now_s - IDLE_MAX_S)
            if name not in sought and name not in question.sought
        ]
        used = self.release(idle, now_s)
        for name, at_s in used.items():
            self._questions.keep(name, at_s)
        gone = [name for name in idle if name not in used]
        if not gone:
            return view
        self.times += 1
        self._questions.forget(gone)
        self._forbidden.difference_update(gone)
        self._forgotten()
        # An answer about all topics that there are is of use to others, who follow a pattern of names.
        return view if question.topics is None else without(view, gone)
