"""The image of a process as one number, the same wherever the same is held.

Goals: two processes that hold the same say so in 16 bytes; what differs is found without sending everything; a change
costs what it changed and not what exists; nothing is computed on the way of a failover.

Constraints: images are made in different orders, by differences or as a whole, and none may be gone through in one turn
of the loop (safety rule S22). Broker and metadata process hold messages, the controller makes them when they are asked
for, from a picture in which a partition may change before that is published: nothing here remembers an old state, only
sums of what was counted.

Algorithm: each thing has a term, 128 bits of BLAKE2 over its bytes, and a digest is a sum of terms modulo 2^128, so
that their order means nothing and one of them can be taken out. Partitions are summed in chunks of numbers, topics in
SECTIONS sections by their names. A change only notes the chunks that it touched; they are summed anew when somebody
asks, and the section loses what they were and gets what they are. (Sums of hashes do not withstand one who makes up
partitions in order to collide; they are here to find mistakes.)

Example: 200,000 partitions; one leader moves; asked, 256 partitions at most are hashed again.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from regnum.types.v1 import types_pb2
from regnum_model.picture_line import News

from regnum_service.cluster_image.held import HeldImage, HeldTopic
from regnum_service.slices import Turns

SECTIONS: Final = 256
"""Sections of topics."""

CHUNK: Final = 256
"""Partition numbers that are summed together."""

SLICE: Final = 1_000
"""Partitions hashed between two turns of the event loop, about 5 ms; a topic counts as one."""

NOTED_MAX: Final = 20_000
"""Topics that are noted; of more, all are counted anew when somebody asks, which is done in slices. To note a topic is
a microsecond in the turn in which the image changes."""

SIZE: Final = 16
"""Bytes of a digest."""

_MODULUS: Final = 1 << 8 * SIZE
K = TypeVar("K")
V = TypeVar("V")
_NO_CHUNKS: Final[frozenset[int]] = frozenset()


def section_of(topic: str) -> int:
    """In which section a topic stands."""
    return blake2b(topic.encode(), digest_size=1).digest()[0]


def to_bytes(digest: int) -> bytes:
    """A digest as messages carry it."""
    return digest.to_bytes(SIZE, "big")


def partition_term(topic_id: str, state: types_pb2.PartitionState) -> int:
    """What a partition adds to its topic."""
    return _term(b"p", topic_id.encode(), state.SerializeToString(deterministic=True))


def topic_term(topic: HeldTopic) -> int:
    """What a topic adds without its partitions."""
    return _term(b"t", topic.topic_id.encode(), topic.name.encode())


def head_digest(image: HeldImage) -> int:
    """Cluster id, controller and brokers."""
    return _term(
        b"h",
        image.cluster_id.encode(),
        image.controller.SerializeToString(deterministic=True),
        *(broker.SerializeToString(deterministic=True) for broker in image.brokers),
    )


def _term(*parts: bytes) -> int:
    digest = blake2b(digest_size=SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """An image in numbers."""

    image: HeldImage
    """What they are of."""
    head: int
    """Of everything besides topics."""
    sections: tuple[int, ...]
    """Of the sections of topics, in order."""
    topics: Mapping[str, int]
    """Of the topics of those sections that were asked for, by name."""

    @property
    def whole(self) -> int:
        """Of everything."""
        return _term(b"i", to_bytes(self.head), *map(to_bytes, self.sections))


class _Counted:
    """A topic as it was counted."""

    __slots__ = ("chunks", "topic_id", "total")

    def __init__(self, topic: HeldTopic) -> None:
        self.topic_id = topic.topic_id
        self.chunks: dict[int, int] = {}
        """Sums by chunk."""
        self.total = topic_term(topic)
        """The topic with all of them."""


class ImageDigest:
    """Of the newest image of one process. Belongs to its event loop.

    Whoever changes the image notes the change in the same turn.
    """

    def __init__(self, held: Callable[[], HeldImage]) -> None:
        """``held``: the image as of now."""
        self._held: Final = held
        self._lock: Final = asyncio.Lock()
        self._topics: dict[str, _Counted] = {}
        self._sections: list[int] = [0] * SECTIONS
        self._noted: dict[str, set[int]] = {}
        """Chunks that have to be counted anew, by topic."""
        self._begun = False
        """Whether what was counted and what was noted are all there is; otherwise every topic has to be counted."""
        self._asked = 0
        """Questions so far."""
        self._recomputed_for = 0
        """Questions that had been asked when the last computation from nothing began."""
        self.hashed = 0
        """Partitions hashed so far."""

    @property
    def has_begun(self) -> bool:
        """Whether notes are needed: before anybody has asked, and after ``forget``, everything is counted anyway."""
        return self._begun

    def note(self, topic: str, partitions: Iterable[int] = ()) -> None:
        """These partitions of a topic changed, came or went, or the topic did."""
        if not self._begun:
            return
        self._noted.setdefault(topic, set()).update(number // CHUNK for number in partitions)
        if len(self._noted) > NOTED_MAX:
            self.forget()

    def changed(self, news: News) -> None:
        """All that these names name changed, came or went."""
        if not self._begun:
            return
        if len(self._noted) + len(news.topics) + len(news.deleted) > NOTED_MAX:
            self.forget()
            return
        for item in news.topics.values():
            self.note(item.name, item.partitions)
        for name in news.deleted.values():
            self.note(name)

    def forget(self) -> None:
        """Everything may have changed."""
        self._begun = False
        self._noted.clear()

    async def digests(self, *, topics_of: Container[int] = (), recompute: bool = False) -> Digests:
        """Of the image as it is when the computation begins.

        Args:
            topics_of: sections whose topics are wanted one by one.
            recompute: begin from nothing, whatever was noted. Several who ask for that share one computation: the next
                that begins after they have asked.
        """
        self._asked += 1
        asked = self._asked
        async with self._lock:
            begun_with, recompute = self._asked, recompute and self._recomputed_for < asked
            if recompute:
                self.forget()
            image = self._held()
            turns = Turns(SLICE)
            noted: Iterator[tuple[str, Collection[int]]]
            former: dict[str, _Counted] = {}
            if self._begun:
                taken, self._noted = self._noted, {}
                noted = ((name, chunks) for name, chunks in _emptied(taken))
            else:
                former, self._topics, self._sections = self._topics, {}, [0] * SECTIONS
                self._begun = True
                noted = ((name, _NO_CHUNKS) for name in image.topics)
            done = False
            try:
                # Let go of one by one: of all at once it takes 50 ms.
                for _ in _emptied(former):
                    await turns.took()
                for name, chunks in noted:
                    await self._count(name, image.topics.get(name), chunks, turns)
                done = True
                if recompute:
                    self._recomputed_for = begun_with
            finally:
                if not done:
                    # Counted in part, and nobody knows which.
                    self.forget()
            return Digests(
                image=image,
                head=head_digest(image),
                sections=tuple(self._sections),
                topics=await self._one_by_one(topics_of, turns) if topics_of else {},
            )

    async def _count(self, name: str, topic: HeldTopic | None, noted: Collection[int], turns: Turns) -> None:
        section = section_of(name)
        counted = self._topics.pop(name, None)
        if counted is not None:
            self._sections[section] = (self._sections[section] - counted.total) % _MODULUS
        if topic is None:
            await turns.took()
            return
        if counted is None or counted.topic_id != topic.topic_id:
            counted = _Counted(topic)
            noted = {number // CHUNK for number in topic.partitions}
        for chunk in noted:
            total = 0
            for state in _states(topic, chunk):
                total += partition_term(topic.topic_id, state)
                self.hashed += 1
                await turns.took()
            counted.total = (counted.total - counted.chunks.get(chunk, 0) + total) % _MODULUS
            counted.chunks[chunk] = total % _MODULUS
        self._topics[name] = counted
        self._sections[section] = (self._sections[section] + counted.total) % _MODULUS
        await turns.took()

    async def _one_by_one(self, sections: Container[int], turns: Turns) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, counted in self._topics.items():
            if section_of(name) in sections:
                found[name] = counted.total
            await turns.took()
        return found


def _emptied(items: dict[K, V]) -> Iterator[tuple[K, V]]:
    """What a dict holds, which is taken out of it."""
    while items:
        yield items.popitem()


def _states(topic: HeldTopic, chunk: int) -> Iterator[types_pb2.PartitionState]:
    """States of a chunk that are there."""
    partitions = topic.partitions
    first = chunk * CHUNK
    if len(partitions) > CHUNK:
        for number in range(first, first + CHUNK):
            state = partitions.get(number)
            if state is not None:
                yield state
    else:
        for number, state in partitions.items():
            if first <= number < first + CHUNK:
                yield state
