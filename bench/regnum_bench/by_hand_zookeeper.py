"""The yardstick on ZooKeeper: multis written by hand with kazoo, all of them in flight, all or nothing each."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kazoo.client import KazooClient

TIMEOUT_S: Final = 30.0
"""Of a multi."""
PER_MULTI: Final = 1000
"""Writes of one multi: far below the frame of 1 MB at the size of our nodes."""


class MultiLoop:
    """Conditional sets; kazoo runs on threads of its own, so that a thread beside the loop waits for it."""

    figure = "by_hand"
    name = "multis by hand, all or nothing"

    def __init__(self, client: KazooClient, prefix: str, fence: str) -> None:
        self._client = client
        self._prefix = prefix
        self._fence = fence

    async def write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        """Set every node at a version; the number of writes that happened."""
        return await asyncio.to_thread(self._write, paths, data, version)

    def _write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        answers = []
        for at in range(0, len(paths), PER_MULTI):
            transaction = self._client.transaction()
            transaction.check(f"{self._prefix}{self._fence}", 0)
            for path in paths[at : at + PER_MULTI]:
                transaction.set_data(f"{self._prefix}{path}", data, version)
            answers.append(transaction.commit_async())
        written = 0
        for answer in answers:
            results = answer.get(timeout=TIMEOUT_S)[1:]
            written += sum(not isinstance(result, Exception) for result in results)
        return written
