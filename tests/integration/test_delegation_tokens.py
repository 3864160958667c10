"""A cluster with delegation tokens and an audit log: who shows a token is its owner, and no secret is written down."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Producer, TlsFiles
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.direct_http import opened_directly
from regnum_testing.waiting import DEADLINE_S, eventually, until, within

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]
SECRET = "c2VjcmV0IG9mIHRoZSBjbHVzdGVyLCBmb3IgYSB0ZXN0IG9ubHk"  # noqa: S105 - of this test


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """One process of each role that clients talk to."""
    folder = tmp_path_factory.mktemp("tokens")
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)

    def flags(role: Role) -> list[str]:
        return ["--delegation-token-secret-file", str(secret), "--audit-log", str(audit_of(folder / "data", role))]

    roles = (Role.ELECTION, Role.BROKER, Role.METADATA)
    started = LocalCluster(
        folder / "data",
        brokers=1,
        elections=1,
        metadata=1,
        report=lambda _text: None,
        tls=True,
        extra={role: flags(role) for role in roles},
    )
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


def audit_of(data_dir: Path, role: Role) -> Path:
    return data_dir / "audit" / f"{role.value}.log"


def audited(cluster: LocalCluster) -> list[dict[str, Any]]:
    file = audit_of(cluster.data_dir, Role.ELECTION)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kept(folder: Path, credential: str) -> Path:
    file = folder / "token"
    file.write_text(f"{credential}\n")
    file.chmod(0o600)
    return file


def written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


async def to_its_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_token_is_its_owner_until_it_is_ended_and_leaves_its_secret_nowhere(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    tls = cluster.tls
    assert tls is not None
    async with Admin(cluster.bootstrap, tls=tls) as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        made = await admin.create_delegation_token(max_lifetime_s=3_600.0)
        with_token = replace(tls, token=kept(tmp_path, made.credential))

        async def lets_in() -> bool:
            try:
                async with Admin(cluster.bootstrap, tls=with_token, timeout_s=2.0):
                    return True
            except RegnumError:
                return False

        await eventually(lets_in, what="brokers hear of the token")
        async with Producer(cluster.bootstrap, tls=with_token) as producer:
            await (await producer.send("t", b"x"))
        async with Admin(cluster.bootstrap, tls=with_token) as bearer:
            # Once: what is made by an attempt that is given up would be there already at the next one.
            await bearer.create_topic("by-token", partitions=1, replication_factor=1)
            with pytest.raises(RegnumError) as refused:
                await bearer.create_delegation_token()
            assert refused.value.code == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

        async with opener(WatchedFiles(with_token))(Address.parse(cluster.bootstrap[0])) as channel:
            call = metadata_pb2_grpc.MetadataServiceStub(channel).WatchMetadata()
            await call.write(metadata_pb2.WatchMetadataRequest())
            await within(call.read())
            await admin.expire_delegation_token(made.token.token_id)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await within(to_its_end(call))
            assert from_rpc_error(ended.value).code == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED
        with pytest.raises(RegnumError):
            async with Admin(cluster.bootstrap, tls=with_token, timeout_s=2.0):
                pass

    def names_all() -> bool:
        return {"topic:t", "topic:by-token", f"delegation_token:{made.token.token_id}"} <= {
            line["resource"] for line in audited(cluster) if line["result"] == "NONE"
        }

    await until(names_all, what="the audit log has what was done")
    lines = {line["resource"]: line for line in audited(cluster) if line["result"] == "NONE"}
    assert lines["topic:t"]["principal"] == lines["topic:by-token"]["principal"] == made.token.owner
    assert (lines["topic:t"]["token"], lines["topic:by-token"]["token"]) == (False, True)
    assert lines["topic:by-token"]["client_host"] == "127.0.0.1"
    proof = made.credential.partition(".")[2]
    raw = base64.urlsafe_b64decode(proof + "==")
    needles = [SECRET.encode(), proof.encode(), raw, raw.hex().encode(), base64.b64encode(raw).rstrip(b"=")]
    looked = 0
    for path, content in written(cluster.data_dir):
        looked += 1
        assert not [needle for needle in needles if needle in content], path
    assert looked > 20, "logs, events, audit logs, the store and the log directory"


async def test_wrong_tokens_are_refused_by_brokers_controllers_and_metadata_processes_alike(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    tls = cluster.tls
    assert isinstance(tls, TlsFiles)
    wrong = replace(tls, token=kept(tmp_path, f"{'i' * 22}.{'h' * 86}"))
    election = cluster.plan.of(Role.ELECTION)[0].address("client")
    for address in (Address.parse(cluster.bootstrap[0]), election):
        with pytest.raises(RegnumError) as refused:
            async with Admin(str(address), tls=wrong, timeout_s=2.0):
                pass
        assert "h" * 86 not in str(refused.value)
    metadata = cluster.plan.of(Role.METADATA)[0].address("client")
    async with opener(WatchedFiles(wrong))(metadata) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await within(metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(metadata_pb2.GetMetadataRequest()))
    assert from_rpc_error(unknown.value).code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
    async with opener(WatchedFiles(wrong))(election) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await within(admin_pb2_grpc.AdminServiceStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest()))
    assert from_rpc_error(unknown.value).code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
    for role in (Role.BROKER, Role.ELECTION, Role.METADATA):
        await until(partial(tells_of_unknown_callers, cluster, role), what=f"{role.value}: a line of its audit log")
        counted = 'regnum_authentication_failures_total{listener="client",reason="SASL_AUTHENTICATION_FAILED"}'
        assert await asyncio.to_thread(value_of, cluster, role, counted) >= 1


def tells_of_unknown_callers(cluster: LocalCluster, role: Role) -> bool:
    """Beside the file of changes, where no refused caller pushes anything out."""
    file = audit_of(cluster.data_dir, role)
    refusals = Path(f"{file}.denied")
    lines = [json.loads(line) for line in refusals.read_text().splitlines()] if refusals.exists() else []
    found = [line for line in lines if line["event"] == "unauthenticated"]
    assert {line["listener"] for line in found} <= {"client"}
    assert "unauthenticated" not in (file.read_text() if file.exists() else "")
    # (Others were of the token that was ended.)
    return any(line["result"] == "SASL_AUTHENTICATION_FAILED" for line in found)


def value_of(cluster: LocalCluster, role: Role, name: str) -> float:
    """A number of the first process of that kind, as it shows it now; ``name``: with labels, but the cluster's."""
    row = next(one for one in cluster.status() if one.role is role)
    with opened_directly(f"http://{row.addresses['metrics']}/metrics", timeout=DEADLINE_S) as page:
        lines = re.sub(r'cluster="[^"]*",', "", page.read().decode()).splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(f"{name} "))


async def test_a_client_without_a_certificate_is_let_in_nowhere_and_counted_and_fills_no_log(
    cluster: LocalCluster,
) -> None:
    tls = cluster.tls
    assert isinstance(tls, TlsFiles)
    reason = 'regnum_tls_handshake_failures_total{reason="no_certificate"}'
    before = await asyncio.to_thread(value_of, cluster, Role.BROKER, reason)
    with pytest.raises(RegnumError):
        async with Admin(cluster.bootstrap, tls=TlsFiles(ca=tls.ca), timeout_s=2.0):
            pass

    async def more_are_counted() -> bool:
        return await asyncio.to_thread(value_of, cluster, Role.BROKER, reason) > before

    await eventually(more_are_counted, what="gRPC's lines are read back once a second")
    for log in (cluster.data_dir / "logs").glob("*.log"):
        assert b"Handshake failed with error" not in log.read_bytes(), log
