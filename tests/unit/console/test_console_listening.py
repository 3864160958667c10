"""Connections of browsers: bounded, and ended where the other end says nothing, says it slowly or reads slowly."""

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from regnum_console.certificate import Certificate, names_in
from regnum_console.guard import Hosts
from regnum_console.listening import BUFFER_BYTES, Connection, Door
from regnum_console.serving import Options, serving
from regnum_service.clock import SystemClock
from regnum_service.errors import StartRefusedError
from regnum_service.tls.files import TlsFiles
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_CERT, SERVER_KEY
from regnum_testing.waiting import eventually, until, within
from uvicorn.server import ServerState

OF_CONSOLE = TlsFiles(certificate=SERVER_CERT, key=SERVER_KEY)


class Answers:
    """An application: hundreds of chunks of 16 KiB for /much, one word else, for /slow when it is told to."""

    def __init__(self) -> None:
        self.under_way = 0
        self.chunks = 0
        self.told = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.under_way += 1
        try:
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
            for _ in range(1_000 if scope["path"] == "/much" else 0):
                await send({"type": "http.response.body", "body": bytes(16_384), "more_body": True})
                self.chunks += 1
            if scope["path"] == "/slow":
                await self.told.wait()
            await send({"type": "http.response.body", "body": b"done"})
        finally:
            self.under_way -= 1


class Opened:
    """A door, its port, and its application."""

    def __init__(self, port: int, answers: Answers) -> None:
        self.port = port
        self.answers = answers

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@contextlib.asynccontextmanager
async def opened(**about: Any) -> AsyncIterator[Opened]:
    times = {name: about.pop(name) for name in ("request_s", "stalled_s") if name in about}
    answers, state = Answers(), ServerState()
    config = uvicorn.Config(answers, http="h11", ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(
            listener, lambda: Connection(config, state, **times), SystemClock(), tls=about.pop("tls", None), **about
        )
        taking = asyncio.create_task(door.run())
        try:
            yield Opened(listener.getsockname()[1], answers)
        finally:
            taking.cancel()
            await door.close()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """What came before the other side closed."""
    with contextlib.suppress(ConnectionError):
        return await within(reader.read())
    return b""


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"]
)
async def test_a_request_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async with opened(request_s=0.05) as door:
        reader, writer = await door.connect()
        writer.write(sent)
        assert await ends(reader) == b""
        writer.close()
        await until(lambda: door.answers.under_way == 0)


async def test_a_request_that_is_answered_slowly_is_not_cut_off() -> None:
    # (Long enough for a request to come on a busy machine.)
    async with opened(request_s=0.5) as door:
        reader, writer = await door.connect()
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: door.answers.under_way == 1)
        silent, other = await door.connect()
        assert await ends(silent) == b"", "longer than a request may take to come"
        other.close()
        door.answers.told.set()
        assert (await ends(reader)).endswith(b"4\r\ndone\r\n0\r\n\r\n")
        writer.close()


async def test_a_reader_who_stops_reading_is_let_go_and_little_is_kept_for_it() -> None:
    async with opened(stalled_s=0.05) as door:
        with socket.socket() as slow:
            # Small enough for the kernel to keep next to nothing.
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", door.port))
            slow.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: door.answers.under_way == 1)
            await until(lambda: door.answers.chunks > 0)
            before = door.answers.chunks
            await until(lambda: door.answers.under_way == 0)
            assert before * 16_384 < 64 * BUFFER_BYTES


async def test_one_address_has_so_many_connections_and_others_have_room() -> None:
    async with opened(of_address=3, most=4) as door:
        held = [await door.connect() for _ in range(3)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\n")
        beyond, writer = await door.connect()
        assert await ends(beyond) == b""
        writer.close()
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.connect(("127.0.0.1", door.port))
        reader, writer = await asyncio.open_connection(sock=other)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"done" in await ends(reader)
        for _, one in (*held, (reader, writer)):
            one.close()

        async def has_room() -> bool:
            reader, writer = await door.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await ends(reader)
            writer.close()
            return b"done" in answer

        await eventually(has_room, what="their places are free again")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01"])
async def test_what_speaks_no_tls_is_let_go(sent: bytes) -> None:
    async with opened(tls=Certificate(OF_CONSOLE).context, handshake_s=0.05) as door:
        reader, writer = await door.connect()
        writer.write(sent)
        assert b"done" not in await ends(reader)
        writer.close()


async def test_beyond_this_machine_it_speaks_tls_by_the_names_of_its_certificate_and_asks_who_comes() -> None:
    trust = ssl.create_default_context(cafile=CA)
    options = Options(bootstrap="127.0.0.1:1", host="0.0.0.0", port=0, served_with=OF_CONSOLE, tls=TlsFiles(ca=CA))  # noqa: S104
    async with serving(options, SystemClock()) as running:
        port = int(running.address.rstrip("/").rpartition(":")[2])
        assert running.address == f"https://localhost:{port}/"
        for host, status in (("localhost", 401), (f"127.0.0.1:{port}", 401), ("evil.example", 421)):
            reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
            writer.write(f"GET /topics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = await ends(reader)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert (b'name="token"' in answer) == (status == 401)
            writer.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(host="0.0.0.0", port=0, bootstrap="127.0.0.1:1", served_with=OF_CONSOLE), "over TLS only"),  # noqa: S104
        (Options(port=0, served_with=TlsFiles(certificate=SERVER_CERT)), "no TLS key"),
        (Options(port=0, served_with=TlsFiles(certificate=SERVER_CERT, key=CLIENT_KEY)), "belong together"),
    ],
)
async def test_what_visitors_could_not_sign_in_at_is_not_served(
    options: Options, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGNUM_TLS_CA", "REGNUM_TLS_CERTIFICATE", "REGNUM_TLS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StartRefusedError, match=told):
        async with serving(options, SystemClock()):
            pass


async def test_a_certificate_that_changes_is_taken_up_with_its_names(tmp_path: Path) -> None:
    certificate, key = tmp_path / "one.pem", tmp_path / "one.key"
    shutil.copy(SERVER_CERT, certificate)
    shutil.copy(SERVER_KEY, key)
    shown = Certificate(TlsFiles(certificate=certificate, key=key))
    assert shown.names == {"127.0.0.1", "localhost"}
    before = await shown.context()
    shutil.copy(CLIENT_CERT, certificate)
    shutil.copy(CLIENT_KEY, key)

    async def is_taken_up() -> bool:
        return await shown.context() is not before

    await eventually(is_taken_up, what="files are looked at once a second")
    assert shown.names == names_in(CLIENT_CERT.read_bytes()) == {"client"}


@pytest.mark.parametrize(
    ("host", "there"),
    [
        ("console.example", True),
        ("console.example:8443", True),
        ("a.wild.example:443", True),
        ("[::1]:8443", True),
        ("[::1]", True),
        ("", False),
        (":443", False),
        ("example", False),
        ("evil.example", False),
        ("console.example:", False),
        ("console.example:x", False),
        ("console.example.evil.example", False),
        ("a.b.wild.example", False),
        ("wild.example", False),
        ("user@console.example", False),
    ],
)
def test_hosts_are_the_names_of_the_certificate(host: str, there: bool) -> None:
    hosts = Hosts(scheme="https", names=("console.example", "*.wild.example", "[::1]"))
    assert hosts.has(host) is there
