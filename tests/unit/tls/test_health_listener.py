"""Probes that cannot speak TLS ask at a listener of their own, which tells how the process is and nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.election.v1 import controller_pb2_grpc
from regnum_metadata.settings import MetadataSettings
from regnum_model.nodes import Address
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.principal_mapping import MappingRules
from regnum_service.channel import open_channel
from regnum_service.probes import serve_probes
from regnum_service.server import LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.settings import ServiceSettings, load
from regnum_service.supervisor import Supervisor
from regnum_service.tls.files import TlsFiles, WatchedFiles
from regnum_service.tls.server import ServerTls, principals_by
from regnum_testing.ports import unused_port
from regnum_testing.tls_cases import HOST, Certificates
from regnum_testing.waiting import DEADLINE_S

SERVICE = "regnum.election.v1.ControllerService"


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Nobody gets as far."""


def make(files: TlsFiles, supervisor: Supervisor) -> GrpcServer:
    tls = ServerTls(
        files=WatchedFiles(files), requires_certificate=True, principal_of=principals_by(MappingRules.parse("DEFAULT"))
    )
    service = ServiceRegistration(
        name=SERVICE,
        servicer=Controller(),
        add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
    )
    return GrpcServer(Address(host=HOST, port=0), [service], supervisor=supervisor, access=ListenerAccess(tls=tls))


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    certificates = Certificates(tmp_path)
    leaf = certificates.right()
    return TlsFiles(ca=certificates.ca, certificate=leaf.certificate, key=leaf.key)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.unwind()


async def check(channel: grpc.aio.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    status: int = (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_S)).status
    return status


async def test_a_probe_without_tls_hears_what_others_hear_over_tls(files: TlsFiles, supervisor: Supervisor) -> None:
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    told = ServiceSettings(coordination="etcd://127.0.0.1:1", health_listen=f"{HOST}:{unused_port()}")
    address = await serve_probes(told, supervisor=supervisor)
    assert address is not None
    server = make(files, supervisor)
    await server.start()
    async with open_channel(address) as probe:
        assert await check(probe, LIVENESS) == serving
        assert await check(probe, SERVICE) == not_serving
        await server.set_serving(serving=True)
        assert await check(probe, SERVICE) == serving
        await server.stop(0)
        assert await check(probe, SERVICE) == not_serving
        assert await check(probe, LIVENESS) == serving


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
