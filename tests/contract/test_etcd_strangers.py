"""Strangers at a real etcd, and users beside their roles: nested requests too, on releases that keep roles."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from regnum_coordination import open_store
from regnum_coordination.admission import Admission
from regnum_coordination.drivers import etcd_rpc
from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_coordination.drivers.etcd.opening import channel, tls_files
from regnum_coordination.drivers.etcd.roles import keeps_roles
from regnum_coordination.drivers.etcd.tokens import TokenSource
from regnum_coordination.opening import examine_store
from regnum_coordination.port import Create, Set, Written
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_CERT, SERVER_KEY, client_context
from regnum_testing.etcd_process import etcd_binary
from regnum_testing.etcd_server import EtcdServer

etcd_rpc.install()

from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: E402 - loadable once the finder is there

pytestmark = pytest.mark.full

PHRASE: Final = "correct horse"
SERVES: Final = ("--cert-file", str(SERVER_CERT), "--key-file", str(SERVER_KEY), "--trusted-ca-file", str(CA))
SHOWN: Final = f"ca={CA}&cert={CLIENT_CERT}&key={CLIENT_KEY}"


@asynccontextmanager
async def serving(folder: Path, *options: str, tls: bool = True) -> AsyncIterator[EtcdServer]:
    server = EtcdServer(folder, tls=client_context() if tls else None, options=options)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        server.kill()


async def test_who_connects_with_nothing_is_refused_where_certificates_are_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, *SERVES, "--client-cert-auth") as server:
        url = f"etcd://127.0.0.1:{server.port}/regnum?{SHOWN}"
        store = await open_store(url)
        found = await examine_store(url, timeout_s=20)
        assert (found.admission, found.loopback, found.weaknesses) == (Admission.REFUSED, True, ())
        listed = await examine_store(url.replace("127.0.0.1:", "127.0.0.1:1,localhost:"), timeout_s=20)
        assert listed.admission is Admission.REFUSED, "a member that is away is no open door"
        await store.close()


async def test_certificates_that_are_shown_to_a_server_that_asks_for_none_do_not_close_it(tmp_path: Path) -> None:
    async with serving(tmp_path, *SERVES[:4]) as server:
        found = await examine_store(f"etcd://127.0.0.1:{server.port}/regnum?{SHOWN}")
        assert found.admission is Admission.ADMITTED
        assert (await examine_store(f"etcd://127.0.0.1:{server.port}?ca={CA}")).admission is Admission.ADMITTED


async def test_a_store_in_plaintext_is_open_and_one_that_does_not_answer_says_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, tls=False) as server:
        url = f"etcd://127.0.0.1:{server.port}"
        assert (await examine_store(url, timeout_s=20)).admission is Admission.ADMITTED
        server.kill()
        assert (await examine_store(url, timeout_s=0.5)).admission is Admission.UNANSWERED


class User:
    """Calls with the token of the user regnum, whose role is the prefix /regnum."""

    def __init__(self, opened: grpc.aio.Channel, tokens: TokenSource) -> None:
        self._kv = rpc_pb2_grpc.KVStub(opened)
        self._watch = rpc_pb2_grpc.WatchStub(opened)
        self._tokens = tokens

    async def get(self, key: bytes) -> bool:
        return await self._allowed(self._kv.Range, rpc_pb2.RangeRequest(key=key))

    async def put(self, key: bytes) -> bool:
        return await self._allowed(self._kv.Put, rpc_pb2.PutRequest(key=key, value=b"mine"))

    async def delete(self, key: bytes) -> bool:
        return await self._allowed(self._kv.DeleteRange, rpc_pb2.DeleteRangeRequest(key=key))

    async def txn(self, *operations: Any) -> bool:
        return await self._allowed(self._kv.Txn, rpc_pb2.TxnRequest(success=operations))

    async def watch(self, key: bytes, end: bytes) -> bool:
        create = rpc_pb2.WatchRequest(create_request=rpc_pb2.WatchCreateRequest(key=key, range_end=end))
        call: Any = self._watch.Watch(metadata=self._tokens.metadata)
        try:
            await call.write(create)
            answer: Any = await call.read()
        except grpc.aio.AioRpcError:
            return False
        finally:
            call.cancel()
        return not answer.canceled

    async def _allowed(self, call: Any, request: Any) -> bool:
        try:
            await call(request, metadata=self._tokens.metadata, timeout=5)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
                raise
            return False
        return True


def _op(**request: Any) -> Any:
    return rpc_pb2.RequestOp(**request)


def _nested(operation: Any) -> Any:
    return _op(request_txn=rpc_pb2.TxnRequest(success=[operation]))


@asynccontextmanager
async def with_users(folder: Path) -> AsyncIterator[tuple[User, str]]:
    """A server with a user of the prefix of Regnum and nothing else, and the URL with that user."""
    async with serving(folder, *SERVES, "--client-cert-auth") as server:
        control = [str(server.binary.with_name("etcdctl")), "--endpoints", f"https://127.0.0.1:{server.port}"]
        control += ["--cacert", str(CA), "--cert", str(CLIENT_CERT), "--key", str(CLIENT_KEY)]
        for arguments in (
            ["put", "/other/key", "theirs"],
            ["user", "add", f"root:{PHRASE}"],
            ["user", "grant-role", "root", "root"],
            ["role", "add", "regnum"],
            ["role", "grant-permission", "regnum", "readwrite", "--prefix=true", "/regnum/"],
            ["user", "add", f"regnum:{PHRASE}"],
            ["user", "grant-role", "regnum", "regnum"],
            ["auth", "enable"],
        ):
            await asyncio.to_thread(subprocess.run, [*control, *arguments], check=True, capture_output=True)
        file = folder / "password"
        file.write_text(PHRASE)
        url = f"etcd://127.0.0.1:{server.port}/regnum?{SHOWN}&user=regnum&password_file={file}"
        address = EtcdAddress.parse(url)
        assert isinstance(address.credentials, Credentials)
        opened = channel(address.target, address, tls_files(address.credentials), follows_name=False)
        tokens = TokenSource([opened], address.credentials, timeout_s=5)
        await tokens.renew(())
        try:
            yield User(opened, tokens), url
        finally:
            await opened.close()


async def test_a_role_of_the_prefix_is_all_that_regnum_needs_and_all_that_its_user_gets(tmp_path: Path) -> None:
    """Plain requests on every release; transactions within transactions where the release says that it keeps roles."""
    async with with_users(tmp_path) as (user, url):
        store = await open_store(url)
        await store.create("/a/b", b"1", make_parents=True)
        await store.create("/q", b"", ephemeral=True)
        await store.create("/s-", b"", sequential=True)
        await store.multi([Set("/a", b"2", 0), Create("/c", b"")])
        outcomes = await store.write_batch([(Create(f"/a/{number}", b""),) for number in range(300)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        await store.delete_below("/a")
        await store.close()
        for key in (b"/other/key", b"/regnu", b"/regnum0"):
            assert not await user.get(key)
            assert not await user.put(key)
            assert not await user.delete(key)
            assert not await user.txn(_op(request_put=rpc_pb2.PutRequest(key=key, value=b"x")))
            assert not await user.txn(_op(request_range=rpc_pb2.RangeRequest(key=key)))
        assert await user.put(b"/regnum/mine")
        told = await asyncio.to_thread(subprocess.check_output, [str(etcd_binary()), "--version"])
        release = told.decode().splitlines()[0].rpartition(" ")[2]
        past = [
            await user.txn(_nested(_op(request_put=rpc_pb2.PutRequest(key=b"/other/key", value=b"x")))),
            await user.txn(_nested(_op(request_range=rpc_pb2.RangeRequest(key=b"/other/key")))),
            await user.txn(_nested(_op(request_delete_range=rpc_pb2.DeleteRangeRequest(key=b"/other/key")))),
            await user.watch(b"/regnum/mine", b"\0"),
        ]
        assert any(past) is not keeps_roles(release), (release, past)
        found = await examine_store(url, timeout_s=20)
        assert found.admission is Admission.REFUSED
        assert (found.weaknesses == ()) is keeps_roles(release), (release, found)
