"""The cluster as clients and brokers should see it: one frozen value for each version.

A change covers an interval of versions and carries absolute values (safety rule S17): it is applied when it begins at
or below the own version and ends above it. The first change of a reign may join on to the reign before: it applies
where that one had come no further than the new controller knew. Everywhere else a reign begins with a full image.
Applying is done in steps, so that a large image never holds an event loop (safety rule S22), and the image under
construction is nobody's until it is complete.
"""

import enum
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from immutables import Map
from regnum.types.v1 import types_pb2
from regnum_model.configs import MAX_BROKER_EPOCH
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_model.picture_line import PictureVersion

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
    """Highest broker epoch among live brokers."""
    inter_broker_protocol: int = MAX_BROKER_EPOCH
    """``inter.broker.protocol.version``: below 2 each broker is told its own epoch in place of the highest."""
    brokers: tuple[types_pb2.Broker, ...] = ()
    """Live brokers, by id; in a change those that it names. Never changed in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change as the controller published it."""

    controller_epoch: ControllerEpoch
    """Its controller."""
    from_version: int
    """Applies to an image of this version or above; 0: a full image."""
    to_version: int
    """Version afterwards."""
    base: PictureVersion | None = None
    """Set where it joins on to an earlier reign: applies to an image of that epoch, ``from_version`` to this number."""
    head: Head
    """Everything besides topics."""
    all_brokers: bool = False
    """Whether the head names all live brokers, as every full image does; else those that are new or changed."""
    removed_brokers: frozenset[BrokerId] = frozenset()
    """Brokers that are gone."""
    traceparent: str = ""
    """W3C traceparent of what caused it; empty when nothing that is traced did."""
    topics: Sequence[types_pb2.TopicState]
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

    @property
    def position(self) -> PictureVersion:
        """The version with its epoch."""
        return PictureVersion(self.controller_epoch, self.version)

    def judge(self, change: Change) -> Verdict:
        """What a change is to this image."""
        if change.controller_epoch < self.controller_epoch:
            return Verdict.STALE
        current = change.controller_epoch == self.controller_epoch
        if current and self.version >= change.to_version:
            return Verdict.KNOWN
        if change.is_full:
            return Verdict.APPLIES
        if change.base is None:
            joins = current and 0 < change.from_version <= self.version
        else:
            joins = self.controller_epoch == change.base.epoch
            joins = joins and change.from_version <= self.version <= change.base.number
        return Verdict.APPLIES if joins else Verdict.GAP

    def with_change(self, change: Change) -> Generator[None, None, "Image"]:
        """The image after a change that applies; returned after some steps."""
        topics = (Map[str, TopicImage]() if change.is_full else self.topics).mutate()
        done = 0
        for state in change.topics:
            present = topics.get(state.name)
            if state.deleted:
                # Of an earlier life of the name: the present one stays. Without an id it is of the present one, as
                # brokers take it.
                if present is not None and state.topic_id in {present.topic_id, ""}:
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
            head=replace(change.head, brokers=self._brokers_after(change)),
            topics=topics.finish(),
        )

    def _brokers_after(self, change: Change) -> tuple[types_pb2.Broker, ...]:
        named = change.head.brokers
        if change.is_full or change.all_brokers:
            return tuple(sorted(named, key=lambda broker: broker.id))
        if not named and not change.removed_brokers:
            return self.head.brokers
        brokers: Mapping[int, types_pb2.Broker] = {
            broker.id: broker for broker in (*self.head.brokers, *named) if broker.id not in change.removed_brokers
        }
        return tuple(brokers[id] for id in sorted(brokers))


def _merged(present: TopicImage | None, state: types_pb2.TopicState) -> TopicImage:
    news = {item.partition: item for item in state.partitions if not item.removed}
    same = present is not None and present.topic_id == state.topic_id
    known = present.partitions if present is not None and same else Map[int, types_pb2.PartitionState]()
    if gone := [item.partition for item in state.partitions if item.removed and item.partition in known]:
        left = known.mutate()
        for number in gone:
            del left[number]
        known = left.finish()
    return TopicImage(name=state.name, topic_id=state.topic_id, partitions=known.update(news))
