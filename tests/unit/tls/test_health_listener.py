"""Probes that cannot speak TLS ask at a listener of their own, which tells how the process is and nothing else."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_metadata.settings import MetadataSettings
from regnum_model.nodes import Address
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.principal_mapping import MappingRules
from regnum_service.channel import open_channel
from regnum_service.errors import PortTakenError
from regnum_service.server import HEALTH_BYTES_MAX, LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.settings import load
from regnum_service.supervisor import Supervisor
from regnum_service.tls.files import TlsFiles, WatchedFiles
from regnum_service.tls.server import ServerTls, principals_by
from regnum_testing.tls_cases import HOST, Certificates

TIMEOUT_S = 10.0
SERVICE = "regnum.election.v1.ControllerService"


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Nobody gets as far."""


def make(files: TlsFiles, supervisor: Supervisor, health_at: Address) -> GrpcServer:
    tls = ServerTls(
        files=WatchedFiles(files), requires_certificate=True, principal_of=principals_by(MappingRules.parse("DEFAULT"))
    )
    service = ServiceRegistration(
        name=SERVICE,
        servicer=Controller(),
        add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
    )
    return GrpcServer(
        Address(host=HOST, port=0),
        [service],
        supervisor=supervisor,
        access=ListenerAccess(tls=tls),
        health_at=health_at,
    )


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    certificates = Certificates(tmp_path)
    leaf = certificates.right()
    return TlsFiles(ca=certificates.ca, certificate=leaf.certificate, key=leaf.key)


@pytest.fixture
async def server(files: TlsFiles) -> AsyncIterator[GrpcServer]:
    supervisor = Supervisor("test")
    server = make(files, supervisor, Address(host=HOST, port=0))
    await server.start()
    yield server
    await server.stop(0)
    await supervisor.unwind()


async def check(channel: grpc.aio.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    status: int = (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT_S)).status
    return status


async def test_a_probe_without_tls_hears_what_others_hear_over_tls(server: GrpcServer) -> None:
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert server.health_address is not None
    async with open_channel(server.health_address) as probe:
        assert await check(probe, LIVENESS) == serving
        assert await check(probe, SERVICE) == not_serving
        await server.set_serving(serving=True)
        assert await check(probe, SERVICE) == serving


async def test_nothing_but_health_is_served_there(server: GrpcServer) -> None:
    assert server.health_address is not None
    async with open_channel(server.health_address) as probe:
        stub = controller_pb2_grpc.ControllerServiceStub(probe)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(probe, "x" * (HEALTH_BYTES_MAX + 1))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_it_ends_with_the_server(server: GrpcServer) -> None:
    address = server.health_address
    assert address is not None
    await server.stop(0)
    with socket.socket() as probe:
        assert probe.connect_ex((address.host, address.port)) != 0


async def test_a_port_that_is_taken_refuses_the_start_with_words_and_leaves_nothing_open(files: TlsFiles) -> None:
    supervisor = Supervisor("test")
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        server = make(files, supervisor, Address(host=HOST, port=other.getsockname()[1]))
        with pytest.raises(PortTakenError, match="--health-listen"):
            await server.start()
    with socket.socket() as probe:
        assert probe.connect_ex((server.address.host, server.address.port)) != 0
    await supervisor.unwind()


def test_it_may_be_on_every_address_because_nobody_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "REGNUM_METADATA_ID": "1",
        "REGNUM_COORDINATION": "etcd://127.0.0.1:2379",
        "REGNUM_CLIENT_LISTEN": "127.0.0.1:9099",
        "REGNUM_INTERNAL_LISTEN": "127.0.0.1:9100",
    }.items():
        monkeypatch.setenv(key, value)
    assert load(MetadataSettings, []).health_listen is None
    assert load(MetadataSettings, ["--health-listen", "0.0.0.0:9465"]).health_listen == "0.0.0.0:9465"
