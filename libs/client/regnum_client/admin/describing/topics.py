"""Topics as they are described, and as the wire has them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_model.ids import TopicId
from regnum_model.topic_filter import TopicFilter, Trouble

from regnum_client.cluster.view import TopicView, topic_view

ALL: Final = TopicFilter()
"""Chooses every topic."""

_TROUBLES: Final["Mapping[Trouble, metadata_pb2.PartitionTrouble.ValueType]"] = {
    Trouble.OFFLINE: metadata_pb2.PARTITION_TROUBLE_OFFLINE,
    Trouble.UNDER_REPLICATED: metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED,
    Trouble.UNDER_MIN_ISR: metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR,
}


class TopicSummary(NamedTuple):
    """Counts of one topic. A tuple: a listing makes 20,000 of them, and frozen dataclasses take three times as long.

    >>> [page] = admin.summarize_topics(["orders"])
    >>> [(topic.name, topic.partitions, topic.offline_partitions) for topic in page]
    [('orders', 1, 0)]
    """

    name: str
    topic_id: TopicId
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """Replicas of the partition that has the most, without those that an open reassignment brings in."""
    offline_partitions: int
    """Partitions without a leader."""
    under_replicated_partitions: int
    """Partitions with fewer replicas in sync than they have, without those that an open reassignment brings in."""
    under_min_isr_partitions: int
    """Partitions with fewer replicas in sync than min.insync.replicas asks for."""


def filter_to_wire(chosen: TopicFilter) -> metadata_pb2.TopicFilter:
    """The message. Raises InvalidTopicFilterError."""
    chosen.check()
    return metadata_pb2.TopicFilter(
        prefix=chosen.prefix,
        glob=chosen.glob,
        internal=chosen.internal,
        troubles=[_TROUBLES[trouble] for trouble in Trouble if trouble in chosen.troubles],
    )


def summaries_of(page: metadata_pb2.DescribeTopicsResponse) -> tuple[TopicSummary, ...]:
    """The counts that a page has."""
    return tuple(
        TopicSummary(
            name=one.name,
            topic_id=TopicId(one.topic_id),
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            offline_partitions=one.offline,
            under_replicated_partitions=one.under_replicated,
            under_min_isr_partitions=one.under_min_isr,
        )
        for one in page.summaries
    )


class WholeTopics:
    """Puts topics together that go on from page to page."""

    def __init__(self) -> None:
        self._open: TopicView | None = None
        """The last topic of the page before, which goes on."""
        self.cursor: metadata_pb2.TopicCursor | None = None
        """Where the next page is to begin; None: there is none."""

    def take(self, page: metadata_pb2.DescribeTopicsResponse) -> Iterable[TopicView]:
        """The topics that are whole with this page."""
        self.cursor = page.next_cursor if page.HasField("next_cursor") else None
        whole: list[TopicView] = []
        for item in page.topics:
            if item.error_code != ErrorCode.ERROR_CODE_NONE:
                continue
            view, before = topic_view(item), self._open
            if before is not None and before.name == view.name:
                if before.topic_id != view.topic_id:
                    # Deleted and made anew between two pages: what was seen of it is of its former life.
                    self._open, self.cursor = None, metadata_pb2.TopicCursor(topic=view.name)
                    return whole
                both = MappingProxyType({**before.partitions, **view.partitions})
                view = replace(before, partitions=both, said=b"")
            elif before is not None:
                whole.append(before)
            self._open = view
        if self._open is not None and (self.cursor is None or self.cursor.topic != self._open.name):
            whole.append(self._open)
            self._open = None
        return whole
