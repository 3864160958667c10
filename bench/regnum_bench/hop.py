"""One raw gRPC hop as a process: takes bytes and answers none, or is asked for bytes and gives them.

``python -m regnum_bench.hop`` prints its port and serves until it is ended. What produce and consume are measured
against: the same bytes, the same Python, no log behind it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from regnum_service.channel import MESSAGE_BYTES_MAX, aio_channel
from regnum_service.listening import make_server

from regnum_bench.children import child, serve_as_child

TAKE: Final = "/regnum.bench.Hop/Take"
"""Takes bytes, answers none."""
GIVE: Final = "/regnum.bench.Hop/Give"
"""Takes a number as text, answers so many bytes."""
OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopTls:
    """PEM files of a hop over TLS."""

    ca: Path
    """Authority of its certificate."""
    certificate: Path
    """What it shows."""
    key: Path
    """The key of that."""


class Hop:
    """The hop as its callers see it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._take = channel.unary_unary(TAKE, request_serializer=bytes, response_deserializer=bytes)
        self._give = channel.unary_unary(GIVE, request_serializer=bytes, response_deserializer=bytes)

    async def take(self, data: bytes, timeout_s: float) -> None:
        """Send bytes."""
        await self._take(data, timeout=timeout_s)

    async def give(self, size: int, timeout_s: float) -> bytes:
        """Get so many bytes."""
        data: bytes = await self._give(str(size).encode(), timeout=timeout_s)
        return data


@asynccontextmanager
async def hop(tls: HopTls | None = None) -> AsyncIterator[Hop]:
    """A hop in a process of its own; ``tls``: over TLS, which the server alone shows a certificate for."""
    shown = () if tls is None else (str(tls.certificate), str(tls.key))
    async with child("regnum_bench.hop", *shown) as port, _channel(f"127.0.0.1:{port}", tls) as channel:
        yield Hop(channel)


def _channel(target: str, tls: HopTls | None) -> grpc.aio.Channel:
    credentials = None if tls is None else grpc.ssl_channel_credentials(tls.ca.read_bytes())
    return aio_channel(target, credentials=credentials, options=OPTIONS)


async def _serve(credentials: grpc.ServerCredentials | None) -> None:
    async def take(_data: bytes, _context: Any) -> bytes:
        return b""

    async def give(size: bytes, _context: Any) -> bytes:
        return bytes(int(size))

    server = make_server(*OPTIONS)
    handlers = {
        name.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(
            behaviour, request_deserializer=bytes, response_serializer=bytes
        )
        for name, behaviour in ((TAKE, take), (GIVE, give))
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("regnum.bench.Hop", handlers),))
    await serve_as_child(server, credentials)


def _credentials(shown: Sequence[str]) -> grpc.ServerCredentials | None:
    """From the paths of a certificate and its key, if they were given."""
    if not shown:
        return None
    certificate, key = (Path(path).read_bytes() for path in shown)
    return grpc.ssl_server_credentials([(key, certificate)])


if __name__ == "__main__":
    asyncio.run(_serve(_credentials(sys.argv[1:])))
