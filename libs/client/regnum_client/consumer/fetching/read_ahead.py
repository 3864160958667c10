"""How much a consumer fetches before it is read. Pure.

Goals: what is fetched and not yet read has a bound for the whole consumer, however many partitions it reads.

Constraints: polls are long, so several are under way to every leader, and each may bring as much as it allows.

Algorithm: the buffer is divided among all polls that may be under way at a time; a poll takes its share when it is
sent and gives it back when it ends, and what it brought counts until it is read. A poll that does not fit waits. With
nothing under way and nothing unread one always goes, whatever its size: one batch is always answered whole.
"""

from typing import Final


class ReadAhead:
    """The account of one consumer."""

    def __init__(self, *, buffer_bytes: int, poll_bytes_max: int, polls_max: int) -> None:
        self._buffer_bytes: Final = buffer_bytes
        self._poll_bytes_max: Final = poll_bytes_max
        self._polls_max: Final = polls_max
        self._reserved_bytes = 0

    def share_bytes(self, leaders: int) -> int:
        """What one poll may bring, with that many leaders to poll."""
        return max(1, min(self._poll_bytes_max, self._buffer_bytes // (self._polls_max * max(1, leaders))))

    def reserve(self, share_bytes: int, *, unread_bytes: int) -> bool:
        """A poll is about to be sent. False: not now."""
        taken_bytes = self._reserved_bytes + unread_bytes
        if taken_bytes and taken_bytes + share_bytes > self._buffer_bytes:
            return False
        self._reserved_bytes += share_bytes
        return True

    def release(self, share_bytes: int) -> None:
        """A poll has ended; what it brought is unread from now on."""
        self._reserved_bytes -= share_bytes
