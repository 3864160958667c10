"""What every kind of administration has in common: a connection to the cluster, and the search for the controller."""

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.tls.files import TlsFiles

from regnum_client.admin.carrying.repeating import mutation_id
from regnum_client.admin.carrying.topic_mutation import CALL_S_MAX
from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.controller_search import ControllerSearch
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.security.channels import channels_to
from regnum_client.errors import ClientClosedError
from regnum_client.tasks import Closing, Tasks


class AdminSession:
    """An open connection to a cluster. ``start`` or ``async with`` opens it."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        timeout_s: float = 30.0,
        client_id: str = "regnum-admin",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._bootstrap: Final = bootstrap
        self._timeout_s: Final = timeout_s
        self._client_id: Final = client_id
        self._clock: Final[Clock] = clock or SystemClock()
        self._chance: Final = chance or random.Random()
        self._connections: Final = Connections(channels or channels_to(bootstrap, tls))
        self._tasks = Tasks("admin client")
        self._metadata: Metadata | None = None
        self._closing: Final = Closing()

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers in time."""
        self._tasks = Tasks("admin client")
        metadata = Metadata(
            bootstrap_addresses(self._bootstrap),
            self._connections,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            tasks=self._tasks,
        )
        await metadata.start(timeout_s=self._timeout_s)
        self._metadata = metadata

    async def close(self) -> None:
        """Close the connections, also for one who is cancelled and does not wait for that."""
        await self._closing.ended(self._tear_down)

    async def _tear_down(self) -> None:
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            async with AsyncExitStack() as steps:
                steps.push_async_callback(self._connections.close)
                await metadata.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> Metadata:
        if self._metadata is None:
            raise ClientClosedError("admin client")
        self._tasks.check()
        return self._metadata

    def _mutation_id(self) -> str:
        """One that nothing else has: of one change, the same in every repeat of it (safety rule S20)."""
        return mutation_id(self._chance)

    def _search(self, timeout_s: float | None = None) -> ControllerSearch:
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        return ControllerSearch(self._open(), clock=self._clock, chance=self._chance, timeout_s=wait_s)


def call_s(search: ControllerSearch) -> float:
    """Time-out of the next call, seconds: what is left, and no more than one call may take."""
    return max(0.001, min(search.left_s, CALL_S_MAX))
