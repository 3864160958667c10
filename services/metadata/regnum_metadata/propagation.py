"""The image of this process and its way to the brokers it serves.

The controller publishes a change; it is applied to the image, serialised once, and each lane sends the same bytes to
its broker. Which brokers have a lane follows from the image (who lives) and from the list of metadata processes (who
serves whom, see ``ownership``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Literal, TypeVar, assert_never

import structlog
from regnum.types.v1 import errors_pb2
from regnum_model.epochs import is_plausible
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataId
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_metadata.image import Change, Image, Verdict
from regnum_metadata.intervals import History, Wanted, after_full
from regnum_metadata.lane import BrokerLane, BrokerStream, Receiver
from regnum_metadata.ownership import owned
from regnum_metadata.payload import Payload, PayloadBuilder, question

T = TypeVar("T")

SENDS_MAX: Final = 64
"""Brokers that are sent to at a time."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a named task that belongs to the service's supervisor."""


class Propagation:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        id: MetadataId,
        open_stream: Callable[[Address], BrokerStream],
        clock: Clock,
        spawn: Spawn,
        believes: Callable[[ControllerEpoch], Awaitable[bool]],
        first_image: Callable[[], None] = lambda: None,
    ) -> None:
        self._id = id
        self._open_stream = open_stream
        self._clock = clock
        self._spawn = spawn
        self._believes = believes
        self._first_image = first_image
        self._builder = PayloadBuilder()
        self._image = Image()
        self._history = History()
        self._highest = ControllerEpoch(0)
        self._processes: frozenset[MetadataId] = frozenset()
        self._lanes: dict[BrokerId, tuple[BrokerLane, asyncio.Task[None]]] = {}
        self._taking = asyncio.Lock()
        self._building = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._slots = asyncio.Semaphore(SENDS_MAX)
        self._log = structlog.get_logger("propagation")

    @property
    def image(self) -> Image:
        """The image as of now."""
        return self._image

    @property
    def highest_epoch(self) -> ControllerEpoch:
        """Highest controller epoch seen."""
        return self._highest

    @property
    def version_for_controller(self) -> int:
        """Version under the highest epoch; 0 when a full image is needed."""
        return self._image.version if self._image.controller_epoch == self._highest else 0

    @property
    def payload_serialisations(self) -> int:
        """Payloads made so far; not a function of the number of brokers."""
        return self._builder.serialisations

    @property
    def lanes(self) -> tuple[BrokerLane, ...]:
        """The brokers that this process serves, by id."""
        return tuple(lane for _, (lane, _) in sorted(self._lanes.items()))

    async def admit(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced or cannot be; remember a newer one. Raises RegnumError."""
        if epoch > self._highest and not await self._believes(epoch):
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"controller epoch {epoch} is far above the one in the store; whoever sent it is no controller",
            )
        self._check(epoch)

    def _check(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced; remember a newer one. Raises RegnumError."""
        if epoch < self._highest:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
                f"controller epoch {epoch} is past; {self._highest} has been seen: resign",
                metadata={"controller_epoch": str(self._highest)},
            )
        self._highest = epoch

    async def take(self, change: Change) -> None:
        """Take a change of the controller, unless it is known or does not join on. Raises RegnumError."""
        async with self._taking:
            self._check(change.controller_epoch)
            match self._image.judge(change):
                case Verdict.APPLIES:
                    await self._apply(change)
                case Verdict.KNOWN:
                    pass
                case Verdict.GAP:
                    self._log.info("change does not join on", from_version=change.from_version, has=self._image.version)
                case Verdict.STALE:
                    raise AssertionError("an image is never of a later epoch than the highest seen")
                case other:
                    assert_never(other)

    async def _apply(self, change: Change) -> None:
        image = await _in_steps(self._image.with_change(change))
        payload = await _in_steps(self._builder.change(image, change))
        history = after_full(payload) if change.is_full else self._history.with_change(payload)
        if not self._image.version:
            self._first_image()
        if change.is_full:
            self._log.info(
                "full image",
                controller_epoch=image.controller_epoch,
                version=image.version,
                topics=len(image.topics),
                bytes=payload.size_bytes,
                parts=len(payload.parts),
            )
        # Nobody sees one without the other: there is no await between them.
        self._image, self._history = image, history
        self._settle_lanes()
        for lane, _ in self._lanes.values():
            lane.wake()
        await self.progressed()

    def processes_are(self, processes: frozenset[MetadataId]) -> None:
        """These metadata processes live now; brokers move accordingly."""
        if processes != self._processes:
            self._log.info("metadata processes", live=sorted(processes))
            self._processes = processes
            self._settle_lanes()

    def _settle_lanes(self) -> None:
        receivers = {receiver.id: receiver for receiver in map(_receiver, self._image.head.brokers)}
        mine = owned(self._id, receivers, self._processes)
        for id, (lane, task) in tuple(self._lanes.items()):
            if id not in mine or receivers[id] != lane.receiver:
                del self._lanes[id]
                task.cancel()
        added = sorted(mine - self._lanes.keys())
        for id in added:
            receiver = receivers[id]
            lane = BrokerLane(
                receiver,
                source=self,
                stream=self._open_stream(receiver.internal),
                slots=self._slots,
                clock=self._clock,
            )
            lane.wake()
            self._lanes[id] = (lane, self._spawn(f"metadata-to-broker-{id}", lane.run()))
        if added:
            self._log.info("serving brokers", all=sorted(self._lanes), new=added)

    async def reached(self, epoch: ControllerEpoch, version: int, wait_s: float) -> None:
        """Return when every broker served here has a version, when the epoch is over, or after that time."""

        def holds() -> bool:
            if self._image.controller_epoch != epoch or self._highest > epoch:
                return self._highest > epoch
            return self._image.version >= version and all(lane.acknowledged >= version for lane in self.lanes)

        try:
            async with asyncio.timeout(wait_s), self._moved:
                await self._moved.wait_for(holds)
        except TimeoutError:
            return

    # What lanes ask for (Source).

    @property
    def epoch(self) -> ControllerEpoch:
        """Controller epoch of the image."""
        return self._image.controller_epoch

    @property
    def version(self) -> int:
        """Version of the image."""
        return self._image.version

    def question(self) -> Payload:
        """Changes nothing; the answer says the broker's version."""
        return question(self._image)

    async def next_for(self, receiver: Receiver, epoch: ControllerEpoch, version: int) -> Payload | None:
        """What a broker needs next; a full picture is made once, whoever needs it."""
        answer = self._history.next_for(receiver.epoch, epoch, version)
        if answer is not Wanted.FULL:
            return answer
        async with self._building:
            while True:
                # Another lane may have had it made meanwhile; a later change may have outdated it.
                again: Payload | Literal[Wanted.FULL] | None = self._history.next_for(receiver.epoch, epoch, version)
                if again is not Wanted.FULL:
                    return again
                full = await _in_steps(self._builder.full(self._image))
                self._history = self._history.with_full(full)

    def seen(self, epoch: ControllerEpoch) -> None:
        """A broker knows a later controller epoch: the next change of an earlier one is refused."""
        if is_plausible(epoch, self._image.controller_epoch):
            self._highest = max(self._highest, epoch)

    async def progressed(self) -> None:
        """A broker acknowledged something, or there is something to acknowledge."""
        async with self._moved:
            self._moved.notify_all()


async def _in_steps(steps: Generator[None, None, T]) -> T:
    """Carry out work that pauses now and then; the event loop has a turn at each pause (safety rule S22)."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)


def _receiver(broker: Any) -> Receiver:
    return Receiver(
        id=BrokerId(broker.id),
        epoch=BrokerEpoch(broker.epoch),
        internal=Address(host=broker.internal.host, port=broker.internal.port),
    )
