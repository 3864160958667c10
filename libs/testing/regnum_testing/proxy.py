"""A TCP proxy between a client and a server that a test can cut, stall or make swallow bytes."""

import asyncio
from contextlib import suppress
from typing import Final

from regnum_testing.ports import unused_port

_CHUNK: Final = 64 * 1024


class TcpProxy:
    """Passes bytes on, until told otherwise.

    ``cut`` closes all connections; while ``refusing`` new ones are closed at once. ``hold_requests`` keeps what the
    client sends until ``release_requests``; ``hold_answers`` and ``release_answers`` do the same in the other
    direction. Held bytes of a connection that the client gave up are still delivered: so comes a late commit.
    """

    def __init__(self, *, upstream_port: int) -> None:
        self.port: Final = unused_port()
        """Port of 127.0.0.1 that clients connect to."""
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._refusing = False
        self._requests_flow = asyncio.Event()
        self._requests_flow.set()
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.held_bytes = 0
        """Bytes of requests that were read and wait for ``release_requests``."""
        self.held_arrived: Final = asyncio.Event()
        """Set when requests are held and some came."""

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()
        if self._server is not None:
            await self._server.wait_closed()

    def cut(self) -> None:
        """Close all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()
        self._writers.clear()

    def refuse(self) -> None:
        """Close all connections and those to come."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Undo ``refuse``."""
        self._refusing = False

    def hold_requests(self) -> None:
        """Keep what clients send."""
        self.held_bytes = 0
        self.held_arrived.clear()
        self._requests_flow.clear()

    def release_requests(self) -> None:
        """Deliver what was kept."""
        self._requests_flow.set()

    def hold_answers(self) -> None:
        """Keep what the server sends."""
        self._answers_flow.clear()

    def release_answers(self) -> None:
        """Deliver what was kept."""
        self._answers_flow.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, up_writer), name="proxy requests")
                group.create_task(self._answers(up_reader, writer), name="proxy answers")
        finally:
            for one in (writer, up_writer):
                one.transport.abort()
            self._writers -= {writer, up_writer}

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                if not self._requests_flow.is_set():
                    self.held_bytes += len(chunk)
                    self.held_arrived.set()
                    await self._requests_flow.wait()
                writer.write(chunk)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.write_eof()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                await self._answers_flow.wait()
                writer.write(chunk)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.write_eof()
