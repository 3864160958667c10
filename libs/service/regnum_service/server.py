"""A gRPC server on one listener: options, health, reflection, and the way errors leave a handler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from regnum_model.nodes import Address
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.rpc_server import TracingInterceptor

from regnum_service.access.authentication import AuthenticationInterceptor
from regnum_service.access.guards.guard import Guard
from regnum_service.access.identity import CLIENT
from regnum_service.access.listener import OPEN, ListenerAccess
from regnum_service.access.streams import StreamInterceptor
from regnum_service.access.tokens.streams import token_of
from regnum_service.addressee import AddresseeInterceptor
from regnum_service.call_metrics import MetricsInterceptor
from regnum_service.channel import MESSAGE_BYTES_MAX, target
from regnum_service.clock import Clock
from regnum_service.connection_limit import ConnectionLimit
from regnum_service.connections import counted_at
from regnum_service.errors import PortTakenError
from regnum_service.gates import Gate, GateInterceptor, Meter
from regnum_service.health import Health
from regnum_service.interceptor import ErrorInterceptor
from regnum_service.limits.answers import Answers
from regnum_service.machine import MACHINE, Machine
from regnum_service.reading import ReadTurns
from regnum_service.request_sizes import CONTROL_BYTES_MAX
from regnum_service.supervisor import Spawn, Supervisor
from regnum_service.tls.standing import StandingCertificates

__all__ = ["CONTROL_BYTES_MAX", "LIVENESS", "GrpcServer", "ServiceRegistration"]

LIVENESS: Final = "regnum.liveness"
"""What health says SERVING of for as long as the listener's event loop answers, whatever else it says: a process that
waits for the store is alive and must not be restarted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRegistration:
    """One service of a server."""

    name: str
    """Full proto name, for health and reflection: ``regnum.admin.v1.AdminService``."""
    servicer: object
    """The implementation."""
    add_to_server: Callable[[Any, Any], None]
    """The generated ``add_<Service>Servicer_to_server``."""
    passes_on: bool = False
    """Its calls are carried out by another process, for whoever made them: that one asks for their rights."""


QUESTION_BYTES_MAX: Final = 4 * 1024
"""The largest request of health and reflection: a question is a name."""

QUESTION_READ_S_MAX: Final = 5.0
"""Within so long one comes, once its turn has come."""

REFLECTION_SILENCE_S_MAX: Final = 30.0
"""A reflection stream that asks nothing for so long is ended: there are few of them."""


def _open_to_all(clock: Clock) -> tuple[GateInterceptor, ...]:
    """Before what every client that connects may ask: a few at once, so that what they bring is bounded."""
    health = ReadTurns(of_connection=2, in_all=4)
    reflection_streams = ReadTurns(of_connection=2, in_all=4, waiting=0, of_streams=True)
    return (
        GateInterceptor(
            (health,),
            clock=clock,
            methods="/grpc.health.",
            bytes_max=QUESTION_BYTES_MAX,
            read_s_max=QUESTION_READ_S_MAX,
        ),
        GateInterceptor(
            (reflection_streams,),
            clock=clock,
            methods="/grpc.reflection.",
            bytes_max=QUESTION_BYTES_MAX,
            silence_s_max=REFLECTION_SILENCE_S_MAX,
        ),
    )


