"""Stands in for a process of a local cluster: ``python -m regnum_testing.fake_member ROLE PORT [MODE]``.

Roles: ``etcd`` answers ``/health`` over HTTP, ``service`` answers grpc.health.v1. Modes: ``good`` ends on SIGTERM,
``deaf`` ignores it, ``broken`` prints a reason and exits with status 3, ``mute`` never serves. Some hundred of them
are started in the tests, so that it loads little: gRPC for a service only, and nothing of the services.
"""

import asyncio
import signal
import sys


async def _etcd(port: int, mode: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        serves = mode != "mute"
        head = b"HTTP/1.0 200 OK" if serves else b"HTTP/1.0 503 Service Unavailable"
        writer.write(head + b'\r\n\r\n{"health":"%s"}' % (b"true" if serves else b"false"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await _until_sigterm()


async def _service(port: int, mode: str) -> None:
    # A quarter of a second that the store's stand-in does without.
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415
    from grpc_health.v1.health import aio  # noqa: PLC0415
    from regnum_service.listening import make_server  # noqa: PLC0415

    server = make_server()
    health = aio.HealthServicer()
    status = health_pb2.HealthCheckResponse.NOT_SERVING if mode == "mute" else health_pb2.HealthCheckResponse.SERVING
    await health.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    if mode == "deaf":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sys.stderr.write, "I do not hear\n")
        await asyncio.Event().wait()
    await _until_sigterm()
    await server.stop(None)


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
    asyncio.run(_etcd(port, mode) if role == "etcd" else _service(port, mode))


if __name__ == "__main__":
    main()
