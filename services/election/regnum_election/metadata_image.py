"""What UpdateMetadata carries: one image of the cluster, serialised once for all brokers.

Goals: a change is serialised once, whatever the number of brokers; a broker that missed something gets exactly what
it missed, and only one that missed too much gets everything; nothing is skipped.

Constraints: a payload is an interval (from, to] of versions within one controller epoch with absolute values (safety
rule S17); the brokers in it and max_broker_epoch come from one picture (safety rule S18).

Algorithm: each published change gets the next version and is kept as bytes, up to a limit. The full picture is put
together from bytes kept for each topic, since serialised protobuf messages concatenate; a head with the part's number
goes in front of each part.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.broker.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_model.ids import PartitionKey, TopicId
from regnum_model.nodes import Address

from regnum_election.cluster import Cluster, Topic
from regnum_election.orders import broker_message, endpoint, partition_state
from regnum_election.reign import Reign

PART_BYTES: Final = 256 * 1024
"""About how large a part may be."""

CHUNK_PARTITIONS: Final = 500
"""Partitions of one topic that stay together."""

BYTES_PER_TURN: Final = 32 * 1024
"""About how many bytes are built between two turns of the event loop (safety rule S22)."""

CHANGES_KEPT: Final = 512
"""Changes kept for brokers that lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One change, ready to send."""

    from_version: int
    """Applies to a receiver at this version or above."""
    to_version: int
    """Version of the receiver afterwards."""
    parts: tuple[bytes, ...]
    """Serialised UpdateMetadataRequests."""


class MetadataImage:
    """The image and its recent changes. One for each reign; used by the controller's loop only."""

    def __init__(self, reign: Reign, *, cluster_id: str, client_listener: Address) -> None:
        self._reign = reign
        self._cluster_id = cluster_id
        self._client_listener = client_listener
        self._picture = Cluster()
        self._version = 0
        self._changes: deque[Payload] = deque(maxlen=CHANGES_KEPT)
        self._chunks: dict[TopicId, tuple[bytes, ...]] = {}
        self._full: Payload | None = None
        self._preparing = asyncio.Lock()
        self._prepared: TopicId | None = None
        """Topic whose bytes are being made; None when they are old before they are ready."""
        self._since_turn = 0

    @property
    def version(self) -> int:
        """Version of the image; 0 before the first publication."""
        return self._version

    def publish(
        self, picture: Cluster, changed: Collection[PartitionKey] = (), deleted: Mapping[TopicId, str] | None = None
    ) -> int:
        """The picture is now this; returns the new version.

        Args:
            picture: the whole picture.
            changed: partitions whose state or existence is news.
            deleted: names of topics that are gone.
        """
        self._picture = picture
        self._full = None
        self._version += 1
        by_topic: dict[TopicId, list[int]] = {}
        for key in changed:
            by_topic.setdefault(key.topic_id, []).append(key.partition)
        chunks: list[bytes] = []
        for id, numbers in by_topic.items():
            self._forget(id)
            topic = picture.topics.get(id)
            if topic is not None:
                chunks.extend(self._topic_chunks(topic, sorted(numbers)))
        for id, name in (deleted or {}).items():
            self._forget(id)
            gone = types_pb2.TopicState(name=name, topic_id=id, deleted=True)
            chunks.append(control_pb2.UpdateMetadataRequest(topics=[gone]).SerializeToString())
        self._changes.append(self._payload(self._version - 1, chunks))
        return self._version

    def let_go(self) -> None:
        """Forget everything: nobody is told any more."""
        self._picture, self._full = Cluster(), None
        self._changes.clear()
        self._chunks.clear()

    def next_for(self, version: int) -> Payload | None:
        """What a receiver at ``version`` needs next; None when it has everything, all when too much is missing."""
        if version == self._version and version > 0:
            return None
        if self._needs_all(version):
            return self.full()
        return self._changes[version - self._changes[0].from_version]

    async def prepare(self, version: int) -> None:
        """Build what ``next_for`` needs for that version, in slices (safety rule S22)."""
        if self._full is not None or not self._needs_all(version):
            return
        async with self._preparing:
            ready_at: int | None = None
            while ready_at != self._version:
                # Changes that come meanwhile take away what they make old; then it goes round again.
                ready_at = self._version
                for count, topic in enumerate(tuple(self._picture.topics.values()), 1):
                    if count % CHUNK_PARTITIONS == 0:
                        await asyncio.sleep(0)
                    if topic.id not in self._chunks:
                        await self._prepare_topic(topic)

    async def _prepare_topic(self, topic: Topic) -> None:
        self._prepared = topic.id
        chunks: list[bytes] = []
        for chunk in self._topic_chunks(topic, topic.partitions):
            chunks.append(chunk)
            self._since_turn += len(chunk)
            if self._since_turn >= BYTES_PER_TURN:
                self._since_turn = 0
                await asyncio.sleep(0)
            if self._prepared != topic.id:
                return
        self._chunks[topic.id] = tuple(chunks)

    def _needs_all(self, version: int) -> bool:
        """Whether a receiver at ``version`` lacks more than the changes that are kept."""
        if version == self._version and version > 0:
            return False
        oldest = self._changes[0].from_version if self._changes else self._version
        return not (0 < version < self._version and oldest <= version)

    def _forget(self, id: TopicId) -> None:
        self._chunks.pop(id, None)
        if self._prepared == id:
            self._prepared = None

    def full(self) -> Payload:
        """The full picture; built once for each version."""
        if self._full is None:
            for topic in self._picture.topics.values():
                if topic.id not in self._chunks:
                    self._chunks[topic.id] = tuple(self._topic_chunks(topic, topic.partitions))
            chunks = [chunk for topic in self._picture.topics.values() for chunk in self._chunks[topic.id]]
            self._full = self._payload(0, chunks)
        return self._full

    def _topic_chunks(self, topic: Topic, numbers: Iterable[int]) -> Iterable[bytes]:
        left = iter(numbers)
        while taken := list(islice(left, CHUNK_PARTITIONS)):
            state = types_pb2.TopicState(
                name=topic.name,
                topic_id=topic.id,
                partitions=[
                    partition_state(number, self._picture.partitions[PartitionKey(topic.id, number)])
                    for number in taken
                ],
            )
            yield control_pb2.UpdateMetadataRequest(topics=[state]).SerializeToString()

    def _payload(self, from_version: int, chunks: Iterable[bytes]) -> Payload:
        bodies: list[list[bytes]] = [[]]
        size = 0
        for chunk in chunks:
            if size and size + len(chunk) > PART_BYTES:
                bodies.append([])
                size = 0
            bodies[-1].append(chunk)
            size += len(chunk)
        parts = tuple(
            b"".join((self._head(from_version, part, len(bodies)).SerializeToString(), *body))
            for part, body in enumerate(bodies)
        )
        return Payload(from_version=from_version, to_version=self._version, parts=parts)

    def _head(self, from_version: int, part: int, parts: int) -> control_pb2.UpdateMetadataRequest:
        brokers = self._picture.brokers
        return control_pb2.UpdateMetadataRequest(
            controller_id=self._reign.controller_id,
            controller_epoch=self._reign.epoch,
            from_version=from_version,
            to_version=self._version,
            part=part,
            parts=parts,
            max_broker_epoch=max((broker.epoch for broker in brokers.values()), default=0),
            cluster_id=self._cluster_id,
            controller=types_pb2.Controller(
                id=self._reign.controller_id, epoch=self._reign.epoch, client=endpoint(self._client_listener)
            ),
            brokers=[broker_message(brokers[id]) for id in sorted(brokers)] if part == 0 else [],
        )
