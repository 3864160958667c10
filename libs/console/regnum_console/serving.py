"""The console on a listener of this machine: `regnum console`, `regnum up --console`, the demo."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from regnum_client.admin.admin import Admin
from regnum_client.cluster.security.channels import tls_files
from regnum_client.consumer.consumer import Consumer
from regnum_client.consumer.positions import ResetPolicy
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.producer.producer import Producer, ProducerSettings
from regnum_insight.attribution.changes import SELECTION
from regnum_model.nodes.processes import is_loopback
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import ExitStatus, PortTakenError, StartRefusedError
from regnum_service.tls.files import TlsFiles
from starlette.applications import Starlette

from regnum_console.app import application
from regnum_console.certificate import Certificate
from regnum_console.context import Context
from regnum_console.guard import Guard, Hosts
from regnum_console.listening import CONNECTIONS_MAX, served
from regnum_console.live.feed import ChangeFeed, Feed, Sources
from regnum_console.live.otlp import SpanReceiver, receiving
from regnum_console.live.streams import Streams
from regnum_console.live.tail import TraceTail
from regnum_console.port import Cluster, Ports, Reader, Writer
from regnum_console.records.masking import Mask, Masks
from regnum_console.stopping import stop_signals
from regnum_console.visitors.contexts import VisitorContexts
from regnum_console.visitors.sessions import Sessions
from regnum_console.visitors.visitors import Visitors

PORT: Final = 8090
"""Where the console is, if that is free."""
CLIENT_ID: Final = "regnum-console"
CALL_S: Final = 5.0
"""How long the cluster is waited for."""
DELIVERY_S: Final = 20.0
"""The same where a record is produced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a console was asked for."""

    bootstrap: str | tuple[str, ...] | None = None
    """Brokers to begin with; None: as the SDK finds them."""
    tls: TlsFiles | None = None
    """What connections to the cluster are protected with; None: as the environment or the profile says."""
    host: str = "127.0.0.1"
    """Where it listens."""
    port: int | None = None
    """None: PORT, or another one that is free."""
    traces: Path | None = None
    """Folder of traces; None: there is none."""
    otlp: str | None = None
    """``host:port`` where spans are taken by OTLP; None: nowhere."""
    writes: bool = False
    """Whether records may be produced."""
    masks: tuple[Mask, ...] = ()
    """What of records no page shows."""
    served_with: TlsFiles | None = None
    """Certificate and key of the console: it speaks TLS, and each visitor signs in; None: on this machine only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A console that serves."""

    address: str
    """What a browser opens."""
    task: asyncio.Task[None]
    """Ends when it does."""


@asynccontextmanager
async def serving(options: Options, clock: Clock) -> AsyncIterator[Running]:
    """Serve until the context ends.

    Raises StartRefusedError where it may not or cannot listen there, RegnumError when no broker answers.
    """
    certificate = None if options.served_with is None else Certificate(options.served_with)
    listener = _listener(options)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        receiver = None if options.otlp is None else SpanReceiver(SELECTION)
        tail = None if options.traces is None else TraceTail(options.traces, SELECTION)
        sources = [one for one in (receiver, tail) if one is not None]
        feed = ChangeFeed(Sources(sources) if sources else None, clock)
        if certificate is None:
            scheme, names = "http", frozenset({"127.0.0.1", "localhost", "[::1]", _written(options.host)})
            content, hosts = _for_all(options, clock, feed), lambda: Hosts(scheme=scheme, names=names, port=port)
        else:
            scheme, names = "https", certificate.names
            content, hosts = _for_visitors(options, clock, feed), lambda: Hosts(scheme=scheme, names=certificate.names)
        taken = nullcontext() if receiver is None or options.otlp is None else receiving(options.otlp, receiver)
        tls = None if certificate is None else certificate.context
        async with content as (app, closing), taken, served(Guard(app, hosts), listener, clock, tls=tls) as task:
            name = _written(options.host) if certificate is None else _best(names)
            try:
                yield Running(address=f"{scheme}://{name}:{port}/", task=task)
            finally:
                closing.set()


@asynccontextmanager
async def _for_all(options: Options, clock: Clock, feed: Feed) -> AsyncIterator[tuple[Starlette, asyncio.Event]]:
    """Pages for what reaches this machine's loopback address, with the rights of the caller of the console."""
    async with _ports(options, options.tls) as ports:
        streams = Streams(clock)
        token = secrets.token_urlsafe(32)
        yield application(Context(ports=ports, clock=clock, feed=feed, streams=streams, token=token)), streams.closing


