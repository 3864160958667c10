"""The store of `regnum up --acl`, and who is no process of the cluster: the machine's guest gets nowhere.

Access rules are in the store: who writes them there has every right, whatever the processes refuse.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Producer, TlsFiles
from regnum_coordination import open_store
from regnum_coordination.drivers import etcd_rpc
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Store
from regnum_local.certificates import client_files
from regnum_local.lifecycle import read_status
from regnum_local.plan import CLIENT_CA, CLUSTER_CA
from regnum_local.profile import Profile, own_profile_path, read_profile
from regnum_service.channel import aio_channel
from regnum_service.errors import RegnumError
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.waiting import eventually

etcd_rpc.install()

from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: E402 - loadable once the finder is there

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

COMMAND = (sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())")
SIZE = ("--brokers", "1", "--elections", "1", "--metadata", "1", "--quotas", "0")


@asynccontextmanager
async def up(folder: Path, *arguments: str) -> AsyncIterator[Profile]:
    """`regnum up` with a folder, until it leaves its profile; ended by SIGTERM."""
    log = folder.with_suffix(".log")
    with log.open("ab") as written:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "up", "--data-dir", str(folder), *SIZE, *arguments),
            env={**os.environ, "REGNUM_PROFILE": str(folder.with_suffix(".profile"))},
            stdout=written,
            stderr=written,
        )
    try:

        async def left() -> bool:
            assert process.returncode is None, log.read_text()
            return own_profile_path(folder).exists()

        await eventually(left, within_s=300)
        profile = read_profile(own_profile_path(folder))
        assert profile is not None
        yield profile
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def opened(url: str) -> Store | None:
    """A session with a store; None where there is none to be had."""
    try:
        return await open_store(url, operation_timeout_s=2.0)
    except ConnectionLoss:
        return None


def shown(folder: Path, name: str, ca: str = CLUSTER_CA) -> str:
    certs = folder / "certs"
    return f"ca={certs / ca}&cert={certs / name}.pem&key={certs / name}.key"


async def answers(address: str, folder: Path, name: str) -> bool:
    """Whether etcd answers a read at a listener to who shows a certificate there."""
    certs = folder / "certs"
    parts = [(certs / file).read_bytes() for file in (CLUSTER_CA, f"{name}.key", f"{name}.pem")]
    for authority in (CLUSTER_CA, "store-peer-ca.pem"):
        parts[0] = (certs / authority).read_bytes()
        channel = aio_channel(address, credentials=grpc.ssl_channel_credentials(*parts), options=())
        try:
            await rpc_pb2_grpc.KVStub(channel).Range(rpc_pb2.RangeRequest(key=b"/cluster/id"), timeout=5)
        except grpc.aio.AioRpcError:
            continue
        else:
            return True
        finally:
            await channel.close()
    return False


async def denied(profile: Profile) -> bool:
    """Whether the guest is refused what nobody allowed it."""
    certificate, key = client_files(profile.data_dir / "certs", "guest")
    files = TlsFiles(ca=profile.data_dir / "certs" / CLUSTER_CA, certificate=certificate, key=key)
    try:
        async with Producer(list(profile.bootstrap), tls=files) as producer:
            await (await producer.send("secret", b"by guest"))
    except RegnumError as error:
        return error.code in {
            errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED,
            errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        }
    return False


@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_a_guest_neither_reads_nor_writes_the_store_and_a_folder_from_before_goes_on(
    store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    async with up(folder, "--coordination", store) as profile, Admin(list(profile.bootstrap)) as admin:
        await admin.create_topic("secret", partitions=1, replication_factor=1)
    async with up(folder, "--acl") as profile:
        assert profile.tls is not None
        admins = TlsFiles(ca=profile.tls.ca, certificate=profile.tls.certificate, key=profile.tls.key)
        async with Admin(list(profile.bootstrap), tls=admins) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["secret"], "it goes on with what it has"
        assert await denied(profile)
        (listeners,) = [row.addresses for row in read_status(folder) if row.name == store]
        address = listeners["client"]
        for query in (
            "",
            f"?ca={folder / 'certs' / CLUSTER_CA}",
            f"?{shown(folder, 'client-guest')}",
            f"?{shown(folder, 'client-admin')}",
            f"?{shown(folder, 'client-guest', CLIENT_CA)}",
        ):
            assert await opened(f"{store}://{address}{query}") is None, query
        if store == "etcd":
            assert await answers(str(address), folder, "broker-1"), "as a process it is answered"
            for name in ("client-guest", "client-admin", "broker-1", "etcd"):
                assert not await answers(str(listeners["peer"]), folder, name), f"{name} at the listener of peers"
        ours = await opened(profile.coordination)
        assert ours is not None
        assert "secret" in (await ours.children("/brokers/topics")).names
        await ours.close()
        environment = {**os.environ, "REGNUM_PROFILE": str(own_profile_path(folder))}
        backup = await asyncio.create_subprocess_exec(
            *(*COMMAND, "backup", str(tmp_path / "backup"), "-o", "json"), env=environment
        )
        assert await backup.wait() == 0
        assert (tmp_path / "backup").stat().st_size > 0


async def test_with_access_rules_up_refuses_a_store_elsewhere_that_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    server = EtcdServer(tmp_path / "etcd")
    await asyncio.to_thread(server.start)
    try:
        folder = tmp_path / "data"
        ran = await asyncio.create_subprocess_exec(
            *(*COMMAND, "up", "--data-dir", str(folder), *SIZE, "--acl"),
            *("--coordination", f"etcd://127.0.0.1:{server.port}"),
            env={**os.environ, "REGNUM_PROFILE": str(tmp_path / "profile")},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await ran.communicate()
        assert ran.returncode
        assert b"asks nobody who connects" in said, said.decode()
    finally:
        server.kill()
