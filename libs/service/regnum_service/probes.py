"""Health for the kubelet: a listener of its own, open from the first moment of a process until its last.

Goals: a probe is answered while the process looks through its logs, waits for a lock or for the store; behind TLS;
and when clients have all the connections that there may be. Nothing else can be asked here.

Constraints: the kubelet's gRPC probes speak no TLS, and call ``Check`` only. The listeners of a broker open when its
log directory is open, and what says that a process listens (safety rule S9) must not be true before.

Algorithm: ``Check`` of ``regnum.liveness`` is SERVING whenever this event loop answers. That of any other name is what
the listener that serves it says of it (``Supervisor.serving``), and NOT_SERVING until there is one. Without a name it
is that of all of them together.
"""

from collections.abc import Mapping
from typing import Any, Final

from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_model.nodes import Address

from regnum_service.access.listener import ListenerLimits
from regnum_service.channel import target
from regnum_service.clock import SystemClock
from regnum_service.connection_limit import ConnectionLimit
from regnum_service.errors import PortTakenError
from regnum_service.listening import make_server
from regnum_service.server import LIVENESS
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor

REQUEST_BYTES_MAX: Final = 4 * 1024
"""The largest request: a question is a name."""

CONNECTIONS_MAX: Final = 32
"""Connections that are kept: who is not asked for a name must not take the process' files."""

LIMITS: Final = ListenerLimits(streams_max=16, idle_s=10.0, age_s=30.0)
"""Of connections: a probe asks once and hangs up. A call that sends nothing, or a byte now and then, is not idle: its
connection goes with its age."""


class ProbeHealth(health_pb2_grpc.HealthServicer):
    """Says how the services of a process are, wherever they listen."""

    def __init__(self, serving: Mapping[str, bool]) -> None:
        """Only assigns; ``serving``: of each service whether it serves."""
        self._serving: Final = serving

    async def Check(  # noqa: N802 - gRPC's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: Any,  # noqa: ARG002
    ) -> health_pb2.HealthCheckResponse:
        """How one service is; one that nobody serves yet does not serve."""
        if request.service:
            serves = request.service == LIVENESS or self._serving.get(request.service, False)
        else:
            known = tuple(self._serving.values())
            serves = bool(known) and all(known)
        return health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING
        )


async def serve_probes(
    told: ServiceSettings, *, supervisor: Supervisor, limits: ListenerLimits = LIMITS
) -> Address | None:
    """Answer probes on ``--health-listen`` until everything else has stopped; returns where, None when told nothing.

    The first thing that a process does on its event loop. ``limits``: of its connections. Raises PortTakenError.
    """
    wanted = told.health_address
    if wanted is None:
        return None
    server = make_server(*limits.options, ("grpc.max_receive_message_length", REQUEST_BYTES_MAX))
    health_pb2_grpc.add_HealthServicer_to_server(ProbeHealth(supervisor.serving), server)
    try:
        port = server.add_insecure_port(target(wanted))
    except RuntimeError as error:
        await server.stop(None)
        raise PortTakenError(
            f"cannot listen on {wanted} (--health-listen): another process has the port, or the host is not this "
            "machine's; stop that process, choose another address, or leave it out"
        ) from error
    await server.start()

    async def close() -> None:
        await server.stop(None)

    limit = ConnectionLimit(CONNECTIONS_MAX, listener="health", port=lambda: port, clock=SystemClock())
    supervisor.start("connections of health", limit.run())
    supervisor.defer("probes", close)
    return Address(host=wanted.host, port=port)
