"""Who watches the cluster, and what: bounded by watchers and by names.

A connection may have no more of either than is left free after it (dynamic thresholds, as for bytes at a broker): one
alone gets half, two a third each, and whoever has nothing gets in as long as there is room. So one client does not take
all places, and a proxy that many share is not held to the place of one. A principal, by all its connections, has no
more than PRINCIPAL_WEIGHT times what is left after it, as of bytes.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_service.errors import RegnumError
from regnum_service.limits.held_bytes import PRINCIPAL_WEIGHT

WATCHERS_MAX: Final = 2_000
"""Streams that one process serves."""

NAMES_MAX: Final = 50_000
"""Topics that one watcher may name; beyond that it watches all topics."""

ALL_NAMES_MAX: Final = 500_000
"""Topics that all watchers of one process name together, each counted as often as it is named: some 100 MB."""

NAMES_PER_REQUEST: Final = 10_000
"""Topics that one message may name."""


class Watcher:
    """One stream. Belongs to the event loop."""

    def __init__(
        self,
        *,
        position: PictureVersion = NO_PICTURE,
        all_topics: bool = False,
        connection: str = "",
        principal: str = "",
    ) -> None:
        """Only assigns.

        Args:
            position: up to where it was told everything that it watches.
            all_topics: watches everything, and not the topics that it names.
            connection: whose it is (``context.peer()``).
            principal: by whom that is; empty: all callers are the same one (``Call.entity``).
        """
        self.connection: Final = connection
        self.principal: Final = principal
        self.position = position
        self.all_topics: Final = all_topics
        self.topics: Final[dict[str, None]] = {}
        """What it watches, in the order in which it was named."""
        self.controller: types_pb2.Controller | None = None
        """The controller that it was told of."""
        self.wake: Final = asyncio.Event()
        """Something may have changed for it."""
        self.is_idle = False
        """Whether it was told everything up to its position, and waits."""
        self._fresh: dict[str, None] = {}
        self._requests = 0

    def asked(self, fresh: Iterable[str]) -> None:
        """A message of its came, which names topics that it knows nothing of."""
        self._fresh.update(dict.fromkeys(fresh))
        self._requests += 1
        self.wake.set()

    def taken(self) -> tuple[Collection[str], int]:
        """Topics that it is to be told as a whole, which then it has been; and how many messages of its came."""
        fresh, self._fresh = self._fresh, {}
        return fresh, self._requests


class _Part:
    """What one connection has, or one principal."""

    __slots__ = ("names", "streams")

    def __init__(self) -> None:
        self.streams = 0
        self.names = 0


class Watchers:
    """Of one process."""

    def __init__(self, *, most: int = WATCHERS_MAX, names_most: int = ALL_NAMES_MAX) -> None:
        """Only assigns.

        Args:
            most: streams at a time.
            names_most: topics that all of them name.
        """
        self._most: Final = most
        self._names_most: Final = names_most
        self._parts: Final[dict[str, _Part]] = {}
        """By connection."""
        self._of_principals: Final[dict[str, _Part]] = {}
        """Of those that are named."""
        self.dropped = 0
        """Streams that were refused, or ended for what they asked, so far."""
        self._all: dict[Watcher, None] = {}
        self._of_all_topics: dict[Watcher, None] = {}
        self._by_topic: dict[str, dict[Watcher, None]] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(self._all)

    @property
    def names(self) -> int:
        """Topics named, each as often as it is named."""
        return self._names

    def admit(self, watcher: Watcher) -> None:
        """One more. Raises RESOURCE_EXHAUSTED where there are too many."""
        if len(self._all) >= self._most:
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"{self._most} clients watch metadata here already; watch it at another broker, or ask GetMetadata",
            )
        part = self._parts.get(watcher.connection)
        if part is not None and not _allows(1, own=part.streams, total=len(self._all), most=self._most):
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"this connection has {part.streams} streams that watch metadata, as many as are left for all others;"
                " watch more topics by one stream, or at another broker",
            )
        theirs = self._of_principals.get(watcher.principal)
        if theirs is not None and not _allows(
            1, own=theirs.streams, total=len(self._all), most=self._most, weight=PRINCIPAL_WEIGHT
        ):
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"{watcher.principal} has {theirs.streams} streams that watch metadata here, {PRINCIPAL_WEIGHT} times"
                " what is left for all others; watch more topics by one stream, or at another broker",
            )
        if part is None:
            part = self._parts[watcher.connection] = _Part()
        part.streams += 1
        if watcher.principal:
            self._of_principals.setdefault(watcher.principal, _Part()).streams += 1
        self._all[watcher] = None
        if watcher.all_topics:
            self._of_all_topics[watcher] = None

    def name(self, watcher: Watcher, topics: Collection[str]) -> list[str]:
        """A watcher names topics; those that are new to it. Raises RegnumError, and then none is watched."""
        if len(topics) > NAMES_PER_REQUEST:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{len(topics)} topics in one message; name at most {NAMES_PER_REQUEST} and the rest in further ones",
            )
        for topic in topics:
            try:
                check_topic_name(topic)
            except InvalidTopicNameError as error:
                raise RegnumError(errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION, str(error)) from error
        new = [topic for topic in dict.fromkeys(topics) if topic not in watcher.topics]
        if watcher.all_topics:
            return []
        part, theirs = self._parts[watcher.connection], self._of_principals.get(watcher.principal)
        own = 0 if theirs is None else theirs.names
        if (
            len(watcher.topics) + len(new) > NAMES_MAX
            or not _allows(len(new), own=part.names, total=self._names, most=self._names_most)
            or not _allows(len(new), own=own, total=self._names, most=self._names_most, weight=PRINCIPAL_WEIGHT)
        ):
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"too many topics are watched here; name at most {NAMES_MAX}, watch all topics, or ask another broker",
            )
        for topic in new:
            watcher.topics[topic] = None
            self._by_topic.setdefault(topic, {})[watcher] = None
        self._names += len(new)
        part.names += len(new)
        if theirs is not None:
            theirs.names += len(new)
        return new

    def dismiss(self, watcher: Watcher) -> None:
        """It is gone; may be said again."""
        if self._all.pop(watcher, watcher) is watcher:
            return
        self._of_all_topics.pop(watcher, None)
        self._names -= len(watcher.topics)
        for parts, whose in ((self._parts, watcher.connection), (self._of_principals, watcher.principal)):
            part = parts.get(whose)
            if part is not None:
                part.streams -= 1
                part.names -= len(watcher.topics)
                if not part.streams:
                    del parts[whose]
        for topic in watcher.topics:
            watching = self._by_topic[topic]
            del watching[watcher]
            if not watching:
                del self._by_topic[topic]

    def of(self, topics: Iterable[str]) -> dict[Watcher, None]:
        """Those that watch any of these topics, always in the same order."""
        found = dict(self._of_all_topics)
        for topic in topics:
            watching = self._by_topic.get(topic)
            if watching is not None:
                found.update(watching)
        return found


def _allows(more: int, *, own: int, total: int, most: int, weight: int = 1) -> bool:
    """Whether who has ``own`` of ``total`` may have more: ``weight`` times what is free then; the first in any case."""
    free = most - total - more
    return free >= 0 and (own == 0 or own + more <= weight * free)
