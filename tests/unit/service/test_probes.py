"""The listener of the kubelet's probes: open first, closed last, never over TLS."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.quota.v1 import quota_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.channel import CHANNEL_OPTIONS
from regnum_service.errors import PortTakenError
from regnum_service.probes import serve_probes
from regnum_service.server import LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S

QUOTA = "regnum.quota.v1.QuotaService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def told(listen: str | None) -> ServiceSettings:
    return ServiceSettings(coordination="etcd://127.0.0.1:1", health_listen=listen)


async def asked(address: Address, service: str) -> int:
    async with grpc.aio.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
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
    async with grpc.aio.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary(f"/{QUOTA}/Admit")(b"", timeout=DEADLINE_S)
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await stub.Check(health_pb2.HealthCheckRequest(service="x" * 5_000), timeout=DEADLINE_S)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
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
