"""The table: every method of every service, and the right that it needs (Kafka's table of API keys and operations).

A test goes through the protos: a method that stands nowhere here breaks the build, and a service with one does not
start. Whoever adds a method adds its line.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import group_pb2, log_pb2
from regnum_model.access import Operation, ResourceType

from regnum_service.access.authorization import Right
from regnum_service.access.guards.coordinators import Coordinators
from regnum_service.access.guards.items import Each, Listing, refusing
from regnum_service.access.guards.rule import InHandler, OnCluster, Rule
from regnum_service.access.guards.topics import (
    Consuming,
    CountedCluster,
    Named,
    ProducerIdentity,
    Watching,
)
from regnum_service.access.identity import ProcessRole
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status

CLUSTER_ACTION: Final = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
"""What the cluster's own processes have, and nobody else."""

_CREATE_CLUSTER: Final = Right(Operation.CREATE, ResourceType.CLUSTER)
_ALTER_CLUSTER: Final = Right(Operation.ALTER, ResourceType.CLUSTER)
_DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
_ALTER_CLUSTER_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
_DESCRIBE_CLUSTER_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
_CREATE_TOPIC: Final = Right(Operation.CREATE, ResourceType.TOPIC)
_DELETE_TOPIC: Final = Right(Operation.DELETE, ResourceType.TOPIC)
_ALTER_TOPIC: Final = Right(Operation.ALTER, ResourceType.TOPIC)
_DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, ResourceType.TOPIC)
_READ_TOPIC: Final = Right(Operation.READ, ResourceType.TOPIC)
_WRITE_TOPIC: Final = Right(Operation.WRITE, ResourceType.TOPIC)
_ALTER_TOPIC_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
_DESCRIBE_TOPIC_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
_READ_GROUP: Final = Right(Operation.READ, ResourceType.GROUP)
_DESCRIBE_GROUP: Final = Right(Operation.DESCRIBE, ResourceType.GROUP)
_DELETE_GROUP: Final = Right(Operation.DELETE, ResourceType.GROUP)
_DESCRIBE_TRANSACTIONAL_ID: Final = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
_CREATE_TOKENS: Final = Right(Operation.CREATE_TOKENS, ResourceType.USER)
_DESCRIBE_TOKEN: Final = Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)


def _of_config(on_topic: Right, on_cluster: Right) -> Any:
    """The right to the settings of a resource: a topic's, or the cluster's."""

    def right(item: Any) -> Right:
        resource = item.resource if hasattr(item, "resource") else item
        return on_topic if resource.type == admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC else on_cluster

    return right


def _config_name(item: Any) -> str:
    return str((item.resource if hasattr(item, "resource") else item).name)


def _name(item: Any) -> str:
    return str(item.name)


def _itself(item: Any) -> str:
    return str(item)


def _refused_description(item: Any, error: RegnumError) -> Message:
    return admin_pb2.DescribeConfigsResult(
        resource=item,
        error_code=error.code,
        error_message=error.message,
        status=item_status(error.code, error.message),
    )


def _with_group(result: Any, item: Any, error: RegnumError) -> Message:
    refused: Message = result(
        group_id=item,
        error_code=error.code,
        error_message=error.message,
        status=item_status(error.code, error.message),
    )
    return refused


def _of_group(result: Any) -> Callable[[Any, RegnumError], Message]:
    return partial(_with_group, result)


def _of_transaction(item: Any, error: RegnumError) -> Message:
    return group_pb2.Coordinator(
        transactional_id=item,
        error_code=error.code,
        error_message=error.message,
        status=item_status(error.code, error.message),
    )