class GrpcServer:
    """A server on one listener. Belongs to the event loop that starts it, which need not be the main one.

    A handler raises RegnumError to refuse a call. Anything else that escapes from a service of ours is a defect: the
    caller sees INTERNAL without the text and the supervisor stops the service. Handlers of request streams take the
    iterator or ``context.read()``.
    """

    def __init__(
        self,
        address: Address,
        services: Sequence[ServiceRegistration],
        *,
        supervisor: Supervisor,
        request_bytes_max: int = MESSAGE_BYTES_MAX,
        gates: Sequence[Gate] = (),
        unread_bytes_max: int | None = None,
        meter: Meter | None = None,
        answers: Answers | None = None,
        listener: str = "",
        metrics: Metrics | None = None,
        access: ListenerAccess = OPEN,
        own: str = "",
        spawn: Spawn | None = None,
        outermost: Sequence[grpc.aio.ServerInterceptor] = (),
        machine: Machine = MACHINE,
    ) -> None:
        """Only assigns.

        Args:
            address: where it listens.
            services: what it serves, besides health and reflection.
            supervisor: hears of defects.
            request_bytes_max: the largest message that it takes; see ``CONTROL_BYTES_MAX``.
            gates: what calls of our own services pass before their messages are read, in this order. (Health and
                reflection have their own at every listener.)
            meter: measures what calls behind the gates take.
            answers: counts what calls behind the gates are answered.
            unread_bytes_max: how much of a message gRPC takes from a client before somebody reads it. None: gRPC's own
                estimate of the line, megabytes for each call.
            listener: its name in the metrics: ``client``, ``internal``.
            metrics: where its calls and connections are counted; None: nobody asks, and nothing is.
            access: what it asks of those who connect.
            spawn: runs what goes on beside the calls, on the listener's loop; None: the supervisor.
            own: how the process is addressed (``addressee``): calls for another one are refused. Empty: all are taken.
            outermost: what calls pass before all else.
            machine: makes the server, and tells the time.
        """
        self._machine: Final = machine
        self._outermost: Final = tuple(outermost)
        self._own: Final = own
        self._spawn: Final[Spawn] = spawn or supervisor.start
        self._gates: Final = tuple(gates)
        self._meter: Final = meter
        self._answers: Final = answers
        self._unread_bytes_max: Final = unread_bytes_max
        self._listener = listener
        self._metrics = metrics
        self._access: Final = access
        self._address = address
        self._services = tuple(services)
        self._supervisor = supervisor
        self._request_bytes_max = request_bytes_max
        most = access.limits.connections_max
        self._limit: Final = (
            None
            if most is None
            else ConnectionLimit(
                most,
                listener=listener,
                port=lambda: self._port,
                clock=machine.clock,
                of_address=access.limits.connections_per_address_max,
                metrics=metrics,
            )
        )
        self._server: grpc.aio.Server | None = None
        self._health: Health | None = None
        self._port = address.port

    @property
    def address(self) -> Address:
        """Where it listens; once started, with the port that the machine chose if 0 was asked for."""
        return Address(host=self._address.host, port=self._port)

    @property
    def crowded(self) -> str:
        """That it closes connections of clients since there are too many, in words; empty: it does not."""
        return "" if self._limit is None else self._limit.crowded

    async def start(self) -> None:
        """Bind and serve. Raises PortTakenError. Health says NOT_SERVING until ``set_serving``."""
        streams = self._access.token_streams
        tls, denials = self._access.tls, self._access.denials
        standing = None if tls is None else StandingCertificates(tls.files, denials, self._machine.clock)
        authentication = self._access.authentication(self._listener, None if standing is None else standing.validity)
        server = self._machine.server(
            *self._access.limits.options,
            *_window(self._unread_bytes_max),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_receive_message_length", self._request_bytes_max),
            # The first is the outermost: it and the spans see the statuses that the last ones give.
            interceptors=(
                *self._outermost,
                *self._counting(),
                TracingInterceptor(for_clients=self._listener == CLIENT),
                *((AddresseeInterceptor(self._own),) if self._own else ()),
                ErrorInterceptor(self._supervisor.fail),
                # Before the gates, which hold calls by who makes them.
                AuthenticationInterceptor(authentication, None if self._limit is None else self._limit.uses, denials),
                *self._gated(),
                *_open_to_all(self._machine.clock),
                # Behind the gates, where a call with one request is none with a stream of them.
                *(() if streams is None else (StreamInterceptor(streams, token_of),)),
                *(() if standing is None else (StreamInterceptor(standing.streams, authentication.certificate_of),)),
            ),
        )
        guard = Guard(self._access.authorizer, tells_processes_apart=self._access.tells_processes_apart)
        for service in self._services:
            guarded = service.servicer if service.passes_on else guard.before(service.name, service.servicer)
            service.add_to_server(guarded, server)
        self._health = Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.name for service in self._services]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        try:
            self._port = self._bind(server)
        except RuntimeError as error:
            await server.stop(None)
            raise PortTakenError(
                f"cannot listen on {self._address}: another process has the port, or the host is not this machine's; "
                "stop that process or choose another address"
            ) from error
        self._server = server
        await self.set_serving(serving=False)
        self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        if self._answers is not None:
            self._answers.budget.start(self._supervisor, self._port)
        if self._limit is not None:
            self._spawn(f"connections of {self._listener}", self._limit.run())
        if standing is not None:
            self._spawn(f"certificates of {self._listener}", standing.run())

    def _bind(self, server: grpc.aio.Server) -> int:
        tls = self._access.tls
        if tls is None:
            return server.add_insecure_port(target(self._address))
        return server.add_secure_port(target(self._address), tls.credentials())

    def _counting(self) -> tuple[MetricsInterceptor, ...]:
        if self._metrics is None:
            return ()
        self._metrics.observe_also(instruments.CONNECTIONS, counted_at(lambda: self._port, self._listener))
        return (MetricsInterceptor(self._listener, self._metrics, self._machine.clock),)

    def _gated(self) -> tuple[GateInterceptor, ...]:
        if not self._gates:
            return ()
        return (GateInterceptor(self._gates, self._meter, answers=self._answers, clock=self._machine.clock),)

    async def set_serving(self, *, serving: bool, but: str | None = None) -> None:
        """What health says, of the server as a whole and of every service here, except the one named ``but``."""
        for name in ("", *(service.name for service in self._services)):
            if name != but:
                self.set_service(name, serving=serving)

    def set_service(self, name: str, *, serving: bool) -> None:
        """What health says of one service."""
        if self._health is None:
            raise RuntimeError("set_serving before start")
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        self._health.set(name, status)
        if name:
            self._supervisor.serving[name] = serving

    async def stop(self, grace_s: float = 0.5) -> None:
        """Refuse new calls; what still runs after the grace time is cancelled. Does nothing when not started."""
        server, self._server = self._server, None
        if server is None:
            return
        await self.set_serving(serving=False)
        await server.stop(grace_s)


def _window(unread_bytes_max: int | None) -> tuple[tuple[str, int], ...]:
    """The window of each call. It is a constant only where gRPC does not estimate the line."""
    if unread_bytes_max is None:
        return ()
    return (
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", unread_bytes_max),
        # Else a connection keeps a buffer as large as what it has brought at once, for as long as it is open.
        ("grpc.experimental.tcp_max_read_buffer_size", unread_bytes_max),
    )
