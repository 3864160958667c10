"""Publishing to the metadata processes: each gets what it lacks, one call in flight, until it has everything.

Processes are found in ``/metadata/ids``. A process whose port refuses is declared dead, so that the others serve its
brokers long before its session ends.

Where a process is, it says itself: asked when it appears, and with every answer. Those that are there when a reign
begins that goes on from another one are taken to have followed that one, and are asked nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from regnum.propagation.v1 import propagation_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NodeFailure, SessionExpired
from regnum_coordination.port import Delete, Store
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, MetadataId, PartitionKey, TopicId
from regnum_model.nodes import Address, MalformedNodeError, MetadataNode
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_service.supervisor import Spawn
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.answers import RETRY_INTERVAL_S_MAX, pause_after_s, seen_epoch
from regnum_election.publication.delta_log import Announcer, Base, Journal, Publication
from regnum_election.publication.encodings import Encodings, SharedParts
from regnum_election.reign.reign import DeposedError
from regnum_election.reign.writing import FencedStore

LAG_WAIT_MS: Final = 500
"""How long a metadata process waits for its brokers before it answers."""


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


class MetadataPublisher:
    """All metadata processes of one reign. Used by the controller's loop only."""

    def __init__(
        self,
        *,
        epoch: ControllerEpoch,
        announcer: Announcer,
        open_channel: Callable[[Address], PropagationChannel],
        detector: DeathDetector | None,
        listener: PublicationListener,
        clock: Clock,
        spawn: Spawn,
        base: Base | None = None,
    ) -> None:
        """``base``: what the first publication joins on to; None: nothing, it is sent whole to everybody."""
        self._epoch = epoch
        self._announcer = announcer
        self._open_channel = open_channel
        self._detector = detector
        self._listener = listener
        self._clock = clock
        self._spawn = spawn
        self._journal = Journal(epoch, base)
        self._encodings = Encodings(self._journal, epoch, self._encoded)
        self._first_look = True
        self._wakes: list[Callable[[], None]] = []
        self._watchers: list[Callable[[Collection[PartitionKey], Collection[TopicId]], None]] = []
        self._processes: dict[MetadataId, Subscriber] = {}
        self._log = structlog.get_logger("publication").bind(epoch=epoch)

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._journal.version

    def release(self) -> None:
        """Forget what is large; after ``close``."""
        self._journal.release()
        self._encodings.release()

    def publish(
        self, picture: Cluster, changed: Iterable[PartitionKey] = (), deleted: Mapping[TopicId, str] | None = None
    ) -> None:
        """The picture is now this; see ``Journal.publish``."""
        keys = tuple(changed)
        self._journal.publish(picture, keys, deleted, traceparent=tracing.current())
        self.changed(keys, deleted or ())
        for subscriber in self._processes.values():
            subscriber.wake()
        for wake in self._wakes:
            wake()

    def changed(self, keys: Collection[PartitionKey], deleted: Collection[TopicId] = ()) -> None:
        """Let those who follow changes of the picture look at these; after the picture is what it is now."""
        for watch in self._watchers if keys or deleted else ():
            watch(keys, deleted)

    def tell_of_changes(self, watch: Callable[[Collection[PartitionKey], Collection[TopicId]], None]) -> None:
        """``watch`` is called with what each publication names: partitions that changed, topics that are gone."""
        self._watchers.append(watch)

    def tell_of_publications(self, wake: Callable[[], None]) -> None:
        """``wake`` is called after each publication."""
        self._wakes.append(wake)

    async def follow(self, store: Store, nodes: FencedStore) -> None:
        """Keep up with who is there; a task that ends with the session."""
        try:
            async with aclosing(store.watch_children(paths.METADATA_IDS)) as changes:
                async for children in changes:
                    found = await nodes.read_many([f"{paths.METADATA_IDS}/{name}" for name in children.names])
                    live: dict[MetadataId, MetadataProcess] = {}
                    for path, node in found.items():
                        process = self._process(path, node.data, node.stat.creation_id)
                        if process is not None:
                            live[process.id] = process
                    self._settle(live)
        except (SessionExpired, DeposedError):
            self._log.info("watch ended with the session", folder=paths.METADATA_IDS)

    def _process(self, path: str, data: bytes, creation_id: int) -> MetadataProcess | None:
        name = path.rpartition("/")[2]
        if not name.isascii() or not name.isdigit() or str(int(name)) != name:
            self._log.error("metadata process ignored", path=path, reason="its name is not an id; delete it")
            return None
        try:
            node = MetadataNode.decode(data)
        except MalformedNodeError as error:
            self._log.error("metadata process ignored", path=path, reason=f"{error}; delete it")
            return None
        return MetadataProcess(id=MetadataId(int(name)), creation_id=creation_id, internal=node.listeners["internal"])

    def _settle(self, live: Mapping[MetadataId, MetadataProcess]) -> None:
        for id, subscriber in tuple(self._processes.items()):
            if live.get(id) != subscriber.process:
                del self._processes[id]
                subscriber.stop()
        added = sorted(live.keys() - self._processes.keys())
        for id in added:
            expected = self._expected if self._first_look else None
            subscriber = Subscriber(live[id], self._open_channel(live[id].internal), owner=self, expected=expected)
            self._processes[id] = subscriber
            subscriber.start()
        self._first_look = False
        self._log.info("metadata processes", live=sorted(self._processes), new=added)

    @property
    def _expected(self) -> PictureVersion:
        base = self._journal.base
        return NO_PICTURE if base is None else base.position

    @property
    def positions(self) -> list[tuple[MetadataId, int | None]]:
        """Versions that each metadata process has not acknowledged; None: not known."""
        return [(id, subscriber.behind) for id, subscriber in sorted(self._processes.items())]

    async def everywhere(self, version: int, wait_s: float) -> None:
        """Return when every live broker has a version as far as its metadata process knows, or after that time."""
        waits = [subscriber.everywhere(version) for subscriber in self._processes.values()]
        try:
            async with asyncio.timeout(wait_s):
                # A process that goes takes its channel along, which cancels the call and not this task.
                ends = await asyncio.gather(*waits, return_exceptions=True)
        except TimeoutError:
            return
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                raise end

    async def close(self) -> None:
        """The reign is over: nothing more is published."""
        subscribers = tuple(self._processes.values())
        self._processes.clear()
        for subscriber in subscribers:
            subscriber.stop()
        for subscriber in subscribers:
            await subscriber.stopped()

    # For Subscriber.

    @property
    def epoch(self) -> ControllerEpoch:
        """Controller epoch."""
        return self._epoch

    @property
    def journal(self) -> Journal:
        """What was published."""
        return self._journal

    @property
    def encodings(self) -> Encodings:
        """Messages, as bytes."""
        return self._encodings

    def _encoded(self, publication: Publication) -> Iterator[bytes]:
        return (part.SerializeToString() for part in self._announcer.parts(publication))

    @property
    def detector(self) -> DeathDetector | None:
        """Who proves deaths; None when only sessions do."""
        return self._detector

    @property
    def listener(self) -> PublicationListener:
        """Who hears of answers."""
        return self._listener

    @property
    def clock(self) -> Clock:
        """Source of time."""
        return self._clock

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        return self._spawn(name, coroutine)


