"""The picture of the controller in office, as a process that stands by holds it. Pure.

Goals: whoever wins next begins with what its predecessor last published, and knows under which version that was.

Constraints: a picture is whole or it is not used; a change joins on to exactly the version that is held. What it says
is a memory of somebody else's: nothing follows from it that the store has not confirmed (see ``unverified``).

Algorithm: changes come in parts. The first part of a full picture begins an empty one beside the picture that is held,
the first part of another change a copy of it (persistent maps: nothing is copied). The last part puts it in place.
Anything that does not fit raises GapError; the picture held before stays, and the whole is asked for again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from immutables import Map
from regnum.election.v1 import standby_pb2
from regnum_model.ids import ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.cluster import Cluster, HeldState, Partition, Topic
from regnum_election.standby.states import StateError, StateReader

NO_EPOCH: Final = ControllerEpoch(0)
"""Before the first reign."""


class GapError(Exception):
    """A change does not join on to the picture that is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A controller's picture as it was published under one version."""

    epoch: ControllerEpoch = NO_EPOCH
    """Reign that published it."""
    version: int = 0
    """Version within the reign, and the one that metadata processes know it by; 0: there is no picture."""
    picture: Cluster = field(default_factory=Cluster)
    """Topics and partitions; no brokers and no settings, which a successor reads anew."""
    unsettled: Map[PartitionKey, None] = field(default_factory=Map)
    """Partitions without a state, being created, in trouble, or on their way to other brokers: only the store can say
    what they are now, and who is assigned."""
    published_offline: Map[PartitionKey, None] = field(default_factory=Map)
    """Partitions that were published with replicas that their brokers cannot use, which a successor forgets."""

    @property
    def doubtful(self) -> frozenset[TopicId]:
        """Topics with a partition that is unsettled."""
        return frozenset(key.topic_id for key in self.unsettled if key.topic_id in self.picture.topics)


class FollowedPicture:
    """Puts the parts of changes together."""

    def __init__(self) -> None:
        self._whole = Followed()
        self._growing: Followed | None = None
        self._next_part = 0
        self._states: Final = StateReader()
        self._begun: set[TopicId] = set()
        """Topics that go on in a later part: the picture that grows has what came of them."""

    @property
    def whole(self) -> Followed:
        """The newest whole picture."""
        return self._whole

    def break_off(self) -> None:
        """What is not whole will not be."""
        self._growing = None
        self._begun = set()

    def forget(self) -> None:
        """Hold nothing any more."""
        self.break_off()
        self._whole = Followed()

    def take(self, part: standby_pb2.StatePart) -> bool:
        """A part; returns whether it made a change whole. Raises GapError."""
        if part.part == 0:
            self._growing = self._beginning(part)
            self._next_part, self._begun = 0, set()
            self._states.begin()
        if self._growing is None or part.part != self._next_part:
            raise GapError(f"part {part.part} follows part {self._next_part - 1}")
        self._next_part += 1
        self._states.listed(part.members)
        self._growing = self._with_topics(self._growing, part)
        if not part.last:
            return False
        if self._begun:
            raise GapError(f"{len(self._begun)} topics are not whole")
        self._whole = replace(self._growing, epoch=ControllerEpoch(part.controller_epoch), version=part.to_version)
        self._growing = None
        return True

    def _beginning(self, part: standby_pb2.StatePart) -> Followed:
        if part.from_version == 0:
            return Followed()
        if part.from_version != self._whole.version or part.controller_epoch < self._whole.epoch:
            raise GapError(f"a change from version {part.from_version} came to version {self._whole.version}")
        return self._whole

    def _with_topics(self, held: Followed, part: standby_pb2.StatePart) -> Followed:
        held = _without(held, [TopicId(topic.topic_id) for topic in part.topics if topic.deleted])
        picture = held.picture.without_partitions(_removed(part))
        topics = picture.topics.mutate()
        new: list[tuple[Topic, Mapping[int, Partition]]] = []
        given: dict[PartitionKey, Partition] = {}
        seen: set[TopicId] = set()
        for message in part.topics:
            if message.deleted:
                continue
            id = TopicId(message.topic_id)
            if id in seen:
                raise GapError(f"topic {message.name} stands twice in a part")
            seen.add(id)
            members = {item.partition: self._partition(id, item) for item in message.partitions if not item.removed}
            known = picture.topics.get(id)
            if known is None:
                new.append((self._grown(message, tuple(sorted(members))), members))
                continue
            if known.name != message.name:
                raise GapError(f"topic {id} was {known.name} and is {message.name}")
            # It may have thousands of partitions, and what changed is looked at alone.
            further = [number for number in members if PartitionKey(id, number) not in picture.partitions]
            numbers = tuple(sorted((*known.partitions, *further))) if further else known.partitions
            topics[id] = self._grown(message, numbers)
            given.update((PartitionKey(id, number), partition) for number, partition in members.items())
        picture = replace(picture, topics=topics.finish()).with_partitions(given)
        return _marked(replace(held, picture=picture.with_topics(new) if new else picture), part)

    def _grown(self, message: standby_pb2.FollowedTopic, numbers: tuple[int, ...]) -> Topic:
        """A topic with what came of it so far."""
        id = TopicId(message.topic_id)
        if len(numbers) > message.partition_count and any(not one.removed for one in message.partitions):
            # What is gone comes before everything else of its topic.
            raise GapError(f"topic {message.name} has fewer partitions than were known")
        if len(numbers) == message.partition_count:
            self._begun.discard(id)
        else:
            self._begun.add(id)
        return _topic(message, numbers)

    def _partition(self, id: TopicId, message: standby_pb2.FollowedPartition) -> Partition:
        held: HeldState | None = None
        if message.HasField("held"):
            try:
                state = self._states.state(id, message.held)
            except StateError as error:
                raise GapError(f"state of {id} {message.partition}: {error}") from error
            held = HeldState(state=state, version=message.state_version)
        return Partition(
            replicas=self._states.ids(message.replicas),
            held=held,
            creating=message.creating,
            trouble=message.trouble if message.HasField("trouble") else None,
            reassignment=self._reassignment(message.reassignment) if message.HasField("reassignment") else None,
            began=LeaderEpoch(message.began_leader_epoch),
        )

    def _reassignment(self, message: standby_pb2.FollowedReassignment) -> Reassignment:
        return Reassignment(
            origin=self._states.ids(message.origin),
            target=self._states.ids(message.target),
            since_ms=message.since_ms,
        )


