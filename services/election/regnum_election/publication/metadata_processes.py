"""Publishing to the metadata processes: each gets what it lacks, one call in flight, until it has everything.

Processes are found in ``/metadata/ids``. A process whose port refuses is declared dead, so that the others serve its
brokers long before its session ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import structlog
from regnum.propagation.v1 import propagation_pb2
from regnum_coordination.errors import NodeFailure, SessionExpired
from regnum_coordination.port import Delete, Store
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, MetadataId, PartitionKey, TopicId
from regnum_model.nodes import MalformedNodeError, MetadataNode
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.clock import Clock
from regnum_service.cluster_image.digest import ImageDigest
from regnum_service.cluster_image.held import HeldImage
from regnum_service.supervisor import Spawn
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.control_requests import broker_message
from regnum_election.publication.delta_log import Announcer, Base, Journal, Publication
from regnum_election.publication.encodings import Encodings
from regnum_election.publication.published import PublishedTopics
from regnum_election.publication.subscriber import (
    DeathDetector,
    MetadataProcess,
    PropagationChannel,
    PublicationListener,
    Subscriber,
)
from regnum_election.publication.waking import Waking
from regnum_election.reign.reign import DeposedError
from regnum_election.reign.writing import FencedStore


class MetadataPublisher:
    """All metadata processes of one reign. Used by the controller's loop only."""

    def __init__(
        self,
        *,
        epoch: ControllerEpoch,
        announcer: Announcer,
        open_channel: Callable[[MetadataProcess], PropagationChannel],
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
        self.digest: Final = ImageDigest(lambda: self.held)
        """What was published, as a number."""
        self._first_look = True
        self._wakes: list[Callable[[], None]] = []
        self._waking: Final = Waking(self._wake_all, clock=clock, spawn=spawn)
        self._watchers: list[Callable[[Collection[PartitionKey], Collection[TopicId]], None]] = []
        self._processes: dict[MetadataId, Subscriber] = {}
        self._log = structlog.get_logger("publication").bind(epoch=epoch)

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._journal.version

    @property
    def held(self) -> HeldImage:
        """What was published last, as those hold it that have taken it."""
        journal, announcer = self._journal, self._announcer
        brokers = journal.picture.brokers
        return HeldImage(
            position=journal.head,
            cluster_id=announcer.cluster_id,
            controller=announcer.controller,
            brokers=[broker_message(brokers[id]) for id in sorted(brokers)],
            topics=PublishedTopics(journal.picture),
        )

    def release(self) -> None:
        """Forget what is large; after ``close``."""
        self.digest.forget()
        self._journal.release()
        self._encodings.release()

    def publish(
        self,
        picture: Cluster,
        changed: Iterable[PartitionKey] = (),
        deleted: Mapping[TopicId, str] | None = None,
        *,
        can_wait: bool = False,
    ) -> None:
        """The picture is now this; see ``Journal.publish``.

        Args:
            picture: the whole picture.
            changed: partitions whose state or existence is news.
            deleted: names of topics that are gone.
            can_wait: whether it may be sent some tenths of a second later, with other news.
        """
        keys = tuple(changed)
        self._journal.publish(picture, keys, deleted, traceparent=tracing.current())
        self._note(picture, keys, deleted or {})
        self.changed(keys, deleted or ())
        if can_wait:
            self._waking.soon()
        else:
            self._waking.at_once()

    def send_what_waits(self) -> None:
        """Have it sent as it was published, before another picture is.

        Else a name that waits would bring along whatever its partition's state is by then.
        """
        self._waking.hurry()

    def _wake_all(self) -> None:
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
        """``wake`` is called when there are publications to send."""
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
        id = paths.id_named(path.rpartition("/")[2])
        if id is None:
            self._log.error("metadata process ignored", path=path, reason="its name is not an id; delete it")
            return None
        try:
            node = MetadataNode.decode(data)
        except MalformedNodeError as error:
            self._log.error("metadata process ignored", path=path, reason=f"{error}; delete it")
            return None
        return MetadataProcess(
            id=MetadataId(id),
            creation_id=creation_id,
            internal=node.listeners["internal"],
            client=node.listeners["client"],
        )

    def _settle(self, live: Mapping[MetadataId, MetadataProcess]) -> None:
        for id, subscriber in tuple(self._processes.items()):
            if live.get(id) != subscriber.process:
                del self._processes[id]
                subscriber.stop()
        added = sorted(live.keys() - self._processes.keys())
        for id in added:
            expected = self._expected if self._first_look else None
            subscriber = Subscriber(live[id], self._open_channel(live[id]), owner=self, expected=expected)
            self._processes[id] = subscriber
            subscriber.start()
        self._first_look = False
        self._log.info("metadata processes", live=sorted(self._processes), new=added)

    def _note(self, picture: Cluster, changed: Iterable[PartitionKey], deleted: Mapping[TopicId, str]) -> None:
        for key in changed:
            if not self.digest.has_begun:
                # Nobody has asked yet, or these are too many to be noted one by one.
                return
            topic = picture.topics.get(key.topic_id)
            if topic is not None:
                self.digest.note(topic.name, (key.partition,))
        for name in deleted.values():
            self.digest.note(name)

    @property
    def _expected(self) -> PictureVersion:
        base = self._journal.base
        return NO_PICTURE if base is None else base.position

    @property
    def positions(self) -> list[tuple[MetadataId, int | None]]:
        """Versions that each metadata process has not acknowledged; None: not known."""
        return [(id, subscriber.behind) for id, subscriber in sorted(self._processes.items())]

    def failing(self, before_s: float) -> dict[MetadataId, str]:
        """Processes that have taken no changes since before that time (monotonic clock), and why, by id."""
        found = ((id, subscriber.failing) for id, subscriber in sorted(self._processes.items()))
        return {id: one.because for id, one in found if one is not None and one.since_s <= before_s}

    async def lags(self) -> list[tuple[MetadataProcess, int | None, propagation_pb2.DescribeLagResponse | None]]:
        """Each process: how far it is behind, as ``positions``, and what it says of its brokers; None: no answer."""
        subscribers = [subscriber for _, subscriber in sorted(self._processes.items())]
        answers = await asyncio.gather(*(subscriber.lag() for subscriber in subscribers))
        return [(one.process, one.behind, answer) for one, answer in zip(subscribers, answers, strict=True)]

    async def everywhere(self, version: int, wait_s: float) -> None:
        """Return when every live broker has a version as far as its metadata process knows, or after that time."""
        self._waking.at_once()
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
        await self._waking.close()
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
