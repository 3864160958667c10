"""The internal topics of groups and of transactions: which partition has which of them, and how a topic comes to be.

Goals: a group has one coordinator, whoever is asked; a storm of first calls creates the topic once.

Algorithm: Kafka's: Java's hash of the group's name, modulo the number of partitions. That number is a setting, and the
topic as metadata shows it must have exactly so many: where it has not (partitions were added, or a broker was told
something else, or not all of them are known here yet) nobody coordinates, because two brokers might both believe that
they do. The topic is asked of the controller by the first call that needs it, on the internal listener, where the
cluster itself is charged and not the client; but it is the client who must have the right to look for that coordinator,
and who stands in the audit log (KIP-590). Calls of a broker that come meanwhile wait for that one, each for its own
time; when it fails, the next of them asks.
"""

import asyncio
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.access.authorization import FAILED
from regnum_service.access.identity import caller
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_broker.cluster.controller import CALL_TIMEOUT_S, ControllerCalls
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.original_caller import original_caller
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


FORBIDDEN: Final = frozenset(FAILED.values())
"""What the controller answers where the client has not the right."""

OFFSETS_SETTING: Final = "offsets-topic-partitions"
"""The flag that says how many partitions the topic of groups has."""


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
        name: str = OFFSETS_TOPIC,
        setting: str = OFFSETS_SETTING,
    ) -> None:
        """Only assigns.

        Args:
            broker: this one.
            partitions: how many the topic has.
            cache: what is known of the cluster.
            fence: knows the broker's registration.
            calls: to the controller, which makes the topic.
            clock: source of time.
            name: of the topic.
            setting: the flag that says how many partitions it has.
        """
        self._name: Final = name
        self._setting: Final = setting
        self._broker: Final = broker
        self.partitions: Final = partitions
        """How many it has."""
        self._cache: Final = cache
        self._fence: Final = fence
        self._calls: Final = calls
        self._clock: Final = clock
        self._creating: asyncio.Future[None] | None = None
        """Done when the call that has it created has ended, however it did; None: nobody has."""

    @property
    def view(self) -> TopicView | None:
        """The topic, all of it; None: it is not known here, or not as it has to be."""
        view = self._cache.topics.get(self._name)
        return view if view is not None and len(view.partitions) == self.partitions else None

    def refusal(self) -> RegnumError:
        """Why there is no view."""
        view = self._cache.topics.get(self._name)
        if view is None:
            return RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
                f"{self._name} does not exist yet, or this broker has not heard of it; call FindCoordinator again",
            )
        return RegnumError(
            errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
            f"this broker knows {len(view.partitions)} partitions of {self._name} and was told of {self.partitions}"
            f" ({self._setting}): coordinators would change; the setting has to fit the topic",
        )

    async def ensure(self, *, key: str = "", wait_s: float) -> TopicView:
        """The topic; created if there is none, for whoever ``identity.caller()`` is.

        Args:
            key: the group, or transactional id, that is looked for.
            wait_s: how long the caller waits.

        Raises:
            RegnumError: there is none in time, or the caller may not look for that coordinator.
        """
        deadline_s = self._clock.monotonic() + min(wait_s, CREATION_TIMEOUT_S)
        while self._name not in self._cache.topics and self._clock.monotonic() < deadline_s:
            if self._creating is None:
                await self._have_it_created(key, deadline_s)
            else:
                await self._until_ended(self._creating, deadline_s)
        while (view := self.view) is None:
            if self._clock.monotonic() >= deadline_s:
                raise self.refusal()
            await self._clock.sleep(LOOK_S)
        return view

    async def _until_ended(self, creating: "asyncio.Future[None]", deadline_s: float) -> None:
        late = asyncio.ensure_future(self._clock.sleep(deadline_s - self._clock.monotonic()))
        try:
            await asyncio.wait((creating, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            late.cancel()

    async def _have_it_created(self, key: str, deadline_s: float) -> None:
        ended = self._creating = asyncio.get_running_loop().create_future()
        try:
            await self._create(key, max(deadline_s - self._clock.monotonic(), 0.0))
            # Those that wait must not ask for the topic again before metadata shows it.
            while self._name not in self._cache.topics and self._clock.monotonic() < deadline_s:
                await self._clock.sleep(LOOK_S)
        finally:
            self._creating = None
            ended.set_result(None)

    async def _create(self, key: str, timeout_s: float) -> None:
        identity = self._fence.identity
        if identity is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, "this broker is not registered; ask another one"
            )
        request = controller_pb2.CreateOffsetsTopicRequest(
            broker_id=self._broker,
            broker_epoch=identity.broker_epoch,
            partitions=self.partitions,
            caller=original_caller(caller()),
            topic=self._name,
            key=key,
        )
        try:
            answer = await self._calls.call(
                lambda stub: stub.CreateOffsetsTopic(request, timeout=CALL_TIMEOUT_S), timeout_s=timeout_s
            )
        except RegnumError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, f"{self._name} was not created: {error}"
            ) from error
        if answer.error_code in FORBIDDEN:
            raise RegnumError(answer.error_code, answer.error_message)
        if answer.error_code not in {errors_pb2.ERROR_CODE_NONE, errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS}:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
                f"{self._name} was not created: {answer.error_message}",
            )
