"""Partitions with something to read: records that were fetched, or an error. Pure.

Whoever reads is served in the order of arrival, one chunk of a partition after another partition's; partitions with
nothing to read cost nothing, however many there are.
"""

from collections import OrderedDict
from typing import Final

from regnum_client.consumer.cursor import Chunk, Cursor


class Arrivals:
    """Of one consumer."""

    def __init__(self) -> None:
        self._cursors: Final = OrderedDict[Cursor, None]()
        """First come first; a ``seek`` may have left nothing to read."""

    def __bool__(self) -> bool:
        """There is something to read."""
        while self._cursors:
            cursor = next(iter(self._cursors))
            if cursor.has_chunk or cursor.error is not None:
                return True
            del self._cursors[cursor]
        return False

    @property
    def unread_bytes(self) -> int:
        """Size of the chunks that nobody has begun to read."""
        return sum(cursor.unread_bytes for cursor in self._cursors)

    def add(self, cursor: Cursor) -> None:
        """A chunk or an error came."""
        self._cursors[cursor] = None

    def discard(self, cursor: Cursor) -> None:
        """It is read no more."""
        self._cursors.pop(cursor, None)

    def take(self) -> tuple[Cursor, Chunk] | None:
        """The next chunk, which is then the reader's. Raises an error whose turn it is, again and again."""
        while self:
            cursor = next(iter(self._cursors))
            chunk = cursor.next_chunk()
            if chunk is not None:
                self._cursors.move_to_end(cursor)
                return cursor, chunk
            if cursor.error is not None:
                raise cursor.error
        return None
