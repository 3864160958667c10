"""Clients that begin messages and never end them: HTTP/2 by hand, since no gRPC library sends half a message.

Each call sends a head that announces a message, and all of the message but its last byte, as far as flow control lets
it. What the server answers is read, so that nothing but the missing byte holds it up.
"""

import asyncio
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES: Final = 16_384
WINDOW_BYTES: Final = 65_535
"""What may be sent before anything was granted, of a connection; of a stream, unless the server's settings say."""

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS: Final = 4
INITIAL_WINDOW_SIZE: Final = 4

_HEAD: Final = struct.Struct(">BHBBI")


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _headers(path: str) -> bytes:
    """A call's headers, each a literal that is not indexed (RFC 7541, 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "here",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )


@dataclass(slots=True)
class _Call:
    left_bytes: int
    """What it has still to send."""
    window_bytes: int
    """What it may send."""
    ended: bool = False
    """Whether the server has ended it."""


class PartialMessages:
    """One connection with some calls, each of which sends all of a message but its end. An async context manager."""

    def __init__(self, host: str, port: int, *, path: str, calls: int, message_bytes: int) -> None:
        """Only assigns."""
        self._host: Final = host
        self._port: Final = port
        self._path: Final = path
        self._message_bytes: Final = message_bytes
        self._calls: Final[dict[int, _Call]] = {1 + 2 * number: _Call(0, WINDOW_BYTES) for number in range(calls)}
        self._window_bytes = WINDOW_BYTES
        self._initial_bytes = WINDOW_BYTES
        self._moved: Final = asyncio.Event()
        self._tasks: Sequence[asyncio.Task[None]] = ()
        self.closed = False
        """Whether the server has closed the connection."""

    async def __aenter__(self) -> Self:
        """Begin all calls; what they send goes on beside."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._writer.write(PREFACE + _frame(SETTINGS, 0, 0))
        for number, call in self._calls.items():
            self._writer.write(_frame(HEADERS, END_HEADERS, number, _headers(self._path)))
            # The message's own head: not compressed, and how long it is.
            self._writer.write(_frame(DATA, 0, number, b"\x00" + struct.pack(">I", self._message_bytes)))
            call.left_bytes = self._message_bytes - 1
            call.window_bytes -= 5
            self._window_bytes -= 5
        self._tasks = (
            asyncio.create_task(self._read(), name="partial messages: answers"),
            asyncio.create_task(self._write(), name="partial messages: requests"),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.transport.abort()

    @property
    def complete(self) -> int:
        """Calls that wait with all of their message but its end at the server."""
        return sum(not call.left_bytes and not call.ended for call in self._calls.values())

    @property
    def refused(self) -> int:
        """Calls that the server has ended."""
        return sum(call.ended for call in self._calls.values())

    @property
    def held_up(self) -> int:
        """Calls that may send no more until the server reads."""
        return sum(bool(call.left_bytes) and call.window_bytes <= 0 and not call.ended for call in self._calls.values())

    @property
    def is_settled(self) -> bool:
        """Whether every call is one of these, or the connection is closed."""
        return self.closed or self.complete + self.refused + self.held_up == len(self._calls)

    async def _read(self) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                high, low, kind, flags, number = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                payload = await self._reader.readexactly((high << 16) + low)
                self._take(kind, flags, number & 0x7FFFFFFF, payload)
                self._moved.set()
        self.closed = True
        self._moved.set()

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        call = self._calls.get(number)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                setting, value = struct.unpack_from(">HI", payload, at)
                if setting == INITIAL_WINDOW_SIZE:
                    for one in self._calls.values():
                        one.window_bytes += value - self._initial_bytes
                    self._initial_bytes = value
            self._writer.write(_frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._writer.write(_frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            (granted,) = struct.unpack(">I", payload)
            if number == 0:
                self._window_bytes += granted
            elif call is not None:
                call.window_bytes += granted
        elif call is not None and (kind == RST_STREAM or (kind in {HEADERS, DATA} and flags & END_STREAM)):
            call.ended = True

    async def _write(self) -> None:
        with suppress(ConnectionError):
            while not self.closed:
                self._moved.clear()
                while self._write_a_round():
                    await self._writer.drain()
                await self._moved.wait()

    def _write_a_round(self) -> bool:
        """A frame for each call that may send one; whether there was any."""
        any_sent = False
        for number, call in self._calls.items():
            size = min(FRAME_BYTES, call.left_bytes, call.window_bytes, self._window_bytes)
            if size <= 0 or call.ended:
                continue
            self._writer.write(_frame(DATA, 0, number, bytes(size)))
            call.left_bytes -= size
            call.window_bytes -= size
            self._window_bytes -= size
            any_sent = True
        return any_sent
