"""What an administrator does meanwhile: topics are created, enlarged, changed and deleted, and every answer counts."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from regnum_client import Admin
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

PAUSE_S: Final = 0.5
"""Between two rounds."""


class TopicChanges:
    """One round after the other, until it is stopped."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin: Final = admin
        self._clock: Final = clock
        self.done = 0
        """Calls that succeeded."""
        self.refused: list[str] = []
        """Calls that did not, with the reason; the SDK has tried for as long as it does."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="topic changes")

    async def stop(self) -> None:
        """End after the round that is under way. Raises what it failed with."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def abandon(self) -> None:
        """End at once; does nothing after ``stop``."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            topic = f"changed-{number}"
            await self._tried(f"create {topic}", self._admin.create_topic(topic, partitions=2, replication_factor=2))
            await self._tried(f"enlarge {topic}", self._admin.create_partitions(topic, 3))
            await self._tried(f"delete {topic}", self._admin.delete_topic(topic))
            await self._clock.sleep(PAUSE_S)

    async def _tried(self, what: str, call: Awaitable[object]) -> None:
        try:
            await call
        except RegnumError as error:
            self.refused.append(f"{what}: {error}")
        else:
            self.done += 1
