"""A TCP proxy between a client and a server that a test can cut, or make keep what one side sends.

Lost reply: ``hold_answers``, write, see elsewhere that it happened, ``cut``.
Late commit: ``hold_requests``, write, await ``held``, ``drop_clients`` (the client knows nothing), look, ``deliver``.
"""

import asyncio
from contextlib import suppress
from typing import Final

from regnum_testing.ports import unused_port

_CHUNK: Final = 64 * 1024


class _Link:
    """One connection of a client and the one made for it to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.holds_requests = False
        self.held = bytearray()
        self.grew = asyncio.Event()
        self.passing: asyncio.Event | None = None
        """Lets the answer that is held go on; None: none is held."""

    async def carry_requests(self, reader: asyncio.StreamReader) -> None:
        """Client to server; when the client goes while requests are held, the server's side stays open."""
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                if self.holds_requests:
                    self.held += chunk
                    self.grew.set()
                else:
                    self.server.write(chunk)
                    await self.server.drain()
        if not self.holds_requests:
            self.server.transport.abort()

    async def carry_answers(self, reader: asyncio.StreamReader, flow: asyncio.Event) -> None:
        """Server to client; what comes after the client has gone is thrown away."""
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                if not flow.is_set():
                    await self._hold(flow)
                if not self.client.is_closing():
                    with suppress(ConnectionError):
                        self.client.write(chunk)
                        await self.client.drain()
        self.client.transport.abort()

    async def _hold(self, flow: asyncio.Event) -> None:
        """Return when answers flow again, or this one may go on."""
        self.passing = asyncio.Event()
        waits = [asyncio.ensure_future(event.wait()) for event in (flow, self.passing)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.passing = None
            for wait in waits:
                wait.cancel()

    def close(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class TcpProxy:
    """Passes bytes on, until told otherwise."""

    def __init__(self, *, upstream_port: int) -> None:
        self.port: Final = unused_port()
        """Port of 127.0.0.1 that clients connect to."""
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._refusing = False
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._links)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        self._refusing = True
        self._answers_flow.set()
        self.cut()
        await asyncio.gather(*self._tasks)
        if self._server is not None:
            await self._server.wait_closed()

    def cut(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    def lead_to(self, port: int) -> None:
        """From now on another server stands behind the address; what was connected is cut off."""
        self._upstream_port = port
        self.cut()

    def refuse(self) -> None:
        """Close all connections, and those to come until ``accept``."""
        self._refusing = True
        self.cut()

    def turn_away(self) -> None:
        """Close connections to come until ``accept``."""
        self._refusing = True

    def accept(self) -> None:
        """Undo ``refuse`` and ``turn_away``."""
        self._refusing = False

    def hold_answers(self) -> None:
        """Keep what the server sends until ``release_answers``."""
        self._answers_flow.clear()

    def release_answers(self) -> None:
        """Undo ``hold_answers``."""
        self._answers_flow.set()

    def held_answers(self) -> list[asyncio.Event]:
        """What the server has answered and nobody has got; each goes on when its event is set, and no other with it."""
        return [link.passing for link in self._links if link.passing is not None]

    def hold_requests(self) -> None:
        """Keep what is sent on the connections that are open now; new connections flow."""
        for link in self._links:
            link.holds_requests = True

    async def held(self, size: int) -> None:
        """Return when some connection has that many bytes held."""
        while all(len(link.held) < size for link in self._links):
            waits = [asyncio.ensure_future(link.grew.wait()) for link in self._links if link.holds_requests]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            for link in self._links:
                link.grew.clear()

    def drop_clients(self) -> None:
        """Close the clients' side of the connections with held requests; the server notices nothing."""
        for link in self._links:
            if link.holds_requests:
                link.client.transport.abort()

    def deliver(self) -> bool:
        """Send the held requests to the server; whether there is still a connection to send them on."""
        delivered = False
        for link in self._links:
            if link.held:
                link.server.write(bytes(link.held))
                link.held.clear()
                delivered = True
        return delivered

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
        link = _Link(writer, up_writer)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(link.carry_requests(reader), name="proxy requests")
                group.create_task(link.carry_answers(up_reader, self._answers_flow), name="proxy answers")
        finally:
            link.close()
            self._links.discard(link)
