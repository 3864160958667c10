"""The console on a listener of this machine: `regnum console`, `regnum up --console`, the demo."""

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import uvicorn
from regnum_client.admin.admin import Admin
from regnum_client.consumer.consumer import Consumer
from regnum_client.consumer.positions import ResetPolicy
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.producer.producer import Producer, ProducerSettings
from regnum_insight.attribution.changes import SELECTION
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import ExitStatus, PortTakenError, StartRefusedError
from regnum_service.tls.files import TlsFiles

from regnum_console.app import application
from regnum_console.context import Context
from regnum_console.guard import Guard
from regnum_console.live.feed import ChangeFeed
from regnum_console.live.streams import Streams
from regnum_console.live.tail import TraceTail
from regnum_console.port import Cluster, Ports, Reader, Writer

PORT: Final = 8090
"""Where the console is, if that is free."""
CLIENT_ID: Final = "regnum-console"
CALL_S: Final = 5.0
"""How long the cluster is waited for."""
DELIVERY_S: Final = 20.0
"""The same where a record is produced."""
CONNECTIONS_MAX: Final = 256
"""Of browsers."""
STOP_S: Final = 2
"""How long pages that are being made are waited for at the end."""


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
    writes: bool = False
    """Whether records may be produced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A console that serves."""

    address: str
    """What a browser opens."""
    task: asyncio.Task[None]
    """Ends when it does."""


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """See uvicorn."""
        yield


@asynccontextmanager
async def serving(options: Options, clock: Clock) -> AsyncIterator[Running]:
    """Serve until the context ends.

    Raises StartRefusedError where it may not or cannot listen there, RegnumError when no broker answers.
    """
    listener = _listener(options)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        async with _admin(options) as admin:
            streams = Streams(clock)
            source = None if options.traces is None else TraceTail(options.traces, SELECTION)
            context = Context(
                ports=_ports(options, admin),
                clock=clock,
                feed=ChangeFeed(source, clock),
                streams=streams,
                token=secrets.token_urlsafe(32),
            )
            host = f"[{options.host}]" if ":" in options.host else options.host
            hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]", host))
            server = _Server(
                uvicorn.Config(
                    Guard(application(context), hosts=hosts),
                    http="h11",
                    ws="none",
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    limit_concurrency=CONNECTIONS_MAX,
                    timeout_graceful_shutdown=STOP_S,
                )
            )
            task = asyncio.create_task(server.serve(sockets=[listener]), name="console")
            try:
                yield Running(address=f"http://{host}:{port}/", task=task)
            finally:
                streams.closing.set()
                server.should_exit = True
                await task


def _listener(options: Options) -> socket.socket:
    """A socket that listens already, so that the address can be told at once. Raises StartRefusedError."""
    if not _is_loopback(options.host):
        raise StartRefusedError(
            f"the console is not served on {options.host}: beyond this machine each visitor would have to sign in with "
            "rights of their own, which this release does not have; listen on 127.0.0.1, and reach it through SSH: "
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _ports(options: Options, admin: Cluster) -> Ports:
    settings = ConsumerSettings(
        enable_auto_commit=False, reset=ResetPolicy.EARLIEST, skip_unreadable=True, buffer_bytes=16 * 2**20
    )

    def connect() -> AbstractAsyncContextManager[Cluster]:
        return _admin(options)

    def read() -> AbstractAsyncContextManager[Reader]:
        return Consumer(options.bootstrap, settings=settings, client_id=CLIENT_ID, tls=options.tls)

    def write() -> AbstractAsyncContextManager[Writer]:
        delivery = ProducerSettings(delivery_timeout_s=DELIVERY_S)
        return Producer(options.bootstrap, settings=delivery, client_id=CLIENT_ID, tls=options.tls)

    return Ports(cluster=admin, connect=connect, read=read, write=write if options.writes else None)


def _admin(options: Options) -> Admin:
    return Admin(options.bootstrap, timeout_s=CALL_S, client_id=CLIENT_ID, tls=options.tls)


async def serve(options: Options, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` hears the address. Raises as ``serving``."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    handled = (signal.SIGINT, signal.SIGTERM)
    async with serving(options, SystemClock()) as running:
        for signum in handled:
            loop.add_signal_handler(signum, stop.set)
        try:
            ready(running.address)
            stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
            await asyncio.wait({stopping, running.task}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
        finally:
            for signum in handled:
                loop.remove_signal_handler(signum)
