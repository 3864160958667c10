"""AdminService on the client listener: turns messages into requests to the controller, and outcomes into messages."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from regnum.admin.v1 import admin_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.ids import BrokerId, TopicId
from regnum_service.access.authorization import Right
from regnum_service.item_errors import item_status
from regnum_service.mutations.config_messages import alter_results, alteration_of, replacement_of, resource_of
from regnum_service.slices import Turns

from regnum_election.configs.calls import RESOURCES_MAX
from regnum_election.configs.messages import describe_response
from regnum_election.controller import Controller
from regnum_election.health.messages import describe_health, partitions_named
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.publication.lag import describe_propagation
from regnum_election.reassignment import messages as reassignment_messages
from regnum_election.reassignment.calls import PARTITIONS_MAX as REASSIGNED_MAX
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.recovery.messages import recovery_request, recovery_response
from regnum_election.servicers.callers import ITEMS_PER_TURN, check_count, wait_s, who_asks
from regnum_election.servicers.quotas import QuotaAdminServicer
from regnum_election.servicers.topic_results import creation_results, deletion_results, partitions_results
from regnum_election.topics.requests import PARTITIONS_MAX, DeletionRequest, TopicRequest

CREATE_STRICT_SINCE: Final = 6
"""Version of CreateTopics from which on a quota may refuse; before, it only tells the throttle time."""

DELETE_STRICT_SINCE: Final = 5
"""The same of DeleteTopics."""

CREATE_PARTITIONS_STRICT_SINCE: Final = 3
"""The same of CreatePartitions."""

TOPICS_MAX: Final = 10_000
"""Topics of one call."""


DELETE_TOPIC: Final = Right(Operation.DELETE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)

Context = grpc.aio.ServicerContext[Any, Any]


class AdminServicer(QuotaAdminServicer):
    """Changes to topics, partitions and settings, and what the modules next door serve."""

    async def _not_deletable(
        self, topics: Sequence[admin_pb2.DeletableTopic], controller: Controller
    ) -> dict[int, admin_pb2.DeleteTopicResult]:
        """Results of topics that the caller has no right to, by place: the same whether they are there or not."""
        refused: dict[int, admin_pb2.DeleteTopicResult] = {}
        turns = Turns(ITEMS_PER_TURN)
        known = controller.picture.topics
        for place, topic in enumerate(topics):
            await turns.took()
            found = known.get(TopicId(topic.topic_id)) if topic.topic_id else None
            # An id that nobody has tells nothing, and names nothing that there could be rights to.
            names = {name for name in (topic.name, "" if found is None else found.name) if name}
            if all(DELETE_TOPIC.held(self._authorizer, name) for name in sorted(names)):
                continue
            refused[place] = _not_deletable(topic)
        return refused

    async def CreateTopics(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.CreateTopicsRequest, context: Context
    ) -> admin_pb2.CreateTopicsResponse:
        """Create topics, each on its own."""
        controller = await self._role.controller()
        check_count(len(request.topics), TOPICS_MAX, "topics")
        turns = Turns(ITEMS_PER_TURN)
        requests = [await _topic_request(topic, turns) for topic in request.topics]
        account = self._account(request.header, context, strict_since=CREATE_STRICT_SINCE)
        async with self._in_turn(controller, account, context):
            answered = await controller.topics.create(
                requests,
                validate_only=request.validate_only,
                wait_s=wait_s(request.timeout_ms, context),
                account=account,
            )
        results = await creation_results(request.topics, answered, turns)
        return admin_pb2.CreateTopicsResponse(results=results, throttle_time_ms=answered.throttle_ms)

    async def DeleteTopics(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.DeleteTopicsRequest, context: Context
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete topics, each on its own."""
        controller = await self._role.controller()
        check_count(len(request.topics), TOPICS_MAX, "topics")
        requests: list[DeletionRequest] = []
        turns = Turns(ITEMS_PER_TURN)
        refused = await self._not_deletable(request.topics, controller)
        for topic in (topic for place, topic in enumerate(request.topics) if place not in refused):
            requests.append(
                DeletionRequest(name=topic.name, topic_id=topic.topic_id, mutation=topic.mutation_id or None)
            )
            await turns.took()
        account = self._account(request.header, context, strict_since=DELETE_STRICT_SINCE)
        async with self._in_turn(controller, account, context):
            answered = await controller.topics.delete(
                requests,
                wait_s=wait_s(request.timeout_ms, context),
                account=account,
            )
        allowed = [topic for place, topic in enumerate(request.topics) if place not in refused]
        results = await deletion_results(allowed, answered, turns)
        for place, topic in enumerate(allowed):
            await turns.took()
            told = results[place].name
            # A repeat is answered with the name of a topic that is gone, which no right was asked to before.
            if told != topic.name and not DELETE_TOPIC.held(self._authorizer, told):
                results[place] = _not_deletable(topic)
        for place, result in refused.items():
            results.insert(place, result)
        return admin_pb2.DeleteTopicsResponse(results=results, throttle_time_ms=answered.throttle_ms)

    async def CreatePartitions(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.CreatePartitionsRequest, context: Context
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add partitions, to each topic on its own."""
        controller = await self._role.controller()
        check_count(len(request.topics), TOPICS_MAX, "topics")
        turns = Turns(ITEMS_PER_TURN)
        requests = [
            AdditionRequest(
                name=topic.name,
                total=topic.count,
                assignment=await _assignment(topic.assignment, turns),
                mutation=topic.mutation_id or None,
            )
            for topic in request.topics
        ]
        account = self._account(request.header, context, strict_since=CREATE_PARTITIONS_STRICT_SINCE)
        async with self._in_turn(controller, account, context):
            answered = await controller.partitions.add(
                requests,
                validate_only=request.validate_only,
                wait_s=wait_s(request.timeout_ms, context),
                account=account,
                who=who_asks(request.header, context),
            )
        return admin_pb2.CreatePartitionsResponse(
            results=await partitions_results(request.topics, answered, turns),
            throttle_time_ms=answered.throttle_ms,
        )

    async def DeletePartitions(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.DeletePartitionsRequest, context: Context
    ) -> admin_pb2.DeletePartitionsResponse:
        """Remove partitions, of each topic on its own."""
        controller = await self._role.controller()
        check_count(len(request.topics), TOPICS_MAX, "topics")
        turns = Turns(ITEMS_PER_TURN)
        requests: list[RemovalRequest] = []
        for topic in request.topics:
            check_count(len(topic.partitions), PARTITIONS_MAX, "partitions of one topic")
            numbers = tuple(topic.partitions)
            requests.append(
                RemovalRequest(
                    name=topic.name, topic_id=topic.topic_id, partitions=numbers, mutation=topic.mutation_id or None
                )
            )
            await turns.took(1 + len(numbers))
        account = self._account(request.header, context, strict_since=0)
        async with self._in_turn(controller, account, context):
            answered = await controller.partitions.remove(
                requests,
                validate_only=request.validate_only,
                wait_s=wait_s(request.timeout_ms, context),
                account=account,
                who=who_asks(request.header, context),
            )
        return admin_pb2.DeletePartitionsResponse(
            results=await partitions_results(request.topics, answered, turns),
            throttle_time_ms=answered.throttle_ms,
        )

    async def RecoverPartitions(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.RecoverPartitionsRequest, context: Context
    ) -> admin_pb2.RecoverPartitionsResponse:
        """Look at partitions that nobody may lead, and elect what is left of them."""
        controller = await self._role.controller()
        recovered = await controller.recoveries.recover(
            recovery_request(request, who=who_asks(request.header, context)), wait_s=wait_s(request.timeout_ms, context)
        )
        return await recovery_response(recovered)

    async def AlterPartitionReassignments(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, context: Context
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Move partitions, each on its own."""
        controller = await self._role.controller()
        check_count(len(request.partitions), REASSIGNED_MAX, "partitions")
        wanted = await reassignment_messages.requests_of(request)
        done = iter(
            await controller.reassignments.alter(
                [one for one in wanted if isinstance(one, ReassignmentRequest)],
                validate_only=request.validate_only,
                who=who_asks(request.header, context),
                wait_s=wait_s(request.timeout_ms, context),
            )
        )
        outcomes = [next(done) if isinstance(one, ReassignmentRequest) else one for one in wanted]
        return await reassignment_messages.alter_response(request, outcomes)

    async def ListPartitionReassignments(  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.ListPartitionReassignmentsRequest,
        context: Context,  # noqa: ARG002
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """Partitions that move, and how far they are."""
        controller = await self._role.controller()
        check_count(len(request.topics), TOPICS_MAX, "topics")
        found = await controller.reassignments.ongoing(request.topics, token=request.page_token, size=request.page_size)
        return await reassignment_messages.list_response(found, controller.picture)

    async def ForgetBroker(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ForgetBrokerRequest, context: Context
    ) -> admin_pb2.ForgetBrokerResponse:
        """End what is remembered of a broker that never comes back."""
        controller = await self._role.controller()
        forgotten = await controller.forgetting.forget(
            BrokerId(request.broker_id),
            validate_only=request.validate_only,
            who=who_asks(request.header, context),
            wait_s=wait_s(request.timeout_ms, context),
        )
        return admin_pb2.ForgetBrokerResponse(
            deletions=forgotten.deletions,
            deletions_ended=forgotten.deletions_ended,
            assigned_partitions=forgotten.assigned_partitions,
        )

    async def IncrementalAlterConfigs(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.IncrementalAlterConfigsRequest, context: Context
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change settings, each resource on its own."""
        controller = await self._role.controller()
        check_count(len(request.alterations), RESOURCES_MAX, "resources")
        outcomes = await controller.configs.alter(
            [alteration_of(alteration) for alteration in request.alterations],
            validate_only=request.validate_only,
            wait_s=wait_s(request.timeout_ms, context),
            mutation=request.mutation_id or None,
        )
        return admin_pb2.IncrementalAlterConfigsResponse(results=alter_results(request.alterations, outcomes))

    async def AlterConfigs(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.AlterConfigsRequest, context: Context
    ) -> admin_pb2.AlterConfigsResponse:
        """Replace settings, each resource on its own."""
        controller = await self._role.controller()
        check_count(len(request.replacements), RESOURCES_MAX, "resources")
        outcomes = await controller.configs.alter(
            [replacement_of(replacement) for replacement in request.replacements],
            validate_only=request.validate_only,
            wait_s=wait_s(request.timeout_ms, context),
            mutation=request.mutation_id or None,
        )
        return admin_pb2.AlterConfigsResponse(results=alter_results(request.replacements, outcomes))

    async def DescribeConfigs(  # type: ignore[override]  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.DescribeConfigsRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """Settings as they are in force: a DescribeConfigsResponse."""
        controller = await self._role.controller()
        check_count(len(request.resources), RESOURCES_MAX, "resources")
        found = await controller.configs.describe(
            [resource_of(resource) for resource in request.resources],
            token=request.page_token,
            size=request.page_size,
            shows=DESCRIBE_TOPIC_CONFIGS.shows(self._authorizer),
        )
        return await describe_response(request.resources, found, documented=request.include_documentation)

    async def DescribeHealth(  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.DescribeHealthRequest,
        context: Context,  # noqa: ARG002
    ) -> admin_pb2.DescribeHealthResponse:
        """What is wrong with the cluster."""
        controller = await self._role.controller()
        return await describe_health(controller.health, most=partitions_named(request))

    async def DescribePropagation(  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.DescribePropagationRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> admin_pb2.DescribePropagationResponse:
        """How far metadata has come."""
        reigning = (await self._role.controller()).health.context
        return await describe_propagation(reigning.metadata, reigning.picture)


async def _topic_request(topic: admin_pb2.NewTopic, turns: Turns) -> TopicRequest:
    await turns.took()
    assignment = await _assignment(topic.assignment, turns)
    await turns.took(len(topic.configs))
    return TopicRequest(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor if topic.HasField("replication_factor") else None,
        assignment=assignment,
        mutation=topic.mutation_id or None,
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


async def _assignment(
    items: Sequence[admin_pb2.ReplicaAssignment], turns: Turns
) -> list[tuple[int, Sequence[BrokerId]]]:
    assignment: list[tuple[int, Sequence[BrokerId]]] = []
    for item in items:
        assignment.append((item.partition, tuple(map(BrokerId, item.replicas))))
        await turns.took(1 + len(item.replicas))
    return assignment


def _not_deletable(topic: admin_pb2.DeletableTopic) -> admin_pb2.DeleteTopicResult:
    error = DELETE_TOPIC.refusal(topic.name or topic.topic_id)
    return admin_pb2.DeleteTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=error.code,
        error_message=error.message,
        status=item_status(error.code, error.message),
    )
