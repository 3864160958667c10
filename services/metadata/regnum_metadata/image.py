"""The cluster as clients and brokers should see it: one frozen value for each version.

A change covers an interval of versions and carries absolute values (safety rule S17): it is applied when it begins at
or below the own version and ends above it. Versions count within one controller epoch; under a new one the first
change must be a full image. Applying is done in steps, so that a large image never holds an event loop (safety rule
S22), and the image under construction is nobody's until it is complete.
"""

import enum
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from immutables import Map
from regnum.types.v1 import types_pb2
from regnum_model.ids import ControllerEpoch

PARTITIONS_PER_STEP: Final = 2_000
"""Partitions applied in one step; a topic counts as one more."""


NO_EPOCH: Final = ControllerEpoch(0)
"""Controller epoch of nothing."""


class Verdict(enum.Enum):
    """What a change is to an image."""

    APPLIES = "applies"
    """It joins on."""
    KNOWN = "known"
    """The image has it already."""
    GAP = "gap"
    """Something is missing in between: the sender goes on from the image's version, or sends everything."""
    STALE = "stale"
    """It comes from a controller that has been replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every payload says besides topics; from one snapshot of the controller (safety rule S18)."""

    controller_id: int = -1
    """Election id of the controller; -1 while none is known."""
    controller: types_pb2.Controller = field(default_factory=lambda: types_pb2.Controller(id=-1))
    """The same for clients. Never changed in place."""
    cluster_id: str = ""
    """Id of the cluster; empty while none is known."""
    max_broker_epoch: int = 0
    """Highest broker epoch among ``brokers``."""
    brokers: tuple[types_pb2.Broker, ...] = ()
    """Live brokers, by id. Never changed in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change as the controller published it."""

    controller_epoch: ControllerEpoch
    """Its controller."""
    from_version: int
    """Applies to an image of this version or above; 0: a full image."""
    to_version: int
    """Version afterwards."""
    head: Head
    """Everything besides topics."""
    traceparent: str = ""
    """W3C traceparent of what caused it; empty when nothing that is traced did."""
    topics: tuple[types_pb2.TopicState, ...]
    """Changed topics, or all of them, with absolute values."""

    @property
    def is_full(self) -> bool:
        """Whether it replaces everything."""
        return self.from_version == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic."""

    name: str
    topic_id: str
    partitions: Map[int, types_pb2.PartitionState]
    """States by number. Never changed in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Everything, as of one version."""

    controller_epoch: ControllerEpoch = NO_EPOCH
    """Controller epoch of the version; 0 before the first image."""
    version: int = 0
    """Number of the last change within that epoch; 0 before the first image."""
    head: Head = field(default_factory=Head)
    """Controller and brokers."""
    topics: Map[str, TopicImage] = field(default_factory=Map)
    """Topics by name."""

    def judge(self, change: Change) -> Verdict:
        """What a change is to this image."""
        if change.controller_epoch < self.controller_epoch:
            return Verdict.STALE
        own = self.version if change.controller_epoch == self.controller_epoch else 0
        if own >= change.to_version:
            return Verdict.KNOWN
        if change.is_full or (own and change.from_version <= own):
            return Verdict.APPLIES
        return Verdict.GAP

    def with_change(self, change: Change) -> Generator[None, None, "Image"]:
        """The image after a change that applies; returned after some steps."""
        topics = (Map[str, TopicImage]() if change.is_full else self.topics).mutate()
        done = 0
        for state in change.topics:
            present = topics.get(state.name)
            if state.deleted:
                # Of an earlier life of the name: the present one stays.
                if present is not None and state.topic_id == present.topic_id:
                    del topics[state.name]
            else:
                topics[state.name] = _merged(present, state)
            done += 1 + len(state.partitions)
            if done >= PARTITIONS_PER_STEP:
                done = 0
                yield
        return Image(
            controller_epoch=change.controller_epoch,
            version=change.to_version,
            head=change.head,
            topics=topics.finish(),
        )


def _merged(present: TopicImage | None, state: types_pb2.TopicState) -> TopicImage:
    news = {item.partition: item for item in state.partitions}
    same = present is not None and present.topic_id == state.topic_id
    known = present.partitions if present is not None and same else Map[int, types_pb2.PartitionState]()
    return TopicImage(name=state.name, topic_id=state.topic_id, partitions=known.update(news))
