"""The listener of the kubelet's probes: open first, closed last, never over TLS."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.quota.v1 import quota_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel
from regnum_service.connections import peers_at
from regnum_service.errors import PortTakenError
from regnum_service.probes import CONNECTIONS_MAX, LIMITS, serve_probes
from regnum_service.server import LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S, eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What a client of HTTP/2 says first, and settings without any."""
FRAME_HEAD_BYTES, PING = 9, 6

QUOTA = "regnum.quota.v1.QuotaService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def told(listen: str | None) -> ServiceSettings:
    return ServiceSettings(coordination="etcd://127.0.0.1:1", health_listen=listen)


async def idle(address: Address) -> None:
    """Speak HTTP/2 so far that gRPC takes it for a client, ask nothing, and answer pings until hung up on."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(PREFACE)
        while True:
            head = await reader.readexactly(FRAME_HEAD_BYTES)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == PING and not head[4]:
                writer.write(head[:4] + b"\x01" + head[5:] + payload)
    except (asyncio.IncompleteReadError, OSError):
        return
    finally:
        writer.close()


async def asked(address: Address, service: str) -> int:
    async with aio_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S
        )
        status: int = answer.status
        return status


async def test_a_process_is_alive_from_the_first_moment_and_ready_when_its_listener_says_so() -> None:
    supervisor = Supervisor("test")
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor)
    assert address is not None
    assert await asked(address, LIVENESS) == SERVING
    assert await asked(address, QUOTA) == NOT_SERVING
    assert await asked(address, "") == NOT_SERVING
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name=QUOTA,
                servicer=quota_pb2_grpc.QuotaServiceServicer(),
                add_to_server=quota_pb2_grpc.add_QuotaServiceServicer_to_server,
            )
        ],
        supervisor=supervisor,
    )
    await server.start()
    assert await asked(address, QUOTA) == NOT_SERVING
    await server.set_serving(serving=True)
    assert await asked(address, QUOTA) == SERVING
    assert await asked(address, "") == SERVING
    supervisor.serving["regnum.another.v1.Service"] = False
    assert await asked(address, "") == NOT_SERVING
    await server.stop()
    assert await asked(address, QUOTA) == NOT_SERVING
    assert await asked(address, LIVENESS) == SERVING, "what stops slowly is alive"
    await supervisor.unwind()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked(address, LIVENESS)


async def test_probes_are_answered_until_everything_else_is_closed() -> None:
    supervisor = Supervisor("test")
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor)
    assert address is not None
    heard: list[int] = []

    async def close_slowly() -> None:
        heard.append(await asked(address, LIVENESS))

    supervisor.defer("storage", close_slowly)
    await supervisor.unwind()
    assert heard == [SERVING]


async def test_nothing_else_can_be_asked_there_and_no_large_question() -> None:
    supervisor = Supervisor("test")
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor)
    async with aio_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary(f"/{QUOTA}/Admit")(b"", timeout=DEADLINE_S)
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await stub.Check(health_pb2.HealthCheckRequest(service="x" * 5_000), timeout=DEADLINE_S)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await supervisor.unwind()


async def test_who_opens_many_connections_takes_neither_files_nor_the_place_of_probes() -> None:
    supervisor = Supervisor("test")
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor)
    assert address is not None
    idlers = [asyncio.create_task(idle(address)) for _ in range(2 * CONNECTIONS_MAX)]
    try:

        async def some_are_closed() -> bool:
            kept = await asyncio.to_thread(peers_at, address.port)
            return kept is not None and len(kept) <= CONNECTIONS_MAX < sum(one.done() for one in idlers) + 1

        # gRPC itself would have let them all stay for a minute.
        await eventually(some_are_closed, within_s=DEADLINE_S / 2, what="connections beyond the limit to be closed")
        assert await asked(address, LIVENESS) == SERVING
    finally:
        for one in idlers:
            one.cancel()
        await asyncio.gather(*idlers, return_exceptions=True)
        await supervisor.unwind()


async def test_a_call_that_never_sends_its_question_goes_with_its_connection() -> None:
    supervisor = Supervisor("test")
    limits = replace(LIMITS, age_s=0.2)
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor, limits=limits)
    assert address is not None
    never = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    async with aio_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as cut_off:
            await channel.stream_unary("/grpc.health.v1.Health/Check")(nothing(), timeout=DEADLINE_S)
    assert cut_off.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert await asked(address, LIVENESS) == SERVING
    await supervisor.unwind()


async def test_who_is_told_nothing_listens_nowhere_and_a_taken_port_is_refused_with_advice() -> None:
    supervisor = Supervisor("test")
    assert await serve_probes(told(None), supervisor=supervisor) is None
    address = await serve_probes(told(f"127.0.0.1:{unused_port()}"), supervisor=supervisor)
    with pytest.raises(PortTakenError, match=r"--health-listen.*choose another address, or leave it out"):
        await serve_probes(told(str(address)), supervisor=supervisor)
    await supervisor.unwind()


def test_every_address_may_be_listened_on_for_nobody_is_told_where() -> None:
    assert told("0.0.0.0:9465").health_listen == "0.0.0.0:9465"
