"""Answers that cannot be read end their call as a failed one does.

gRPC's Python gives None to whoever waits for an answer, or reads a stream, where the bytes that came are no message of
the call; its other languages end the call with INTERNAL. Each caller is prepared for a call that fails, and none for an
answer that is no message: one damaged answer would end a controller, and each of its successors after it.
"""

from collections.abc import AsyncIterator, Generator
from typing import Any, Final, Self

import grpc

Call = Any
"""One of grpc.aio's calls."""

UNREADABLE: Final = "the answer cannot be read: it is no message of this call"
"""Details of such a failure."""


class ReadableCall:
    """A call whose answers are messages; all else is the call's own."""

    __slots__ = ("_call", "_messages")

    def __init__(self, call: Call) -> None:
        """Only assigns."""
        self._call: Final = call
        self._messages: AsyncIterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __await__(self) -> Generator[Any, None, Any]:
        """The answer. Raises AioRpcError."""
        answer = yield from self._call.__await__()
        return self._readable(answer)

    async def read(self) -> Any:
        """The next message of a stream, or grpc.aio.EOF. Raises AioRpcError."""
        return self._readable(await self._call.read())

    def __aiter__(self) -> Self:
        """Itself."""
        if self._messages is None:
            self._messages = aiter(self._call)
        return self

    async def __anext__(self) -> Any:
        """The next message of a stream. Raises AioRpcError."""
        if self._messages is None:
            raise TypeError("iterate over the call")
        return self._readable(await anext(self._messages))

    def _readable(self, answer: Any) -> Any:
        if answer is not None:
            return answer
        # The other side of a stream would go on.
        self._call.cancel()
        none = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, details=UNREADABLE)
