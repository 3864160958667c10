"""What the controller publishes to metadata processes: intervals of changes, made from one picture.

Goals: a process that lags costs the names of what changed and not the states; nothing is skipped; a succession costs
what changed in it and not what exists.

Constraints: a publication is an interval of versions with absolute values (safety rule S17); brokers and
max_broker_epoch come from the picture of its last version (safety rule S18); nothing takes long at a stretch (safety
rule S22).

Algorithm: the journal holds *names* for each version (``regnum_model.picture_line``). What a process lacks is all of
them together with the states as they are now; a process that is not on the line gets everything. A reign with a base
begins on the line of the reign before, and its own versions count on from there.

Example: 500 brokers, one leader moves: one partition goes out, and no broker. A reign begins that goes on from (4, 8)
and changes three partitions: ((4, 8) to (5, 9)), with three partitions and the whole list of brokers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.propagation.v1 import propagation_pb2
from regnum.types.v1 import types_pb2
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_model.picture_line import NO_PICTURE, News, PictureLine, PictureVersion, TopicNews

from regnum_election.decisions.cluster import Cluster, Topic
from regnum_election.dispatch.control_requests import broker_message, endpoint
from regnum_election.publication.published import state_of
from regnum_election.reign.reign import Reign

PART_PARTITIONS: Final = 1_000
"""Partitions of one part, at most; topics without partitions count as one."""

BASE_VERSION_MAX: Final = 2**30
"""Above this version a reign starts again from 1: numbers that go on for ever would leave the room that clients' \
versions give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A publication of the reign before that this reign goes on from.

    Whoever names one promises that the first publication names every partition whose state, and every topic whose
    existence, differs from the picture published under this version. Brokers need no naming.
    """

    epoch: ControllerEpoch
    """Controller epoch of the predecessor."""
    version: int
    """Its version, at least 1; the first publication of this reign is the next."""

    @property
    def position(self) -> PictureVersion:
        """The same as a version of the picture."""
        return PictureVersion(self.epoch, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An interval, not yet in words."""

    from_version: int
    """Applies to a process of this version or above; 0: to any, with everything in it."""
    to_version: int
    """Version afterwards."""
    base: Base | None
    """Where it joins on to an earlier reign: applies to a process of that epoch, from ``from_version`` to the base's
    version; None: to one of this reign."""
    picture: Cluster
    """The cluster at that version."""
    changed: Mapping[TopicId, Collection[int]] | None
    """Partitions to send, by topic; of topics in the picture only. One that the picture has not was removed. None: all.
    """
    deleted: Mapping[TopicId, str]
    """Names of topics that are gone."""
    brokers: Collection[BrokerId]
    """Brokers that came, changed or went."""
    max_broker_epoch: int
    """Highest broker epoch in the picture; 0 without brokers."""
    traceparent: str
    """What caused the first of its changes that has a cause; empty when none has."""

    @property
    def all_brokers(self) -> bool:
        """Whether it carries the whole list of brokers: what is not of this reign may have had another one."""
        return self.changed is None or self.base is not None

    def numbers(self) -> Iterator[tuple[TopicId, Collection[int]]]:
        """Partitions to send, by topic, those of a full one included."""
        if self.changed is None:
            return ((topic.id, topic.partitions) for topic in self.picture.topics.values())
        return iter(self.changed.items())


