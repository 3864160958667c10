"""Whether a started process already does its work."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Collection
from typing import Any

import grpc
from regnum_model.nodes import Address
from regnum_service.channel import Open, open_channel

from regnum_local.plan import Member, Role

PROBE_TIMEOUT_S = 1.0
"""Time one question may take."""


async def healthy(
    member: Member, open_to: Callable[[Member, str], Open], store_tls: Callable[[], ssl.SSLContext | None]
) -> bool:
    """Whether a process of a cluster does its work.

    Args:
        member: which.
        open_to: opens channels to a listener of it.
        store_tls: what is shown to a store that speaks TLS; None: it does not.
    """
    match member.role:
        case Role.ETCD:
            return await etcd_healthy(member.address("client"), store_tls())
        case Role.ZOOKEEPER:
            return await zookeeper_healthy(member.address("client"), store_tls())
        case Role.ELECTION | Role.METADATA | Role.BROKER:
            return await serves(member.address("client"), open_to(member, "client"))
        case Role.QUOTA:
            return await serves(member.address("internal"), open_to(member, "internal"))


async def accepts(address: Address) -> bool:
    """Whether somebody listens there."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def serves(address: Address, open_one: Open = open_channel) -> bool:
    """Whether a service says that it serves."""
    # Of the extra `services`: whoever only reads what runs here, as `regnum status` does, may be without.
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    # A refused connection is cheap; a gRPC channel that met one waits before it tries again.
    if not await accepts(address):
        return False
    channel = open_one(address)
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return False
    finally:
        await channel.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def names_brokers(address: Address, brokers: Collection[int], open_one: Open = open_channel) -> bool:
    """Whether a broker has heard from the controller that all of these live."""
    from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc  # noqa: PLC0415 - as above

    channel = open_one(address)
    try:
        stub: Any = metadata_pb2_grpc.MetadataServiceStub(channel)
        answer = await stub.GetMetadata(metadata_pb2.GetMetadataRequest(brokers_only=True), timeout=PROBE_TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return False
    finally:
        await channel.close()
    return set(brokers) <= {broker.id for broker in answer.brokers}


async def etcd_healthy(address: Address, tls: ssl.SSLContext | None = None) -> bool:
    """Whether etcd has a leader and takes writes: what its ``/health`` says."""
    answer = await _answer(address, tls, b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    return b" 200 " in answer.split(b"\r\n", 1)[0] and b'"health":"true"' in answer


async def zookeeper_healthy(address: Address, tls: ssl.SSLContext | None = None) -> bool:
    """Whether ZooKeeper serves: its four-letter word ``srvr`` names a mode only then."""
    return b"\nMode: " in await _answer(address, tls, b"srvr")


async def _answer(address: Address, tls: ssl.SSLContext | None, question: bytes) -> bytes:
    """What a server says before it hangs up; empty when it says nothing in time."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
            try:
                writer.write(question)
                await writer.drain()
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
