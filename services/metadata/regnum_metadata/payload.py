"""UpdateMetadata as bytes: made once, sent to every broker.

Goals: a change is serialised once, whatever the number of brokers; a full picture costs only the topics that changed
since the last one, in time and in memory; memory is proportional to partitions and not to brokers.

Constraints: messages of about 60 KiB; brokers and max_broker_epoch come from the image of the very version (safety
rule S18); nothing takes long at a stretch (safety rule S22).

Algorithm: the first message says everything besides topics, those that follow it carry topics and nothing else, so
that their bytes belong to no version. Topics of a full picture are put into groups of about the size of a message; the
bytes of a group are kept as long as its topics are the same objects, and every full picture has them in common. Where
one of its topics changed the group is made anew.

Example: 3 brokers and 9 topics, one of which changes: one head and one topic are serialised, for all three brokers. A
fourth broker needs everything: one head and one group are.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerEpoch, ControllerEpoch
from regnum_model.picture_line import News, PictureVersion

from regnum_metadata.image import Image, TopicImage

PART_BYTES: Final = 60 * 1024
"""About how large a message may be: a broker's window takes 65,535 bytes at first, so that one which has come into it
needs no memory here any more."""

CHUNK_PARTITIONS: Final = 1_000
"""Partitions of one topic that stay together."""

STEP_PARTITIONS: Final = 2_000
"""Partitions serialised in one step."""

TOPIC_WEIGHT: Final = 4
"""What a topic takes besides, in partitions."""

STEP_TOPICS: Final = 10_000
"""Topics looked at in one step, where nothing is serialised."""


@dataclass(frozen=True, slots=True)
class About:
    """What a payload was, for whoever needs its bytes no more."""

    to: PictureVersion
    """The version of the receiver afterwards with its epoch."""
    is_full: bool
    """Whether it brings any broker there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One change, ready to send. The same object goes to every broker."""

    controller_epoch: ControllerEpoch
    """Its controller."""
    from_version: int
    """Applies to a receiver at this version or above; 0: to any."""
    to_version: int
    """Version of the receiver afterwards."""
    base: PictureVersion | None = None
    """Applies to a receiver of this earlier epoch, from ``from_version`` to this number; None: to one of this epoch."""
    max_broker_epoch: int
    """Highest broker epoch in it: a broker that registered later refuses it (safety rule S18)."""
    parts: tuple[bytes, ...]
    """Serialised UpdateMetadataRequests."""

    @property
    def to(self) -> PictureVersion:
        """The version of the receiver afterwards with its epoch."""
        return PictureVersion(self.controller_epoch, self.to_version)

    @property
    def about(self) -> About:
        """What is left of it when it has been sent."""
        return About(self.to, is_full=self.from_version == 0)

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(map(len, self.parts))


Steps = Generator[None, None, Payload]
"""Makes a payload in steps and returns it."""


@dataclass(frozen=True, slots=True)
class _Group:
    topics: tuple[TopicImage, ...]
    parts: tuple[bytes, ...]
    size_bytes: int


FULL: Final = "full"
"""Kind of a payload that brings any broker to an image."""

INTERVAL: Final = "interval"
"""Kind of a payload that changes what a broker has."""


@dataclass(slots=True)
class Made:
    """What was made of one kind. Written by the loop, read by any thread."""

    payloads: int = 0
    size_bytes: int = 0
    """Of all of them together."""


class PayloadBuilder:
    """Makes payloads of one process, and keeps the bytes of topics for the next full one."""

    def __init__(self, made: Mapping[str, Made] | None = None) -> None:
        """``made``: where what is made is counted; None: from nothing."""
        self._groups: tuple[_Group, ...] = ()
        self.made: Final[Mapping[str, Made]] = made or {kind: Made() for kind in (FULL, INTERVAL)}
        """What was made, by kind."""

    @property
    def serialisations(self) -> int:
        """Payloads made so far."""
        return sum(made.payloads for made in self.made.values())

    def interval(self, image: Image, news: News, start: PictureVersion, last: int) -> Steps:
        """The payload that brings a broker to ``image``.

        Args:
            image: where it brings it.
            news: names of all that changed since ``start``.
            start: where the broker is, or before that.
            last: where ``start`` is of an earlier epoch, the last number of that epoch that ``news`` goes on from.
        """
        base = None if start.epoch == image.controller_epoch else PictureVersion(start.epoch, last)
        chunks: list[bytes] = []
        done = 0
        for weight, chunk in _news_chunks(image, news):
            chunks.append(chunk)
            done += weight
            if done >= STEP_PARTITIONS:
                done = 0
                yield
        bodies = list(_joined(chunks)) or [b""]
        head = _head(image, parts=len(bodies), traceparent=news.traceparent)
        head.from_version = start.number
        if base is None:
            brokers = {broker.id: broker for broker in image.head.brokers} if news.brokers else {}
            head.brokers.extend(brokers[id] for id in sorted(news.brokers) if id in brokers)
            head.removed_brokers.extend(sorted(id for id in news.brokers if id not in brokers))
        else:
            head.base_epoch, head.base_version = base
            head.all_brokers = True
            head.brokers.extend(image.head.brokers)
        bodies[0] = head.SerializeToString() + bodies[0]
        return self._payload(image, start.number, base, bodies)

    def full(self, image: Image, *, traceparent: str = "") -> Steps:
        """The payload that brings any broker to ``image``."""
        groups = yield from self._grouped(image)
        bodies = [part for group in groups for part in group.parts]
        head = _head(image, parts=1 + len(bodies), traceparent=traceparent)
        head.all_brokers = True
        head.brokers.extend(image.head.brokers)
        # What the last full picture had and this one has not is let go of in steps: it may be all there was.
        retired, self._groups = list(self._groups), groups
        while retired:
            retired.pop()
            yield
        return self._payload(image, 0, None, [head.SerializeToString(), *bodies])

    def _payload(self, image: Image, start: int, base: PictureVersion | None, parts: Sequence[bytes]) -> Payload:
        payload = Payload(
            controller_epoch=image.controller_epoch,
            from_version=start,
            to_version=image.version,
            base=base,
            max_broker_epoch=image.head.max_broker_epoch,
            parts=tuple(parts),
        )
        made = self.made[INTERVAL if start else FULL]
        made.payloads += 1
        made.size_bytes += payload.size_bytes
        return payload

    def _grouped(self, image: Image) -> Generator[None, None, tuple[_Group, ...]]:
        """All topics of an image in groups; what is the same as last time keeps its bytes."""
        groups: list[_Group] = []
        placed: set[str] = set()
        loose: list[TopicImage] = []
        done = 0
        for group in self._groups:
            present = [now for topic in group.topics if (now := image.topics.get(topic.name)) is not None]
            same = len(present) == len(group.topics) and all(a is b for a, b in zip(present, group.topics, strict=True))
            if same and group.size_bytes >= PART_BYTES // 2:
                groups.append(group)
            else:
                # A small one takes others in; a changed one is made anew together with them.
                loose.extend(present)
            placed.update(topic.name for topic in present)
            done += len(group.topics)
            if done >= STEP_TOPICS:
                done = 0
                yield
        for name, topic in image.topics.items():
            if name not in placed:
                loose.append(topic)
            done += 1
            if done >= STEP_TOPICS:
                done = 0
                yield
        made = yield from _made(loose)
        return (*groups, *made)


def _made(topics: Iterable[TopicImage]) -> Generator[None, None, list[_Group]]:
    """Groups of these topics, in their order."""
    groups: list[_Group] = []
    members: list[TopicImage] = []
    chunks: list[bytes] = []
    size = done = 0
    for topic in topics:
        made: list[bytes] = []
        numbers = sorted(topic.partitions)
        for weight, chunk in _topic_chunks(topic, numbers):
            made.append(chunk)
            done += weight
            if done >= STEP_PARTITIONS:
                done = 0
                yield
        added = sum(map(len, made))
        if members and size + added > PART_BYTES:
            groups.append(_Group(tuple(members), tuple(_joined(chunks)), size))
            members, chunks, size = [], [], 0
        members.append(topic)
        chunks.extend(made)
        size += added
    if members:
        groups.append(_Group(tuple(members), tuple(_joined(chunks)), size))
    return groups


def for_one_broker(parts: Sequence[bytes], epoch: BrokerEpoch) -> Sequence[bytes]:
    """The messages of a payload in the words of inter.broker.protocol.version 1: for one broker, by its epoch.

    Of a field that stands in a message twice the last counts, so the first message is the shared one with a few bytes
    behind it, and all others are the shared ones.
    """
    own = control_pb2.UpdateMetadataRequest(max_broker_epoch=-1, broker_epoch=epoch)
    return (parts[0] + own.SerializeToString(), *parts[1:])


def question(image: Image) -> Payload:
    """An empty interval: changes nothing, and the answer says which version the broker has (safety rule S17)."""
    head = _head(image, parts=1, traceparent="")
    head.from_version = image.version
    return Payload(
        controller_epoch=image.controller_epoch,
        from_version=image.version,
        to_version=image.version,
        max_broker_epoch=image.head.max_broker_epoch,
        parts=(head.SerializeToString(),),
    )


def _joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Chunks one after another, in messages of about the right size."""
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        if size and size + len(chunk) > PART_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
        waiting.append(chunk)
        size += len(chunk)
    if waiting:
        yield b"".join(waiting)


