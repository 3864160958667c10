"""`regnum console`: where it listens, what it refuses, and how it ends."""

import asyncio
import socket
from pathlib import Path

import pytest
from regnum_client.commands.console.command import check_installed
from regnum_client.commands.invocation import CommandFailedError
from regnum_console.serving import Options, serving
from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus, PortTakenError, StartRefusedError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


async def get(port: int, path: str, host: str) -> tuple[str, str]:
    """Status line and body of one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head.splitlines()[0], body


async def test_it_serves_a_cluster_and_ends_with_pages_open(tmp_path: Path) -> None:
    async with FakeCluster() as cluster:
        options = Options(bootstrap=cluster.bootstrap, port=0, traces=tmp_path)
        async with serving(options, SystemClock()) as running:
            port = int(running.address.rstrip("/").rpartition(":")[2])
            status, body = await get(port, "/changes", f"127.0.0.1:{port}")
            assert status == "HTTP/1.1 200 OK"
            assert "tell of no change yet" in body
            assert (await get(port, "/", "evil.example"))[0].startswith("HTTP/1.1 421")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /live/changes HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert b"200 OK" in await reader.readline()
        assert running.task.done()
        assert await reader.read(), "the stream was ended in an orderly way"
        writer.close()
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])  # noqa: S104 - is refused
async def test_it_is_not_served_beyond_this_machine(host: str) -> None:
    with pytest.raises(StartRefusedError, match="ssh -L") as refused:
        async with serving(Options(host=host, port=0), SystemClock()):
            pass
    assert refused.value.exit_status is ExitStatus.WRONG_USE


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"{port}.*--port"):
            async with serving(Options(port=port, traces=tmp_path), SystemClock()):
                pass


async def test_the_command_says_why_it_does_not_serve() -> None:
    regnum = CommandHere("127.0.0.1:1")
    ran = await regnum("console", "--host", "0.0.0.0", "-o", "json")  # noqa: S104 - is refused
    assert (ran.status, ran.error["code"], ran.out) == (2, "START_REFUSED", "")


def test_libraries_that_are_missing_are_named() -> None:
    check_installed()
    with pytest.raises(CommandFailedError, match=r"needs uvicorn.*regnum\[console\]"):
        check_installed(lambda name: None if name == "uvicorn" else object())
