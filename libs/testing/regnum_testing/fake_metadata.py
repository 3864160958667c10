"""A metadata process that only takes what the controller publishes, for tests of the election service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from regnum.metadata.v1 import propagation_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.membership import Membership
from regnum_model import paths
from regnum_model.ids import MetadataId
from regnum_model.nodes import Address, MetadataNode
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError


class FakeMetadata:
    """A registration, and what was published to it. Is its own PropagationChannel."""

    def __init__(self, server: MemoryServer, clock: Clock, id: int = 1) -> None:
        self.id: Final = MetadataId(id)
        self.address: Final = Address(host="127.0.0.1", port=30_000 + id)
        self.store: Final = MemoryStore(server)
        self._clock: Final = clock
        self.messages: list[propagation_pb2.PublishChangesRequest] = []
        self.calls = 0
        self.controller_epoch = 0
        self.version = 0
        self.down = False
        self.creation_id = 0
        self.dies = False
        """Whether questions are cancelled, as they are when the process goes and its channel is closed."""

    async def register(self) -> None:
        """Make its node (anew)."""
        membership = Membership(
            self.store,
            self._clock,
            path=paths.metadata_id(self.id),
            encode=lambda _: MetadataNode(
                incarnation="one", listeners={"client": self.address, "internal": self.address}
            ).encode(),
            is_predecessor=lambda _: True,
            patience_s=0.0,
        )
        self.creation_id = (await membership.join()).creation_id

    def forget(self) -> None:
        """As after a restart: no image."""
        self.version = 0

    @property
    def topics(self) -> dict[str, dict[int, int]]:
        """Leaders by topic and partition, as published."""
        found: dict[str, dict[int, int]] = {}
        for message in self.messages:
            if message.from_version == 0 and message.part == 0:
                found = {}
            for topic in message.topics:
                if topic.deleted:
                    found.pop(topic.name, None)
                else:
                    leaders = found.setdefault(topic.name, {})
                    leaders.update((state.partition, state.leader) for state in topic.partitions)
        return found

    async def publish(
        self, parts: AsyncIterator[propagation_pb2.PublishChangesRequest]
    ) -> propagation_pb2.PublishChangesResponse:
        """Take a change as the service does."""
        messages = [part async for part in parts]
        self.calls += 1
        if self.down:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "down")
        head = messages[0]
        if head.controller_epoch < self.controller_epoch:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
                "stale",
                metadata={"controller_epoch": str(self.controller_epoch)},
            )
        own = self.version if head.controller_epoch == self.controller_epoch else 0
        self.controller_epoch, self.version = head.controller_epoch, own
        if own < head.to_version and (head.from_version == 0 or 0 < own >= head.from_version):
            self.messages.extend(messages)
            self.version = head.to_version
        return propagation_pb2.PublishChangesResponse(controller_epoch=self.controller_epoch, version=self.version)

    async def lag(self, request: propagation_pb2.DescribeLagRequest) -> propagation_pb2.DescribeLagResponse:
        """Nobody is behind."""
        if self.dies:
            raise asyncio.CancelledError
        return propagation_pb2.DescribeLagResponse(controller_epoch=request.controller_epoch, version=self.version)

    async def close(self) -> None:
        """Nothing to do."""