def _news_chunks(image: Image, news: News) -> Iterator[tuple[int, bytes]]:
    for id, name in news.deleted.items():
        present = image.topics.get(name)
        if present is None or present.topic_id != id:
            state = types_pb2.TopicState(name=name, topic_id=id, deleted=True)
            yield TOPIC_WEIGHT, control_pb2.UpdateMetadataRequest(topics=[state]).SerializeToString()
    for id, item in news.topics.items():
        topic = image.topics.get(item.name)
        if topic is not None and topic.topic_id == id:
            yield from _topic_chunks(topic, sorted(item.partitions))


def _topic_chunks(topic: TopicImage, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The bytes of these partitions of a topic, and how much work each piece was."""
    for start in range(0, max(len(numbers), 1), CHUNK_PARTITIONS):
        chosen = numbers[start : start + CHUNK_PARTITIONS]
        states = [topic.partitions.get(number) or _removed(number) for number in chosen]
        state = types_pb2.TopicState(name=topic.name, topic_id=topic.topic_id, partitions=states)
        yield len(states) + TOPIC_WEIGHT, control_pb2.UpdateMetadataRequest(topics=[state]).SerializeToString()


def _removed(number: int) -> types_pb2.PartitionState:
    """A partition that a topic had once, and has no more."""
    return types_pb2.PartitionState(partition=number, leader=NO_LEADER, leader_epoch=NO_EPOCH, version=-1, removed=True)


def _head(image: Image, *, parts: int, traceparent: str) -> control_pb2.UpdateMetadataRequest:
    head = image.head
    return control_pb2.UpdateMetadataRequest(
        controller_id=head.controller_id,
        controller_epoch=image.controller_epoch,
        to_version=image.version,
        parts=parts,
        max_broker_epoch=head.max_broker_epoch,
        cluster_id=head.cluster_id,
        controller=head.controller,
        traceparent=traceparent,
    )
