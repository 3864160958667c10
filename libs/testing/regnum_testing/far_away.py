"""A TCP proxy that makes a server far away: what either side sends arrives later, in order, however much it is.

How far may change while connections are open: what was sent before arrives before.
"""

import asyncio
from contextlib import suppress
from typing import Final, Self

from regnum_testing.ports import unused_port

_CHUNK: Final = 64 * 1024

_APART_S: Final = 1e-6
"""Time between two writes."""


class FarAway:
    """Passes bytes on after ``delay_s`` seconds, each way. Use as an async context manager."""

    def __init__(self, *, upstream_port: int, delay_s: float) -> None:
        """Only assigns."""
        self.port: Final = unused_port()
        """Port of 127.0.0.1 that clients connect to."""
        self._upstream_port: Final = upstream_port
        self.delay_s = delay_s
        """Of what is sent from now on."""
        self.takes_requests: Final = asyncio.Event()
        """While it is not set, what clients send stays where it is, and what the server sends goes on."""
        self.takes_requests.set()
        self._server: asyncio.Server | None = None
        self._connections: Final[set[asyncio.Task[None]]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        always = asyncio.Event()
        always.set()
        ways = [
            asyncio.create_task(self._carry(reader, up_writer, self.takes_requests), name="far away: requests"),
            asyncio.create_task(self._carry(up_reader, writer, always), name="far away: answers"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.transport.abort()
            up_writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, taken: asyncio.Event) -> None:
        loop, due_s = asyncio.get_running_loop(), 0.0
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                await taken.wait()
                # Calls at the very same time may come in any order.
                due_s = max(due_s + _APART_S, loop.time() + self.delay_s)
                loop.call_at(due_s, writer.write, chunk)