class Subscriber:
    """One incarnation of one metadata process."""

    def __init__(
        self,
        process: MetadataProcess,
        channel: PropagationChannel,
        *,
        owner: MetadataPublisher,
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
            task.cancel()

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

    async def everywhere(self, version: int) -> None:
        """Return when the brokers that this process serves have a version, or when it cannot be asked."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._has(version))
        request = propagation_pb2.DescribeLagRequest(
            controller_epoch=self._owner.epoch, version=version, wait_ms=LAG_WAIT_MS
        )
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
        if self._failures:
            self._log.info("metadata process answers again", failures=self._failures)
            self._failures = 0
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

    async def _pause(self, reason: str, message: str) -> None:
        self._failures += 1
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


async def remove_dead_process(store: FencedStore, id: MetadataId, creation_id: int) -> AsyncGenerator[None, None]:
    """Remove the registration of a dead process; a later one of the same id stays."""
    path = paths.metadata_id(id)
    node = (await store.read_many((path,))).get(path)
    if node is None or node.stat.creation_id != creation_id:
        return
    log = structlog.get_logger("publication")
    try:
        await store.multi((Delete(path, node.stat.version),))
    except NodeFailure as error:
        log.info("metadata process gone by itself", metadata=id, reason=str(error))
    else:
        log.warning("metadata process removed", metadata=id)
    yield
