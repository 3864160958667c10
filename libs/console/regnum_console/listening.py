"""Connections of browsers: taken, bounded, and let go.

Goals: a client that connects and says nothing, says it slowly, or reads slowly, takes the place of no other for long,
and memory stays bounded. That is asked of a listener beyond this machine, where anything connects.

Algorithm: connections are counted from the moment in which they are taken, before TLS is spoken: so many in all and of
one address; what comes beyond is closed at once. A handshake has HANDSHAKE_S, a request REQUEST_S from its first byte
(or the connection's beginning) to its last. What an answer has to wait for until the other end reads on is 64 KiB at
most, and STALLED_S; then the connection is cut off, and what made the answer ends.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Final, TypeAlias

import uvicorn
from regnum_service.clock import Clock
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

CONNECTIONS_MAX: Final = 256
"""In all."""
OF_ADDRESS_MAX: Final = 64
"""Of one address, beyond this machine: several visitors may be behind it."""
HANDSHAKE_S: Final = 10.0
"""TLS is spoken by then."""
REQUEST_S: Final = 30.0
"""A request has come by then."""
STALLED_S: Final = 20.0
"""So long an answer waits for its reader."""
BUFFER_BYTES: Final = 65_536
"""Of an answer that is not read yet."""
STOP_S: Final = 2
"""How long pages that are being made are waited for at the end."""
NO_FILES_S: Final = 0.5
"""A process that may open no more files waits so long before it takes another connection."""


class Connection(H11Protocol):
    """One connection: uvicorn's, with an end to waiting."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, *, request_s: float = REQUEST_S, stalled_s: float = STALLED_S
    ) -> None:
        super().__init__(config, state, {})
        self._request_s: Final = request_s
        self._stalled_s: Final = stalled_s
        self.gone: Final = asyncio.Event()
        """Set when it has ended."""
        self._receiving: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        transport.set_write_buffer_limits(BUFFER_BYTES)
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """See asyncio."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio."""
        super().resume_writing()
        self._stalled = _stopped(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        super().connection_lost(exc)
        self._receiving, self._stalled = _stopped(self._receiving), _stopped(self._stalled)
        self.gone.set()

    def _watch(self) -> None:
        """A request that has not come whole is waited for no longer than that; nor is the reader of a last answer."""
        answering = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if answering:
            self._receiving = _stopped(self._receiving)
        elif self._receiving is None:
            self._receiving = self.loop.call_later(self._request_s, self.transport.abort)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None, in place of a timer that does not go off any more."""
    if timer is not None:
        timer.cancel()
    return None


Tls: TypeAlias = Callable[[], Awaitable[ssl.SSLContext]]
"""What a connection that comes now is protected with."""


class Door:
    """Takes the connections of a listener. ``run`` until it is cancelled."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], Connection],
        clock: Clock,
        *,
        tls: Tls | None,
        handshake_s: float = HANDSHAKE_S,
        most: int = CONNECTIONS_MAX,
        of_address: int = CONNECTIONS_MAX,
    ) -> None:
        """Only assigns.

        Args:
            listener: that listens already.
            make: the other end of a new connection.
            clock: source of time.
            tls: None: plaintext.
            handshake_s: until TLS is spoken.
            most: connections at a time.
            of_address: the same of one address.
        """
        self._listener: Final = listener
        self._make: Final = make
        self._clock: Final = clock
        self._tls: Final = tls
        self._handshake_s: Final = handshake_s
        self._most: Final = most
        self._of_address: Final = of_address
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._addresses: Final[Counter[str]] = Counter()

    async def run(self) -> None:
        """Take what comes."""
        loop = asyncio.get_running_loop()
        self._listener.settimeout(0)
        while True:
            try:
                connection, place = await loop.sock_accept(self._listener)
            except OSError:
                await self._clock.sleep(NO_FILES_S)
                continue
            address = str(place[0])
            if len(self._tasks) >= self._most or self._addresses[address] >= self._of_address:
                connection.close()
                continue
            self._addresses[address] += 1
            task = asyncio.create_task(self._serve(connection, address), name="connection of a browser")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut off what is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """From its beginning to its end."""
        loop = asyncio.get_running_loop()
        about: dict[str, Any] = {}
        transport: asyncio.Transport | None = None
        try:
            if self._tls is not None:
                about = {"ssl": await self._tls(), "ssl_handshake_timeout": self._handshake_s}
            # What speaks no TLS, or too slowly, is let go.
            with contextlib.suppress(OSError):
                transport, end = await loop.connect_accepted_socket(self._make, connection, **about)
                await end.gone.wait()
        finally:
            if transport is not None:
                transport.abort()
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """See uvicorn."""
        yield


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp, listener: socket.socket, clock: Clock, *, tls: Tls | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Serve an application on a listener until the context ends; the task that does."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S,
    )
    server = _Server(config)
    door = Door(
        listener,
        lambda: Connection(config, server.server_state),
        clock,
        tls=tls,
        of_address=CONNECTIONS_MAX if tls is None else OF_ADDRESS_MAX,
    )
    taking = asyncio.create_task(door.run(), name="connections of browsers")

    def ended(_task: asyncio.Task[None]) -> None:
        server.should_exit = True

    taking.add_done_callback(ended)
    # (Its connections are ours.)
    task = asyncio.create_task(server.serve(sockets=[]), name="console")
    try:
        yield task
    finally:
        taking.cancel()
        await asyncio.wait({taking, task})
        await door.close()
