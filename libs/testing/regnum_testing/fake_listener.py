"""Processes of a fake cluster: one listener each."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import grpc
from regnum_model.nodes import Address
from regnum_service.interceptor import ErrorInterceptor
from regnum_service.listening import make_server

from regnum_testing.ports import unused_port

if TYPE_CHECKING:
    from regnum_testing.fake_cluster import FakeCluster


class FakeMember(ABC):
    """A process with one listener."""

    def __init__(self, cluster: "FakeCluster", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.address = Address(host="127.0.0.1", port=unused_port())
        self.server: grpc.aio.Server | None = None

    @abstractmethod
    def register(self, server: grpc.aio.Server) -> None:
        """Add the services."""

    async def start(self) -> None:
        """Listen."""

        def failed(what: str, error: BaseException) -> None:
            self.cluster.failures.append((what, error))

        self.server = make_server(interceptors=(ErrorInterceptor(failed),))
        self.register(self.server)
        self.server.add_insecure_port(str(self.address))
        await self.server.start()

    async def stop(self) -> None:
        """As kill -9 looks from outside: calls under way end without an answer, the port refuses."""
        if self.server is not None:
            server, self.server = self.server, None
            await server.stop(0)
