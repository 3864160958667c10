"""A metadata process that only takes what the controller publishes, for tests of the election service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from regnum.propagation.v1 import propagation_pb2
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
        """Highest seen."""
        self.version_epoch = 0
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
        self.version = self.version_epoch = 0

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
                    for state in topic.partitions:
                        if state.removed:
                            del leaders[state.partition]
        return found

    async def publish(self, parts: AsyncIterator[bytes]) -> propagation_pb2.PublishChangesResponse:
        """Take a change as the service does."""
        messages = [propagation_pb2.PublishChangesRequest.FromString(part) async for part in parts]
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
        self.controller_epoch = head.controller_epoch
        own = (self.version_epoch, self.version)
        if own < (head.controller_epoch, head.to_version) and self._joins(head):
            self.messages.extend(messages)
            self.version_epoch, self.version = head.controller_epoch, head.to_version
        return propagation_pb2.PublishChangesResponse(
            controller_epoch=self.controller_epoch, version=self.version, version_epoch=self.version_epoch
        )

    def _joins(self, head: propagation_pb2.PublishChangesRequest) -> bool:
        if head.from_version == 0:
            return True
        if head.base_epoch:
            return self.version_epoch == head.base_epoch and head.from_version <= self.version <= head.base_version
        return self.version_epoch == head.controller_epoch and head.from_version <= self.version

    async def lag(self, _request: propagation_pb2.DescribeLagRequest, /) -> propagation_pb2.DescribeLagResponse:
        """Nobody is behind."""
        if self.dies:
            raise asyncio.CancelledError
        if self.down:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "down")
        return propagation_pb2.DescribeLagResponse(controller_epoch=self.version_epoch, version=self.version)

    async def close(self) -> None:
        """Nothing to do."""
