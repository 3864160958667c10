"""Programs of the benchmarks that serve in a process of their own: they print their port and end with their parent."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import grpc
from regnum_local import tether

END_S: Final = 5.0
"""Time to end after SIGTERM."""


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


def own_host(number: int) -> str:
    """One of 65,536 loopback addresses: an address belongs to one broker."""
    return f"127.1.{number // 256}.{number % 256}"


async def serve_as_child(
    server: grpc.aio.Server, tls: grpc.ServerCredentials | None = None, *, hosts: Iterable[str] = ()
) -> None:
    """In that process: listen, in plaintext at these hosts as well, print the port, serve until it is ended."""
    at = "127.0.0.1:0"
    port = server.add_insecure_port(at) if tls is None else server.add_secure_port(at, tls)
    for host in hosts:
        server.add_insecure_port(f"{host}:{port}")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()
