"""Whose nodes are whose on a real ZooKeeper, what a stranger finds there, and which authorities are believed."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from regnum_coordination import open_store
from regnum_coordination.admission import Admission
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.opening import examine_store
from regnum_coordination.port import Absent, Create, Set
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_CERT, SERVER_KEY
from regnum_testing.ports import unused_port
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.full


@contextmanager
def hand(server: ZooKeeperServer, *, secret: str = "") -> Iterator[Any]:
    client = KazooClient(hosts=server.endpoint, auth_data=[("digest", f"anna:{secret}")] if secret else [])
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def nodes_below(client: Any, path: str) -> list[str]:
    return [path, *(node for name in client.get_children(path) for node in nodes_below(client, f"{path}/{name}"))]


def url_of(server: ZooKeeperServer, chroot: str, folder: Path) -> str:
    (folder / "password").write_text("secret\n", encoding="ascii")
    return f"zookeeper://{server.endpoint}{chroot}?user=anna&password_file={folder / 'password'}"


async def test_where_there_is_a_user_no_node_is_anybodys(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """However it was made: with its parents, in a multi or batch, sequential, ephemeral, beside a check of absence."""
    url = url_of(zookeeper_server, "/rights/below", tmp_path)
    store = await open_store(url)
    await store.create("/a/b/c", b"", make_parents=True)
    await store.create("/e", b"", ephemeral=True)
    await store.create("/s-", b"", sequential=True)
    await store.multi([Create("/m", b""), Set("/a", b"x", 0), Absent("/none")])
    await store.write_batch([(Create(f"/m/{number}", b""),) for number in range(3)])

    def look() -> dict[str, set[tuple[str, int]]]:
        with hand(zookeeper_server, secret="secret") as client:  # noqa: S106
            return {
                path: {(one.id.scheme, one.perms) for one in client.get_acls(path)[0]}
                for path in nodes_below(client, "/rights")
            }

    found = await asyncio.to_thread(look)
    assert len(found) == 11
    assert {scheme for entries in found.values() for scheme, _ in entries} == {"digest"}, found
    examined = await examine_store(url, nodes=("/a", "/m", "/none"))
    assert (examined.admission, examined.weaknesses) == (Admission.REFUSED, ())
    await store.close()


async def test_nodes_from_before_there_was_a_user_are_found(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    plain = await open_store(f"zookeeper://{zookeeper_server.endpoint}/grown")
    await plain.create("/old/deep", b"", make_parents=True)
    await plain.close()
    url = url_of(zookeeper_server, "/grown", tmp_path)
    store = await open_store(url)
    await store.create("/new", b"")
    assert (await examine_store(url, nodes=("/old", "/new"))).admission is Admission.ADMITTED

    def take(path: str) -> None:
        with hand(zookeeper_server) as client:
            client.set_acls(path, [make_digest_acl("anna", "secret", all=True)])

    await asyncio.to_thread(take, "/grown")
    found = await examine_store(url, nodes=("/old", "/new", "/old/deep", "/none"))
    assert found.admission is Admission.REFUSED
    (said,) = found.weaknesses
    assert "/old, /old/deep; give them" in said
    for path in ("/grown/old", "/grown/old/deep"):
        await asyncio.to_thread(take, path)
    assert (await examine_store(url, nodes=("/old", "/new", "/old/deep"))).weaknesses == ()
    await store.close()


async def test_strangers_at_a_server_without_users(zookeeper_server: ZooKeeperServer) -> None:
    url = f"zookeeper://{zookeeper_server.endpoint}"
    store = await open_store(f"{url}/strangers")
    assert (await examine_store(f"{url}/strangers")).admission is Admission.ADMITTED
    assert (await examine_store(url)).admission is Admission.ADMITTED, "the root of every server is anybody's"
    await store.close()


async def test_only_the_authority_that_was_given_is_believed_and_certificates_close_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's list of authorities has the one that signed the server, and the URL another one."""
    (tmp_path / "server.pem").write_bytes(SERVER_KEY.read_bytes() + SERVER_CERT.read_bytes())
    (tmp_path / "trusted.pem").write_bytes(CA.read_bytes())
    secure_port = unused_port()
    server = ZooKeeperServer(
        tmp_path,
        settings={
            "secureClientPort": str(secure_port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(tmp_path / "server.pem"),
            "ssl.trustStore.location": str(tmp_path / "trusted.pem"),
            "ssl.clientAuth": "need",
        },
    )
    await asyncio.to_thread(server.start)
    try:
        monkeypatch.setenv("SSL_CERT_FILE", str(CA))
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] >= 1, "the system believes it"
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        shown = f"&cert={CLIENT_CERT}&key={CLIENT_KEY}"
        url = f"zookeeper://127.0.0.1:{secure_port}/tls"
        with pytest.raises(ConnectionLoss, match="options fit"):
            await open_store(f"{url}?ca={other}{shown}", operation_timeout_s=1.0)
        store = await open_store(f"{url}?ca={CA}{shown}", session_timeout_s=30.0, operation_timeout_s=20.0)
        assert (await examine_store(f"{url}?ca={CA}{shown}")).admission is Admission.REFUSED
        await store.close()
    finally:
        server.kill()
