"""The guard of a topic, which also records the assignment that a controller accepted last.

A topic node is written by people, too. What it says of partitions that exist counts only where it is what a controller
decided, and the controller of the next reign has to know what that was. So every write of an assignment writes it here
as well, in the same transaction.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_model.nodes.reading import MalformedNodeError, dumped, loaded, object_of, str_of, versioned
from regnum_model.nodes.topics import (
    TopicNode,
    beginnings_of,
    reassignments_of,
    reassignments_said,
    replicas_of,
    replicas_said,
)
from regnum_model.reassignment import Reassignment

READABLE_BYTES_MAX: Final = 64 * 1024
"""An assignment up to this size is written as JSON. A larger one is compressed, to about half: it is written
together with the topic node, and some stores take a megabyte in all."""

UNPACKED_BYTES_MAX: Final = 64 * 2**20
"""What a compressed assignment may come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedAssignment:
    """Who has the partitions of a topic, as a controller decided it."""

    partitions: Mapping[int, tuple[BrokerId, ...]]
    """Replicas of each partition; the first is the preferred leader."""
    reassigning: Mapping[int, Reassignment] = field(default_factory=dict)
    """Open reassignments by partition."""
    began: Mapping[int, LeaderEpoch] = field(default_factory=dict)
    """As in the topic node: the leader epoch at which the life of a partition began, where it is not 0 (S13)."""

    @classmethod
    def of(cls, node: TopicNode) -> Self:
        """What a topic node says of it."""
        return cls(partitions=node.partitions, reassigning=node.reassigning, began=node.began)

    def content(self) -> object:
        """For JSON: an object, or its compressed form as a string."""
        content: dict[str, object] = {"partitions": replicas_said(self.partitions)}
        if self.reassigning:
            content["reassigning"] = reassignments_said(self.reassigning)
        if self.began:
            content["began"] = {str(key): epoch for key, epoch in sorted(self.began.items())}
        data = dumped(content)
        if len(data) <= READABLE_BYTES_MAX:
            return content
        return base64.b64encode(zlib.compress(data, level=1)).decode("ascii")

    @classmethod
    def from_content(cls, value: object) -> Self:
        """The inverse of ``content``; raises MalformedNodeError."""
        content = object_of(_unpacked(value) if isinstance(value, str) else value, "accepted")
        partitions = replicas_of(content.get("partitions"))
        return cls(
            partitions=partitions,
            reassigning=reassignments_of(content.get("reassigning"), partitions),
            began=beginnings_of(content.get("began"), partitions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdNode:
    """``/brokers/topic_ids/<topic id>``: guard of a topic."""

    topic: str
    """Name of the topic."""
    accepted: AcceptedAssignment | None = None
    """The assignment that a controller accepted last. None: release 0.1.0 did not record it, or what is recorded
    cannot be read; then the topic node is all that there is."""

    def encode(self) -> bytes:
        """JSON."""
        content: dict[str, object] = {"version": 1, "topic": self.topic}
        if self.accepted is not None:
            content["accepted"] = self.accepted.content()
        return dumped(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError. A record of the assignment that cannot be read is none: it is written anew.

        The guard keeps the topic, whatever else it says (safety rule S2).
        """
        content = versioned(loaded(data), "a topic id node")
        return cls(topic=str_of(content.get("topic"), "topic"), accepted=_accepted(content.get("accepted")))


def _accepted(value: object) -> AcceptedAssignment | None:
    if value is None:
        return None
    try:
        return AcceptedAssignment.from_content(value)
    except MalformedNodeError:
        return None


def _unpacked(text: str) -> object:
    unpacker = zlib.decompressobj()
    try:
        # What is cut off here is no JSON.
        return loaded(unpacker.decompress(base64.b64decode(text, validate=True), UNPACKED_BYTES_MAX))
    except (binascii.Error, zlib.error, ValueError) as error:
        raise MalformedNodeError(f"the accepted assignment cannot be unpacked: {error}") from None
