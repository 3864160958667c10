"""All topics whose names match a pattern, as they come and go."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from regnum_model.ids import TopicId
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.metadata import Metadata
from regnum_client.consumer.topics.patterns import TopicPattern
from regnum_client.tasks import Tasks

_LOG: Final = logging.getLogger("regnum_client")

ON_LOOP_MAX: Final = 200
"""Names that are matched without a thread (safety rule S22); those that were looked at before count no more."""
KNOWN_MAX: Final = 200_000
"""Names of which it is kept whether they match; then they are looked at anew."""
DOUBTED_S: Final = 1.0
"""A topic that was not there for so long is looked for: sooner than it counts as gone for one who reads it by name."""


class FollowedPattern:
    """Of one consumer. Asks for all topics again and again: nothing says which are new."""

    def __init__(
        self,
        pattern: TopicPattern,
        *,
        metadata: Metadata,
        clock: Clock,
        every_s: float,
        timeout_s: float,
        changed: Callable[[frozenset[str]], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        """Only assigns.

        Args:
            pattern: of names.
            metadata: says what topics there are.
            clock: source of time.
            every_s: pause between two looks.
            timeout_s: how long brokers may take to say so.
            changed: takes the names whenever they are others, and when it was to look soon.
            tasks: those of the client.
        """
        self._pattern: Final = pattern
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._every_s: Final = every_s
        self._timeout_s: Final = timeout_s
        self._changed: Final = changed
        self._tasks: Final = tasks
        self._known: dict[str, bool] = {}
        self._names: dict[str, TopicId] | None = None
        self._doubted: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_found(self) -> bool:
        """Whether it has looked."""
        return self._names is not None

    async def start(self) -> None:
        """Look once, and go on in the background. Raises RegnumError when no broker answers."""
        await self._look()
        self._task = self._tasks.start("topics of a pattern", self._run())

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            await self._tasks.end(task)

    def look_soon(self) -> None:
        """A topic that matched is not there now, or is not read any more because another one has its name."""
        self._doubted.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._doubted.wait()
            doubted = self._doubted.is_set()
            if doubted:
                await self._clock.sleep(min(DOUBTED_S, self._every_s))
                self._doubted.clear()
            try:
                await self._look(doubted=doubted)
            except RegnumError as error:
                _LOG.warning("topics of %s are not known now: %s", self._pattern.text, error.message)

    async def _look(self, *, doubted: bool = False) -> None:
        topics = (await self._metadata.all_topics(timeout_s=self._timeout_s)).topics
        if len(self._known) > KNOWN_MAX:
            self._known = {}
        new = [name for name in topics if name not in self._known]
        among = self._pattern.among
        matching = among(new) if len(new) <= ON_LOOP_MAX else await asyncio.to_thread(among, new)
        self._known.update((name, name in matching) for name in new)
        found = {name: topics[name].topic_id for name in topics if self._known[name]}
        if doubted or found != self._names:
            await self._changed(frozenset(found))
            self._names = found
