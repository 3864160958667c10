"""A process that stands by, without its process: it follows a controller of ``reigning.FakeCluster``."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer
from regnum_coordination.drivers.memory.server import Transaction
from regnum_coordination.port import Create, OperationResult, Outcome, Set, Written
from regnum_election.controller import Controller
from regnum_election.standby.follower import Follower
from regnum_model.ids import ControllerEpoch, PartitionKey
from regnum_model.nodes import Address, LeaderAndIsr
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

CONTROLLER: Final = Address(host="127.0.0.1", port=9001)
"""Where the controller listens, whoever it is."""


class RecordingServer(MemoryServer):
    """A memory store that keeps every state that a partition ever had."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[PartitionKey, dict[int, LeaderAndIsr]] = {}
        """By partition and version of its node."""
        self.transactions = 0
        """Transactions that wrote something."""

    def carry_out(self, transaction: Transaction) -> tuple[Outcome, ...]:
        """As the store does, and write down what became of leaderAndISR nodes."""
        outcomes = super().carry_out(transaction)
        self.transactions += any(isinstance(outcome, Written) for outcome in outcomes)
        for group, outcome in zip(transaction.groups, outcomes, strict=True):
            if not isinstance(outcome, Written):
                continue
            for operation, result in zip(group, outcome.results, strict=True):
                if isinstance(operation, Create | Set) and operation.path.endswith("/leaderAndISR"):
                    self._note(operation, result)
        return outcomes

    def _note(self, operation: Create | Set, result: OperationResult) -> None:
        if result.stat is not None:
            state = LeaderAndIsr.decode(operation.data)
            key = PartitionKey(state.topic_id, int(operation.path.split("/")[-2]))
            self.states.setdefault(key, {})[result.stat.version] = state

    def newest(self) -> dict[PartitionKey, int]:
        """The newest version of every partition that ever was."""
        return {key: max(versions) for key, versions in self.states.items()}


class FakeStandby:
    """A follower, and a line to the controller that can be held up or cut."""

    def __init__(self, controller: Callable[[], Controller | None], clock: Clock) -> None:
        """``controller``: who reigns now; None: nobody."""
        self._controller = controller
        self._open = asyncio.Event()
        self._open.set()
        self._streams: set[asyncio.Task[object]] = set()
        self.follower = Follower(open_stream=self._stream, clock=clock)
        self.streams = 0
        """How often the controller was asked for its picture."""
        self.parts = 0
        """Parts that came."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow."""
        self.follower.heard_of(CONTROLLER)
        self._task = asyncio.create_task(self.follower.run(), name="standby")

    def hold(self) -> None:
        """From now on nothing comes through, and nothing breaks either."""
        self._open.clear()

    def release(self) -> None:
        """What was held up comes through."""
        self._open.set()

    def has_all(self) -> bool:
        """Whether it holds what its controller last published."""
        controller, held = self._controller(), self.follower.followed
        return controller is not None and (held.epoch, held.version) == (
            controller.reign.epoch,
            controller.published_version,
        )

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    @asynccontextmanager
    async def _stream(
        self, address: Address, epoch: ControllerEpoch, version: int
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        controller = self._controller()
        self.streams += 1

        async def parts() -> AsyncIterator[bytes]:
            if controller is None:
                raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, f"nobody reigns at {address}")
            await controller.wait_ready()
            async with aclosing(controller.standbys.follow(epoch, version)) as source:
                async for part in source:
                    await self._open.wait()
                    self.parts += 1
                    yield part

        async with aclosing(parts()) as coming:  # type: ignore[type-var]
            yield coming
