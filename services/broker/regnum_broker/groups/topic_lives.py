"""Which life of a topic an offset belongs to, and whether that is over. Belongs to the event loop.

Goals: a topic that was deleted leaves no offsets behind, and one that is created anew under the same name does not
begin where the other one had been read to; an offset that is good is never taken for one of those.

Constraints: what this broker knows of topics may be older than the offset (committed at another coordinator, which had
heard more), and a controller that has just begun to reign may for a moment publish a little less than its predecessor.

Algorithm: an offset is committed with the topic's id and with the version of the metadata that has it. Metadata of that
version or a later one that does not have the id says that the topic is gone. It is believed at once by the same reign,
whose publications never go back; else when it has stood for ``BELIEVED_S``. Offsets are hidden then if the name has
another topic by now. At the next look, or of another reign when it has stood for ``FORGOTTEN_S``, the store is asked
(``cluster.topic_guards``), and what is gone there, too, is forgotten: metadata may also lack a topic whose node a
person has damaged. What is not gone there is asked for again after ``FORGOTTEN_S``.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from regnum_service.clock import Clock
from regnum_service.slices import Turns

from regnum_broker.groups.decisions.offsets import CommittedOffset
from regnum_broker.groups.offset_book import Life
from regnum_broker.serving.metadata_cache import TopicView

BELIEVED_S: Final = 10.0
"""So long metadata of another reign has to say that a topic is gone."""

FORGOTTEN_S: Final = 60.0
"""After so long the store is asked where another reign says that a topic is gone, and asked again."""

SLICE: Final = 2_000
"""Topics looked at between two turns of the event loop (safety rule S22)."""


class KnownTopics(Protocol):
    """What a broker knows of topics: the metadata cache."""

    @property
    def topics(self) -> Mapping[str, TopicView]:
        """Topics by name."""

    @property
    def version(self) -> int:
        """Version of that: controller epoch above the lower 32 bits."""


class TopicLives:
    """Says of offsets whether their topic is still there."""

    def __init__(self, known: KnownTopics, clock: Clock) -> None:
        """Only assigns."""
        self._known: Final = known
        self._clock: Final = clock
        self._gone_since_s: Final[dict[Life, float]] = {}
        self._asked_s: Final[dict[Life, float]] = {}

    def stamp(self, topic: str, given: str, former: CommittedOffset | None) -> tuple[str, int] | None:
        """Topic id, and version of the metadata that has it, of an offset that is to be committed.

        None: it is one of another topic than has the name now, or may be; then it must not replace what is there.

        Args:
            topic: the topic's name.
            given: id of the topic that the client has read; empty: the client does not say.
            former: what is committed now.
        """
        view, version = self._known.topics.get(topic), self._known.version
        if former is not None and former.topic_id and (view is None or former.metadata_version > version):
            # Who committed that knew more of the topic than this broker does.
            stands = given in {"", former.topic_id}
            return (former.topic_id, former.metadata_version) if stands else None
        if view is None:
            return given, 0
        return (view.topic_id, version) if given in {"", view.topic_id} else None

    def is_another(self, topic: str, offset: CommittedOffset) -> bool | None:
        """Whether the name belongs to another topic than the offset by now; None: wait, that is not certain yet."""
        life = Life(topic, offset.topic_id)
        if not self._is_gone(topic, offset.topic_id, offset.metadata_version):
            self._gone_since_s.pop(life, None)
            return False
        if topic not in self._known.topics:
            return False
        if self._known.version >> 32 == offset.metadata_version >> 32:
            return True
        since_s = self._gone_since_s.setdefault(life, self._clock.monotonic())
        return True if self._clock.monotonic() - since_s >= BELIEVED_S else None

    async def look(self, lives: Iterable[tuple[Life, int]], *, most: int) -> list[Life]:
        """Look at the topics that there are offsets of, each with the newest version that has it.

        Returns those whose offsets are to be forgotten if the store says the same; ``most`` at a time, and what it does
        not say the same of comes again when others have had their turn.
        """
        over: list[Life] = []
        seen: set[Life] = set()
        turns = Turns(SLICE)
        for life, version in lives:
            seen.add(life)
            if not self._is_gone(life.topic, life.topic_id, version):
                self._gone_since_s.pop(life, None)
            else:
                now_s = self._clock.monotonic()
                since_s = self._gone_since_s.setdefault(life, now_s)
                pause_s = 0.0 if self._known.version >> 32 == version >> 32 else FORGOTTEN_S
                asked_s = self._asked_s.get(life, -math.inf)
                if now_s - since_s >= pause_s and now_s - asked_s >= FORGOTTEN_S and len(over) < most:
                    self._asked_s[life] = now_s
                    over.append(life)
            await turns.took()
        for kept in (self._gone_since_s, self._asked_s):
            for life in [one for one in kept if one not in seen]:
                del kept[life]
        return over

    def _is_gone(self, topic: str, topic_id: str, version: int) -> bool:
        if not topic_id or self._known.version < version:
            return False
        view = self._known.topics.get(topic)
        return view is None or view.topic_id != topic_id