class Journal:
    """Versions of one reign. Used by the controller's loop only."""

    def __init__(self, epoch: ControllerEpoch, base: Base | None = None) -> None:
        """``base``: what the first publication joins on to; None: nothing."""
        usable = base is not None and base.epoch < epoch and 1 <= base.version <= BASE_VERSION_MAX
        self._base = base if usable else None
        self._picture = Cluster()
        self._max_broker_epoch = BrokerEpoch(0)
        self._begun = False
        self._last_cause = ""
        self._line = PictureLine(NO_PICTURE if self._base is None else self._base.position)
        self._epoch = epoch

    @property
    def base(self) -> Base | None:
        """What the first publication joins on to."""
        return self._base

    @property
    def version(self) -> int:
        """Version of the last publication; before the first, that of the base, or 0."""
        return self._line.head.number

    @property
    def head(self) -> PictureVersion:
        """The same with its epoch."""
        return self._line.head

    @property
    def picture(self) -> Cluster:
        """The picture of that version."""
        return self._picture

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
            changed: partitions whose state or existence is news; for the first publication see ``Base``.
            deleted: names of topics that are gone.
            traceparent: what caused it.
        """
        news = News(
            topics=_by_topic(changed),
            deleted=dict(deleted or {}),
            brokers=self._brokers_since(picture) if self._begun else frozenset(),
            traceparent=traceparent,
        )
        to = PictureVersion(self._epoch, self._line.head.number + 1)
        if self._begun or self._base is not None:
            self._line.extend(to, news, base=None if self._base is None else self._base.version)
        else:
            self._line.restart(to)
        if not self._begun or picture.brokers is not self._picture.brokers:
            self._max_broker_epoch = max((broker.epoch for broker in picture.brokers.values()), default=BrokerEpoch(0))
        self._begun = True
        self._picture = picture
        self._last_cause = traceparent
        return to.number

    def release(self) -> None:
        """Forget everything: nobody is told any more."""
        self._picture = Cluster()
        self._begun = False
        self._line.restart(self._line.head)

    def next_for(self, position: PictureVersion) -> Publication | None:
        """What a process at ``position`` lacks; None when that is nothing."""
        if not self._begun or position == self._line.head:
            return None
        news = self._line.since(position)
        if news is None:
            return self._publication(0, None, None, News(traceparent=self._last_cause), {})
        known = {id: sorted(item.partitions) for id, item in news.topics.items() if id in self._picture.topics}
        base = None
        if position.epoch != self._epoch:
            base = Base(epoch=position.epoch, version=self._line.last_of(position.epoch))
        return self._publication(position.number, base, known, news, news.deleted)

    def _publication(
        self,
        from_version: int,
        base: Base | None,
        changed: Mapping[TopicId, Collection[int]] | None,
        news: News,
        deleted: Mapping[TopicId, str],
    ) -> Publication:
        return Publication(
            from_version=from_version,
            to_version=self._line.head.number,
            base=base,
            picture=self._picture,
            changed=changed,
            deleted=deleted,
            brokers=news.brokers,
            max_broker_epoch=self._max_broker_epoch,
            traceparent=news.traceparent,
        )

    def _brokers_since(self, picture: Cluster) -> frozenset[BrokerId]:
        before, now = self._picture.brokers, picture.brokers
        if before is now:
            return frozenset()
        changed = {id for id, broker in now.items() if before.get(id) != broker}
        return frozenset(changed.union(id for id in before if id not in now))


def _by_topic(keys: Iterable[PartitionKey]) -> Mapping[TopicId, TopicNews]:
    numbers: dict[TopicId, set[int]] = {}
    for key in keys:
        numbers.setdefault(key.topic_id, set()).add(key.partition)
    return {id: TopicNews("", frozenset(chosen)) for id, chosen in numbers.items()}


class Announcer:
    """Puts publications of one reign into the words of the wire."""

    def __init__(self, reign: Reign, *, cluster_id: str, client_listener: Address) -> None:
        self._reign = reign
        self._cluster_id = cluster_id
        self._client_listener = client_listener

    @property
    def cluster_id(self) -> str:
        """Id of the cluster."""
        return self._cluster_id

    @property
    def controller(self) -> types_pb2.Controller:
        """This reign, for clients."""
        reign = self._reign
        return types_pb2.Controller(id=reign.controller_id, epoch=reign.epoch, client=endpoint(self._client_listener))

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
        reign, base = self._reign, publication.base
        brokers = publication.picture.brokers
        sent = brokers if publication.all_brokers else publication.brokers
        return propagation_pb2.PublishChangesRequest(
            controller_id=reign.controller_id,
            controller_epoch=reign.epoch,
            from_version=publication.from_version,
            to_version=publication.to_version,
            part=number,
            last=last,
            base_epoch=0 if base is None else base.epoch,
            base_version=0 if base is None else base.version,
            max_broker_epoch=publication.max_broker_epoch,
            cluster_id=self._cluster_id,
            controller=self.controller,
            brokers=[broker_message(brokers[id]) for id in sorted(sent) if id in brokers] if number == 0 else [],
            all_brokers=publication.all_brokers and number == 0,
            removed_brokers=sorted(id for id in publication.brokers if id not in brokers) if number == 0 else [],
            topics=topics,
            traceparent=publication.traceparent if number == 0 else "",
            inter_broker_protocol=publication.picture.settings.inter_broker_protocol if number == 0 else 0,
        )


def _states(publication: Publication) -> Iterator[types_pb2.TopicState]:
    picture = publication.picture
    for id, name in publication.deleted.items():
        if id not in publication.picture.topics:
            yield types_pb2.TopicState(name=name, topic_id=id, deleted=True)
    for id, numbers in publication.numbers():
        topic: Topic = picture.topics[id]
        left = iter(numbers)
        while taken := list(islice(left, PART_PARTITIONS)):
            yield types_pb2.TopicState(
                name=topic.name,
                topic_id=id,
                partitions=[_state(picture, PartitionKey(id, number)) for number in taken],
            )


def _state(picture: Cluster, key: PartitionKey) -> types_pb2.PartitionState:
    # One that is not there was named when it was; its topic stays.
    return state_of(picture, key) or types_pb2.PartitionState(
        partition=key.partition, leader=NO_LEADER, leader_epoch=NO_EPOCH, version=-1, removed=True
    )
