"""What those that watch the cluster are told: one image, many watchers, each of some topics.

Goals: a watcher hears of a change as soon as this process has it; what is told to many is serialised once; one that
reads slowly costs what its newest change costs, and no more the longer it sleeps; a broker with 500 watchers that dies
does not bring down the one they go to.

Constraints: watchers choose topics, so that a client of one topic is not sent 100,000; no turn of the loop grows with
the number of watchers or with the size of a change (safety rule S22).

Algorithm: nothing is queued. A watcher is a position on the line of versions and a set of names; what it lacks is found
when it can be sent something (``PictureLine.since``), and put together from pieces, one for each topic that changed,
which are serialised when the first watcher wants them and kept until the next version. Starts are rounded, as for
brokers, so that watchers that lag alike share their pieces, and made-up versions cost no more than a few. One that
stands where the line does not reach, or
that has just named a topic, is told the present state; so is one for whose difference there is no room beside those
that others are told and do not read. A change that does not concern a watcher moves its position and
sends nothing; now and then a bare version says that somebody is there.

Example: 500 watchers of the same topic; its leader moves: one piece of some 60 bytes is serialised, 500 times sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakSet

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import types_pb2
from regnum_model.broker_lists import BrokerLists
from regnum_model.ids import NO_EPOCH, NO_LEADER
from regnum_model.picture_line import NO_PICTURE, News, PictureLine, PictureVersion

from regnum_service.cluster_image.held import HeldImage, HeldTopic, to_wire
from regnum_service.cluster_image.watchers import Watcher, Watchers
from regnum_service.slices import Turns, slices

PART_BYTES: Final = 256 * 1024
"""About how large a message may be."""

PIECE_BYTES: Final = 200
"""A piece takes as long to put together as so many bytes more of it would: most are of one partition, and small."""

CHUNK_PARTITIONS: Final = 1_000
"""Partitions of one piece, at most."""

SLICE: Final = 2_000
"""Names indexed, or partitions serialised, between two turns of the event loop."""

WOKEN_PER_TURN: Final = 25
"""Watchers that are woken between two turns of the event loop; each of them then writes."""

WHOLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of whole topics that are kept for the next watcher that asks for them."""

TOLD_NAMES_MAX: Final = 500_000
"""Names that differences hold which somebody is still being told: some 60 MB."""

_RESET: Final = metadata_pb2.WatchMetadataResponse(reset=True).SerializeToString()


class _Delta:
    """What changed between one version and the present one."""

    def __init__(self, image: HeldImage, news: News) -> None:
        self.image: Final = image
        self.news: Final = news
        self.names: Final = news.names
        """How many names it holds."""
        self._named: dict[str, frozenset[int] | None] | None = None
        self._pieces: dict[str, tuple[bytes, ...]] = {}
        self._lock: Final = asyncio.Lock()
        self.serialisations = 0
        self.head: Final = _head(image, news)
        """What it says besides topics."""

    async def named(self) -> Mapping[str, frozenset[int] | None]:
        """Partitions that are news by the name of their topic; None: no topic has the name any more."""
        async with self._lock:
            if self._named is None:
                named: dict[str, frozenset[int] | None] = {}
                turns = Turns(SLICE)
                for id, name in self.news.deleted.items():
                    present = self.image.topics.get(name)
                    if present is None or present.topic_id == id:
                        named[name] = None if present is None else frozenset()
                    await turns.took()
                for id, item in self.news.topics.items():
                    present = self.image.topics.get(item.name)
                    if present is not None and present.topic_id == id:
                        named[item.name] = item.partitions
                    await turns.took()
                self._named = named
        return self._named

    def pieces(self, name: str, numbers: frozenset[int] | None) -> tuple[bytes, ...]:
        """A topic of ``named``, serialised."""
        made = self._pieces.get(name)
        if made is None:
            topic = self.image.topics.get(name)
            if topic is None or numbers is None:
                gone = types_pb2.TopicState(name=name, deleted=True)
                made = (metadata_pb2.WatchMetadataResponse(whole_topics=[gone]).SerializeToString(),)
            else:
                made = tuple(_changed(topic, sorted(numbers)))
            self._pieces[name] = made
            self.serialisations += 1
        return made


