"""What is offered, what the cluster is, and topics made and deleted: between Kafka's messages and the handlers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.apis import APIS, PRODUCE
from regnum_kafka_wire.gen.api_versions_request import ApiVersionsRequest
from regnum_kafka_wire.gen.api_versions_response import ApiVersion, ApiVersionsResponse
from regnum_kafka_wire.gen.create_topics_request import CreateTopicsRequest
from regnum_kafka_wire.gen.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from regnum_kafka_wire.gen.delete_topics_request import DeleteTopicsRequest
from regnum_kafka_wire.gen.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from regnum_kafka_wire.gen.describe_cluster_request import DescribeClusterRequest
from regnum_kafka_wire.gen.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from regnum_kafka_wire.gen.metadata_request import MetadataRequest
from regnum_kafka_wire.gen.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from regnum_model.access import ResourceType
from regnum_model.topics import INTERNAL_TOPICS, check_topic_name
from regnum_service.access.authorization import Authorizer
from regnum_service.access.topic_sight import TopicSight
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.answers import making
from regnum_service.slices import Turns, slices
from regnum_service.topic_pages import listed

from regnum_broker.kafka.addresses import Addresses, id_bytes, shown_leader
from regnum_broker.kafka.administration.configs import RESOURCES, SETTING_BYTES
from regnum_broker.kafka.administration.operations import NOT_ASKED, authorized
from regnum_broker.kafka.administration.passing_on import PassingOn, header
from regnum_broker.kafka.auto_creation import AutoCreation
from regnum_broker.kafka.context import Context
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

PARTITION_BYTES: Final = 400
"""About what a partition takes of an answer, before it is encoded."""
SLICE: Final = 1_000
"""Partitions put into an answer before the event loop gets a turn (safety rule S22)."""
KNOWS_LISTENERS: Final = 6
"""First version of Metadata whose clients know that error."""
MAY_NAME_NONE: Final = 12
"""First version of Metadata that leaves the name of an unknown id away."""
DELETES_BY_ID: Final = 6
"""First version of DeleteTopics whose topics may be named by id."""
NAMES_MAX: Final = 10_000
"""Topics of one request."""
UNKNOWN: Final = -1
"""A number of partitions, or of replicas, that the cluster chooses."""
TELLS_SETTINGS: Final = 5
"""First version of CreateTopics whose clients are told what settings came of it (KIP-525)."""
SAYS_WHETHER_TO_MAKE: Final = 4
"""First version of Metadata whose clients say whether a topic that they ask for may be made."""


class Admin:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        *,
        cache: MetadataCache,
        leaders: CurrentLeaders,
        addresses: Addresses,
        authorizer: Authorizer,
        controller: PassingOn,
        creation: AutoCreation,
    ) -> None:
        """Only assigns.

        Args:
            cache: the cluster, as far as this broker has heard.
            leaders: who leads what.
            addresses: of brokers.
            authorizer: which topics a caller may be told of.
            controller: carries out changes.
            creation: makes topics that are asked for.
        """
        self._cache: Final = cache
        self._leaders: Final = leaders
        self._addresses: Final = addresses
        self._authorizer: Final = authorizer
        self._controller: Final = controller
        self._creation: Final = creation

    async def versions(self, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
        """What is offered."""
        del request, context
        return ApiVersionsResponse(api_keys=offered())

    def no_versions(self, request: ApiVersionsRequest, context: Context, code: Code) -> ApiVersionsResponse:
        """The same, with the reason why it had to be asked."""
        del request, context
        return ApiVersionsResponse(error_code=code, api_keys=offered())

    async def metadata(self, request: MetadataRequest, context: Context) -> MetadataResponse:
        """Brokers, and the topics that were asked for."""
        everything = request.topics is None or (context.version == 0 and not request.topics)
        sight, turns = TopicSight(self._authorizer), Turns(SLICE)
        topics: list[MetadataResponseTopic] = []
        brokers = self._addresses.brokers
        if everything:
            for view in await listed(sight, self._cache.names, lambda: self._cache.topics):
                await turns.took(1 + len(view.partitions))
                if sight.lists(view.name):
                    topics.append(self._topic(view, brokers, request, context))
        else:
            # As in Kafka each once: a name is a few bytes, and its answer thousands of partitions.
            asked = {(one.name, one.topic_id): one for one in request.topics or ()}.values()
            if len(asked) > NAMES_MAX:
                raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {NAMES_MAX} topics")
            missing = await self._made(request, context, sight)
            known, brokers = self._cache.topics, self._addresses.brokers
            for one in asked:
                named = bool(one.name)
                name = one.name if named else self._addresses.name_of(one.topic_id)
                found = None if name is None else known.get(name)
                await turns.took(1 + (0 if found is None else len(found.partitions)))
                if name is None or (not named and not sight.answers(name)):
                    # (Of an id nothing is said that a caller may not know, not even that there is such a topic.)
                    topics.append(_no_topic(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, None, one.topic_id, context))
                elif not sight.answers(name):
                    code = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
                    topics.append(_no_topic(code, name, one.topic_id, context))
                elif found is None:
                    topics.append(_no_topic(missing.get(name) or _why_unknown(name), name, one.topic_id, context))
                else:
                    topics.append(self._topic(found, brokers, request, context))
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack or None
                )
                for broker in brokers.values()
            ],
            cluster_id=self._cache.cluster_id,
            controller_id=self._addresses.gate,
            topics=topics,
        )

    def no_metadata(self, request: MetadataRequest, context: Context, code: Code) -> MetadataResponse:
        """That nothing is told of these topics."""
        return MetadataResponse(
            topics=[_no_topic(code, one.name, one.topic_id, context) for one in request.topics or ()],
            error_code=code,
        )

    async def _made(self, request: MetadataRequest, context: Context, sight: TopicSight) -> Mapping[str, Code]:
        """Make what is asked for and may be made; why what is still missing is."""
        if context.version >= SAYS_WHETHER_TO_MAKE and not request.allow_auto_topic_creation:
            return {}
        names = [one.name for one in request.topics or () if one.name and sight.answers(one.name)]
        return await self._creation.make(names, context.call)

    def _topic(
        self, view: TopicView, brokers: Collection[int], request: MetadataRequest, context: Context
    ) -> MetadataResponseTopic:
        making(PARTITION_BYTES * len(view.partitions))
        partitions = []
        for number in sorted(view.partitions):
            state = self._leaders.state_of(view, number)
            leader, code = shown_leader(state, brokers, knows_listeners=context.version >= KNOWS_LISTENERS)
            partitions.append(
                MetadataResponsePartition(
                    error_code=code,
                    partition_index=number,
                    leader_id=leader,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=state.replicas,
                    isr_nodes=state.isr,
                    offline_replicas=state.offline_replicas,
                )
            )
        return MetadataResponseTopic(
            name=view.name,
            topic_id=id_bytes(view.topic_id),
            is_internal=view.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=authorized(self._authorizer, ResourceType.TOPIC, view.name)
            if request.include_topic_authorized_operations
            else NOT_ASKED,
        )

    async def cluster(self, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
        """The cluster without its topics."""
        del context
        return DescribeClusterResponse(
            cluster_id=self._cache.cluster_id,
            controller_id=self._addresses.gate,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack or None
                )
                for broker in self._addresses.brokers.values()
            ],
            cluster_authorized_operations=authorized(self._authorizer, ResourceType.CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )

    def no_cluster(self, request: DescribeClusterRequest, context: Context, code: Code) -> DescribeClusterResponse:
        """That it is not told."""
        del request, context
        return DescribeClusterResponse(error_code=code)

    async def create(self, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
        """Make topics; the answer comes when this broker knows them, or its time is up."""
        self._controller.check_gate()
        asked = admin_pb2.CreateTopicsRequest(
            header=header(context), timeout_ms=max(0, request.timeout_ms), validate_only=request.validate_only
        )
        turns = Turns(SLICE)
        for topic in request.topics:
            await turns.took()
            new = asked.topics.add(name=topic.name, mutation_id=self._controller.new_mutation_id())
            for one in topic.assignments:
                new.assignment.add(partition=one.partition_index, replicas=one.broker_ids)
            if not topic.assignments:
                new.partitions = (
                    self._creation.defaults.partitions if topic.num_partitions == UNKNOWN else topic.num_partitions
                )
                new.replication_factor = topic.replication_factor
            new.configs.extend(
                admin_pb2.NewTopicConfig(name=config.name, value=config.value or "") for config in topic.configs
            )
        answer = await self._controller.pass_on("CreateTopics", asked, admin_pb2.CreateTopicsResponse, context)
        made = [one.name for one in answer.results if not one.error_code and not request.validate_only]
        await self._cache.until(lambda: all(name in self._cache.topics for name in made), request.timeout_ms / 1000)
        settings = await self._settings(made, context) if context.version >= TELLS_SETTINGS else {}
        return CreateTopicsResponse(
            throttle_time_ms=answer.throttle_time_ms,
            topics=[_created(one, settings.get(one.name)) for one in answer.results],
        )

    async def _settings(self, made: Sequence[str], context: Context) -> Mapping[str, admin_pb2.DescribeConfigsResult]:
        """Settings of topics that were made. They are made whatever becomes of this: so nothing is raised."""
        found: dict[str, admin_pb2.DescribeConfigsResult] = {}
        turns = Turns(SLICE)
        try:
            async for names in slices(made, RESOURCES):
                asked = admin_pb2.DescribeConfigsRequest(header=header(context))
                for name in names:
                    asked.resources.add(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name)
                answer = await self._controller.pass_on(
                    "DescribeConfigs", asked, admin_pb2.DescribeConfigsResponse, context
                )
                for one in answer.results:
                    await turns.took(1 + len(one.configs))
                    making(SETTING_BYTES * len(one.configs))
                    found[one.resource.name] = one
        except RegnumError as error:
            untold = admin_pb2.DescribeConfigsResult(error_code=error.code)
            return dict.fromkeys(made, untold) | found
        return found

    def no_create(self, request: CreateTopicsRequest, context: Context, code: Code) -> CreateTopicsResponse:
        """That none were made."""
        del context
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=code, error_message=None, configs=None)
                for topic in request.topics
            ]
        )

    async def delete(self, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
        """Delete topics, by name or by id."""
        self._controller.check_gate()
        asked = admin_pb2.DeleteTopicsRequest(header=header(context), timeout_ms=max(0, request.timeout_ms))
        for name, topic_id in _deleted(request, context):
            asked.topics.add(
                name=name or "",
                topic_id=self._addresses.text_of(topic_id) if any(topic_id) else "",
                mutation_id=self._controller.new_mutation_id(),
            )
        answer = await self._controller.pass_on("DeleteTopics", asked, admin_pb2.DeleteTopicsResponse, context)
        gone = [one.topic_id for one in answer.results if not one.error_code and one.topic_id]
        await self._cache.until(lambda: not self._addresses.knows_any(gone), request.timeout_ms / 1000)
        return DeleteTopicsResponse(
            throttle_time_ms=answer.throttle_time_ms,
            responses=[
                DeletableTopicResult(
                    name=one.name or None,
                    topic_id=id_bytes(one.topic_id),
                    error_code=one.error_code,
                    error_message=one.error_message or None,
                )
                for one in answer.results
            ],
        )

    def no_delete(self, request: DeleteTopicsRequest, context: Context, code: Code) -> DeleteTopicsResponse:
        """That none were deleted."""
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
                for name, topic_id in _deleted(request, context)
            ]
        )


def _created(
    one: admin_pb2.CreateTopicResult, settings: admin_pb2.DescribeConfigsResult | None
) -> CreatableTopicResult:
    untold = 0 if settings is None else settings.error_code
    return CreatableTopicResult(
        name=one.name,
        topic_id=id_bytes(one.topic_id),
        error_code=one.error_code,
        error_message=one.error_message or None,
        topic_config_error_code=untold,
        num_partitions=one.partitions,
        replication_factor=one.replication_factor,
        configs=None
        if one.error_code or untold
        else [
            CreatableTopicConfigs(
                name=setting.name,
                value=None if setting.sensitive else setting.value,
                read_only=setting.read_only,
                config_source=setting.source,
                is_sensitive=setting.sensitive,
            )
            for setting in (() if settings is None else settings.configs)
        ],
    )


def offered() -> list[ApiVersion]:
    """Every call and its versions; Produce from 0 on, for librdkafka looks whether it is there (KAFKA-18659)."""
    return [ApiVersion(api.key, 0 if api.key == PRODUCE else api.oldest, api.newest) for api in APIS.values()]


def _deleted(request: DeleteTopicsRequest, context: Context) -> Iterable[tuple[str | None, bytes]]:
    if context.version >= DELETES_BY_ID:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, bytes(16)) for name in request.topic_names]


def _no_topic(code: int, name: str | None, topic_id: bytes, context: Context) -> MetadataResponseTopic:
    if name is None and context.version < MAY_NAME_NONE:
        name = ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _why_unknown(name: str) -> Code:
    try:
        check_topic_name(name)
    except ValueError:
        return errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    return errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
