"""When a leader may send a follower another answer. Pure.

Goals: a record waits for little more than its own way to the follower and the way of its acknowledgement back; under
load few answers go, with much in each, because an answer costs all parties as much as many batches in it do.

Constraints: what the follower has is what its requests say (safety rule S3); what was sent counts for nothing.

Algorithm: a request says how many answers the follower has taken, the others are *on their way*. While there are none,
an answer may go at once, but for what has come while the one before was on its way: that is a sign of more to come, and
goes GATHER_S after that one, or later, up to GATHER_S_MAX, while records still come (none for QUIET_S means that those
who sent them wait for their acknowledgements). While an answer is on its way the next one goes SPACING_S after it.
ANSWERS_MAX answers, and as many bytes as the follower wants in one, may be on their way. A follower that does not say
what it has taken gets an answer for each request, as before.

Example: answers are acknowledged after 2 ms. Of one producer that waits for each record, every record goes at once. Of
fifty such, what comes within 5 ms goes together. Of many who never wait, what comes within 15 ms. After
400 ms: one goes every 20 ms, and 20 are on their way.
"""

import math
from collections import deque
from typing import Final

GATHER_S: Final = 0.005
"""Time between two answers of which the first has been taken, under load."""

GATHER_S_MAX: Final = 0.015
"""The same while records come without a pause."""

QUIET_S: Final = 0.0015
"""A pause: nothing came for so long."""

SPACING_S: Final = 0.02
"""Time between two answers of which the first is still on its way."""

ANSWERS_MAX: Final = 64
"""Answers that may be on their way."""


class Window:
    """Of one fetch session. Moments are monotonic seconds."""

    __slots__ = ("_bytes", "_bytes_max", "_hurried", "_piped", "_sent_s", "_sizes", "requests", "sent", "taken")

    def __init__(self) -> None:
        self.requests = 0
        """Requests that were taken up."""
        self.sent = 0
        """Answers that were sent."""
        self.taken = 0
        """Answers that the follower has carried out, as it says."""
        self._piped = False
        self._hurried = False
        self._sizes: Final[deque[int]] = deque()
        self._bytes = 0
        self._bytes_max = 0
        self._sent_s = -math.inf

    @property
    def piped(self) -> bool:
        """Whether the follower takes answers that it has not asked for."""
        return self._piped

    @property
    def idle(self) -> bool:
        """Whether the follower waits for an answer, and none is on its way."""
        return self.requests > 0 and self.sent <= self.taken

    @property
    def hurried(self) -> bool:
        """Whether the follower waits to say more than it has said: another request of its own is held back."""
        return self._hurried if self._piped else self.sent < self.requests - 1

    def asked(self, taken: int | None, *, bytes_max: int) -> bool:
        """Take a request up. False: it cannot be, for it speaks of answers that were not sent, or not any more.

        Args:
            taken: how many answers the follower has carried out; None: it does not say.
            bytes_max: bytes of records that it wants in one answer.
        """
        if taken is not None and not self.taken <= taken <= self.sent:
            return False
        self.requests += 1
        self._piped = taken is not None
        if taken is None:
            # It sends one when it has taken an answer; of two that it may have under way, neither waits for the other.
            taken = self.requests - 1
        else:
            self._hurried = self.requests > 1 and taken == self.taken
        self.taken = taken
        self._bytes_max = bytes_max
        while len(self._sizes) > max(0, self.sent - taken):
            self._bytes -= self._sizes.popleft()
        return True

    @property
    def room_bytes(self) -> int:
        """Bytes of records that the next answer may have, so that no more are on their way than are wanted in one."""
        return max(1, self._bytes_max - self._bytes)

    def opens_s(self, *, busy: bool, moved_s: float) -> float:
        """From when on an answer may be sent. Minus infinity: at once; infinity: not before another request.

        Args:
            busy: whether there was something to send already when the newest request came.
            moved_s: when there was last something new to send.
        """
        if not self.requests:
            return math.inf
        if self.sent <= self.taken:
            if not busy:
                return -math.inf
            return min(max(self._sent_s + GATHER_S, moved_s + QUIET_S), self._sent_s + GATHER_S_MAX)
        if not self._piped or len(self._sizes) >= ANSWERS_MAX or self._bytes >= self._bytes_max:
            return math.inf
        return self._sent_s + SPACING_S

    def answered(self, size_bytes: int, *, now_s: float) -> None:
        """An answer with so many bytes of records is sent."""
        self.sent += 1
        self._hurried = False
        self._sent_s = now_s
        self._sizes.append(size_bytes)
        self._bytes += size_bytes
        while len(self._sizes) > max(0, self.sent - self.taken):
            self._bytes -= self._sizes.popleft()
