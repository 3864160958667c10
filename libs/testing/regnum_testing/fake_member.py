"""Stands in for a process of a local cluster: ``python -m regnum_testing.fake_member ROLE PORT [MODE]``.

Roles: ``etcd`` answers ``/health`` over HTTP, ``service`` answers grpc.health.v1. Modes: ``good`` ends on SIGTERM,
``deaf`` ignores it, ``broken`` prints a reason and exits with status 3, ``mute`` never serves.
"""

import asyncio
import signal
import sys

from regnum_model.nodes import Address
from regnum_service.server import GrpcServer
from regnum_service.supervisor import Supervisor


async def _etcd(port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.0 200 OK\r\n\r\n{"health":"true"}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await _until_sigterm()


async def _service(port: int, mode: str) -> None:
    supervisor = Supervisor("fake")
    server = GrpcServer(Address(host="127.0.0.1", port=port), [], supervisor=supervisor)
    await server.start()
    if mode != "mute":
        await server.set_serving(serving=True)
    if mode == "deaf":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sys.stderr.write, "I do not hear\n")
        await asyncio.Event().wait()
    await _until_sigterm()
    await server.stop(0)


async def _until_sigterm() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


def main() -> None:
    """Play the role."""
    role, port, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "good"
    if mode == "broken":
        sys.stderr.write("the disk is on fire\n")
        sys.exit(3)
    asyncio.run(_etcd(port) if role == "etcd" else _service(port, mode))


if __name__ == "__main__":
    main()
