"""What was read and can be read again: at most so many bytes, least recently used go first.

What a broker's logs have read of their indexes would otherwise stay for ever: a megabyte and a half for each segment
of a quarter of a gigabyte that anybody has looked at.
"""

import threading
from collections import OrderedDict, deque
from contextlib import ExitStack
from typing import Final, Protocol


class Cached(Protocol):
    """Who keeps something that was read. Compared by identity."""

    def drop_cached(self) -> bool:
        """Keep it no longer. False: some of it can not be read yet; whoever may has it written first. Any thread."""

    def write_cached(self) -> None:
        """Write it, and keep it no longer. For who may write."""


class ReadCache:
    """Knows who keeps how much. Any thread."""

    def __init__(self, bytes_max: int) -> None:
        """Only assigns.

        Args:
            bytes_max: how much all may keep together. One that alone is larger is kept until another comes.
        """
        self._bytes_max: Final = bytes_max
        self._lock: Final = threading.Lock()
        self._sizes: OrderedDict[Cached, int] = OrderedDict()
        self._bytes = 0
        self.unwritten: Final[deque[Cached]] = deque()
        """Those that could not drop it, because it has to be written first; whoever may write takes them out."""

    def write_one(self) -> None:
        """Have one that could not drop it write it; where that fails, another time again. For who may write."""
        try:
            owner = self.unwritten.popleft()
        except IndexError:
            # Others may do so, too.
            return
        with ExitStack() as undo:
            undo.callback(self.unwritten.append, owner)
            owner.write_cached()
            undo.pop_all()

    @property
    def bytes_held(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def keep(self, owner: Cached, size_bytes: int) -> None:
        """Somebody keeps so much from now on, and has used it just now; others drop theirs if that is too much."""
        with self._lock:
            self._bytes += size_bytes - self._sizes.pop(owner, 0)
            self._sizes[owner] = size_bytes
            while self._bytes > self._bytes_max and len(self._sizes) > 1:
                oldest, size = self._sizes.popitem(last=False)
                self._bytes -= size
                if not oldest.drop_cached():
                    self.unwritten.append(oldest)

    def used(self, owner: Cached) -> None:
        """Somebody has used what is kept."""
        with self._lock:
            if owner in self._sizes:
                self._sizes.move_to_end(owner)

    def forget(self, owner: Cached) -> None:
        """Somebody keeps nothing any more."""
        with self._lock:
            self._bytes -= self._sizes.pop(owner, 0)
