"""The listener of Kafka's protocol: its socket, its certificates, and how many connections it has."""

import asyncio
import math
import random
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from regnum_model.nodes import Address
from regnum_model.principals import NOBODY
from regnum_service.access.authentication import Authentication, host_of
from regnum_service.access.authorization import Denials
from regnum_service.access.identity import Caller
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.validity import Validity
from regnum_service.clock import Clock
from regnum_service.connection_limit import ADDRESS, ConnectionLimit, Crowding, files_for_connections
from regnum_service.connection_limit import LISTENER as WHOLE
from regnum_service.errors import PortTakenError, RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.machine import MACHINE
from regnum_service.supervisor import Supervisor
from regnum_service.tls.files import CHECK_INTERVAL_S
from regnum_service.tls.names import shown_by
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Counter, Metrics

from regnum_broker.kafka.connection import Connection
from regnum_broker.kafka.connections import Answering, Crowd, Open, Shared

LISTENER: Final = "kafka"
"""Its name."""
BACKLOG: Final = 1_024
"""Connections that wait to be accepted."""
HANDSHAKES_MAX: Final = 2_000
"""Connections in their TLS handshakes, 75 KiB each: of more those that began first are closed."""


class _Handshakes:
    """Those that are under way. Belongs to the event loop."""

    def __init__(self, most: int, too_many: Counter) -> None:
        self._most: Final = most
        self._too_many: Final = too_many
        self._under_way: Final[dict[asyncio.Future[None], asyncio.Transport]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begun(self, over: asyncio.Future[None], transport: asyncio.Transport) -> None:
        self._under_way[over] = transport
        over.add_done_callback(self._ended)
        if len(self._under_way) > self._most:
            self._under_way.pop(next(iter(self._under_way))).abort()
            self._too_many.add(1)

    def _ended(self, over: asyncio.Future[None]) -> None:
        self._under_way.pop(over, None)
        # (That one failed is for its client to see.)
        over.exception()


class _Tls(SSLProtocol):
    """TLS of one connection. asyncio's own has a buffer of 256 KiB from the first moment on."""

    max_size = 64 * 1024

    def __init__(
        self, connection: Connection, context: ssl.SSLContext, handshakes: _Handshakes, *, timeout_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        self._over: Final[asyncio.Future[None]] = loop.create_future()
        self._handshakes: Final = handshakes
        seconds: Any = timeout_s  # A fraction will do, whatever its type says.
        super().__init__(loop, connection, context, self._over, server_side=True, ssl_handshake_timeout=seconds)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio gives for a stream socket
        self._handshakes.begun(self._over, transport)
        super().connection_made(transport)


class _Shown:
    """A connection, as whoever tells callers apart asks gRPC's context."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Open) -> None:
        self._connection: Final = connection

    def peer(self) -> str:
        return self._connection.name

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return shown_by(self._connection.get_extra_info("ssl_object"))

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


class _Believed:
    """Tells callers apart, and has it written down who is not believed."""

    def __init__(self, authentication: Authentication, denials: Denials) -> None:
        self._authentication: Final = authentication
        self._denials: Final = denials

    def caller_of(self, connection: Open) -> Caller:
        shown = _Shown(connection)
        try:
            return self._authentication.caller_of(shown)
        except RegnumError as error:
            unknown = Caller(principal=NOBODY, host=host_of(connection.name), listener=LISTENER)
            self._denials.unauthenticated(unknown, error, call=LISTENER)
            raise


class KafkaListener:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        address: Address,
        *,
        door: Answering,
        budget: Budget,
        access: ListenerAccess,
        request_bytes_max: int,
        clock: Clock,
        supervisor: Supervisor,
        metrics: Metrics | None = None,
        chance: random.Random = MACHINE.chance,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        """Only assigns.

        Args:
            address: where it listens.
            door: answers requests.
            budget: pays for what they take.
            access: what it asks of those who connect: the client listener's.
            request_bytes_max: the largest request.
            clock: source of time.
            supervisor: owns its tasks.
            metrics: where it is counted how many connections are closed; None: nowhere.
            chance: makes ids of fetch sessions.
            handshakes_max: TLS handshakes that may be under way.
        """
        tls, limits, metrics = access.tls, access.limits, metrics or Metrics()
        # Half of what the other listener of clients may have, so that files are left for logs whatever comes in.
        most = max(1, files_for_connections() // 2)
        most = most if limits.connections_max is None else min(limits.connections_max, most)
        # As many more may be in their handshakes, or not accepted yet, as the kernel's table says.
        self._handshakes: Final = ConnectionLimit(
            2 * most, listener=LISTENER, port=lambda: self.address.port, clock=clock, metrics=metrics
        )
        too_many = metrics.counter(instruments.CONNECTIONS_CLOSED, LISTENER, WHOLE)
        self.shaking: Final = _Handshakes(handshakes_max, too_many)
        """Connections in their TLS handshakes."""
        self._crowding: Final = Crowding(
            most,
            listener=LISTENER,
            option="--client-max-connections",
            which="those whose last request is the longest ago",
            clock=clock,
        )
        validity = None if tls is None else Validity(lambda: tls.files.pem.revoked, clock.wall_ms)
        authentication = access.authentication(LISTENER, validity)
        self._tls: Final = tls
        self._address: Final = address
        self._supervisor: Final = supervisor
        self._clock: Final = clock
        self._handshake_s: Final = limits.handshake_timeout_s
        self._budget: Final = budget
        self._shared: Final = Shared(
            door=door,
            budget=budget,
            clock=clock,
            caller_of=_Believed(authentication, access.denials).caller_of,
            request_bytes_max=request_bytes_max,
            first_s=limits.handshake_timeout_s,
            idle_s=limits.idle_s or math.inf,
            age_s=limits.age_s or math.inf,
            crowd=Crowd(
                most,
                limits.connections_per_address_max,
                uses=self._handshakes.uses,
                too_many=too_many,
                too_many_of_address=metrics.counter(instruments.CONNECTIONS_CLOSED, LISTENER, ADDRESS),
                crowded=self._crowding.noted,
            ),
            defect=lambda error: supervisor.fail("kafka connection", error),
            chance=chance,
        )
        self._log: Final = structlog.get_logger("kafka")
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        """Where it listens; once started, with the port that the machine chose if 0 was asked for."""
        if self._socket is None:
            return self._address
        return Address(host=self._address.host, port=self._socket.getsockname()[1])

    @property
    def connections(self) -> int:
        """That are open."""
        return len(self._shared.crowd)

    @property
    def crowded(self) -> str:
        """That clients which made calls were closed lately since there are too many, in words; empty: none were."""
        return self._crowding.words

    async def start(self) -> None:
        """Bind and serve. Raises PortTakenError."""
        loop = asyncio.get_running_loop()
        try:
            ((family, _, _, _, place), *_) = await loop.getaddrinfo(
                self._address.host, self._address.port, type=socket.SOCK_STREAM
            )
            self._socket = socket.create_server(place[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            raise PortTakenError(
                f"cannot listen on {self._address}: {error.strerror}; another process has the port, or the host is not"
                " this machine's; stop that process or choose another address"
            ) from error
        await self._open()
        self._budget.start(self._supervisor, self.address.port)
        if self._tls is not None:
            self._supervisor.start("certificates of kafka", self._follow_certificates())
        # (Also without handshakes: it forgets connections that are gone.)
        self._supervisor.start("handshakes of kafka", self._handshakes.run())

    async def stop(self) -> None:
        """Close it, and all its connections."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._socket is not None:
            self._socket.close()
        self._shared.stop()

    async def _open(self) -> None:
        """Serve new connections with the certificates of now."""
        assert self._socket is not None  # noqa: S101 - bound by ``start``
        before = self._server
        context: ssl.SSLContext | None = None if self._tls is None else await asyncio.to_thread(self._tls.context)

        def connected() -> asyncio.BaseProtocol:
            connection = Connection(self._shared)
            if context is None:
                return connection
            return _Tls(connection, context, self.shaking, timeout_s=self._handshake_s)

        self._server = await asyncio.get_running_loop().create_server(
            connected, sock=self._socket.dup(), backlog=BACKLOG
        )
        if before is not None:
            before.close()

    async def _follow_certificates(self) -> None:
        tls = self._tls
        assert tls is not None  # noqa: S101 - only then it runs
        version, refused = tls.files.version, 0
        while True:
            await self._clock.sleep(CHECK_INTERVAL_S)
            found = await asyncio.to_thread(tls.files.check)
            if found == version:
                continue
            try:
                await self._open()
            except OSError as error:
                # They change again: what was there before stays in use until they fit, which is tried each time.
                if refused != found:
                    self._log.error("certificates changed and cannot be used", reason=str(error))
                refused = found
            else:
                version = found
