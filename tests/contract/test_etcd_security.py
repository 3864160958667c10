"""TLS in both directions, users, and tokens that the server forgets, with a real etcd that insists on them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, NoAuth
from regnum_coordination.port import Create, SessionState, Set, Store, Unknown, Written
from regnum_coordination.recipes.resolve import Resolver
from regnum_service.clock import SystemClock
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_CERT, SERVER_KEY, client_context
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.ports import unused_port
from regnum_testing.waiting import eventually, within

pytestmark = pytest.mark.full

PHRASE: Final = "correct horse"
TLS: Final = f"ca={CA}&cert={CLIENT_CERT}&key={CLIENT_KEY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guarded:
    """A server with TLS that asks for certificates, and users once ``guard`` was called."""

    server: EtcdServer
    """The process."""
    folder: Path
    """For password files."""

    def control(self, *arguments: str, typed: str = "") -> str:
        """Run etcdctl."""
        command = [str(self.server.binary.with_name("etcdctl")), "--endpoints", f"https://127.0.0.1:{self.server.port}"]
        files = ["--cacert", str(CA), "--cert", str(CLIENT_CERT), "--key", str(CLIENT_KEY)]
        return subprocess.run(
            [*command, *files, *arguments], check=True, capture_output=True, text=True, input=typed
        ).stdout

    def guard(self) -> None:
        """Make root and a user for /regnum, and ask for users from now on."""
        for arguments in (
            ["user", "add", f"root:{PHRASE}"],
            ["user", "grant-role", "root", "root"],
            ["role", "add", "regnum"],
            ["role", "grant-permission", "regnum", "readwrite", "--prefix=true", "/regnum"],
            ["user", "add", f"regnum:{PHRASE}"],
            ["user", "grant-role", "regnum", "regnum"],
            ["auth", "enable"],
        ):
            self.control(*arguments)

    def change_password(self, phrase: str) -> None:
        """Of the user regnum; its tokens end with that."""
        command = ("--user", f"root:{PHRASE}", "user", "passwd", "regnum", "--interactive=false")
        self.control(*command, typed=phrase)

    def url(self, *, phrase: str = PHRASE, user: str = "regnum", prefix: str = "/regnum") -> str:
        """With the user's name and password."""
        file = self.folder / "password"
        file.write_text(f"{phrase}\n")
        return f"etcd://127.0.0.1:{self.server.port}{prefix}?{TLS}&user={user}&password_file={file}"


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[_Guarded]:
    options = ["--cert-file", str(SERVER_CERT), "--key-file", str(SERVER_KEY)]
    options += ["--trusted-ca-file", str(CA), "--client-cert-auth"]
    server = EtcdServer(tmp_path, tls=client_context(), options=options)
    await asyncio.to_thread(server.start)
    yield _Guarded(server=server, folder=tmp_path)
    server.kill()


async def test_tls_by_one_address_by_name_and_by_a_list(guarded: _Guarded) -> None:
    port = guarded.server.port
    for hosts in (f"127.0.0.1:{port}", f"localhost:{port}", f"127.0.0.1:{unused_port()},localhost:{port}"):
        store = await open_store(f"etcd://{hosts}/tls?{TLS}")
        await store.create("/q", b"", ephemeral=True)
        assert (await store.children("/")).names == ("q",)
        await store.close()


async def test_a_server_is_believed_only_with_the_right_authority_and_name(guarded: _Guarded) -> None:
    address = f"etcd://127.0.0.1:{guarded.server.port}"
    mine = f"&cert={CLIENT_CERT}&key={CLIENT_KEY}"
    for query in (f"?ca={CLIENT_CERT}{mine}", f"?{TLS}&server_name=etcd.example", f"?ca={CA}", ""):
        with pytest.raises(ConnectionLoss, match="no etcd answers"):
            await open_store(f"{address}{query}", operation_timeout_s=0.3)


