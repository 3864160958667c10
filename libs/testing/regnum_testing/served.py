"""A call as a gRPC server makes it, without the wire: for tests that measure turns of the loop (safety rule S22).

Request and answer are bytes. The server parses the one and encodes the other on the loop, so both belong to the turns
of the call; what the caller does with them does not.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

R = TypeVar("R", bound=Message)


class Caller:
    """Stands for grpc.aio.ServicerContext: somebody patient, unless a test says how long he waits."""

    def __init__(self, remaining_s: float | None = None, *, peer: str = "ipv4:127.0.0.1:1") -> None:
        self._remaining_s: Final = remaining_s
        self._peer: Final = peer

    def time_remaining(self) -> float | None:
        """Seconds left; None: there is no deadline."""
        return self._remaining_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """What came with the call besides the request: nothing."""
        return ()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Nobody hangs up, and nothing is sent."""

    def peer(self) -> str:
        """Who calls."""
        return self._peer


async def served(handler: Callable[[R, Any], Awaitable[Message | bytes]], kind: type[R], request: bytes) -> bytes:
    """What the handler answers. Raises what it raises."""
    answer = await handler(kind.FromString(request), Caller())
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
