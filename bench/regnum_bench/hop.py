"""One raw gRPC hop as a process: takes bytes and answers none, or is asked for bytes and gives them.

``python -m regnum_bench.hop`` prints its port and serves until it is ended. What produce and consume are measured
against: the same bytes, the same Python, no log behind it.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from regnum_local import tether
from regnum_service.channel import MESSAGE_BYTES_MAX

TAKE: Final = "/regnum.bench.Hop/Take"
"""Takes bytes, answers none."""
GIVE: Final = "/regnum.bench.Hop/Give"
"""Takes a number as text, answers so many bytes."""
OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)
END_S: Final = 5.0
"""Time to end after SIGTERM."""


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
async def hop() -> AsyncIterator[Hop]:
    """A hop in a process of its own."""
    async with (
        child("regnum_bench.hop") as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel,
    ):
        yield Hop(channel)


@asynccontextmanager
async def child(module: str, *arguments: str) -> AsyncIterator[int]:
    """A module of ours as a process that prints the port it listens on; ends with the block, or with this process."""
    tied = (sys.executable, "-m", tether.__name__, str(os.getpid()))
    process = await asyncio.create_subprocess_exec(
        *(*tied, sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        yield int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _serve() -> None:
    async def take(_data: bytes, _context: Any) -> bytes:
        return b""

    async def give(size: bytes, _context: Any) -> bytes:
        return bytes(int(size))

    server = grpc.aio.server(options=OPTIONS)
    handlers = {
        name.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(
            behaviour, request_deserializer=bytes, response_serializer=bytes
        )
        for name, behaviour in ((TAKE, take), (GIVE, give))
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("regnum.bench.Hop", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