async def test_a_user_reads_writes_and_watches_what_its_role_allows(guarded: _Guarded) -> None:
    await asyncio.to_thread(guarded.guard)
    store = await open_store(guarded.url())
    async with aclosing(store.watch_node("/e")) as states:
        assert await within(anext(states)) is None
        await store.create("/e", b"1", ephemeral=True)
        assert await within(anext(states)) is not None
    outcomes = await store.write_batch([(Create(f"/{number}", b""),) for number in range(200)])
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    await store.close()
    left = await asyncio.to_thread(guarded.control, "--user", f"root:{PHRASE}", "get", "/regnum/e")
    assert left == ""
    with pytest.raises(NoAuth, match="permission denied"):
        await open_store(guarded.url(prefix="/elsewhere"))


async def test_who_is_not_known_is_refused_by_name_and_without_its_password(
    guarded: _Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(guarded.guard)
    for url in (guarded.url(phrase="open sesame"), guarded.url(phrase="open sesame", user="nobody")):
        with pytest.raises(NoAuth, match="check user= and password_file=") as caught:
            await open_store(url)
        assert "sesame" not in str(caught.value)
        assert "sesame" not in caplog.text
    with pytest.raises(ValueError, match=r"password_file=/none/at/all cannot be read"):
        await open_store(f"etcd://127.0.0.1:{guarded.server.port}?{TLS}&user=regnum&password_file=/none/at/all")


async def test_a_user_where_nobody_asks_for_one_yet_and_no_more(guarded: _Guarded) -> None:
    """So that processes get their user before the server is told to ask for it."""
    store = await open_store(guarded.url())
    await store.create("/e", b"0")
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        await asyncio.to_thread(guarded.guard)
        await store.set("/e", b"1", version=0)
        seen = await within(anext(states))
        assert seen is not None
        assert seen.data == b"1"
    await asyncio.to_thread(guarded.control, "--user", f"root:{PHRASE}", "auth", "disable")
    await store.set("/e", b"2", version=1)
    other = await open_store(guarded.url())
    assert (await other.get("/e")).data == b"2"
    await other.close()
    await store.close()


async def test_rights_that_go_and_come_back_cost_neither_session_nor_watch(guarded: _Guarded) -> None:
    """A role that is revoked: each call is NoAuth, whatever it does, and nothing else is to be done."""
    await asyncio.to_thread(guarded.guard)
    store = await open_store(guarded.url())
    await store.create("/e", b"0", ephemeral=True)
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        as_root = ("--user", f"root:{PHRASE}", "user")
        await asyncio.to_thread(guarded.control, *as_root, "revoke-role", "regnum", "regnum")
        for call in (store.get("/e"), store.get_many(["/e"]), store.children("/"), store.set("/e", b"1", version=0)):
            with pytest.raises(NoAuth, match="permission denied"):
                await call
        (outcome,) = await store.write_batch([(Set("/e", b"1", 0),)])
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.because, NoAuth)
        waiting = asyncio.create_task(Resolver(store, SystemClock()).multi([Set("/e", b"1", 0)]))
        # Longer than the session: it is kept alive all the same.
        until_s = asyncio.get_running_loop().time() + 7.0
        while asyncio.get_running_loop().time() < until_s:
            assert store.session_state is SessionState.CONNECTED
            await asyncio.sleep(0.2)
        await asyncio.to_thread(guarded.control, *as_root, "grant-role", "regnum", "regnum")
        await within(waiting)
        seen = await within(anext(states))
        assert seen is not None
        assert (seen.data, seen.stat.ephemeral_owner) == (b"1", store.session_id)
    await store.close()


async def test_no_secret_is_shown(guarded: _Guarded) -> None:
    await asyncio.to_thread(guarded.guard)
    store = await open_store(guarded.url())
    shown = [repr(value) for value in _everything(store)]
    assert any("password_file" in text for text in shown)
    assert not any(PHRASE in text for text in shown)
    await store.close()


