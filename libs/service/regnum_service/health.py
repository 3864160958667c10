"""grpc.health.v1, whole: Check, List and Watch.

The library's servicer leaves List out, and holds a lock while it writes to a watcher, so that one who does not read
keeps the whole process from saying how it is. Here nobody waits for a watcher.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Status = int
"""SERVING, NOT_SERVING; SERVICE_UNKNOWN only for a watcher of a service that is not here."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


_newest: Final[Any] = health_pb2
"""The stubs of the package are older than List."""


class Health(health_pb2_grpc.HealthServicer):
    """What each service of a listener says of itself. Belongs to the event loop of its server."""

    def __init__(self) -> None:
        self._statuses: Final[dict[str, Status]] = {}
        self._changed = asyncio.Event()

    def set(self, service: str, status: Status) -> None:
        """Say how a service is; the empty name is the server as a whole. Watchers hear of it, each at its own pace."""
        self._statuses[service] = status
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """How one service is; NOT_FOUND for one that is not here."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here; Health/List names all")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(  # noqa: N802 - gRPC's name
        self,
        request: Any,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> Any:
        """How all services are."""
        return _newest.HealthListResponse(
            statuses={name: health_pb2.HealthCheckResponse(status=status) for name, status in self._statuses.items()}
        )

    async def Watch(  # noqa: N802 - gRPC's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """How one service is, now and after each change; a watcher that is slow hears the newest only."""
        told: Status | None = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()
