"""The picture of the cluster after a change that a broker told of by itself. Pure.

What orders answers orders changes too (``view``): brokers, the controller and deletions are taken from no version below
the highest seen, and a leader epoch never goes back in one life of a topic. A change names what differs, with absolute
values, from some version at or below the picture's: what it does not name is as it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, TopicMetadata, WatchMetadataResponse
from regnum.types.v1.types_pb2 import PartitionState, TopicState
from regnum_model.broker_lists import NO_BROKERS
from regnum_model.ids import BrokerId

from regnum_client.cluster.view import BrokerView, ClusterView, PartitionView, TopicView, merge, topic_view

_NOTHING: Final[Mapping[int, PartitionView]] = MappingProxyType({})


def weight_of(parts: Iterable[WatchMetadataResponse]) -> int:
    """Topics and partitions that a change names."""
    return sum(
        1 + len(state.partitions) for part in parts for states in (part.topics, part.whole_topics) for state in states
    )


def is_too_late(known: ClusterView, parts: Sequence[WatchMetadataResponse]) -> bool:
    """Whether a change takes something away that is known, and is not believed, since an answer was newer.

    That answer may have been about other topics: somebody has to be asked.
    """
    if parts[-1].version >= known.version:
        return False
    return any(
        state.name in known.topics and (state.deleted or any(one.removed for one in state.partitions))
        for part in parts
        for states in (part.whole_topics, part.topics)
        for state in states
    )


def with_change(known: ClusterView, parts: Sequence[WatchMetadataResponse]) -> ClusterView | None:
    """What is known after a change; None: it tells of another cluster.

    Args:
        known: what was known before.
        parts: the messages of the change, in order.
    """
    head, version = parts[0], parts[-1].version
    if known.cluster_id and head.cluster_id and head.cluster_id != known.cluster_id:
        return None
    behind = version < known.version
    topics: dict[str, TopicView] = {}
    gone: set[str] = set()
    for part in parts:
        for state in part.whole_topics:
            _put(topics, gone, state, _whole(known.topics.get(state.name), state, behind=behind))
        for state in part.topics:
            present = None if state.name in gone else topics.get(state.name) or known.topics.get(state.name)
            _put(topics, gone, state, _partly(present, state, behind=behind))
    if behind:
        return replace(known, topics=MappingProxyType({**known.topics, **topics})) if topics else known
    # Brokers and controller are put together where answers are.
    answer = GetMetadataResponse(
        cluster_id=head.cluster_id,
        controller=head.controller,
        brokers=head.brokers,
        brokers_digest=head.brokers_digest,
        version=version,
    )
    said = merge(ClusterView(controller=known.controller), answer, asked=(), as_of_s=known.as_of_s)
    changed = topics or gone
    if changed:
        topics = {**{name: view for name, view in known.topics.items() if name not in gone}, **topics}
    brokers, digest = _brokers(known, said, head)
    return replace(
        known,
        cluster_id=head.cluster_id or known.cluster_id,
        controller=said.controller,
        brokers=brokers,
        brokers_digest=digest,
        topics=MappingProxyType(topics) if changed else known.topics,
        version=version,
    )


def _brokers(
    known: ClusterView, said: ClusterView, head: WatchMetadataResponse
) -> tuple[Mapping[BrokerId, BrokerView], int]:
    if head.all_brokers:
        return said.brokers, said.brokers_digest
    if not head.brokers and not head.removed_brokers:
        return known.brokers, known.brokers_digest
    brokers = {**known.brokers, **said.brokers}
    for id in head.removed_brokers:
        brokers.pop(BrokerId(id), None)
    # Which list this is no broker has said: the next answer brings it as a whole.
    return MappingProxyType(dict(sorted(brokers.items()))), NO_BROKERS


def _put(topics: dict[str, TopicView], gone: set[str], state: TopicState, view: TopicView | None) -> None:
    """Takes up what became of a topic; None: it is gone, unless nothing is said of it at all."""
    if view is not None:
        topics[state.name] = view
        gone.discard(state.name)
    elif state.deleted:
        topics.pop(state.name, None)
        gone.add(state.name)


def _whole(present: TopicView | None, state: TopicState, *, behind: bool) -> TopicView | None:
    if state.deleted:
        return present if behind else None
    if behind and present is not None:
        return _partly(present, state, behind=True)
    said = topic_view(TopicMetadata(topic=state))
    if present is None or present.topic_id != said.topic_id:
        return said
    partitions = {number: _later(present.partitions.get(number), one) for number, one in said.partitions.items()}
    if partitions == present.partitions:
        return present
    return replace(said, partitions=MappingProxyType(partitions), said=b"")


def _partly(present: TopicView | None, state: TopicState, *, behind: bool) -> TopicView | None:
    if state.deleted:
        return present if behind or (present is not None and state.topic_id not in {present.topic_id, ""}) else None
    if present is not None and present.topic_id != state.topic_id:
        if behind:
            return present
        present = None
    before = _NOTHING if present is None else present.partitions
    removed = [one.partition for one in state.partitions if one.removed]
    news = TopicState(name=state.name, topic_id=state.topic_id)
    news.partitions.extend(_there(state.partitions))
    said = topic_view(TopicMetadata(topic=news))
    partitions = dict(before)
    for number, one in said.partitions.items():
        known = before.get(number)
        if known is None or not behind or one.leader_epoch > known.leader_epoch:
            partitions[number] = _later(known, one)
    if not behind:
        for number in removed:
            partitions.pop(number, None)
    if present is not None and partitions == before:
        return present
    return replace(said, partitions=MappingProxyType(dict(sorted(partitions.items()))), said=b"")


def _there(states: Iterable[PartitionState]) -> Iterable[PartitionState]:
    return [one for one in states if not one.removed]


def _later(known: PartitionView | None, said: PartitionView) -> PartitionView:
    if known is not None and (known == said or known.leader_epoch > said.leader_epoch):
        return known
    return said
