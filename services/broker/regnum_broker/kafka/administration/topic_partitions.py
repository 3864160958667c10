"""DescribeTopicPartitions: topics in pages of partitions, with what may lead them (KIP-966)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from regnum_kafka_wire.gen.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from regnum_model.access import ResourceType
from regnum_model.topics import INTERNAL_TOPICS
from regnum_service.access.authorization import Authorizer
from regnum_service.access.topic_sight import TopicSight
from regnum_service.errors import Code
from regnum_service.limits.answers import making
from regnum_service.slices import Turns

from regnum_broker.kafka.addresses import Addresses, id_bytes, shown_leader
from regnum_broker.kafka.administration.operations import authorized
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

PARTITIONS_MAX: Final = 2_000
"""Partitions of one answer, whatever is asked for (Kafka: max.request.partition.size.limit)."""
PARTITION_BYTES: Final = 400
"""About what a partition takes of an answer, before it is encoded."""
SLICE: Final = 1_000
"""Partitions or names looked at before the event loop gets a turn (safety rule S22)."""


class TopicPartitions:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self, *, cache: MetadataCache, leaders: CurrentLeaders, addresses: Addresses, authorizer: Authorizer
    ) -> None:
        """Only assigns.

        Args:
            cache: the cluster, as far as this broker has heard.
            leaders: who leads what.
            addresses: of brokers.
            authorizer: which topics a caller may be told of.
        """
        self._cache: Final = cache
        self._leaders: Final = leaders
        self._addresses: Final = addresses
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {75: (self.describe, self.no_describe)}

    async def describe(
        self, request: DescribeTopicPartitionsRequest, context: Context
    ) -> DescribeTopicPartitionsResponse:
        """A page of the topics that were named, or of all that the caller may be told of; by name."""
        del context
        sight, cache = TopicSight(self._authorizer), self._cache
        start = "" if request.cursor is None else request.cursor.topic_name
        if request.topics:
            named = {topic.name for topic in request.topics if topic.name >= start}
            return await self._page(request, sorted(named), sight.answers)
        if sight.nothing:
            return DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
        async with cache.names.asking:
            await cache.names.bring_up(lambda: cache.topics)
            # No turn of the loop between the names and what they are names of.
            names = sight.among(cache.names.since, cache.topics, start)
            return await self._page(request, names, sight.lists)

    async def _page(
        self, request: DescribeTopicPartitionsRequest, names: Iterable[str], shows: Callable[[str], bool]
    ) -> DescribeTopicPartitionsResponse:
        """Topics of these names, which begin at the cursor."""
        known, brokers, turns = self._cache.topics, self._addresses.brokers, Turns(SLICE)
        left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        following: Cursor | None = None
        for name in names:
            await turns.took()
            if not shows(name):
                if request.topics:
                    topics.append(_unknown(name, errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED))
                continue
            view = known.get(name)
            if view is None:
                topics.append(_unknown(name, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION))
                continue
            if not left:
                following = Cursor(name, 0)
                break
            first = request.cursor.partition_index if request.cursor and request.cursor.topic_name == name else 0
            numbers = [number for number in sorted(view.partitions) if number >= first]
            page = numbers[:left]
            await turns.took(len(page))
            topics.append(self._topic(view, page, brokers))
            left -= len(page)
            if len(page) < len(numbers):
                following = Cursor(name, numbers[len(page)])
                break
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)

    def no_describe(
        self, request: DescribeTopicPartitionsRequest, context: Context, code: Code
    ) -> DescribeTopicPartitionsResponse:
        """That nothing is told of them."""
        del context
        return DescribeTopicPartitionsResponse(topics=[_unknown(topic.name, code) for topic in request.topics])

    def _topic(
        self, view: TopicView, numbers: Collection[int], brokers: Collection[int]
    ) -> DescribeTopicPartitionsResponseTopic:
        making(PARTITION_BYTES * len(numbers))
        partitions = []
        for number in numbers:
            state = self._leaders.state_of(view, number)
            leader, code = shown_leader(state, brokers, knows_listeners=True)
            partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    error_code=code,
                    partition_index=number,
                    leader_id=leader,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=state.replicas,
                    isr_nodes=state.isr,
                    eligible_leader_replicas=state.elr,
                    last_known_elr=(),
                    offline_replicas=state.offline_replicas,
                )
            )
        return DescribeTopicPartitionsResponseTopic(
            name=view.name,
            topic_id=id_bytes(view.topic_id),
            is_internal=view.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=authorized(self._authorizer, ResourceType.TOPIC, view.name),
        )


def _unknown(name: str, code: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
