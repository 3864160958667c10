"""Topics that a member wants and that are not there: its application is told, and they are looked for until they are.

A group waits for a topic that does not exist yet, and others are read meanwhile. A misspelt name would be waited for
for ever, and nothing would say so. So what no broker knows for ``wait_s`` is the next read's error, once for each time
that a topic is missing; one that this client may not use, at once. Reading may go on: the topic is assigned when it
appears. Only an answer says that a topic is missing: while no broker gives one, that is the error, once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.enquiry import ANSWER_S
from regnum_client.cluster.metadata import Metadata
from regnum_client.errors import BackgroundTaskError

_LOG: Final = logging.getLogger("regnum_client")

LOOK_S: Final = 0.5
"""Between two looks while a topic is missing: the group's leader hears of it so soon after it appears, or before."""


class MissingTopics:
    """Of one member."""

    def __init__(
        self, metadata: Metadata, *, clock: Clock, wait_s: float, report: Callable[[RegnumError], None]
    ) -> None:
        """Only assigns.

        Args:
            metadata: says what topics there are.
            clock: source of time.
            wait_s: how long a topic may be missing before that is said.
            report: takes what the application is to hear.
        """
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._wait_s: Final = wait_s
        self._report: Final = report
        self._wanted: frozenset[str] = frozenset()
        self._changed: Final = asyncio.Event()
        self._since_s: dict[str, float] = {}
        self._told: set[str] = set()
        self._is_silence_told = False

    def want(self, topics: Iterable[str]) -> None:
        """The member wants these, and no others."""
        self._wanted = frozenset(topics)
        self._changed.set()

    def look(self) -> None:
        """There may be news of topics."""
        if self._missing() != self._since_s.keys():
            self._changed.set()

    async def run(self) -> None:
        """Look whenever there may be news, and again and again while a topic is missing."""
        while True:
            self._changed.clear()
            missing = self._missing()
            unanswered = await self._ask(missing) if missing else None
            self._note(self._missing())
            if unanswered is None:
                self._is_silence_told = False
                await self._tell()
            else:
                self._tell_silence(unanswered)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._changed.wait()

    def _missing(self) -> frozenset[str]:
        return self._wanted - self._metadata.view.topics.keys()

    async def _ask(self, missing: frozenset[str]) -> RegnumError | None:
        """Ask brokers about them; returns why none answered."""
        try:
            await self._metadata.topics(missing, timeout_s=max(self._wait_s, ANSWER_S))
        except BackgroundTaskError:
            raise
        except RegnumError as error:
            _LOG.warning("topics that are missing cannot be asked about: %s", error.message)
            return error
        return None

    def _note(self, missing: frozenset[str]) -> None:
        now_s = self._clock.monotonic()
        self._since_s = {name: self._since_s.get(name, now_s) for name in sorted(missing)}
        self._told &= missing

    async def _tell(self) -> None:
        """Report what brokers have said not to know, where it is due."""
        for name in list(self._since_s):
            if name not in self._told and (self._metadata.is_forbidden(name) or self._is_due(name)):
                self._told.add(name)
                self._report(await self._metadata.why_missing(name))

    def _tell_silence(self, error: RegnumError) -> None:
        """Report that no broker answers, where a topic is waited for as long as that may take."""
        if not self._is_silence_told and any(map(self._is_due, self._since_s)):
            self._is_silence_told = True
            self._report(error)

    def _is_due(self, name: str) -> bool:
        return self._clock.monotonic() - self._since_s[name] >= self._wait_s

    def _pause_s(self) -> float | None:
        if not self._since_s:
            return None
        to_come = [
            since_s + self._wait_s - self._clock.monotonic()
            for name, since_s in self._since_s.items()
            if name not in self._told and not self._is_due(name)
        ]
        return min([LOOK_S, *(max(0.0, left_s) for left_s in to_come)])