def _removed(part: standby_pb2.StatePart) -> dict[TopicId, list[int]]:
    """Partitions that are gone from topics that stay."""
    removed: dict[TopicId, list[int]] = {}
    for topic in part.topics:
        if numbers := [item.partition for item in topic.partitions if item.removed]:
            removed[TopicId(topic.topic_id)] = numbers
    return removed


def _without(held: Followed, gone: Sequence[TopicId]) -> Followed:
    if not gone:
        return held
    unsettled, offline = held.unsettled.mutate(), held.published_offline.mutate()
    for id in gone:
        for key in held.picture.of_topic(id):
            unsettled.pop(key, None)
            offline.pop(key, None)
    return replace(
        held,
        picture=held.picture.without_topics(gone),
        unsettled=unsettled.finish(),
        published_offline=offline.finish(),
    )


def _marked(held: Followed, part: standby_pb2.StatePart) -> Followed:
    """The marks of the partitions of a part, as they are in the picture that has it."""
    unsettled, offline = held.unsettled.mutate(), held.published_offline.mutate()
    for topic in part.topics:
        for item in topic.partitions:
            key = PartitionKey(TopicId(topic.topic_id), item.partition)
            unsettled.pop(key, None)
            offline.pop(key, None)
            if item.removed:
                continue
            if item.creating or not item.HasField("held") or item.HasField("trouble") or _moves(item):
                unsettled[key] = None
            if item.replicas_offline:
                offline[key] = None
    return replace(held, unsettled=unsettled.finish(), published_offline=offline.finish())


def _moves(message: standby_pb2.FollowedPartition) -> bool:
    """Whether a reassignment is open, and may be over by now: one to fewer replicas without growing first."""
    return message.HasField("reassignment")


def _topic(message: standby_pb2.FollowedTopic, partitions: tuple[int, ...]) -> Topic:
    return Topic(
        name=message.name,
        id=TopicId(message.topic_id),
        version=message.version,
        partitions=partitions,
        mutation=message.mutation if message.HasField("mutation") else None,
        creation_id=message.creation_id if message.HasField("creation_id") else None,
        partition_mutations=tuple(message.partition_mutations),
    )
