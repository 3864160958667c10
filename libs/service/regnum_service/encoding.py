"""Large answers, encoded piece by piece (safety rule S22).

gRPC encodes what a handler returns in one turn of the loop: 60 ms for a picture of 200,000 topics. Serialised messages
of one type concatenate to one message with the fields of all, so a handler may encode its answer as it makes it, and
return bytes (see ``interceptor``).
"""

from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from regnum_service.limits.answers import making
from regnum_service.slices import next_turn

M = TypeVar("M", bound=Message)


class Encoding(Generic[M]):
    """An answer in the making."""

    def __init__(self, head: M, *, size: int) -> None:
        """``head``: its first piece; ``size``: work of one piece, in the caller's unit, about 5 ms."""
        self.piece: M = head
        """What is added to until the next ``took``: repeated fields go on in the next piece."""
        self._empty: Final = type(head)
        self._size: Final = size
        self._encoded: Final[list[bytes]] = []
        self._done = 0

    async def took(self, work: int = 1) -> None:
        """That much work was done; if it is enough for a piece it is encoded, and the loop has a turn.

        Raises:
            RegnumError: there is no memory for the piece.
        """
        self._done += work
        if self._done >= self._size:
            self._done = 0
            making(self.piece.ByteSize())
            self._encoded.append(self.piece.SerializeToString())
            self.piece = self._empty()
            await next_turn()

    def whole(self) -> bytes:
        """All of it."""
        return b"".join((*self._encoded, self.piece.SerializeToString()))
