"""What every broker answers a client that asks for metadata.

Goals: say when the last broker knows something, at little cost to brokers that have the same two processors to work on.

Algorithm: one broker is asked for a few topics until they are right, then for all the others in large pieces. Its
answer has a version, and a version means the same picture everywhere, so the other brokers are only asked for theirs
until it is as new. That is the moment. Afterwards, not timed, the others are asked for everything as well: one that is
wrong in spite of its version moves the moment to when it was right.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import Clock

from regnum_bench.waiting import Deadline

CALL_S: Final = 60.0
"""Deadline of one call, also for everything of a large cluster."""
POLL_S: Final = 0.02
"""Between two looks at a broker that is not there yet."""
FIRST_TOPICS: Final = 10
"""Topics asked for as long as they are wrong."""
MORE_TOPICS: Final = 200
"""Topics asked for in one call afterwards."""

Right = Callable[[types_pb2.TopicState], bool]
"""Whether a topic is as it should be."""
Version = tuple[int, int]
"""Controller epoch and version under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """When every broker knew."""

    at_s: float
    """The moment, on the clock."""
    looked_s: float
    """How much of the time before it was only spent on looking at the rest of the topics, in seconds: the moment is
    too late by this at most, and by POLL_S."""


class Look:
    """Asks brokers. Belongs to one event loop; ``close`` it."""

    def __init__(self, addresses: Mapping[int, Address], clock: Clock, channels: Channels | None = None) -> None:
        self._addresses = dict(addresses)
        self._clock = clock
        self._channels = channels or Channels()

    async def close(self) -> None:
        """Hang up."""
        await self._channels.close()

    async def head(self, broker: int) -> metadata_pb2.GetMetadataResponse | None:
        """Controller, brokers and version; None when it does not answer."""
        return await self._ask(broker, metadata_pb2.GetMetadataRequest(brokers_only=True))

    async def topics(self, broker: int, names: Sequence[str] = ()) -> metadata_pb2.GetMetadataResponse | None:
        """These topics, or all; None when it does not answer."""
        return await self._ask(broker, metadata_pb2.GetMetadataRequest(topics=names))

    async def leaders(self, broker: int) -> dict[tuple[str, int], int]:
        """Leader of every partition as one broker knows it; empty when it does not answer."""
        answer = await self.topics(broker)
        return {
            (item.topic.name, state.partition): state.leader
            for item in (() if answer is None else answer.topics)
            for state in item.topic.partitions
        }

    async def until_right(
        self, brokers: Sequence[int], names: Sequence[str], right: Right, deadline: Deadline
    ) -> Known:
        """Wait until the topics are right at all brokers; raises NotInTimeError."""
        reference, *others = brokers
        begun_s, ended_s, version, _ = await self._verify(reference, names, right, deadline)
        reached = await asyncio.gather(*(self._reach(broker, version, deadline) for broker in others))
        at_s = max([ended_s, *reached])
        for broker in others:
            _, verified_s, _, wrong = await self._verify(broker, names, right, deadline)
            if wrong:
                at_s = max(at_s, verified_s)
        return Known(at_s=at_s, looked_s=ended_s - begun_s)

    async def until_gone(self, brokers: Sequence[int], names: Sequence[str], deadline: Deadline) -> float:
        """Wait until no broker knows any of the topics; the moment. Raises NotInTimeError."""

        def gone(item: metadata_pb2.TopicMetadata) -> bool:
            return item.error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION

        moments = []
        for broker in brokers:
            _, at_s, _, _ = await self._pass(broker, names, gone, deadline)
            moments.append(at_s)
        return max(moments)

    async def _verify(
        self, broker: int, names: Sequence[str], right: Right, deadline: Deadline
    ) -> tuple[float, float, Version, bool]:
        def item_right(item: metadata_pb2.TopicMetadata) -> bool:
            known = item.error_code == errors_pb2.ERROR_CODE_NONE and bool(item.topic.partitions)
            return known and right(item.topic)

        return await self._pass(broker, names, item_right, deadline)

    async def _pass(
        self,
        broker: int,
        names: Sequence[str],
        right: Callable[[metadata_pb2.TopicMetadata], bool],
        deadline: Deadline,
    ) -> tuple[float, float, Version, bool]:
        """When the first topics were right, when the last were, at which version, and whether any was ever wrong."""
        pending = list(names)
        begun_s: float | None = None
        was_wrong, size = False, FIRST_TOPICS
        version = (0, 0)
        while pending:
            asked, rest = pending[:size], pending[size:]
            answer = await self.topics(broker, asked)
            found = {} if answer is None else {item.topic.name: item for item in answer.topics}
            wrong = [name for name in asked if name not in found or not right(found[name])]
            pending = [*wrong, *rest]
            if wrong:
                was_wrong = True
                deadline.check(f"broker {broker}: {len(names) - len(pending):,} of {len(names):,} topics right")
                await self._clock.sleep(POLL_S)
                continue
            if answer is not None:
                version = max(version, (answer.controller.epoch, answer.version))
            size = MORE_TOPICS
            if begun_s is None:
                begun_s = self._clock.monotonic()
        ended_s = self._clock.monotonic()
        return ended_s if begun_s is None else begun_s, ended_s, version, was_wrong

    async def _reach(self, broker: int, version: Version, deadline: Deadline) -> float:
        while True:
            head = await self.head(broker)
            now = (0, 0) if head is None else (head.controller.epoch, head.version)
            if now >= version:
                return self._clock.monotonic()
            deadline.check(f"broker {broker} has version {now}, not {version}")
            await self._clock.sleep(POLL_S)

    async def _ask(
        self, broker: int, request: metadata_pb2.GetMetadataRequest
    ) -> metadata_pb2.GetMetadataResponse | None:
        stub = metadata_pb2_grpc.MetadataServiceStub(self._channels.get(self._addresses[broker]))
        try:
            return await stub.GetMetadata(request, timeout=CALL_S)
        except grpc.aio.AioRpcError:
            return None
