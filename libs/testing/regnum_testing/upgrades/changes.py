"""What an administrator does meanwhile: topics are created, enlarged, changed and deleted, and every answer counts."""

import asyncio
import itertools
from collections.abc import Awaitable, Sequence
from typing import Any, Final

import grpc
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_model.nodes import Address
from regnum_service.channel import Open
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_testing.old_calls import newest_old, of_version, outcomes, path_of

PAUSE_S: Final = 0.5
"""Between two rounds."""


class TopicChanges:
    """One round after the other, until it is stopped."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin: Final = admin
        self._clock: Final = clock
        self.done = 0
        """Calls that succeeded."""
        self.refused: list[str] = []
        """Calls that did not, with the reason; the SDK has tried for as long as it does."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="topic changes")

    async def stop(self) -> None:
        """End after the round that is under way. Raises what it failed with."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def abandon(self) -> None:
        """End at once; does nothing after ``stop``."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            topic = f"changed-{number}"
            await self._tried(f"create {topic}", self._admin.create_topic(topic, partitions=2, replication_factor=2))
            await self._tried(f"enlarge {topic}", self._admin.create_partitions(topic, 3))
            await self._tried(f"delete {topic}", self._admin.delete_topic(topic))
            await self._clock.sleep(PAUSE_S)

    async def _tried(self, what: str, call: Awaitable[object]) -> None:
        try:
            await call
        except RegnumError as error:
            self.refused.append(f"{what}: {error}")
        else:
            self.done += 1


CALL_S: Final = 10.0
"""Deadline of a call that a broker passes on."""


class PassedOnChanges:
    """Topics that are made by way of brokers, in a version that these pass on to the controller (KIP-590)."""

    def __init__(self, brokers: Sequence[str], open_one: Open, clock: Clock) -> None:
        """Only assigns; ``open_one``: how a channel to a broker is opened."""
        self._brokers: Final = [Address.parse(broker) for broker in brokers]
        self._open: Final = open_one
        self._clock: Final = clock
        self.done = 0
        """Calls that succeeded."""
        self.refused: list[str] = []
        """Calls that were refused, with the reason; that a broker is away for a while is none."""
        self.task: Final = asyncio.create_task(self._run(), name="changes through brokers")

    async def _run(self) -> None:
        for number in itertools.count():
            address = self._brokers[number % len(self._brokers)]
            error = await self._create(address, f"passed-on-{number}")
            if error is None:
                self.done += 1
            elif not error.traits.retriable:
                self.refused.append(f"passed-on-{number} through {address}: {error}")
            await self._clock.sleep(PAUSE_S)

    async def _create(self, broker: Address, topic: str) -> RegnumError | None:
        request = admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name=topic, partitions=1, replication_factor=2)]
        )
        data = of_version("CreateTopics", request, newest_old("CreateTopics")).SerializeToString()
        # Another one each time: brokers come back as another release, on the same port.
        channel = self._open(broker)
        try:
            call: Any = channel.unary_unary(path_of("CreateTopics"))
            answer: bytes = await call(data, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error)
        finally:
            await channel.close()
        code: Any
        (code,) = outcomes("CreateTopics", answer)
        return None if not code else RegnumError(code, errors_pb2.ErrorCode.Name(code))