class ClusterFeed:
    """Of one process. Belongs to its event loop; ``run`` is its one task."""

    def __init__(
        self,
        held: Callable[[], HeldImage],
        line: PictureLine | None = None,
        *,
        told_names_max: int = TOLD_NAMES_MAX,
    ) -> None:
        """Only assigns.

        Args:
            held: the image as of now.
            line: the image's line of versions, which the owner extends before it says so; None: this keeps one.
            told_names_max: names that differences hold which somebody is still being told.
        """
        self._told_names_max: Final = told_names_max
        self._held: Final = held
        self._line: Final = PictureLine(NO_PICTURE) if line is None else line
        self._extends: Final = line is None
        self._position = NO_PICTURE
        self.watchers: Final = Watchers()
        """Who watches."""
        self._deltas: dict[PictureVersion, _Delta | None] = {}
        """None: there is no room for what changed since."""
        self._told: Final = WeakSet[_Delta]()
        """Those, and the ones of before that somebody is still being told: who does not read keeps what he is told."""
        self._whole: dict[str, tuple[HeldTopic, tuple[bytes, ...]]] = {}
        self._whole_bytes = 0
        self._lists: Final = BrokerLists()
        self._whole_head: tuple[object, PictureVersion, bytes] = (None, NO_PICTURE, b"")
        """Brokers and controller of the newest image that somebody was told as a whole."""
        self._controller: types_pb2.Controller | None = None
        self._due: dict[Watcher, None] = {}
        self._woken: Final = asyncio.Event()
        self._serialisations = 0
        self.sent_bytes = 0
        """Bytes that watchers were told so far."""

    @property
    def serialisations(self) -> int:
        """Topics serialised so far, each as a whole or what changed of it."""
        return self._serialisations + sum(delta.serialisations for delta in self._deltas.values() if delta)

    @property
    def changes_put_together(self) -> int:
        """From how many versions the way to the present one is kept."""
        return len(self._deltas)

    # What the owner of the image says, in the turn in which it changes.

    def replaced(self) -> None:
        """The image is another one, and nothing is known of the difference."""
        image = self._held()
        if self._extends:
            self._line.restart(image.position)
        self._moved(image)
        self._due.update(dict.fromkeys(self.watchers))
        self._woken.set()

    def extended(self, news: News, *, base: int | None = None) -> None:
        """The image changed; see ``PictureLine.extend``."""
        before, image = self._position, self._held()
        if self._extends:
            self._line.extend(image.position, news, base=base)
        controller = self._controller
        self._moved(image)
        if not self.watchers:
            return
        if news.brokers or controller != image.controller or len(news.topics) + len(news.deleted) > SLICE:
            # Of so many topics it takes longer to find out whom they concern than each has to look for himself.
            self._due.update(dict.fromkeys(self.watchers))
        else:
            names = (*(item.name for item in news.topics.values()), *news.deleted.values())
            concerned = self.watchers.of(names)
            for watcher in self.watchers:
                if watcher not in concerned and watcher.is_idle and watcher.position == before:
                    watcher.position = image.position
            self._due.update(concerned)
        self._woken.set()

    def _moved(self, image: HeldImage) -> None:
        self._serialisations += sum(delta.serialisations for delta in self._deltas.values() if delta)
        self._deltas.clear()
        self._controller, self._position = image.controller, image.position

    async def run(self) -> None:
        """Wake watchers, some at a time."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            due, self._due = self._due, {}
            async for part in slices(due, WOKEN_PER_TURN):
                for watcher in part:
                    watcher.wake.set()

    # What a watcher is told.

    async def changes(self, watcher: Watcher, *, beat: bool = False) -> AsyncIterator[bytes]:
        """WatchMetadataResponses that bring a watcher to the present image; none when that is nothing.

        Args:
            watcher: who it is; its position is the present one as soon as this begins.
            beat: say the version also when there is nothing else to say.
        """
        image = self._held()
        if image.position == NO_PICTURE:
            return
        fresh, requests = watcher.taken()
        position, watcher.position = watcher.position, image.position
        if position == image.position:
            named: Mapping[str, frozenset[int] | None] = {}
            delta = None
            told = bool(fresh) or beat
            head = _head(image)
        else:
            delta = self._delta(image, position)
            if delta is None:
                async for message in self._snapshot(image, watcher, requests):
                    yield message
                return
            named = await delta.named()
            if not watcher.all_topics:
                named = {name: named[name] for name in _common(named, watcher.topics) if name not in fresh}
            told = bool(fresh or named or beat or delta.news.brokers or watcher.controller != image.controller)
            head = delta.head
        if not told:
            return
        watcher.controller = image.controller
        pieces = self._pieces(image, delta, named, fresh)
        async for message in _messages(image, head, pieces, requests):
            yield message

    async def _snapshot(self, image: HeldImage, watcher: Watcher, requests: int) -> AsyncIterator[bytes]:
        if self._whole_head[0] is not image.brokers or self._whole_head[1] != image.position:
            self._whole_head = (image.brokers, image.position, self._head_of_all(image))
        head = self._whole_head[2]
        if watcher.all_topics:
            head += _RESET
        watcher.controller = image.controller
        names: Iterable[str] = image.topics if watcher.all_topics else tuple(watcher.topics)
        async for message in _messages(image, head, self._pieces(image, None, {}, names), requests):
            yield message

    def _delta(self, image: HeldImage, position: PictureVersion) -> _Delta | None:
        start = self._line.shared(position)
        if start not in self._deltas:
            news = self._line.since(start)
            if news is None:
                return None
            delta = _Delta(image, news)
            # A large one leaves as much room as it takes: small ones, which are most, are told whoever does not read.
            if 2 * delta.names <= self._told_names_max - sum(other.names for other in self._told):
                self._deltas[start] = delta
                self._told.add(delta)
            else:
                self._deltas[start] = None
        return self._deltas[start]

    def _head_of_all(self, image: HeldImage) -> bytes:
        head = metadata_pb2.WatchMetadataResponse(
            cluster_id=image.cluster_id, controller=image.controller, all_brokers=True, brokers=image.brokers
        )
        head.brokers_digest = self._lists.digest(tuple(image.brokers))
        return head.SerializeToString()

    def _pieces(
        self,
        image: HeldImage,
        delta: _Delta | None,
        named: Mapping[str, frozenset[int] | None],
        whole: Iterable[str],
    ) -> Iterator[bytes]:
        if delta is not None:
            for name, numbers in named.items():
                yield from delta.pieces(name, numbers)
        for name in whole:
            yield from self._whole_pieces(name, image.topics.get(name))

    def _whole_pieces(self, name: str, topic: HeldTopic | None) -> Iterable[bytes]:
        known = self._whole.get(name)
        if topic is None:
            gone = types_pb2.TopicState(name=name, deleted=True)
            return (metadata_pb2.WatchMetadataResponse(whole_topics=[gone]).SerializeToString(),)
        if known is not None and known[0] is topic:
            return known[1]
        pieces = tuple(_entire(topic))
        self._serialisations += 1
        if known is not None:
            self._whole_bytes -= sum(map(len, known[1]))
        self._whole_bytes += sum(map(len, pieces))
        self._whole[name] = (topic, pieces)
        if self._whole_bytes > WHOLE_BYTES_MAX:
            self._whole.clear()
            self._whole_bytes = 0
        return pieces


def _head(image: HeldImage, news: News | None = None) -> bytes:
    """What a change says besides topics."""
    head = metadata_pb2.WatchMetadataResponse(cluster_id=image.cluster_id, controller=image.controller)
    if news is not None and news.brokers:
        live = {broker.id: broker for broker in image.brokers}
        head.brokers.extend(live[id] for id in sorted(news.brokers) if id in live)
        head.removed_brokers.extend(sorted(id for id in news.brokers if id not in live))
    return head.SerializeToString()


def _common(named: Mapping[str, object], watched: Mapping[str, None]) -> Iterator[str]:
    if len(named) < len(watched):
        return (name for name in named if name in watched)
    return (name for name in watched if name in named)


async def _messages(image: HeldImage, head: bytes, pieces: Iterator[bytes], requests: int) -> AsyncIterator[bytes]:
    """Pieces in messages of about the right size, the first of which begins with the head."""
    turns = Turns(PART_BYTES)
    version = to_wire(image.position)
    further = metadata_pb2.WatchMetadataResponse(version=version, more=True, requests_taken=requests)
    waiting = [head]
    size = len(head)
    for piece in pieces:
        if size and size + len(piece) > PART_BYTES:
            yield b"".join((*waiting, further.SerializeToString()))
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
        await turns.took(PIECE_BYTES + len(piece))
    further.more = False
    yield b"".join((*waiting, further.SerializeToString()))


def _changed(topic: HeldTopic, numbers: list[int]) -> Iterator[bytes]:
    """These partitions of a topic."""
    for start in range(0, max(len(numbers), 1), CHUNK_PARTITIONS):
        chosen = numbers[start : start + CHUNK_PARTITIONS]
        states = [topic.partitions.get(number) or _removed(number) for number in chosen]
        state = types_pb2.TopicState(name=topic.name, topic_id=topic.topic_id, partitions=states)
        yield metadata_pb2.WatchMetadataResponse(topics=[state]).SerializeToString()


def _entire(topic: HeldTopic) -> Iterator[bytes]:
    """A topic as a whole: what comes after its first piece adds to that."""
    numbers = sorted(topic.partitions)
    first = [topic.partitions[number] for number in numbers[:CHUNK_PARTITIONS]]
    state = types_pb2.TopicState(name=topic.name, topic_id=topic.topic_id, partitions=first)
    yield metadata_pb2.WatchMetadataResponse(whole_topics=[state]).SerializeToString()
    if len(numbers) > CHUNK_PARTITIONS:
        yield from _changed(topic, numbers[CHUNK_PARTITIONS:])


def _removed(number: int) -> types_pb2.PartitionState:
    """A partition that a topic had once, and has no more."""
    return types_pb2.PartitionState(partition=number, leader=NO_LEADER, leader_epoch=NO_EPOCH, version=-1, removed=True)
