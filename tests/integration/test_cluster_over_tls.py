"""A whole cluster over TLS: it does what it does in plaintext, and lets in who shows the right certificate."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import DEFAULT, Admin, Consumer, Producer, QuotaAlteration, QuotaEntity, TlsFiles, TopicPartition
from regnum_local.certificates import client_files, make, renew
from regnum_local.cluster import LocalCluster
from regnum_local.plan import CLUSTER_CA, Role
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.under_load import under_load
from regnum_testing.waiting import DEADLINE_S, eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Every role, all connections over TLS."""
    folder = tmp_path_factory.mktemp("tls") / "data"
    started = LocalCluster(folder, brokers=3, elections=2, metadata=1, quotas=1, report=lambda _text: None, tls=True)
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


def certs(cluster: LocalCluster) -> Path:
    return cluster.data_dir / "certs"


async def test_a_killed_leader_and_a_killed_controller_are_succeeded_while_certificates_are_replaced(
    cluster: LocalCluster,
) -> None:
    async with under_load(cluster, "over-tls") as running:
        before = await running.stage.look()
        for member in cluster.plan.members:
            if member.role is not Role.ETCD:
                renew(certs(cluster), member.name)
        # Whoever connects from now on is shown, and shows, what is new.
        outage = await running.stage.kill_leader(TopicPartition("over-tls", 0))
        assert outage.partitions > 0
        await cluster.kill(f"election-{before.controller}")
        for name in (*running.stage.killed, f"election-{before.controller}"):
            await cluster.restart(name)
        await running.stage.all_in_sync(within_s=60.0)
        verdict = await running.judged()
    assert verdict.clean, verdict


async def test_groups_quotas_and_metadata_go_over_tls(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_topic("grouped", partitions=2, replication_factor=2)
        async with Producer(cluster.bootstrap, tls=cluster.tls) as producer:
            for number in range(10):
                await (await producer.send("grouped", str(number).encode()))
        read: list[bytes] = []
        async with Consumer(cluster.bootstrap, topics=["grouped"], group_id="g", tls=cluster.tls) as consumer:
            while len(read) < 10:
                read += [record.value or b"" for record in await consumer.read(records_max=10, timeout_s=1.0)]
        assert sorted(read) == sorted(str(number).encode() for number in range(10))
        # A bucket for each user, whoever that is: the name that it gets comes from the certificate.
        await admin.alter_client_quotas(
            [QuotaAlteration(entity=QuotaEntity(user=DEFAULT), set={"controller_mutation_rate": 1_000.0})]
        )

        async def counted() -> bool:
            await admin.create_topic(f"counted-{os.urandom(4).hex()}", partitions=1, replication_factor=1)
            usages = await admin.describe_quota_usage()
            return "admin" in {usage.user for usage in usages.usages}

        await eventually(counted, what="the mutations of admin are charged to admin")


def shown(cluster: LocalCluster, name: str) -> TlsFiles:
    folder = certs(cluster)
    return TlsFiles(ca=folder / CLUSTER_CA, certificate=folder / f"{name}.pem", key=folder / f"{name}.key")


async def refused(cluster: LocalCluster, tls: TlsFiles | None) -> RegnumError:
    with pytest.raises(RegnumError) as refusal:
        # Long enough to be refused, and not merely late, on a busy machine.
        async with Admin(cluster.bootstrap, tls=tls, timeout_s=15.0):
            pass
    return refusal.value


async def test_clients_without_the_right_certificate_are_not_let_in(cluster: LocalCluster, tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"])
    certificate, key = client_files(tmp_path)
    ca = certs(cluster) / CLUSTER_CA
    strangers = TlsFiles(ca=ca, certificate=certificate, key=key)
    misled = TlsFiles(ca=tmp_path / CLUSTER_CA, certificate=certificate, key=key)
    wrong_ones = (strangers, TlsFiles(ca=ca), None, shown(cluster, "broker-1"))
    *refusals, doubted = await asyncio.gather(*(refused(cluster, tls) for tls in (*wrong_ones, misled)))
    for refusal in refusals:
        assert refusal.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
        assert "it wants TLS, a certificate, or another one" in refusal.message
    assert "signed by no authority" in doubted.message
    wrong = await refused(cluster, TlsFiles(ca=tmp_path / "nothing.pem"))
    assert wrong.code == errors_pb2.ERROR_CODE_INVALID_CONFIG


async def test_no_client_gets_in_where_processes_talk_to_one_another(cluster: LocalCluster) -> None:
    election = cluster.plan.of(Role.ELECTION)[0]
    open_as = {name: opener(WatchedFiles(shown(cluster, name))) for name in ("client-admin", "election-1")}
    request = controller_pb2.ProbeBrokersRequest()
    async with open_as["client-admin"](election.address("internal")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await controller_pb2_grpc.ControllerServiceStub(channel).ProbeBrokers(request, timeout=DEADLINE_S)
        assert from_rpc_error(refusal.value).code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    async with open_as["election-1"](election.address("internal")) as channel:
        await controller_pb2_grpc.ControllerServiceStub(channel).ProbeBrokers(request, timeout=DEADLINE_S)


async def test_the_command_connects_with_its_flags_and_with_the_environment(cluster: LocalCluster) -> None:
    files = cluster.tls
    assert files is not None
    flags = [
        part
        for name, path in zip(("ca", "certificate", "key"), files.paths, strict=True)
        for part in (f"--tls-{name}", str(path))
    ]
    variables = {
        f"REGNUM_TLS_{name}": str(path) for name, path in zip(("CA", "CERTIFICATE", "KEY"), files.paths, strict=True)
    }
    listing = ["topics", "list", "--bootstrap", ",".join(cluster.bootstrap), "-o", "json"]

    def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("regnum")), *arguments]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
        )

    by_flags, by_environment, without = await asyncio.gather(
        asyncio.to_thread(run, [*flags, *listing], {}),
        asyncio.to_thread(run, listing, variables),
        asyncio.to_thread(run, [*listing, "--timeout", "1"], {}),
    )
    assert json.loads(by_flags.stdout) == json.loads(by_environment.stdout)
    assert by_flags.returncode == by_environment.returncode == 0
    assert without.returncode == 5, without.stderr
