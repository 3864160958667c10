"""What is one client's own trouble: its error says so, and the cluster is well."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Producer, ProducerSettings, TlsFiles
from regnum_client.admin.quotas import QuotaEntity
from regnum_client.cluster.security.channels import CA, CERTIFICATE, KEY
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.quotas import BURST_KEY, RATE_KEY
from regnum_service.errors import RegnumError, reason_of
from regnum_service.status import from_rpc_error
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.guarded_cluster import files_of, guarded_cluster
from regnum_testing.health_hands import heard_at_its_own_limit
from regnum_testing.health_stage import Stage
from regnum_testing.health_ways import OF_A_CLIENT, Way
from regnum_testing.tls_cases import Certificates

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

SETTINGS = ProducerSettings(delivery_timeout_s=7.0, request_timeout_s=5.0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and admin are super users; the client app may nothing."""
    folder = tmp_path_factory.mktemp("clients") / "data"
    async with guarded_cluster(folder, "app", brokers=1) as started:
        async with Admin(started.bootstrap, tls=started.tls) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        assert started.tls is not None
        with pytest.MonkeyPatch.context() as environment:
            for variable, path in zip((CA, CERTIFICATE, KEY), started.tls.paths, strict=True):
                environment.setenv(variable, str(path))
            yield started


async def over_quota(cluster: LocalCluster, _folder: Path) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls, client_id="greedy") as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="greedy"), set={RATE_KEY: 0.01, BURST_KEY: 1.0})
        for name in ("one", "two", "three"):
            await admin.create_topic(name, partitions=20, replication_factor=1, retry_on_quota_violation=False)


async def of_another_version(cluster: LocalCluster, _folder: Path) -> None:
    assert cluster.tls is not None
    address = next(row.addresses["client"] for row in cluster.status() if row.role is Role.ELECTION)
    async with opener(WatchedFiles(cluster.tls))(address) as channel:
        call = channel.unary_unary("/regnum.admin.v1.AdminService/OfALaterRelease")
        try:
            await call(b"", timeout=5.0)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None


async def produce(cluster: LocalCluster, tls: TlsFiles) -> None:
    async with Producer(cluster.bootstrap, tls=tls, settings=SETTINGS) as producer:
        await (await producer.send("t", b"x"))


async def without_rights(cluster: LocalCluster, _folder: Path) -> None:
    await produce(cluster, files_of(cluster, "app"))


async def with_another_certificate(cluster: LocalCluster, folder: Path) -> None:
    other = Certificates(folder).of_another_authority()
    ca = files_of(cluster, "app").ca
    await produce(cluster, TlsFiles(ca=ca, certificate=other.certificate, key=other.key))


async def at_its_own_limit(cluster: LocalCluster, _folder: Path) -> None:
    raise RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, await heard_at_its_own_limit(cluster.bootstrap))


HANDS: dict[str, Callable[[LocalCluster, Path], Awaitable[None]]] = {
    "quota": over_quota,
    "version": of_another_version,
    "rights": without_rights,
    "certificate": with_another_certificate,
    "connections": at_its_own_limit,
}


@pytest.mark.parametrize("way", OF_A_CLIENT, ids=lambda way: way.name)
async def test_a_clients_own_trouble_is_told_to_it_alone(cluster: LocalCluster, tmp_path: Path, way: Way) -> None:
    with pytest.raises(RegnumError) as told:
        await HANDS[way.name](cluster, tmp_path)
    assert way.client in f"{reason_of(told.value.code)}: {told.value.message}"

    assert await Stage(cluster).status() == (0, ())