_ADMIN: Final[Mapping[str, Rule]] = {
    "CreateTopics": Each(
        right=_CREATE_TOPIC,
        instead=_CREATE_CLUSTER,
        items="topics",
        name=_name,
        response=admin_pb2.CreateTopicsResponse,
        refuse=refusing(admin_pb2.CreateTopicResult, "name"),
    ),
    "DeleteTopics": InHandler(_DELETE_TOPIC, "regnum_election.servicers.admin: names of topics given by id"),
    "CreatePartitions": Each(
        right=_ALTER_TOPIC,
        items="topics",
        name=_name,
        response=admin_pb2.CreatePartitionsResponse,
        refuse=refusing(admin_pb2.PartitionsResult, "name"),
    ),
    # It takes records away, as DeleteTopics does; Kafka has no such call.
    "DeletePartitions": Each(
        right=_DELETE_TOPIC,
        items="topics",
        name=_name,
        response=admin_pb2.DeletePartitionsResponse,
        refuse=refusing(admin_pb2.PartitionsResult, "name"),
    ),
    "AlterClientQuotas": OnCluster(_ALTER_CLUSTER_CONFIGS),
    "DescribeClientQuotas": OnCluster(_DESCRIBE_CLUSTER_CONFIGS),
    "DescribeQuotaUsage": OnCluster(_DESCRIBE_CLUSTER_CONFIGS),
    "RecoverPartitions": OnCluster(_ALTER_CLUSTER),
    "ForgetBroker": OnCluster(_ALTER_CLUSTER),
    "IncrementalAlterConfigs": Each(
        right=_of_config(_ALTER_TOPIC_CONFIGS, _ALTER_CLUSTER_CONFIGS),
        items="alterations",
        name=_config_name,
        response=admin_pb2.IncrementalAlterConfigsResponse,
        refuse=refusing(admin_pb2.AlterConfigsResult, "resource"),
    ),
    "AlterConfigs": Each(
        right=_of_config(_ALTER_TOPIC_CONFIGS, _ALTER_CLUSTER_CONFIGS),
        items="replacements",
        name=_config_name,
        response=admin_pb2.AlterConfigsResponse,
        refuse=refusing(admin_pb2.AlterConfigsResult, "resource"),
    ),
    "DescribeConfigs": Each(
        right=_of_config(_DESCRIBE_TOPIC_CONFIGS, _DESCRIBE_CLUSTER_CONFIGS),
        items="resources",
        name=_config_name,
        response=admin_pb2.DescribeConfigsResponse,
        refuse=_refused_description,
        unnamed=_config_name,
    ),
    "AlterPartitionReassignments": OnCluster(_ALTER_CLUSTER),
    "ListPartitionReassignments": OnCluster(_DESCRIBE_CLUSTER),
    "DescribeHealth": OnCluster(_DESCRIBE_CLUSTER),
    "DescribePropagation": OnCluster(_DESCRIBE_CLUSTER),
    "ElectLeaders": OnCluster(_ALTER_CLUSTER),
    "ListOfflinePartitions": OnCluster(_DESCRIBE_CLUSTER),
    "DescribeBrokers": OnCluster(_DESCRIBE_CLUSTER),
    "GiveUpPartitions": OnCluster(_ALTER_CLUSTER),
    "DrainBroker": OnCluster(_ALTER_CLUSTER),
    "ResignController": OnCluster(_ALTER_CLUSTER),
    "CreateDelegationToken": InHandler(_CREATE_TOKENS, "regnum_election.tokens.calls: everybody for themselves"),
    "RenewDelegationToken": InHandler(_DESCRIBE_TOKEN, "regnum_election.tokens.calls: owners and renewers"),
    "ExpireDelegationToken": InHandler(_DESCRIBE_TOKEN, "regnum_election.tokens.calls: owners and renewers"),
    "DescribeDelegationToken": InHandler(_DESCRIBE_TOKEN, "regnum_election.tokens.calls: or DESCRIBE_TOKENS"),
    "CreateAcls": OnCluster(_ALTER_CLUSTER),
    "DeleteAcls": OnCluster(_ALTER_CLUSTER),
    "DescribeAcls": OnCluster(_DESCRIBE_CLUSTER),
    "CheckAcls": OnCluster(_DESCRIBE_CLUSTER),
}

_LOG: Final[Mapping[str, Rule]] = {
    "Produce": InHandler(_WRITE_TOPIC, "regnum_broker.serving.produce"),
    "ProduceStream": InHandler(_WRITE_TOPIC, "regnum_broker.serving.produce"),
    "Fetch": Each(
        right=_READ_TOPIC,
        items="partitions",
        response=log_pb2.FetchResponse,
        refuse=refusing(log_pb2.FetchResult, "topic", "partition"),
        again=True,
    ),
    "Consume": Consuming(),
    "ListOffsets": Each(
        right=_DESCRIBE_TOPIC,
        items="queries",
        response=log_pb2.ListOffsetsResponse,
        refuse=refusing(log_pb2.OffsetResult, "topic", "partition"),
    ),
    "OffsetForLeaderEpoch": Each(
        right=_DESCRIBE_TOPIC,
        items="queries",
        response=log_pb2.OffsetForLeaderEpochResponse,
        refuse=refusing(log_pb2.EpochEndResult, "topic", "partition"),
    ),
    "DescribeReplicas": Each(
        right=_DESCRIBE_TOPIC,
        items="queries",
        response=log_pb2.DescribeReplicasResponse,
        refuse=refusing(log_pb2.ReplicaDescription, "topic", "partition"),
    ),
    "DeleteRecords": Each(
        right=_DELETE_TOPIC,
        items="partitions",
        response=log_pb2.DeleteRecordsResponse,
        refuse=refusing(log_pb2.DeleteRecordsResult, "topic", "partition"),
    ),
}