def _everything(root: object) -> list[object]:
    """The object and all that its fields lead to, as far as it is ours."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not type(one).__module__.startswith("regnum_"):
            continue
        seen[id(one)] = one
        slots = getattr(type(one), "__slots__", ())
        waiting += [getattr(one, name) for name in slots] if slots else list(vars(one).values())
    return list(seen.values())


async def _answers(store: Store) -> None:
    async def reads() -> bool:
        try:
            await store.get_many(["/e"])
        except ConnectionLoss:
            return False
        return True

    await eventually(reads)


async def test_a_token_that_the_server_forgot_is_renewed(guarded: _Guarded) -> None:
    """Tokens die with the process, and with the password; calls, watches and the session go on."""
    await asyncio.to_thread(guarded.guard)
    store = await open_store(guarded.url())
    resolver = Resolver(store, SystemClock())
    await store.create("/e", b"0", ephemeral=True)
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        guarded.server.kill()
        await asyncio.to_thread(guarded.server.start)
        await _answers(store)
        await within(resolver.multi([Set("/e", b"1", 0)]))
        seen = await within(anext(states))
        assert seen is not None
        assert seen.data == b"1"
        guarded.url(phrase="battery-staple")
        await asyncio.to_thread(guarded.change_password, "battery-staple")
        await store.set("/e", b"2", version=1)
        seen = await within(anext(states))
        assert seen is not None
        assert seen.data == b"2"

    async def connected() -> bool:
        return store.session_state is SessionState.CONNECTED

    await eventually(connected)
    assert (await store.get("/e")).stat.ephemeral_owner == store.session_id
    await store.close()


async def test_a_session_closes_with_a_token_that_the_server_forgot(guarded: _Guarded) -> None:
    await asyncio.to_thread(guarded.guard)
    store = await open_store(guarded.url())
    await store.create("/e", b"0", ephemeral=True)
    url = guarded.url(phrase="battery-staple")
    await asyncio.to_thread(guarded.change_password, "battery-staple")
    await store.close()
    other = await open_store(url)
    assert await other.exists("/e") is None
    await other.close()


async def test_a_token_of_an_older_list_of_users_is_renewed(tmp_path: Path) -> None:
    """A signed token carries the revision of the users and roles it was given under, and ends with the next change."""
    public = tmp_path / "public.pem"
    public.write_bytes(SERVER_CERT.read_bytes())
    options = ["--cert-file", str(SERVER_CERT), "--key-file", str(SERVER_KEY), "--trusted-ca-file", str(CA)]
    options += ["--auth-token", f"jwt,pub-key={public},priv-key={SERVER_KEY},sign-method=ES256,ttl=10m"]
    server = EtcdServer(tmp_path, tls=client_context(), options=options)
    await asyncio.to_thread(server.start)
    try:
        guarded = _Guarded(server=server, folder=tmp_path)
        await asyncio.to_thread(guarded.guard)
        store = await open_store(guarded.url())
        async with aclosing(store.watch_node("/e")) as states:
            assert await within(anext(states)) is None
            await asyncio.to_thread(guarded.control, "--user", f"root:{PHRASE}", "user", "add", "another:one")
            await store.create("/e", b"0", ephemeral=True)
            assert await within(anext(states)) is not None
            await asyncio.to_thread(guarded.control, "--user", f"root:{PHRASE}", "user", "delete", "another")
        async with aclosing(store.watch_node("/e")) as states:
            assert await within(anext(states)) is not None
        await store.close()
    finally:
        server.kill()


async def test_a_user_without_tls(tmp_path: Path) -> None:
    """etcd3 itself refuses that; it is for stores on this machine."""
    server = EtcdServer(tmp_path)
    await asyncio.to_thread(server.start)
    try:
        control = [str(server.binary.with_name("etcdctl")), "--endpoints", f"http://127.0.0.1:{server.port}"]
        for arguments in (
            ["user", "add", f"root:{PHRASE}"],
            ["user", "grant-role", "root", "root"],
            ["auth", "enable"],
        ):
            await asyncio.to_thread(subprocess.run, [*control, *arguments], check=True, capture_output=True)
        file = tmp_path / "password"
        file.write_text(PHRASE)
        store = await open_store(f"etcd://127.0.0.1:{server.port}?user=root&password_file={file}")
        await store.create("/e", b"", ephemeral=True)
        await store.close()
        with pytest.raises(NoAuth, match="asks for a user"):
            await open_store(f"etcd://127.0.0.1:{server.port}")
    finally:
        server.kill()
