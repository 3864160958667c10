"""How many bytes of records a follower wants in one answer of a leader. Pure.

Goals: what a follower is far behind with costs partitions that it is in sync with little; under load answers are large.

Constraints: a follower says what it has when all of an answer is stored, and until then no leader counts any of it as
replicated. Small batches cost as much to store as large ones: eight megabytes of them take most of a second, and of
large ones ten milliseconds.

Algorithm: BYTES_MIN at first, and twice as many after each full answer that took less than STORING_S, up to BYTES_MAX;
after one that took longer, as many as are stored in that time at its pace, and no less than BYTES_MIN.

Example: a replica is moved whose batches are single records of 250 bytes. Answers of 256 KiB take 20 ms each, where one
of 8 MiB would take 640. Of batches of 16 KiB the sixth answer has 8 MiB.
"""

from typing import Final

BYTES_MAX: Final = 8 * 1024 * 1024
"""About how many bytes of records one answer carries at most."""

BYTES_MIN: Final = 256 * 1024
"""The same at least: below, what an answer costs by itself would count."""

STORING_S: Final = 0.02
"""Time that storing an answer takes at most, about."""


class AnswerSize:
    """Of one fetch stream."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted = BYTES_MIN
        """Bytes of records to ask for."""

    def stored(self, size_bytes: int, took_s: float) -> None:
        """Take into account that so many bytes of records were stored in that time."""
        if size_bytes < BYTES_MIN // 2:
            # It says how long the writer was busy, and nothing of what a byte takes.
            return
        if took_s > STORING_S:
            self.wanted = max(BYTES_MIN, min(self.wanted, int(size_bytes * STORING_S / took_s)))
        elif size_bytes >= self.wanted // 2:
            self.wanted = min(BYTES_MAX, 2 * self.wanted)
