"""One call that came by Kafka's protocol, as handlers see it."""

import math
from collections.abc import Callable
from typing import Any, Final

from regnum_kafka_wire.frames import Head
from regnum_service.clock import Clock
from regnum_service.limits.call import Call

from regnum_broker.kafka.fetch_sessions import ConnectionSession


class Context:
    """What servicers ask of the context that gRPC gives them, answered for a call that came by the other door."""

    __slots__ = ("_clock", "call", "head", "session", "size_bytes")

    def __init__(
        self, call: Call, head: Head, session: ConnectionSession, clock: Clock, *, size_bytes: int = 0
    ) -> None:
        """Only assigns.

        Args:
            call: for whom work is done.
            head: of its request.
            session: of fetches of its connection.
            clock: of its deadline.
            size_bytes: of its request, as it came.
        """
        self.call: Final = call
        self.head: Final = head
        self.session: Final = session
        self.size_bytes: Final = size_bytes
        self._clock: Final = clock

    @property
    def version(self) -> int:
        """Of the request, and of its answer."""
        return self.head.version

    def peer(self) -> str:
        """The connection, as gRPC would name it."""
        return self.call.peer

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up; None: it does not say."""
        left_s = self.call.left_s(self._clock.monotonic())
        return None if math.isinf(left_s) else left_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """What came besides the request: nothing that handlers know."""
        return ()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have that done when the answer is sent, or the connection gone."""
        self.call.at_end(lambda: callback(self))
