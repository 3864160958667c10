"""One metadata process on the way of what is published: it gets what it lacks, one call in flight, until it has all.

Where it is, it says itself: asked when it appears, and with every answer. Those that are there when a reign begins that
goes on from another one are taken to have followed that one, and are asked nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from regnum.propagation.v1 import propagation_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import ControllerEpoch, MetadataId
from regnum_model.nodes import Address
from regnum_model.picture_line import PictureVersion
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_telemetry import tracing

from regnum_election.dispatch.answers import RETRY_INTERVAL_S_MAX, pause_after_s, seen_epoch
from regnum_election.publication.delta_log import Journal, Publication
from regnum_election.publication.encodings import Encodings, SharedParts

LAG_WAIT_MS: Final = 500
"""How long a metadata process waits for its brokers before it answers."""


@dataclass(frozen=True, slots=True)
class Failing:
    """That a process takes no changes."""

    since_s: float
    """Monotonic clock at the first failure."""
    because: str
    """Why the last attempt failed."""


class PropagationChannel(Protocol):
    """How one metadata process is reached. Every method raises RegnumError, and is bounded in time."""

    async def publish(self, parts: AsyncIterator[bytes]) -> propagation_pb2.PublishChangesResponse:
        """One change: encoded PublishChangesRequests."""

    async def lag(self, request: propagation_pb2.DescribeLagRequest) -> propagation_pb2.DescribeLagResponse:
        """How far its brokers are."""

    async def close(self) -> None:
        """Hang up."""


class DeathDetector(Protocol):
    """Watches another process."""

    async def wait_dead(self, listener: Address, /) -> object:
        """Return when the process that listens there is proved dead."""


class PublicationListener(Protocol):
    """Who hears what metadata processes answer. Called on the controller's loop; must not block."""

    def superseded(self, seen: ControllerEpoch) -> None:
        """A process knows a later controller epoch."""

    def metadata_process_dead(self, id: MetadataId, creation_id: int) -> None:
        """A process is proved dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataProcess:
    """A live registration."""

    id: MetadataId
    """Its id."""
    creation_id: int
    """Creation id of its node: another one is another life."""
    internal: Address
    """Where it takes changes."""
    client: Address
    """Where clients ask it."""


class Publisher(Protocol):
    """Whose subscriber it is."""

    @property
    def epoch(self) -> ControllerEpoch:
        """Controller epoch."""

    @property
    def journal(self) -> Journal:
        """What was published."""

    @property
    def encodings(self) -> Encodings:
        """Messages, as bytes."""

    @property
    def detector(self) -> DeathDetector | None:
        """Who proves deaths; None when only sessions do."""

    @property
    def listener(self) -> PublicationListener:
        """Who hears of answers."""

    @property
    def clock(self) -> Clock:
        """Source of time."""

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""


class Subscriber:
    """One incarnation of one metadata process."""

    def __init__(
        self,
        process: MetadataProcess,
        channel: PropagationChannel,
        *,
        owner: Publisher,
        expected: PictureVersion | None,
    ) -> None:
        """``expected``: the version that it is taken to have, until it says another one; None: it is asked."""
        self.process: Final = process
        self._channel = channel
        self._owner = owner
        self._wake = asyncio.Event()
        self._position = expected
        self._moved = asyncio.Condition()
        self._failures = 0
        self._failing: Failing | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("publication").bind(metadata=process.id)

    def start(self) -> None:
        """Begin."""
        self._tasks = [self._owner.spawn(f"publish-to-{self.process.id}", self._publish())]
        if self._owner.detector is not None:
            self._tasks.append(
                self._owner.spawn(f"watch-metadata-{self.process.id}", self._detect(self._owner.detector))
            )

    def stop(self) -> None:
        """Stop; what was not acknowledged is dropped."""
        for task in self._tasks:
            end_task(task)

    async def stopped(self) -> None:
        """Return when nothing runs any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def wake(self) -> None:
        """There is a new version."""
        self._wake.set()

    @property
    def behind(self) -> int | None:
        """Versions that it has not acknowledged; None: it is of another reign, or has not said where it is."""
        position = self._position
        if position is None or position.epoch != self._owner.epoch:
            return None
        return max(self._owner.journal.version - position.number, 0)

    @property
    def failing(self) -> Failing | None:
        """Since when nothing reaches it, or it takes nothing; None: it took what was published, as far as is known."""
        return self._failing

    async def lag(self) -> propagation_pb2.DescribeLagResponse | None:
        """What it says of its brokers; None: no answer."""
        try:
            return await self._channel.lag(propagation_pb2.DescribeLagRequest())
        except RegnumError:
            # That there is no answer is the answer; why is in the log, of the publications that fail as this did.
            return None

    async def everywhere(self, version: int) -> None:
        """Return when the brokers that this process serves have a version, or when it cannot be asked."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._has(version))
        request = propagation_pb2.DescribeLagRequest(
            controller_epoch=self._owner.epoch, version=version, wait_ms=LAG_WAIT_MS
        )
        # Who waits goes on by its own time; why it cannot be asked is in the log, of the publications that fail.
        with contextlib.suppress(RegnumError):
            await self._channel.lag(request)

    def _has(self, version: int) -> bool:
        position = self._position
        return position is not None and position.epoch == self._owner.epoch and position.number >= version

    async def _detect(self, detector: DeathDetector) -> None:
        while True:
            await detector.wait_dead(self.process.internal)
            self._owner.listener.metadata_process_dead(self.process.id, self.process.creation_id)
            # Ends with this life of the process, unless the node stays for some reason.
            await self._owner.clock.sleep(RETRY_INTERVAL_S_MAX)

    async def _publish(self) -> None:
        try:
            while True:
                self._wake.clear()
                if self._position is None:
                    await self._ask()
                    continue
                publication = self._owner.journal.next_for(self._position)
                if publication is None:
                    await self._wake.wait()
                else:
                    await self._send(publication)
        finally:
            await self._channel.close()

    async def _send(self, publication: Publication) -> None:
        shared = self._owner.encodings.of(publication)
        try:
            with tracing.within(publication.traceparent):
                response = await self._channel.publish(_parts(shared))
        except RegnumError as error:
            if error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
                self._owner.listener.superseded(seen_epoch(error))
            await self._pause(reason_of(error.code), error.message)
            return
        position = PictureVersion(ControllerEpoch(response.version_epoch), response.version)
        arrived = position == PictureVersion(self._owner.epoch, shared.to_version)
        if not arrived and (position == self._position or publication.from_version == 0):
            self._position = position
            await self._pause("GAP", f"has version {position.number} of epoch {position.epoch}")
            return
        self._succeeded()
        async with self._moved:
            self._position = position
            self._moved.notify_all()

    async def _ask(self) -> None:
        """Which version it has."""
        try:
            answer = await self._channel.lag(propagation_pb2.DescribeLagRequest())
        except RegnumError as error:
            await self._pause(reason_of(error.code), error.message)
        else:
            self._position = PictureVersion(ControllerEpoch(answer.controller_epoch), answer.version)
            self._succeeded()

    def _succeeded(self) -> None:
        if self._failures:
            self._log.info("metadata process answers again", failures=self._failures)
            self._failures, self._failing = 0, None

    async def _pause(self, reason: str, message: str) -> None:
        self._failures += 1
        since_s = self._owner.clock.monotonic() if self._failing is None else self._failing.since_s
        self._failing = Failing(since_s, f"{reason}: {message}")
        if self._failures == 1:
            self._log.warning("change not published, trying again", reason=reason, message=message)
        await self._owner.clock.sleep(pause_after_s(self._failures))


async def _parts(shared: SharedParts) -> AsyncIterator[bytes]:
    number = 0
    while (part := shared.part(number)) is not None:
        yield part
        number += 1
        # The loop has a turn between two parts (safety rule S22).
        await asyncio.sleep(0)
