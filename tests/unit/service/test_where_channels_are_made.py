"""Channels pass web proxies by, and nothing makes one, or opens a URL, elsewhere than where that is seen to."""

import ast
import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import grpc
import pytest
from regnum_coordination import open_store
from regnum_model.nodes import Address
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel, blocking_channel, open_channel
from regnum_service.tls.channels import opener
from regnum_telemetry import setup, tracing
from regnum_testing.waiting import within

ROOT = Path(__file__).parents[3]
TREES = ("services", "libs", "analysis", "bench", "tests", "deploy", "docs")
PLACES = {
    "insecure_channel": {"libs/service/regnum_service/channel.py"},
    "secure_channel": {"libs/service/regnum_service/channel.py"},
    # Libraries that make channels of their own, from the options that they are given.
    "etcd3.client": {"libs/coordination/regnum_coordination/drivers/etcd/opening.py"},
    "OTLPSpanExporter": {"libs/telemetry/regnum_telemetry/setup.py", "tests/unit/telemetry/test_export_queue.py"},
    # HTTP clients that heed the environment; http.client and sockets do not.
    "urlopen": set(),
    "build_opener": {"libs/testing/regnum_testing/direct_http.py"},
}
HTTP_CLIENTS = re.compile(r"^\s*(?:from|import) (?:requests|httpx|aiohttp|urllib3)\b", re.MULTILINE)
NAMES = re.compile("|".join(map(re.escape, PLACES)))


def _calls(tree: ast.AST) -> Iterator[str]:
    """Every name that is called or passed on: ``grpc.aio.insecure_channel``, ``partial(insecure_channel, ...)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                yield f"{owner}.{name}"
                yield name
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                # As getattr looks it up.
                yield name


def test_channels_and_http_clients_are_made_where_proxies_are_passed_by() -> None:
    found: dict[str, set[str]] = {name: set() for name in PLACES}
    clients: list[str] = []
    files = [file for tree in TREES for file in (ROOT / tree).rglob("*.py") if file != Path(__file__)]
    assert len(files) > 900, "the files are where this test looks for them"
    for file in files:
        text = file.read_text()
        if HTTP_CLIENTS.search(text):
            clients.append(str(file.relative_to(ROOT)))
        if NAMES.search(text):
            for name in PLACES.keys() & set(_calls(ast.parse(text))):
                found[name].add(str(file.relative_to(ROOT)))
    assert found == PLACES
    # With OpenTelemetry's exporter over HTTP, which is given a session that does not look at the environment.
    assert clients == ["libs/telemetry/regnum_telemetry/setup.py"]


class Listener:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def _take(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        writer.close()


async def _by_aio(port: int) -> None:
    async with aio_channel(f"127.0.0.1:{port}") as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.Event().wait()


async def _by_blocking(port: int) -> None:
    with blocking_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        channel.unary_unary("/service/Method").future(b"")
        await asyncio.Event().wait()


async def _by_tls(port: int) -> None:
    async with aio_channel(f"127.0.0.1:{port}", credentials=grpc.ssl_channel_credentials()) as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.Event().wait()


async def _by_peers(port: int) -> None:
    async with opener(None)(Address(host="127.0.0.1", port=port)) as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.Event().wait()


async def _by_name(port: int) -> None:
    async with open_channel(Address(host="localhost", port=port)) as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.Event().wait()


async def _by_etcd(port: int) -> None:
    await open_store(f"etcd://127.0.0.1:{port}", session_timeout_s=6.0, operation_timeout_s=60.0)


async def _by_collector(port: int) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        telemetry = setup.start("service", "1", traces_dir=None)
    tracing.tracer().start("span").end()
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.to_thread(telemetry.close)


@pytest.mark.parametrize("dial", [_by_aio, _by_blocking, _by_tls, _by_peers, _by_name, _by_etcd, _by_collector])
async def test_whatever_the_environment_says_the_peer_is_asked_and_no_proxy(
    monkeypatch: pytest.MonkeyPatch, dial: object
) -> None:
    async with Listener() as peer, Listener() as proxy:
        for name in ("grpc_proxy", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("no_grpc_proxy", raising=False)
        dialing = asyncio.ensure_future(dial(peer.port))  # type: ignore[operator]
        await within(peer.asked.wait())
        assert not proxy.asked.is_set()
        dialing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dialing
