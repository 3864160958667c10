"""UpdateMetadata as bytes: made once, sent to every broker.

Goals: a change is serialised once, whatever the number of brokers; a full picture costs only the topics that changed
since the last one; memory is proportional to partitions and not to brokers.

Constraints: parts of about 256 KiB; brokers and max_broker_epoch come from the image of the very version (safety rule
S18); nothing takes long at a stretch (safety rule S22).

Algorithm: serialised protobuf messages concatenate, so a part is a small head (epochs, versions, the part's number)
followed by bytes kept for each topic. What is kept belongs to one TopicImage: another one, and it is made anew.

Example: 3 brokers and 9 topics, one of which changes: one head and one topic are serialised, for all three brokers.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_model.ids import ControllerEpoch

from regnum_metadata.image import Change, Image, TopicImage

PART_BYTES: Final = 256 * 1024
"""About how large a part may be."""

CHUNK_PARTITIONS: Final = 1_000
"""Partitions of one topic that stay together."""

STEP_PARTITIONS: Final = 2_000
"""Partitions serialised in one step."""

Steps = Generator[None, None, "Payload"]
"""Makes a payload in steps and returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One change, ready to send. The same object goes to every broker."""

    controller_epoch: ControllerEpoch
    """Its controller."""
    from_version: int
    """Applies to a receiver at this version or above; 0: to any."""
    to_version: int
    """Version of the receiver afterwards."""
    max_broker_epoch: int
    """Highest broker epoch in it: a broker that registered later refuses it (safety rule S18)."""
    parts: tuple[bytes, ...]
    """Serialised UpdateMetadataRequests."""

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(len(part) for part in self.parts)


class PayloadBuilder:
    """Makes payloads of one process, and keeps the bytes of topics for the next full one."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[TopicImage, tuple[bytes, ...]]] = {}
        self._serialisations = 0

    @property
    def serialisations(self) -> int:
        """Payloads made so far: one for each change, and one for each full picture that no change brought."""
        return self._serialisations

    def change(self, image: Image, change: Change) -> Steps:
        """The payload that takes a broker from ``change.from_version`` on to ``image``, which has the change."""
        if change.is_full:
            return (yield from self.full(image, traceparent=change.traceparent))
        chunks: list[bytes] = []
        done = 0
        for state in change.topics:
            for weight, chunk in _chunks(state.name, state.topic_id, state.partitions, deleted=state.deleted):
                chunks.append(chunk)
                done += weight
                if done >= STEP_PARTITIONS:
                    done = 0
                    yield
        return self._payload(image, change.from_version, chunks, traceparent=change.traceparent)

    def full(self, image: Image, *, traceparent: str = "") -> Steps:
        """The payload that brings any broker to ``image``."""
        chunks: list[bytes] = []
        kept: dict[str, tuple[TopicImage, tuple[bytes, ...]]] = {}
        done = 0
        for name, topic in image.topics.items():
            known = self._kept.get(name)
            if known is None or known[0] is not topic:
                states = [topic.partitions[number] for number in sorted(topic.partitions)]
                made: list[bytes] = []
                for weight, chunk in _chunks(name, topic.topic_id, states, deleted=False):
                    made.append(chunk)
                    done += weight
                    if done >= STEP_PARTITIONS:
                        done = 0
                        yield
                known = (topic, tuple(made))
            kept[name] = known
            chunks.extend(known[1])
            done += 1
            if done >= STEP_PARTITIONS:
                done = 0
                yield
        self._kept = kept
        return self._payload(image, 0, chunks, traceparent=traceparent)

    def _payload(self, image: Image, from_version: int, chunks: Iterable[bytes], *, traceparent: str) -> Payload:
        bodies: list[list[bytes]] = [[]]
        size = 0
        for chunk in chunks:
            if size and size + len(chunk) > PART_BYTES:
                bodies.append([])
                size = 0
            bodies[-1].append(chunk)
            size += len(chunk)
        parts = tuple(
            b"".join((_head(image, from_version, part, len(bodies), traceparent).SerializeToString(), *body))
            for part, body in enumerate(bodies)
        )
        self._serialisations += 1
        return Payload(
            controller_epoch=image.controller_epoch,
            from_version=from_version,
            to_version=image.version,
            max_broker_epoch=image.head.max_broker_epoch,
            parts=parts,
        )


def question(image: Image) -> Payload:
    """An empty interval: changes nothing, and the answer says which version the broker has (safety rule S17)."""
    head = _head(image, image.version, 0, 1, "")
    return Payload(
        controller_epoch=image.controller_epoch,
        from_version=image.version,
        to_version=image.version,
        max_broker_epoch=image.head.max_broker_epoch,
        parts=(head.SerializeToString(),),
    )


def _chunks(
    name: str, topic_id: str, states: Sequence[types_pb2.PartitionState], *, deleted: bool
) -> Iterator[tuple[int, bytes]]:
    """The bytes of a topic, and how much work each piece was."""
    for start in range(0, max(len(states), 1), CHUNK_PARTITIONS):
        topic = types_pb2.TopicState(
            name=name, topic_id=topic_id, deleted=deleted, partitions=states[start : start + CHUNK_PARTITIONS]
        )
        yield len(topic.partitions) + 1, control_pb2.UpdateMetadataRequest(topics=[topic]).SerializeToString()


def _head(
    image: Image, from_version: int, part: int, parts: int, traceparent: str
) -> control_pb2.UpdateMetadataRequest:
    head = image.head
    return control_pb2.UpdateMetadataRequest(
        controller_id=head.controller_id,
        controller_epoch=image.controller_epoch,
        from_version=from_version,
        to_version=image.version,
        part=part,
        parts=parts,
        max_broker_epoch=head.max_broker_epoch,
        cluster_id=head.cluster_id,
        controller=head.controller,
        brokers=head.brokers if part == 0 else [],
        traceparent=traceparent if part == 0 else "",
    )
