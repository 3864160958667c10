"""Partitions added, led by others and moved: between Kafka's messages and the controller's."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from regnum_kafka_wire.gen.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from regnum_kafka_wire.gen.create_partitions_request import CreatePartitionsRequest
from regnum_kafka_wire.gen.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from regnum_kafka_wire.gen.elect_leaders_request import ElectLeadersRequest
from regnum_kafka_wire.gen.elect_leaders_response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from regnum_kafka_wire.gen.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from regnum_kafka_wire.gen.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from regnum_model.access import Operation, ResourceType
from regnum_service.access.authorization import Authorizer, Right
from regnum_service.errors import Code
from regnum_service.limits.answers import making
from regnum_service.slices import Turns

from regnum_broker.kafka.administration.passing_on import PassingOn, header
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.serving.metadata_cache import MetadataCache

PREFERRED: Final = 0
"""Kafka's number of that kind of election, and the only kind in version 0; 1: unclean."""
ELECTIONS: Final = (admin_pb2.ELECTION_TYPE_PREFERRED, admin_pb2.ELECTION_TYPE_UNCLEAN)
"""By Kafka's number."""
PAGE: Final = 1_000
"""Reassignments that the controller tells in one answer."""
MOVE_BYTES: Final = 400
"""About what a move takes of an answer, before it is encoded."""
SLICE: Final = 500
"""Topics between two turns of the event loop (safety rule S22)."""

ALTER_CLUSTER: Final = Right(Operation.ALTER, ResourceType.CLUSTER)


class PartitionAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, controller: PassingOn, cache: MetadataCache, authorizer: Authorizer) -> None:
        """Only assigns.

        Args:
            controller: carries out changes.
            cache: the cluster, as far as this broker has heard.
            authorizer: whether a caller may be told how many replicas there are.
        """
        self._controller: Final = controller
        self._cache: Final = cache
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            37: (self.create, self.no_create),
            43: (self.elect, self.no_elect),
            45: (self.reassign, self.no_reassign),
            46: (self.reassignments, self.no_reassignments),
        }

    async def create(self, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
        """Add partitions; the answer comes when this broker knows them, or its time is up."""
        self._controller.check_gate()
        asked = admin_pb2.CreatePartitionsRequest(
            header=header(context), timeout_ms=max(0, request.timeout_ms), validate_only=request.validate_only
        )
        turns = Turns(SLICE)
        for topic in request.topics:
            await turns.took()
            new = asked.topics.add(name=topic.name, count=topic.count, mutation_id=self._controller.new_mutation_id())
            # Kafka's clients name the replicas of new partitions only, in their order.
            for number, one in enumerate(topic.assignments or (), start=self._partitions_of(topic.name)):
                new.assignment.add(partition=number, replicas=one.broker_ids)
        answer = await self._controller.pass_on("CreatePartitions", asked, admin_pb2.CreatePartitionsResponse, context)
        if not request.validate_only:
            made = [(one.name, one.partitions) for one in answer.results if not one.error_code]
            await self._cache.until(
                lambda: all(self._partitions_of(name) >= count for name, count in made), request.timeout_ms / 1000
            )
        return CreatePartitionsResponse(
            throttle_time_ms=answer.throttle_time_ms,
            results=[
                CreatePartitionsTopicResult(one.name, one.error_code, one.error_message or None)
                for one in answer.results
            ],
        )

    def _partitions_of(self, topic: str) -> int:
        view = self._cache.topics.get(topic)
        return 0 if view is None else len(view.partitions)

    def no_create(self, request: CreatePartitionsRequest, context: Context, code: Code) -> CreatePartitionsResponse:
        """That none were added."""
        del context
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(topic.name, code, None) for topic in request.topics]
        )

    async def elect(self, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
        """Elect leaders, each partition on its own; without partitions: in every one that needs it."""
        self._controller.check_gate()
        asked = admin_pb2.ElectLeadersRequest(
            header=header(context), type=_election(request), timeout_ms=max(0, request.timeout_ms)
        )
        for topic in request.topic_partitions or ():
            if topic.partitions:
                asked.topics.add(topic=topic.topic, partitions=topic.partitions)
        if request.topic_partitions is not None and not asked.topics:
            return ElectLeadersResponse()
        answer = await self._controller.pass_on("ElectLeaders", asked, admin_pb2.ElectLeadersResponse, context)
        by_topic: dict[str, list[PartitionResult]] = defaultdict(list)
        for one in answer.results:
            by_topic[one.topic].append(PartitionResult(one.partition, one.error_code, one.error_message or None))
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic, results) for topic, results in by_topic.items()]
        )

    def no_elect(self, request: ElectLeadersRequest, context: Context, code: Code) -> ElectLeadersResponse:
        """That none was elected."""
        del context
        return ElectLeadersResponse(
            error_code=code,
            replica_election_results=[
                ReplicaElectionResult(topic.topic, [PartitionResult(number, code, None) for number in topic.partitions])
                for topic in request.topic_partitions or ()
            ],
        )

    async def reassign(
        self, request: AlterPartitionReassignmentsRequest, context: Context
    ) -> AlterPartitionReassignmentsResponse:
        """Move partitions, each on its own; without replicas: call the move back."""
        self._controller.check_gate()
        asked = admin_pb2.AlterPartitionReassignmentsRequest(
            header=header(context), timeout_ms=max(0, request.timeout_ms)
        )
        if not request.allow_replication_factor_change:
            ALTER_CLUSTER.require(self._authorizer)
        wrong: dict[tuple[str, int], str] = {}
        for topic in request.topics:
            for one in topic.partitions:
                if not request.allow_replication_factor_change and (
                    why := self._why_another_factor(topic.name, one.partition_index, one.replicas)
                ):
                    wrong[topic.name, one.partition_index] = why
                    continue
                asked.partitions.add(
                    topic=topic.name,
                    partition=one.partition_index,
                    replicas=one.replicas or (),
                    cancel=one.replicas is None,
                )
        results: Iterator[admin_pb2.ReassignedPartition] = iter(())
        if asked.partitions or not wrong:
            answer = await self._controller.pass_on(
                "AlterPartitionReassignments", asked, admin_pb2.AlterPartitionReassignmentsResponse, context
            )
            results = iter(answer.results)

        def outcome(topic: str, partition: int) -> ReassignablePartitionResponse:
            if why := wrong.get((topic, partition)):
                return ReassignablePartitionResponse(partition, errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR, why)
            result = next(results)
            return ReassignablePartitionResponse(partition, result.error_code, result.error_message or None)

        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=[
                ReassignableTopicResponse(
                    topic.name,
                    [outcome(topic.name, one.partition_index) for one in topic.partitions],
                )
                for topic in request.topics
            ],
        )

    def _why_another_factor(self, topic: str, partition: int, replicas: Sequence[int] | None) -> str:
        """That a partition would have another number of replicas than it has now, in words; empty: it would not."""
        view = self._cache.topics.get(topic)
        state = None if view is None else view.partitions.get(partition)
        if replicas is None or state is None or len(replicas) == len(state.replicas):
            return ""
        return f"it has {len(state.replicas)} replicas, and is not to have {len(replicas)}"

    def no_reassign(
        self, request: AlterPartitionReassignmentsRequest, context: Context, code: Code
    ) -> AlterPartitionReassignmentsResponse:
        """That none is moved."""
        del context
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change, error_code=code, error_message=None
        )

    async def reassignments(
        self, request: ListPartitionReassignmentsRequest, context: Context
    ) -> ListPartitionReassignmentsResponse:
        """Moves that are under way."""
        self._controller.check_gate()
        wanted: set[tuple[str, int]] | None = None
        if request.topics is not None:
            wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
        asked = admin_pb2.ListPartitionReassignmentsRequest(
            header=header(context), topics=sorted({topic for topic, _ in wanted or ()}), page_size=PAGE
        )
        by_topic: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
        while wanted is None or wanted:
            page = await self._controller.pass_on(
                "ListPartitionReassignments", asked, admin_pb2.ListPartitionReassignmentsResponse, context
            )
            for one in page.reassignments:
                if wanted is None or (one.topic, one.partition) in wanted:
                    making(MOVE_BYTES)
                    by_topic[one.topic].append(_ongoing(one))
            if not page.next_page_token:
                break
            asked.page_token = page.next_page_token
        return ListPartitionReassignmentsResponse(
            error_message=None, topics=[OngoingTopicReassignment(topic, found) for topic, found in by_topic.items()]
        )

    def no_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: Context, code: Code
    ) -> ListPartitionReassignmentsResponse:
        """That they are not told."""
        del request, context
        return ListPartitionReassignmentsResponse(error_code=code, error_message=None)


def _election(request: ElectLeadersRequest) -> "admin_pb2.ElectionType.ValueType":
    if 0 <= request.election_type < len(ELECTIONS):
        return ELECTIONS[request.election_type]
    return admin_pb2.ELECTION_TYPE_UNSPECIFIED


def _ongoing(move: admin_pb2.OngoingReassignment) -> OngoingPartitionReassignment:
    """Replicas as Kafka tells them: all that there are now, those that come, those that go."""
    present = [*move.target, *(id for id in move.replicas if id not in move.target)]
    return OngoingPartitionReassignment(
        partition_index=move.partition,
        replicas=present,
        adding_replicas=[id for id in move.target if id not in move.origin],
        removing_replicas=[id for id in move.replicas if id not in move.target],
    )
