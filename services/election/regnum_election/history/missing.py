"""What no event tells of: a controller wrote it to the store, and was killed before it wrote that down.

Goals: a partition's story says where something is missing, and whose reign it was; a failover waits for none of this.

Constraints: the log may be much longer than what one looks at after a failover, and begin later than the cluster. So
only reigns count that the part which was looked at has as a whole: a state of an earlier one may be told of further up.

Algorithm: every event of a partition names its leader epoch, which never goes back. The newest that the log says of a
partition is compared with the one in the store; a higher one there, written in a reign that the log has as a whole, was
written down nowhere. (Changes of the in-sync replicas alone come by the leader's report, or are found by a reading.)

A topic came to be in such a reign, and nothing tells of it, where no event names it and its first partition has its
first state, of such a reign, or none of its partitions had a state when it was found. One goes without a word where its
deletion is recorded, its nodes stand, and no event says that it was deleted: that event precedes the clearing.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_service.slices import slices

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.history.encoding import decode, first_of
from regnum_election.history.events import PartitionRow

LOOKED_AT_BYTES: Final = 2 * 2**20
"""How much of the log is looked at, from its end, about: some 100,000 changes of partitions."""

ROWS_MAX: Final = 10_000
"""States that are told of one by one; of the others their number is."""

TOPICS_PER_TURN: Final = 5_000
"""Topics looked at between two turns of the event loop."""

PARTITIONS_PER_TURN: Final = 5_000
"""Partitions compared between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLeaders:
    """What the newest part of the log says."""

    whole_since: ControllerEpoch
    """Every event of this reign and of later ones was looked at, as far as the log has it."""
    epochs: Mapping[PartitionKey, LeaderEpoch]
    """The newest leader epoch of each partition that is told of."""
    created: frozenset[TopicId] = frozenset()
    """Topics of which it is told that they were created."""
    deleted: frozenset[TopicId] = frozenset()
    """Topics of which it is told that they were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlogged:
    """States that nothing tells of."""

    rows: Mapping[ControllerEpoch, list[PartitionRow]]
    """By the reign that wrote them; the first of all that there are."""
    count: int
    """All of them."""


def logged_leaders(newest_first: Iterable[bytes], *, bytes_max: int = LOOKED_AT_BYTES) -> LoggedLeaders | None:
    """Look at the end of a log; None if it is empty.

    Args:
        newest_first: its entries.
        bytes_max: where to stop.
    """
    epochs: dict[PartitionKey, LeaderEpoch] = {}
    came: set[TopicId] = set()
    went: set[TopicId] = set()
    looked_at = 0
    oldest = None
    for payload in newest_first:
        entry = decode(payload)
        oldest = first_of(entry)
        columns = entry.partitions
        ids = [TopicId(id) for id in columns.topic_ids]
        for topic, partition, epoch in zip(columns.topic, columns.partition, columns.epoch, strict=True):
            epochs.setdefault(PartitionKey(ids[topic], partition), LeaderEpoch(epoch))
        if entry.other.kind == words.EVENT_KIND_TOPIC_CREATED:
            came.add(TopicId(entry.other.topic_id))
        elif entry.other.kind == words.EVENT_KIND_TOPIC_DELETED:
            went.add(TopicId(entry.other.topic_id))
        looked_at += len(payload)
        if looked_at >= bytes_max:
            break
    if oldest is None:
        return None
    whole_since = ControllerEpoch(oldest.epoch if oldest.number == 1 else oldest.epoch + 1)
    return LoggedLeaders(whole_since=whole_since, epochs=epochs, created=frozenset(came), deleted=frozenset(went))


async def unlogged(
    partitions: Mapping[PartitionKey, Partition],
    logged: LoggedLeaders,
    *,
    reign: ControllerEpoch,
    rows_max: int = ROWS_MAX,
) -> Unlogged:
    """Compare, giving way to others now and then.

    Args:
        partitions: as the successor found them.
        logged: what the log says.
        reign: the successor's; what it has written itself is in hand.
        rows_max: states that are kept.
    """
    rows: dict[ControllerEpoch, list[PartitionRow]] = {}
    count = 0
    async for some in slices(partitions.items(), PARTITIONS_PER_TURN):
        for key, partition in some:
            held = partition.held
            if held is None or not logged.whole_since <= held.state.controller_epoch < reign:
                continue
            if logged.epochs.get(key, -1) >= held.state.leader_epoch:
                continue
            count += 1
            if count <= rows_max:
                row = PartitionRow(key, None, held.state, held.version)
                rows.setdefault(held.state.controller_epoch, []).append(row)
    return Unlogged(rows=rows, count=count)


async def unlogged_topics(
    found: Cluster, unborn: Collection[TopicId], logged: LoggedLeaders, *, reign: ControllerEpoch
) -> list[Topic]:
    """Topics that came to be and of which nothing tells; gives way to others now and then.

    Args:
        found: the cluster as the successor found it.
        unborn: topics none of whose partitions had a state when the successor found them.
        logged: what the log says.
        reign: the successor's.
    """
    told = {key.topic_id for key in logged.epochs} | logged.created
    topics: list[Topic] = []
    async for some in slices(found.topics.values(), TOPICS_PER_TURN):
        for topic in some:
            first = found.partitions[PartitionKey(topic.id, topic.partitions[0])]
            is_new = topic.id in unborn or _is_new(first, logged.whole_since, reign)
            if is_new and topic.id not in told:
                topics.append(topic)
    return topics


def _is_new(partition: Partition, since: ControllerEpoch, reign: ControllerEpoch) -> bool:
    """Whether a partition came to be in one of these reigns."""
    if partition.held is None:
        return False
    state = partition.held.state
    return state.leader_epoch == partition.began and since <= state.controller_epoch < reign


AskLog = Callable[[ControllerEpoch], Awaitable[LoggedLeaders | None]]
"""Asks a log what it says, without a reign's own events. Raises OSError."""


async def nothing_logged(_reign: ControllerEpoch) -> LoggedLeaders | None:
    """There is no log."""
    return None
