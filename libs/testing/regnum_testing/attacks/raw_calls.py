"""gRPC calls of a client that has made its bytes once: HTTP/2, as far as a hostile client needs it.

gRPC's own clients compress each message anew, read what they are sent and send what they promised. This one sends the
same bytes in each call, may refuse every byte of an answer (a window of 0), and may give a call up at any time.
"""

import asyncio
import collections
import contextlib
import itertools
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from regnum_model.nodes import Address

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
"""Kinds of frames (RFC 9113, section 6)."""
END_STREAM, ACK, END_HEADERS = 1, 1, 4
"""Flags of frames."""
STREAMS_MAX, INITIAL_WINDOW = 3, 4
"""Settings."""
WINDOW: Final = 65_535
"""Bytes that may be sent before the other side says more, of a stream and of the connection."""
FRAME_BYTES_MAX: Final = 16_384
CANCEL: Final = 8
"""Error code of a stream that its client wants no more of."""
LITERAL_BYTES_MAX: Final = 126
"""Longest text whose length fits one byte of HPACK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """One call, ready to be sent any number of times."""

    path: str
    """``/package.Service/Method``."""
    message: bytes
    """The request as it goes over the wire."""
    encoding: str = ""
    """What the client says it was compressed with; empty: it was not."""
    metadata: tuple[tuple[bytes, bytes], ...] = ()
    """Further headers."""
    sent_bytes: int | None = None
    """So much of what comes after the headers is sent, and then nothing; None: all."""

    @property
    def head(self) -> bytes:
        """The block of headers."""
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", self.path.encode()),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]
        if self.encoding:
            fields.append((b"grpc-encoding", self.encoding.encode()))
        return b"".join(literal(name, value) for name, value in (*fields, *self.metadata))

    @property
    def body(self) -> bytes:
        """The message with gRPC's prefix."""
        return bytes([bool(self.encoding)]) + struct.pack(">I", len(self.message)) + self.message


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is in no table (HPACK, RFC 7541, 6.2.2)."""
    if max(len(name), len(value)) > LITERAL_BYTES_MAX:
        raise ValueError(f"{value[:40]!r} is longer than {LITERAL_BYTES_MAX} bytes")
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class RawConnection:
    """One connection. An async context manager; ``send`` may be called by any number of tasks."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, *, reads: bool = True) -> None:
        """Only assigns.

        Args:
            address: the listener.
            tls: what is shown there, with ``h2`` as its protocol; None: plaintext.
            reads: whether answers may come; False: not a byte of any message.
        """
        self._address: Final = address
        self._tls: Final = tls
        self._reads: Final = reads
        self._changed: Final = asyncio.Condition()
        self._window = WINDOW
        self._first_window = WINDOW
        self._windows: Final[dict[int, int]] = {}
        self._ended: Final[dict[int, str]] = {}
        self._streams_max = 2**31
        self._next = 1
        self._gone = False
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect."""
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port, ssl=self._tls)
        window = struct.pack(">HI", INITIAL_WINDOW, WINDOW if self._reads else 0)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, window))
        self._writer = writer
        self._listening = asyncio.create_task(self._listen(reader), name="raw connection")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
        if self._writer is not None:
            # Nothing of what the server still has to say is waited for.
            self._writer.transport.abort()

    async def send(self, call: RawCall, *, given_up_after_s: float | None = None) -> str:
        """Send a call and wait for its end.

        Args:
            call: what is sent.
            given_up_after_s: cancel it so long after all was sent; None: wait.

        Returns ``ended``, ``reset`` (by the server), ``given up``, or ``hung up`` where the connection is no more.
        """
        stream = await self._opened(call)
        if stream is None:
            return "hung up"
        try:
            await self._fill(stream, call)
            async with asyncio.timeout(given_up_after_s):
                await self._wait(lambda: self._gone or stream in self._ended)
        except TimeoutError:
            self._write(frame(RESET, 0, stream, struct.pack(">I", CANCEL)))
            self._ended.setdefault(stream, "given up")
        finally:
            self._windows.pop(stream, None)
            async with self._changed:
                self._changed.notify_all()
        return self._ended.pop(stream, "hung up")

    async def _opened(self, call: RawCall) -> int | None:
        await self._wait(lambda: self._gone or len(self._windows) < self._streams_max)
        if self._gone:
            return None
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._first_window
        self._write(frame(HEADERS, END_HEADERS, stream, call.head))
        return stream

    async def _fill(self, stream: int, call: RawCall) -> None:
        """Send the body as the server's windows allow."""
        rest = memoryview(call.body)[: call.sent_bytes]
        while rest:
            await self._wait(
                lambda: self._gone or stream in self._ended or min(self._window, self._windows[stream]) > 0
            )
            if self._gone or stream in self._ended:
                return
            size = min(len(rest), FRAME_BYTES_MAX, self._window, self._windows[stream])
            part, rest = rest[:size], rest[size:]
            self._window -= size
            self._windows[stream] -= size
            self._write(frame(DATA, 0 if rest or call.sent_bytes is not None else END_STREAM, stream, bytes(part)))
            if self._writer is not None:
                with contextlib.suppress(ConnectionError):
                    await self._writer.drain()

    async def _wait(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)

    def _write(self, data: bytes) -> None:
        if self._writer is not None and not self._gone:
            self._writer.write(data)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
                async with self._changed:
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._gone = True
            async with self._changed:
                self._changed.notify_all()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case 4 if not flags & ACK:
                self._set(payload)
                self._write(frame(SETTINGS, ACK, 0))
            case 6 if not flags & ACK:
                self._write(frame(PING, ACK, 0, payload))
            case 8:
                more = int.from_bytes(payload, "big")
                if stream == 0:
                    self._window += more
                elif stream in self._windows:
                    self._windows[stream] += more
            case 3:
                self._end(stream, "reset")
            case 0 | 1:
                if kind == DATA and payload and self._reads:
                    more_of_it = struct.pack(">I", len(payload))
                    self._write(frame(WINDOW_UPDATE, 0, 0, more_of_it) + frame(WINDOW_UPDATE, 0, stream, more_of_it))
                if flags & END_STREAM:
                    self._end(stream, "ended")
            case _:
                # (Of a server that goes away the end of the connection tells.)
                pass

    def _set(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == STREAMS_MAX:
                self._streams_max = value
            elif name == INITIAL_WINDOW:
                for stream in self._windows:
                    self._windows[stream] += value - self._first_window
                self._first_window = value

    def _end(self, stream: int, how: str) -> None:
        if stream in self._windows:
            self._ended.setdefault(stream, how)


async def send_many(
    address: Address,
    tls: ssl.SSLContext | None,
    call: RawCall,
    *,
    connections: int,
    of_each: int,
    seconds: float,
    reads: bool = True,
    given_up_after_s: float | None = None,
    again: bool = False,
) -> collections.Counter[str]:
    """The same call many times at once, for so long at most; how the calls ended, ``unanswered`` those that did not.

    Args:
        address: the listener.
        tls: what is shown there.
        call: what is sent.
        connections: how many there are.
        of_each: calls of each that are under way at once.
        seconds: then all that is under way is left.
        reads: whether answers may come.
        given_up_after_s: see ``RawConnection.send``.
        again: whether each call that has ended is sent again, until the time is over.
    """
    found: collections.Counter[str] = collections.Counter()

    async def one(connection: RawConnection) -> None:
        while True:
            found["unanswered"] += 1
            how = await connection.send(call, given_up_after_s=given_up_after_s)
            found["unanswered"] -= 1
            found[how] += 1
            if not again or how == "hung up":
                return

    async def one_connection() -> None:
        async with RawConnection(address, tls, reads=reads) as connection, asyncio.TaskGroup() as calls:
            for _ in range(of_each):
                calls.create_task(one(connection))

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(one_connection())
    return +found


async def send_paced(
    address: Address,
    tls: ssl.SSLContext | None,
    calls: Sequence[RawCall],
    *,
    connections: int,
    per_s: float,
    seconds: float,
) -> collections.Counter[str]:
    """So many calls a second, one after another of ``calls``, whether or not earlier ones are answered; see above."""
    found: collections.Counter[str] = collections.Counter()
    loop = asyncio.get_running_loop()

    async def one(connection: RawConnection, call: RawCall) -> None:
        found["unanswered"] += 1
        how = await connection.send(call)
        found["unanswered"] -= 1
        found[how] += 1

    async with contextlib.AsyncExitStack() as ends:
        opened = [await ends.enter_async_context(RawConnection(address, tls)) for _ in range(connections)]
        begun_s = loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for number in itertools.count():
                    group.create_task(one(opened[number % connections], calls[number % len(calls)]))
                    await asyncio.sleep(begun_s + (number + 1) / per_s - loop.time())
    return +found
