"""An election process of a fake cluster, as clients see it."""

from typing import TYPE_CHECKING, Any

import grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc, events_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_election.servicers.events import EventServicer
from regnum_model.acls.bindings import AclBinding
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError

from regnum_testing.fake_acls import FakeAcls
from regnum_testing.fake_leaders import FakeLeaders
from regnum_testing.fake_listener import FakeMember
from regnum_testing.fake_tokens import FakeTokens

if TYPE_CHECKING:
    from regnum_testing.fake_cluster import FakeCluster

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class FakeElection(FakeMember, FakeLeaders, FakeAcls, FakeTokens, admin_pb2_grpc.AdminServiceServicer):
    """An election process as clients see it."""

    def __init__(self, cluster: "FakeCluster", number: int) -> None:
        super().__init__(cluster, number)
        self.acls: dict[AclBinding, None] = {}
        """Access rules."""
        self.mutations: dict[str, str] = {}
        """Mutation id and the topic it concerned."""
        self.forgotten: set[int] = set()
        """Brokers that were forgotten."""
        self.never_heard_of: set[int] = set()
        """Ids that no broker has had."""
        self.silent_answers = 0
        """So many calls are carried out and then not answered."""

    def register(self, server: "grpc.aio.Server") -> None:
        """Add the services."""
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, server)
        events_pb2_grpc.add_EventServiceServicer_to_server(
            EventServicer(self._reigns, self.cluster.events, SystemClock()), server
        )

    async def _reigns(self) -> None:
        self._authority()

    def _authority(self) -> None:
        cluster = self.cluster
        if cluster.controller != self.number:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER,
                "ask the controller",
                metadata={
                    "controller_id": str(cluster.controller),
                    "controller_epoch": str(cluster.controller_epoch),
                    "controller_address": str(cluster.elections[cluster.controller].address),
                },
            )

    def _answer_or_not(self) -> None:
        if self.silent_answers:
            self.silent_answers -= 1
            raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "carried out, and the answer is lost")

    async def CreateTopics(  # noqa: N802
        self, request: admin_pb2.CreateTopicsRequest, _context: Context
    ) -> admin_pb2.CreateTopicsResponse:
        """Create; a repeat is answered from its mutation id."""
        self.cluster.calls["CreateTopics"] += 1
        self._authority()
        answer = admin_pb2.CreateTopicsResponse()
        now_s = self.cluster.quotas.now_s()
        for topic in request.topics:
            result = answer.results.add(name=topic.name, partitions=topic.partitions, replication_factor=3)
            if topic.name in self.cluster.topic_ids and self.mutations.get(topic.mutation_id) != topic.name:
                result.error_code = errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
                result.error_message = f"topic {topic.name!r} exists"
                continue
            if topic.name not in self.cluster.topic_ids and not request.validate_only:
                admitted, wait_ms = self._judge(request.header, topic.partitions, now_s)
                answer.throttle_time_ms = wait_ms
                if not admitted:
                    result.error_code = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
                    result.error_message = "the quota is used up"
                    continue
                self.cluster.create(topic.name, partitions=topic.partitions)
                self.mutations[topic.mutation_id] = topic.name
                if topic.configs:
                    self.cluster.configs.values[topic.name] = {one.name: one.value for one in topic.configs}
            result.topic_id = self.cluster.topic_ids.get(topic.name, "")
        self._answer_or_not()
        return answer

    async def DeleteTopics(  # noqa: N802
        self, request: admin_pb2.DeleteTopicsRequest, _context: Context
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete; a repeat is answered from its mutation id."""
        self.cluster.calls["DeleteTopics"] += 1
        self._authority()
        answer = admin_pb2.DeleteTopicsResponse()
        now_s = self.cluster.quotas.now_s()
        for topic in request.topics:
            result = answer.results.add(name=topic.name, topic_id=topic.topic_id)
            if self.mutations.get(topic.mutation_id) == topic.name:
                continue
            if topic.name not in self.cluster.topic_ids:
                result.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = f"topic {topic.name!r} does not exist"
            elif topic.topic_id and topic.topic_id != self.cluster.topic_ids[topic.name]:
                result.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
                result.error_message = "another topic has that name now"
            else:
                count = sum(one.topic == topic.name for one in self.cluster.partitions.values())
                admitted, wait_ms = self._judge(request.header, count, now_s)
                answer.throttle_time_ms = wait_ms
                if not admitted:
                    result.error_code = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
                    result.error_message = "the quota is used up"
                    continue
                self.cluster.delete(topic.name)
                self.mutations[topic.mutation_id] = topic.name
        self._answer_or_not()
        return answer

    async def CreatePartitions(  # noqa: N802
        self, request: admin_pb2.CreatePartitionsRequest, _context: Context
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add; a repeat is answered from its mutation id."""
        self.cluster.calls["CreatePartitions"] += 1
        self._authority()
        answer = admin_pb2.CreatePartitionsResponse()
        now_s = self.cluster.quotas.now_s()
        for topic in request.topics:
            result = answer.results.add(name=topic.name)
            present = self.cluster.count(topic.name)
            if self.mutations.get(topic.mutation_id) == topic.name:
                result.partitions = present
                continue
            if not present:
                result.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = f"topic {topic.name!r} does not exist"
                continue
            total = topic.count or present + len(topic.assignment)
            if total <= present:
                result.error_code = errors_pb2.ERROR_CODE_INVALID_PARTITIONS
                result.error_message = f"topic {topic.name} has {present} partitions already"
                continue
            if not request.validate_only:
                admitted, wait_ms = self._judge(request.header, total - present, now_s)
                answer.throttle_time_ms = wait_ms
                if not admitted:
                    result.error_code = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
                    result.error_message = "the quota is used up"
                    continue
                self.cluster.add_partitions(topic.name, total)
                self.mutations[topic.mutation_id] = topic.name
            result.partitions = total
        self._answer_or_not()
        return answer

    async def DeletePartitions(  # noqa: N802
        self, request: admin_pb2.DeletePartitionsRequest, _context: Context
    ) -> admin_pb2.DeletePartitionsResponse:
        """Remove; a repeat is answered from its mutation id."""
        self.cluster.calls["DeletePartitions"] += 1
        self._authority()
        answer = admin_pb2.DeletePartitionsResponse()
        for topic in request.topics:
            result = answer.results.add(name=topic.name)
            present = self.cluster.count(topic.name)
            if self.mutations.get(topic.mutation_id) == topic.name:
                result.partitions = present
                continue
            left = present - len(topic.partitions)
            if left < 1 or sorted(topic.partitions) != list(range(left, present)):
                result.error_code = errors_pb2.ERROR_CODE_INVALID_PARTITIONS
                result.error_message = "only the highest partitions can be removed"
                continue
            if not request.validate_only:
                self.cluster.remove_partitions(topic.name, left)
                self.mutations[topic.mutation_id] = topic.name
            result.partitions = left
        self._answer_or_not()
        return answer

    async def AlterClientQuotas(  # noqa: N802
        self, request: admin_pb2.AlterClientQuotasRequest, _context: Context
    ) -> admin_pb2.AlterClientQuotasResponse:
        """Set and remove limits."""
        self.cluster.calls["AlterClientQuotas"] += 1
        self._authority()
        answer = self.cluster.quotas.alter(request)
        self._answer_or_not()
        return answer

    async def DescribeQuotaUsage(  # noqa: N802
        self, request: admin_pb2.DescribeQuotaUsageRequest, _context: Context
    ) -> admin_pb2.DescribeQuotaUsageResponse:
        """Show what the test says."""
        self.cluster.calls["DescribeQuotaUsage"] += 1
        self._authority()
        return self.cluster.quotas.used(request)

    async def DescribeClientQuotas(  # noqa: N802
        self, request: admin_pb2.DescribeClientQuotasRequest, _context: Context
    ) -> admin_pb2.DescribeClientQuotasResponse:
        """Show limits."""
        self.cluster.calls["DescribeClientQuotas"] += 1
        self._authority()
        return self.cluster.quotas.describe(request)

    async def IncrementalAlterConfigs(  # noqa: N802
        self, request: admin_pb2.IncrementalAlterConfigsRequest, _context: Context
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change settings."""
        self.cluster.calls["IncrementalAlterConfigs"] += 1
        self._authority()
        answer = self.cluster.configs.alter(request)
        self._answer_or_not()
        return answer

    async def AlterConfigs(  # noqa: N802
        self, request: admin_pb2.AlterConfigsRequest, _context: Context
    ) -> admin_pb2.AlterConfigsResponse:
        """Replace settings."""
        self.cluster.calls["AlterConfigs"] += 1
        self._authority()
        answer = self.cluster.configs.replace(request)
        self._answer_or_not()
        return answer

    async def DescribeConfigs(  # noqa: N802
        self, request: admin_pb2.DescribeConfigsRequest, _context: Context
    ) -> admin_pb2.DescribeConfigsResponse:
        """Show settings."""
        self._authority()
        return self.cluster.configs.describe(request, self.cluster.topic_ids.keys())

    async def AlterPartitionReassignments(  # noqa: N802
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, _context: Context
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """As the test says."""
        self.cluster.calls["AlterPartitionReassignments"] += 1
        self._authority()
        answer = self.cluster.reassignments.alter(request)
        self._answer_or_not()
        return answer

    async def ListPartitionReassignments(  # noqa: N802
        self, request: admin_pb2.ListPartitionReassignmentsRequest, _context: Context
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """As the test says."""
        self.cluster.calls["ListPartitionReassignments"] += 1
        self._authority()
        return self.cluster.reassignments.list(request)

    async def RecoverPartitions(  # noqa: N802
        self, request: admin_pb2.RecoverPartitionsRequest, _context: Context
    ) -> admin_pb2.RecoverPartitionsResponse:
        """Show, or elect."""
        self.cluster.calls["RecoverPartitions"] += 1
        self._authority()
        answer = self.cluster.recoveries.recover(request)
        self._answer_or_not()
        return answer

    async def GiveUpPartitions(  # noqa: N802
        self, request: admin_pb2.GiveUpPartitionsRequest, _context: Context
    ) -> admin_pb2.GiveUpPartitionsResponse:
        """What a test says is damaged; of other numbers nothing is."""
        self.cluster.calls["GiveUpPartitions"] += 1
        self._authority()
        damaged = self.cluster.damaged.get(request.topic, {})
        answer = admin_pb2.GiveUpPartitionsResponse()
        for number in sorted(request.partitions or damaged):
            if number not in damaged:
                code = errors_pb2.ERROR_CODE_INVALID_REQUEST
                answer.results.add(partition=number, error_code=code, error_message=f"{number} is not damaged")
                continue
            answer.results.add(
                partition=number,
                damage=admin_pb2.PARTITION_DAMAGE_STATE,
                reason=damaged[number],
                may_be_lost="all of it",
                given_up=request.accept_loss,
            )
            if request.accept_loss:
                del damaged[number]
        self._answer_or_not()
        return answer

    async def ForgetBroker(  # noqa: N802
        self, request: admin_pb2.ForgetBrokerRequest, _context: Context
    ) -> admin_pb2.ForgetBrokerResponse:
        """Two deletions wait for any broker that is gone until it is forgotten."""
        self.cluster.calls["ForgetBroker"] += 1
        self._authority()
        if request.broker_id in self.cluster.brokers:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"broker {request.broker_id} is registered")
        if request.broker_id in self.never_heard_of:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"nothing is known of broker {request.broker_id}")
        waiting = 0 if request.broker_id in self.forgotten else 2
        if not request.validate_only:
            self.forgotten.add(request.broker_id)
        self._answer_or_not()
        return admin_pb2.ForgetBrokerResponse(deletions=waiting, deletions_ended=waiting // 2, assigned_partitions=3)

    async def DescribeHealth(  # noqa: N802
        self, request: admin_pb2.DescribeHealthRequest, _context: Context
    ) -> admin_pb2.DescribeHealthResponse:
        """What a test says is wrong."""
        self.cluster.calls["DescribeHealth"] += 1
        self._authority()
        answer = admin_pb2.DescribeHealthResponse()
        answer.CopyFrom(self.cluster.health)
        answer.controller_id, answer.controller_epoch = self.number, self.cluster.controller_epoch
        del answer.troubled_partitions[request.partitions_max :]
        return answer

    async def DescribePropagation(  # noqa: N802
        self, _request: admin_pb2.DescribePropagationRequest, _context: Context
    ) -> admin_pb2.DescribePropagationResponse:
        """What a test says of metadata processes."""
        self.cluster.calls["DescribePropagation"] += 1
        self._authority()
        return self.cluster.propagation

    def _judge(self, header: types_pb2.RequestHeader, permits: int, now_s: float) -> tuple[bool, int]:
        return self.cluster.quotas.judge(header.api_version, header.client_id, permits, now_s=now_s)