_GROUP: Final[Mapping[str, Rule]] = {
    "FindCoordinator": Coordinators(
        groups=Each(
            right=_DESCRIBE_GROUP,
            items="group_ids",
            name=_itself,
            response=group_pb2.FindCoordinatorResponse,
            results="coordinators",
            refuse=_of_group(group_pb2.Coordinator),
        ),
        transactions=Each(
            right=_DESCRIBE_TRANSACTIONAL_ID,
            items="transactional_ids",
            name=_itself,
            response=group_pb2.FindCoordinatorResponse,
            results="coordinators",
            refuse=_of_transaction,
        ),
    ),
    "JoinGroup": Named(_READ_GROUP, "group_id", again=True),
    "SyncGroup": Named(_READ_GROUP, "group_id", again=True),
    "Heartbeat": Named(_READ_GROUP, "group_id"),
    "LeaveGroup": Named(_READ_GROUP, "group_id"),
    "OffsetCommit": Each(
        first=_READ_GROUP,
        right=_READ_TOPIC,
        items="offsets",
        response=group_pb2.OffsetCommitResponse,
        refuse=refusing(group_pb2.OffsetCommitResult, "topic", "partition"),
    ),
    "OffsetFetch": Each(
        first=_DESCRIBE_GROUP,
        right=_DESCRIBE_TOPIC,
        items="partitions",
        response=group_pb2.OffsetFetchResponse,
        results="offsets",
        # An offset without an error would look like one that nobody has committed, and be read from the beginning.
        refuse=None,
        unnamed=lambda offset: str(offset.topic),
    ),
    "ListGroups": Listing(
        instead=_DESCRIBE_CLUSTER,
        right=_DESCRIBE_GROUP,
        results="groups",
        name=lambda group: str(group.group_id),
    ),
    "DescribeGroups": Each(
        right=_DESCRIBE_GROUP,
        items="group_ids",
        name=_itself,
        response=group_pb2.DescribeGroupsResponse,
        results="groups",
        refuse=_of_group(group_pb2.GroupDescription),
    ),
    "DeleteGroups": Each(
        right=_DELETE_GROUP,
        items="group_ids",
        name=_itself,
        response=group_pb2.DeleteGroupsResponse,
        refuse=_of_group(group_pb2.DeleteGroupResult),
    ),
    "OffsetDelete": Each(
        first=_DELETE_GROUP,
        right=_READ_TOPIC,
        items="partitions",
        response=group_pb2.OffsetDeleteResponse,
        refuse=refusing(group_pb2.OffsetDeleteResult, "topic", "partition"),
    ),
}

_METADATA: Final[Mapping[str, Rule]] = {
    "GetMetadata": InHandler(_DESCRIBE_TOPIC, "access.topic_sight"),
    "DescribeTopics": InHandler(_DESCRIBE_TOPIC, "access.topic_sight"),
    "DescribeCluster": CountedCluster(),
    "WatchMetadata": Watching(),
}


def _all(service: str, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    return {f"{service}/{method}": rule for method, rule in rules.items()}


def _internal(service: str, by: ProcessRole, *methods: str) -> dict[str, Rule]:
    """Calls between processes, and which process makes them."""
    return {f"{service}/{method}": OnCluster(CLUSTER_ACTION, roles=frozenset((by,))) for method in methods}


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **_all("regnum.admin.v1.AdminService", _ADMIN),
        **_all("regnum.admin.v1.EventService", {"DescribeEvents": OnCluster(_DESCRIBE_CLUSTER, again=True)}),
        **_all("regnum.broker.v1.LogService", _LOG),
        **_all("regnum.broker.v1.GroupService", _GROUP),
        **_all("regnum.broker.v1.ProducerService", {"InitProducerId": ProducerIdentity()}),
        **_all(
            "regnum.broker.v1.FiguresService",
            # Strays have names of topics too, which nobody may have a right to any more.
            {
                "DescribeFigures": OnCluster(_DESCRIBE_CLUSTER),
                "DescribeStrays": OnCluster(_DESCRIBE_CLUSTER),
                "DescribeClientUsage": OnCluster(_DESCRIBE_CLUSTER),
            },
        ),
        **_all("regnum.metadata.v1.MetadataService", _METADATA),
        # It names every topic, and is for those who run the cluster.
        **_all("regnum.metadata.v1.ImageService", {"DescribeImage": OnCluster(_DESCRIBE_CLUSTER, again=True)}),
        **_internal(
            "regnum.election.v1.ControllerService",
            ProcessRole.BROKER,
            "ControlledShutdown",
            "AllocateProducerIds",
            "Envelope",
            "CreateOffsetsTopic",
        ),
        **_internal(
            "regnum.election.v1.ControllerService",
            ProcessRole.ELECTION,
            "ProbeBrokers",
            "FollowState",
            "FollowEvents",
        ),
        **_internal("regnum.election.v1.LifelineService", ProcessRole.BROKER, "BrokerLifeline"),
        **_internal("regnum.propagation.v1.PropagationService", ProcessRole.ELECTION, "PublishChanges", "DescribeLag"),
        **_internal("regnum.quota.v1.QuotaService", ProcessRole.ELECTION, "Admit", "DescribeBuckets"),
        **_internal(
            "regnum.replication.v1.ReplicaControlService",
            ProcessRole.ELECTION,
            "LeaderAndIsr",
            "StopReplica",
            "GetReplicaLogInfo",
            "DescribeBrokerSettings",
        ),
        **_internal("regnum.replication.v1.ReplicaControlService", ProcessRole.METADATA, "UpdateMetadata"),
        **_internal(
            "regnum.replication.v1.ReplicationService", ProcessRole.BROKER, "FetchReplica", "OffsetForLeaderEpoch"
        ),
    }
)
"""Rules by ``package.Service/Method``."""
