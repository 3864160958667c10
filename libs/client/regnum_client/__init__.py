"""The async SDK: ``Admin``, ``Producer``, ``Consumer``.

    async with Producer() as producer:
        delivery = await producer.send("greetings", b"hello", key=b"world")
        print((await delivery).offset)

``regnum_client.sync`` has the same for services without asyncio. Every class has an example, which a test runs: there,
``bootstrap`` is the address of a cluster, ``admin`` an open ``regnum_client.sync.Admin`` of it, and the topic
``orders`` has the records ``first`` and ``second``.

Names are loaded when they are first used (PEP 562), so that ``regnum --help`` does not pay for gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from regnum_model.quotas import DEFAULT, QuotaEntity
    from regnum_model.topic_filter import TopicFilter, Trouble
    from regnum_service.errors import RegnumError

    from regnum_client.admin.acls.values import (
        AclBinding,
        AclCheck,
        AclEntry,
        AclFilter,
        AclOperation,
        AclPatternFilter,
        AclPatternType,
        AclPermission,
        AclResourcePattern,
        AclResourceType,
        Acls,
    )
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.carrying.topic_mutation import Waiting
    from regnum_client.admin.configs import CLUSTER_CONFIG, ConfigAlteration, ConfigEntry, ConfigResource, ConfigSource
    from regnum_client.admin.describing.events import (
        ClusterEvent,
        EventCause,
        EventFilter,
        EventKind,
        EventPage,
        EventPosition,
        EventState,
    )
    from regnum_client.admin.describing.offset_admin import PartitionOffsets
    from regnum_client.admin.describing.quota_usage import ClientUsage, QuotaUsage, QuotaUsages
    from regnum_client.admin.describing.replica_admin import ReplicaSize
    from regnum_client.admin.describing.topics import TopicSummary
    from regnum_client.admin.groups.views import (
        CommittedOffset,
        GroupDescription,
        GroupListing,
        GroupMember,
        GroupState,
    )
    from regnum_client.admin.health.figures import BrokerFigures
    from regnum_client.admin.health.views import BrokerHealth, HealthView, OverdueOrders, TroubledPartition
    from regnum_client.admin.leaders.brokers import BrokerDescription, Resignation
    from regnum_client.admin.leaders.elections import (
        ElectionResult,
        ElectionType,
        OfflinePartition,
        OfflinePartitions,
        OfflineReason,
    )
    from regnum_client.admin.quotas import ClientQuota, QuotaAlteration
    from regnum_client.admin.records.deletion import DeletedRecords
    from regnum_client.admin.recovery import PartitionRecovery, RecoverableReplica
    from regnum_client.admin.tokens.views import DelegationTokenView, NewDelegationToken
    from regnum_client.admin.topics import CreatedTopic, DeletedTopic, NewPartitions, NewTopic, TopicPartitions
    from regnum_client.cluster.offsets import OffsetAndTimestamp
    from regnum_client.cluster.security.channels import TlsFiles
    from regnum_client.consumer.batches import RecordBatch
    from regnum_client.consumer.consumer import Consumer
    from regnum_client.consumer.groups.listener import OffsetAndMetadata, RebalanceListener
    from regnum_client.consumer.positions import EARLIEST, LATEST, AtTime, ResetPolicy
    from regnum_client.consumer.settings import ConsumerSettings
    from regnum_client.error_codes import ErrorCode
    from regnum_client.errors import (
        BackgroundTaskError,
        BufferFullError,
        ClientClosedError,
        CommitFailedError,
        DeliveryTimeoutError,
        LogTruncationError,
        MaxPollIntervalExceededError,
        NoControllerError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        RecordDeserializationError,
        SequenceBrokenError,
        ThrottlingQuotaExceededError,
        UnreadableBatchError,
    )
    from regnum_client.producer.producer import Producer, ProducerSettings
    from regnum_client.records import ConsumedRecord, RecordMetadata, TopicPartition

_HOMES: Final = {
    "AclBinding": "admin.acls.values",
    "AclCheck": "admin.acls.values",
    "AclEntry": "admin.acls.values",
    "AclFilter": "admin.acls.values",
    "AclOperation": "admin.acls.values",
    "AclPatternFilter": "admin.acls.values",
    "AclPatternType": "admin.acls.values",
    "AclPermission": "admin.acls.values",
    "AclResourcePattern": "admin.acls.values",
    "AclResourceType": "admin.acls.values",
    "Acls": "admin.acls.values",
    "GroupState": "admin.groups.views",
    "GroupListing": "admin.groups.views",
    "GroupMember": "admin.groups.views",
    "GroupDescription": "admin.groups.views",
    "CommittedOffset": "admin.groups.views",
    "DelegationTokenView": "admin.tokens.views",
    "NewDelegationToken": "admin.tokens.views",
    "RegnumError": "errors",
    "RecordDeserializationError": "errors",
    "ErrorCode": "error_codes",
    "Admin": "admin.admin",
    "DEFAULT": "admin.quotas",
    "ClientQuota": "admin.quotas",
    "QuotaAlteration": "admin.quotas",
    "QuotaEntity": "admin.quotas",
    "ClientUsage": "admin.describing.quota_usage",
    "QuotaUsage": "admin.describing.quota_usage",
    "QuotaUsages": "admin.describing.quota_usage",
    "CLUSTER_CONFIG": "admin.configs",
    "ConfigAlteration": "admin.configs",
    "ConfigEntry": "admin.configs",
    "ConfigResource": "admin.configs",
    "ConfigSource": "admin.configs",
    "ClusterEvent": "admin.describing.events",
    "EventCause": "admin.describing.events",
    "EventFilter": "admin.describing.events",
    "EventKind": "admin.describing.events",
    "EventPage": "admin.describing.events",
    "EventPosition": "admin.describing.events",
    "EventState": "admin.describing.events",
    "TopicFilter": "admin.describing.topics",
    "OffsetAndTimestamp": "cluster.offsets",
    "PartitionOffsets": "admin.describing.offset_admin",
    "ReplicaSize": "admin.describing.replica_admin",
    "TopicSummary": "admin.describing.topics",
    "Trouble": "admin.describing.topics",
    "BrokerFigures": "admin.health.figures",
    "BrokerHealth": "admin.health.views",
    "HealthView": "admin.health.views",
    "OverdueOrders": "admin.health.views",
    "TroubledPartition": "admin.health.views",
    "BrokerDescription": "admin.leaders.brokers",
    "Resignation": "admin.leaders.brokers",
    "ElectionResult": "admin.leaders.elections",
    "ElectionType": "admin.leaders.elections",
    "OfflinePartition": "admin.leaders.elections",
    "OfflinePartitions": "admin.leaders.elections",
    "OfflineReason": "admin.leaders.elections",
    "TlsFiles": "cluster.security.channels",
    "RecordBatch": "consumer.batches",
    "Consumer": "consumer.consumer",
    "ConsumerSettings": "consumer.settings",
    "BufferFullError": "errors",
    "OffsetAndMetadata": "consumer.groups.listener",
    "RebalanceListener": "consumer.groups.listener",
    "BackgroundTaskError": "errors",
    "ClientClosedError": "errors",
    "CommitFailedError": "errors",
    "MaxPollIntervalExceededError": "errors",
    "NoControllerError": "errors",
    "NoOffsetForPartitionError": "errors",
    "DeliveryTimeoutError": "errors",
    "LogTruncationError": "errors",
    "OffsetOutOfRangeError": "errors",
    "SequenceBrokenError": "errors",
    "ThrottlingQuotaExceededError": "errors",
    "UnreadableBatchError": "errors",
    "AtTime": "consumer.positions",
    "EARLIEST": "consumer.positions",
    "LATEST": "consumer.positions",
    "ResetPolicy": "consumer.positions",
    "Producer": "producer.producer",
    "ProducerSettings": "producer.producer",
    "ConsumedRecord": "records",
    "RecordMetadata": "records",
    "TopicPartition": "records",
    "DeletedRecords": "admin.records.deletion",
    "PartitionRecovery": "admin.recovery",
    "RecoverableReplica": "admin.recovery",
    "Waiting": "admin.carrying.topic_mutation",
    "CreatedTopic": "admin.topics",
    "DeletedTopic": "admin.topics",
    "NewPartitions": "admin.topics",
    "NewTopic": "admin.topics",
    "TopicPartitions": "admin.topics",
}

__all__ = [
    "CLUSTER_CONFIG",
    "DEFAULT",
    "EARLIEST",
    "LATEST",
    "AclBinding",
    "AclCheck",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPatternFilter",
    "AclPatternType",
    "AclPermission",
    "AclResourcePattern",
    "AclResourceType",
    "Acls",
    "Admin",
    "AtTime",
    "BackgroundTaskError",
    "BrokerDescription",
    "BrokerFigures",
    "BrokerHealth",
    "BufferFullError",
    "ClientClosedError",
    "ClientQuota",
    "ClientUsage",
    "ClusterEvent",
    "CommitFailedError",
    "CommittedOffset",
    "ConfigAlteration",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "CreatedTopic",
    "DelegationTokenView",
    "DeletedRecords",
    "DeletedTopic",
    "DeliveryTimeoutError",
    "ElectionResult",
    "ElectionType",
    "ErrorCode",
    "EventCause",
    "EventFilter",
    "EventKind",
    "EventPage",
    "EventPosition",
    "EventState",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupState",
    "HealthView",
    "LogTruncationError",
    "MaxPollIntervalExceededError",
    "NewDelegationToken",
    "NewPartitions",
    "NewTopic",
    "NoControllerError",
    "NoOffsetForPartitionError",
    "OfflinePartition",
    "OfflinePartitions",
    "OfflineReason",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OverdueOrders",
    "PartitionOffsets",
    "PartitionRecovery",
    "Producer",
    "ProducerSettings",
    "QuotaAlteration",
    "QuotaEntity",
    "QuotaUsage",
    "QuotaUsages",
    "RebalanceListener",
    "RecordBatch",
    "RecordDeserializationError",
    "RecordMetadata",
    "RecoverableReplica",
    "RegnumError",
    "ReplicaSize",
    "ResetPolicy",
    "Resignation",
    "SequenceBrokenError",
    "ThrottlingQuotaExceededError",
    "TlsFiles",
    "TopicFilter",
    "TopicPartition",
    "TopicPartitions",
    "TopicSummary",
    "Trouble",
    "TroubledPartition",
    "UnreadableBatchError",
    "Waiting",
]


def __getattr__(name: str) -> object:
    """The public name, from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
