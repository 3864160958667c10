"""What the controller publishes to metadata processes: intervals of changes, made from one picture.

Goals: a process that lags costs the names of what changed and not the states; nothing is skipped.

Constraints: a publication is an interval of versions within one controller epoch with absolute values (safety rule
S17); brokers and max_broker_epoch come from the picture of its last version (safety rule S18); nothing takes long at
a stretch (safety rule S22).

Algorithm: the journal holds *names* of partitions for each version, up to a limit. What a process lacks is all of
them together with the states as they are now; a process that lacks more than the journal reaches back gets everything.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.metadata.v1 import propagation_pb2
from regnum.types.v1 import types_pb2
from regnum_model.ids import ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address

from regnum_election.cluster import Cluster, Topic
from regnum_election.orders import broker_message, endpoint, partition_state
from regnum_election.reign import Reign

PART_PARTITIONS: Final = 1_000
"""Partitions of one part, at most; topics without partitions count as one."""

CHANGES_KEPT: Final = 512
"""Changes kept for processes that lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A publication of the reign before that this reign goes on from.

    Whoever names one promises that the first publication names every partition whose state, and every topic whose
    existence, differs from the picture published under this version.
    """

    epoch: ControllerEpoch
    """Controller epoch of the predecessor."""
    version: int
    """Its version, at least 1; the first publication of this reign is the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was news in one version."""

    changed: tuple[PartitionKey, ...]
    """Partitions whose state or existence is news."""
    deleted: tuple[tuple[TopicId, str], ...]
    """Topics that are gone, with their names."""
    traceparent: str
    """What caused it, for spans; empty when nothing that is traced did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An interval, not yet in words."""

    from_version: int
    """Applies to a process of this version or above; 0: to any, with everything in it."""
    to_version: int
    """Version afterwards."""
    picture: Cluster
    """The cluster at that version."""
    changed: Mapping[TopicId, Collection[int]]
    """Partitions to send, by topic; of topics in the picture only."""
    deleted: Mapping[TopicId, str]
    """Names of topics that are gone."""
    traceparent: str
    """What caused the first of its changes that has a cause; empty when none has."""


class Journal:
    """Versions of one reign. Used by the controller's loop only."""

    def __init__(self, base: Base | None = None) -> None:
        self._picture = Cluster()
        self._version = 0 if base is None else base.version
        self._entries: deque[Entry] = deque(maxlen=CHANGES_KEPT)

    @property
    def version(self) -> int:
        """Version of the last publication; 0 before the first."""
        return self._version

    def publish(
        self,
        picture: Cluster,
        changed: Iterable[PartitionKey] = (),
        deleted: Mapping[TopicId, str] | None = None,
        *,
        traceparent: str = "",
    ) -> int:
        """The picture is now this; returns the new version.

        Args:
            picture: the whole picture.
            changed: partitions whose state or existence is news.
            deleted: names of topics that are gone.
            traceparent: what caused it.
        """
        self._picture = picture
        self._version += 1
        self._entries.append(
            Entry(changed=tuple(changed), deleted=tuple((deleted or {}).items()), traceparent=traceparent)
        )
        return self._version

    def let_go(self) -> None:
        """Forget everything: nobody is told any more."""
        self._picture = Cluster()
        self._entries.clear()

    def next_for(self, version: int) -> Publication | None:
        """What a process at ``version`` lacks; None when that is nothing."""
        if not self._entries or version == self._version:
            return None
        missing = self._version - version
        if version == 0 or not 0 < missing <= len(self._entries):
            changed = {topic.id: topic.partitions for topic in self._picture.topics.values()}
            return self._publication(0, changed, {}, self._entries[-1].traceparent)
        numbers: dict[TopicId, set[int]] = {}
        deleted: dict[TopicId, str] = {}
        lacking = tuple(islice(self._entries, len(self._entries) - missing, None))
        for entry in lacking:
            deleted.update(entry.deleted)
            for key in entry.changed:
                numbers.setdefault(key.topic_id, set()).add(key.partition)
        known = {id: sorted(chosen) for id, chosen in numbers.items() if id in self._picture.topics}
        cause = next((entry.traceparent for entry in lacking if entry.traceparent), "")
        return self._publication(version, known, deleted, cause)

    def _publication(
        self,
        from_version: int,
        changed: Mapping[TopicId, Collection[int]],
        deleted: Mapping[TopicId, str],
        traceparent: str,
    ) -> Publication:
        return Publication(
            from_version=from_version,
            to_version=self._version,
            picture=self._picture,
            changed=changed,
            deleted=deleted,
            traceparent=traceparent,
        )


class Announcer:
    """Puts publications of one reign into the words of the wire."""

    def __init__(self, reign: Reign, *, cluster_id: str, client_listener: Address) -> None:
        self._reign = reign
        self._cluster_id = cluster_id
        self._client_listener = client_listener

    def parts(self, publication: Publication) -> Iterator[propagation_pb2.PublishChangesRequest]:
        """The messages of a publication, one after another."""
        waiting: list[types_pb2.TopicState] = []
        number = 0
        size = 0
        for state in _states(publication):
            weight = max(len(state.partitions), 1)
            if waiting and size + weight > PART_PARTITIONS:
                yield self._part(publication, number, waiting, last=False)
                waiting, number, size = [], number + 1, 0
            waiting.append(state)
            size += weight
        yield self._part(publication, number, waiting, last=True)

    def _part(
        self, publication: Publication, number: int, topics: list[types_pb2.TopicState], *, last: bool
    ) -> propagation_pb2.PublishChangesRequest:
        brokers = publication.picture.brokers
        reign = self._reign
        return propagation_pb2.PublishChangesRequest(
            controller_id=reign.controller_id,
            controller_epoch=reign.epoch,
            from_version=publication.from_version,
            to_version=publication.to_version,
            part=number,
            last=last,
            max_broker_epoch=max((broker.epoch for broker in brokers.values()), default=0),
            cluster_id=self._cluster_id,
            controller=types_pb2.Controller(
                id=reign.controller_id, epoch=reign.epoch, client=endpoint(self._client_listener)
            ),
            brokers=[broker_message(brokers[id]) for id in sorted(brokers)] if number == 0 else [],
            topics=topics,
            traceparent=publication.traceparent if number == 0 else "",
        )


def _states(publication: Publication) -> Iterator[types_pb2.TopicState]:
    picture = publication.picture
    for id, name in publication.deleted.items():
        if id not in publication.picture.topics:
            yield types_pb2.TopicState(name=name, topic_id=id, deleted=True)
    for id, numbers in publication.changed.items():
        topic: Topic = picture.topics[id]
        left = iter(numbers)
        while taken := list(islice(left, PART_PARTITIONS)):
            yield types_pb2.TopicState(
                name=topic.name,
                topic_id=id,
                partitions=[
                    partition_state(key.partition, picture.partitions[key], picture.offline_at(key))
                    for key in (PartitionKey(id, number) for number in taken)
                ],
            )