@asynccontextmanager
async def _for_visitors(options: Options, clock: Clock, feed: Feed) -> AsyncIterator[tuple[Starlette, asyncio.Event]]:
    """Pages for visitors who sign in, with their rights."""
    files = tls_files(options.bootstrap, options.tls)
    if files is None:
        raise StartRefusedError(
            "visitors sign in with delegation tokens, which are shown to a cluster over TLS only: give the console what"
            " it connects to the cluster with (REGNUM_TLS_CA, or a profile)",
            exit_status=ExitStatus.WRONG_USE,
        )

    def enter(credential: str) -> AbstractAsyncContextManager[Ports]:
        return _ports(options, replace(files, token=None, credential=credential))

    sessions = Sessions(clock, enter, VisitorContexts(feed, clock).make)
    closing = asyncio.Event()
    ending = asyncio.create_task(_ended(sessions, closing), name="end of sessions")
    try:
        yield application(Visitors(sessions, clock)), closing
    finally:
        closing.set()
        await ending


async def _ended(sessions: Sessions, closing: asyncio.Event) -> None:
    await closing.wait()
    await sessions.close()


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _best(names: Collection[str]) -> str:
    """Of a certificate's names the one that a person is told: a name before an address."""
    return min(names, key=lambda one: (one.startswith("*"), one[:1] == "[" or one[-1:].isdigit(), one))


def _listener(options: Options) -> socket.socket:
    """A socket that listens already, so that the address can be told at once. Raises StartRefusedError."""
    if options.served_with is None and not is_loopback(options.host):
        raise StartRefusedError(
            f"the console is not served on {options.host} without a certificate: beyond this machine it speaks TLS, and"
            " each visitor signs in; give --serve-certificate and --serve-key, or listen on 127.0.0.1, and reach it"
            " through SSH: "
            f"ssh -L {options.port or PORT}:127.0.0.1:{options.port or PORT} HOST",
            exit_status=ExitStatus.WRONG_USE,
        )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    ports = (PORT, 0) if options.port is None else (options.port,)
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, port))
            listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            listener.close()
            if port == ports[-1]:
                reason = error.strerror or error
                raise PortTakenError(
                    f"cannot listen on {options.host}:{port}: {reason}; choose another --port"
                ) from error
            continue
        return listener
    raise AssertionError("the last port returns or raises")


@asynccontextmanager
async def _ports(options: Options, tls: TlsFiles | None) -> AsyncIterator[Ports]:
    """The cluster, as those who show ``tls`` see it."""
    settings = ConsumerSettings(
        enable_auto_commit=False, reset=ResetPolicy.EARLIEST, skip_unreadable=True, buffer_bytes=16 * 2**20
    )

    masks = Masks(options.masks)

    def connect() -> AbstractAsyncContextManager[Cluster]:
        return Admin(options.bootstrap, timeout_s=CALL_S, client_id=CLIENT_ID, tls=tls)

    def read() -> AbstractAsyncContextManager[Reader]:
        return masks.reader(Consumer(options.bootstrap, settings=settings, client_id=CLIENT_ID, tls=tls))

    def write() -> AbstractAsyncContextManager[Writer]:
        delivery = ProducerSettings(delivery_timeout_s=DELIVERY_S)
        return Producer(options.bootstrap, settings=delivery, client_id=CLIENT_ID, tls=tls)

    async with connect() as cluster:
        yield Ports(
            cluster=cluster, connect=connect, read=read, write=write if options.writes else None, masked=masks.words
        )


async def serve(options: Options, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` hears the address. Raises as ``serving``."""
    async with serving(options, SystemClock()) as running:
        with stop_signals() as stop:
            ready(running.address)
            stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
            await asyncio.wait({stopping, running.task}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
