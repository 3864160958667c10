"""Of which leader epochs the records were that a consumer fetched, so that it notices when they are lost. Pure.

A leader compares the epoch of the last record with its own log (KIP-320) and says where the largest epoch ends that it
knows of those up to that one. The two logs are equal as far as both had that epoch: up to that end, or to where the
consumer saw the next one begin, whichever is lower.

Example: fetched to 60, epoch 1 from 0 and epoch 2 from 50 on. The leader knows no epoch 2 and ends epoch 1 at 100: the
logs are equal up to 50, and it has other records from there on.
"""

from typing import Final

ENTRIES_MAX: Final = 64
"""Epochs that are remembered of one partition. What was read before the oldest is compared no more."""


class ReadEpochs:
    """Of one partition."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        """(epoch, first offset seen of it), both strictly rising."""

    def start_over(self, offset: int, epoch: int | None) -> None:
        """Reading goes on at an offset, behind a record of that epoch; None: of an epoch that nobody knows."""
        self._entries.clear()
        if epoch is not None and epoch >= 0 and offset > 0:
            self._entries.append((epoch, offset - 1))

    def saw(self, epoch: int, offset: int) -> None:
        """A batch of that epoch came, with its first record wanted at ``offset``. -1: no leader set one."""
        if epoch < 0 or (self._entries and self._entries[-1][0] > epoch):
            # Of a broker that compares nothing: what was seen before says nothing of what follows.
            self._entries.clear()
        if epoch >= 0 and (not self._entries or self._entries[-1][0] < epoch):
            self._entries.append((epoch, offset))
            del self._entries[:-ENTRIES_MAX]

    def before(self, offset: int) -> int | None:
        """Epoch of the last record before an offset; None: not known."""
        return next((epoch for epoch, start in reversed(self._entries) if start < offset), None)

    def cut(self, offset: int) -> None:
        """Forget what was seen from an offset on."""
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()

    def equal_until(self, *, epoch: int, end_offset: int) -> int:
        """Up to where the logs are equal, when the leader ends the largest epoch that it knows so."""
        ends = (start for known, start in self._entries if known > epoch)
        return max(0, min(end_offset, next(ends, end_offset)))
