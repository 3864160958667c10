"""What the console asks of a cluster: the part of the SDK's Admin, Consumer and Producer that its pages need."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import grpc
from regnum_client.admin.describing.events import ClusterEvent, EventFilter, EventPage, EventPosition
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.describing.quota_usage import ClientUsage, QuotaUsages
from regnum_client.admin.describing.replica_admin import ReplicaSize
from regnum_client.admin.describing.topics import TopicSummary
from regnum_client.admin.groups.views import CommittedOffset, GroupDescription, GroupListing
from regnum_client.admin.health.figures import Figures
from regnum_client.admin.health.views import HealthView
from regnum_client.admin.quotas import ClientQuota
from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.cluster.view import ClusterView, TopicView
from regnum_client.consumer.positions import Start
from regnum_client.records import ConsumedRecord, RecordMetadata, TopicPartition
from regnum_model.topic_filter import TopicFilter
from regnum_service.errors import RegnumError


class Cluster(Protocol):
    """A cluster that can be asked: ``regnum_client.Admin`` says what each call does. All raise RegnumError."""

    async def describe_cluster(self) -> ClusterView:
        """See Admin."""

    async def describe_health(self, *, partitions_max: int = 20) -> HealthView:
        """See Admin."""

    async def describe_figures(self) -> Figures:
        """See Admin."""

    def summarize_topics(
        self, names: Sequence[str] = (), *, chosen: TopicFilter = ..., limit: int = 0, first: str = ""
    ) -> AsyncGenerator[tuple[TopicSummary, ...], None]:
        """See Admin."""

    def describe_topics(
        self, names: Sequence[str] = (), *, chosen: TopicFilter = ..., limit: int = 0
    ) -> AsyncGenerator[TopicView, None]:
        """See Admin."""

    async def describe_topic(self, name: str) -> TopicView:
        """See Admin."""

    async def describe_replicas(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ReplicaSize, ...]]:
        """See Admin."""

    async def list_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets | RegnumError]:
        """See Admin."""

    async def list_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See Admin."""

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """See Admin."""

    async def describe_group(self, group_id: str) -> GroupDescription:
        """See Admin."""

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """See Admin."""

    async def describe_events(
        self,
        chosen: EventFilter = ...,
        *,
        before: EventPosition | None = None,
        after: EventPosition | None = None,
        limit: int = 0,
        wait_s: float = 0.0,
    ) -> EventPage:
        """See Admin."""

    async def last_events(self, chosen: EventFilter = ..., *, limit: int) -> tuple[ClusterEvent, ...]:
        """See Admin."""

    async def list_partition_reassignments(self, topics: Sequence[str] = ()) -> tuple[OngoingReassignment, ...]:
        """See Admin."""

    async def describe_client_quotas(self) -> tuple[ClientQuota, ...]:
        """See Admin."""

    async def describe_quota_usage(self, limit: int = 100) -> QuotaUsages:
        """See Admin."""

    async def describe_client_usage(self) -> dict[int, tuple[ClientUsage, ...] | RegnumError]:
        """See Admin."""


class Reader(Protocol):
    """Reads partitions: ``regnum_client.Consumer`` says what each call does."""

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = ...
    ) -> Sequence[TopicPartition]:
        """See Consumer."""

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """See Consumer."""

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Consumer."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Consumer."""

    def position(self, partition: TopicPartition) -> int:
        """See Consumer."""


class Writer(Protocol):
    """Sends records: see ``regnum_client.Producer``."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """See Producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the console is made over."""

    cluster: Cluster
    """Asked by every page."""
    connect: Callable[[], AbstractAsyncContextManager[Cluster]]
    """Another connection, for a question about all partitions: the first one goes on refreshing what it was asked."""
    read: Callable[[], AbstractAsyncContextManager[Reader]]
    """Opens a reader."""
    write: Callable[[], AbstractAsyncContextManager[Writer]] | None
    """Opens a writer; None: the console is read-only."""
    masked: Callable[[str], Sequence[str]] = lambda _topic: ()
    """What ``read`` masks of the records of a topic, in words."""


def is_believed_no_more(error: RegnumError) -> bool:
    """Whether an error says that a token has ended, or was never one."""
    return error.traits.status is grpc.StatusCode.UNAUTHENTICATED
