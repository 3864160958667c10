"""Expiry of any ZooKeeper session on demand: a second connection takes the session over and closes it.

ZooKeeper derives the password of a session from its id with ``java.util.Random``, so the id, which every ephemeral
node names, suffices; the owner may be another process.
"""

import asyncio
import struct
from typing import Final

_SUPER_SECRET: Final = 0xB3415C00
_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_CLOSE_SESSION: Final = -11


def session_password(session_id: int) -> bytes:
    """The 16 bytes that ZooKeeper gave the session's owner."""
    seed = ((session_id ^ _SUPER_SECRET) ^ _MULTIPLIER) & _MASK
    password = b""
    for _ in range(4):
        seed = (seed * _MULTIPLIER + 0xB) & _MASK
        password += struct.pack("<I", (seed >> 16) & 0xFFFFFFFF)
    return password


async def expire_session(port: int, session_id: int, *, timeout_s: float = 10.0) -> bool:
    """End a session through the server on that port of 127.0.0.1; False if it was over already."""
    asked = False
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await _close(port, session_id) or asked
            except (asyncio.IncompleteReadError, ConnectionError):
                # The owner, whose own connection breaks by this, was back first: the server hangs up on whoever had the
                # session before. Our wish may have been heard or not; an end that is found now is our doing.
                asked = True


async def _close(port: int, session_id: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        password = session_password(session_id)
        connect = struct.pack("!iqiqi16sb", 0, 0, 10_000, session_id, len(password), password, 0)
        # In one piece: the server acts on both before it hears of the owner again.
        writer.write(_framed(connect) + _framed(struct.pack("!ii", 1, _CLOSE_SESSION)))
        _, granted_ms, _ = struct.unpack_from("!iiq", await _frame(reader))
        if granted_ms <= 0:
            return False
        await _frame(reader)
        return True
    finally:
        writer.transport.abort()


def _framed(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length)
