"""The internal topic of groups: its name, which partition has which group, and how it comes to be.

Goals: a group has one coordinator, whoever is asked; a storm of first calls creates the topic once.

Algorithm: Kafka's: Java's hash of the group's name, modulo the number of partitions. That number is a setting, and the
topic as metadata shows it must have exactly so many: where it has not (partitions were added, or a broker was told
something else, or not all of them are known here yet) nobody coordinates, because two brokers might both believe that
they do. The topic is asked of the controller by the first call that needs it, on the internal listener, where the
cluster itself is charged and not the client; all calls of a broker that come meanwhile wait for that one.
"""

import asyncio
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_broker.cluster.controller import CALL_TIMEOUT_S, ControllerCalls
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

CREATION_TIMEOUT_S: Final = 10.0
"""How long a caller waits for the topic."""

LOOK_S: Final = 0.05
"""Pause between two looks whether metadata knows the topic."""


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java: over UTF-16 units, a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def partition_of(group_id: str, partitions: int) -> int:
    """The partition that has a group."""
    return (java_hash(group_id) & 0x7FFFFFFF) % partitions


class OffsetsTopic:
    """The topic as this broker knows it. Belongs to the event loop."""

    def __init__(
        self,
        *,
        broker: BrokerId,
        partitions: int,
        cache: MetadataCache,
        fence: Fence,
        calls: ControllerCalls,
        clock: Clock,
    ) -> None:
        """Only assigns; ``partitions``: how many the topic has."""
        self._broker: Final = broker
        self.partitions: Final = partitions
        """How many it has."""
        self._cache: Final = cache
        self._fence: Final = fence
        self._calls: Final = calls
        self._clock: Final = clock
        self._creating: Final = asyncio.Lock()

    @property
    def view(self) -> TopicView | None:
        """The topic, all of it; None: it is not known here, or not as it has to be."""
        view = self._cache.topics.get(OFFSETS_TOPIC)
        return view if view is not None and len(view.partitions) == self.partitions else None

    def refusal(self) -> RegnumError:
        """Why there is no view."""
        view = self._cache.topics.get(OFFSETS_TOPIC)
        if view is None:
            return RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
                f"{OFFSETS_TOPIC} does not exist yet, or this broker has not heard of it; call FindCoordinator again",
            )
        return RegnumError(
            errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
            f"this broker knows {len(view.partitions)} partitions of {OFFSETS_TOPIC} and was told of {self.partitions}"
            " (offsets-topic-partitions): groups would change their coordinators; the setting has to fit the topic",
        )

    async def ensure(self, *, wait_s: float) -> TopicView:
        """The topic; created if there is none. Raises RegnumError when there is none in time."""
        deadline_s = self._clock.monotonic() + min(wait_s, CREATION_TIMEOUT_S)
        if OFFSETS_TOPIC not in self._cache.topics:
            async with self._creating:
                if OFFSETS_TOPIC not in self._cache.topics:
                    await self._create(max(deadline_s - self._clock.monotonic(), 0.0))
                    await self._heard_of(deadline_s)
        while (view := self.view) is None:
            if self._clock.monotonic() >= deadline_s:
                raise self.refusal()
            await self._clock.sleep(LOOK_S)
        return view

    async def _heard_of(self, deadline_s: float) -> None:
        # Within the lock: those that wait for it must not ask for the topic again before metadata shows it.
        while OFFSETS_TOPIC not in self._cache.topics and self._clock.monotonic() < deadline_s:
            await self._clock.sleep(LOOK_S)

    async def _create(self, timeout_s: float) -> None:
        identity = self._fence.identity
        if identity is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, "this broker is not registered; ask another one"
            )
        request = controller_pb2.CreateOffsetsTopicRequest(
            broker_id=self._broker, broker_epoch=identity.broker_epoch, partitions=self.partitions
        )
        try:
            answer = await self._calls.call(
                lambda stub: stub.CreateOffsetsTopic(request, timeout=CALL_TIMEOUT_S), timeout_s=timeout_s
            )
        except RegnumError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} was not created: {error}"
            ) from error
        if answer.error_code not in {errors_pb2.ERROR_CODE_NONE, errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS}:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
                f"{OFFSETS_TOPIC} was not created: {answer.error_message}",
            )
