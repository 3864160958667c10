"""What bounds each field of a request that may be repeated: a field without a line here has none, and a test fails.

A field of its own line is ``Refused``: a call with one more than the constant says is answered INVALID_REQUEST, and
where the field stands in the request itself a test sends that call. ``BYTES``: nothing counts these but the size of the
request (``request_sizes``: 8 MiB where it has no records) and the items of it that are counted before it is parsed.
``CLUSTER``: only a process of the cluster sends it, at a listener that takes no one else's calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final


@dataclass(frozen=True, slots=True)
class Refused:
    """So many, and no more."""

    module: str
    """Where the constant is."""
    constant: str
    """Its name."""

    @property
    def most(self) -> int:
        """The constant."""
        value: int = getattr(import_module(self.module), self.constant)
        return value


BYTES: Final = "bytes"
"""Nothing but the size of the request."""
CLUSTER: Final = "cluster"
"""Other processes are trusted with it."""

Bound = Refused | str

_TOPICS: Final = Refused("regnum_election.servicers.admin", "TOPICS_MAX")
_RESOURCES: Final = Refused("regnum_election.configs.calls", "RESOURCES_MAX")
_ASSIGNED: Final = Refused("regnum_election.topics.requests", "PARTITIONS_MAX")
_ELECTED: Final = Refused("regnum_election.leaders.elections", "PARTITIONS_MAX")
_PRINCIPALS: Final = Refused("regnum_election.tokens.messages", "PRINCIPALS_MAX")
_LOG: Final = Refused("regnum_broker.servicers.log", "PARTITIONS_MAX")
_GROUP: Final = "regnum_broker.servicers.group"
_NAMES: Final = Refused("regnum_service.topic_pages", "NAMES_MAX")
_WATCHED: Final = Refused("regnum_service.cluster_image.watchers", "NAMES_PER_REQUEST")
_IMAGE: Final = "regnum_service.cluster_image.describing"

BOUNDS: Final[Mapping[str, Bound]] = {
    "admin.v1.AlterClientQuotasRequest.alterations": Refused(
        "regnum_election.admission.quota_messages", "ENTITIES_MAX"
    ),
    "admin.v1.AlterConfigsRequest.replacements": _RESOURCES,
    "admin.v1.AlterPartitionReassignmentsRequest.partitions": Refused(
        "regnum_election.reassignment.calls", "PARTITIONS_MAX"
    ),
    "admin.v1.ConfigAlteration.configs": BYTES,
    "admin.v1.ConfigReplacement.configs": BYTES,
    "admin.v1.CreateAclsRequest.creations": Refused("regnum_election.servicers.acls", "BINDINGS_MAX"),
    "admin.v1.CreateDelegationTokenRequest.renewers": _PRINCIPALS,
    "admin.v1.CreatePartitionsRequest.topics": _TOPICS,
    "admin.v1.CreateTopicsRequest.topics": _TOPICS,
    "admin.v1.DeletablePartitions.partitions": BYTES,
    "admin.v1.DeleteAclsRequest.filters": Refused("regnum_election.servicers.acls", "FILTERS_MAX"),
    "admin.v1.DeletePartitionsRequest.topics": _TOPICS,
    "admin.v1.DeleteTopicsRequest.topics": _TOPICS,
    "admin.v1.DescribeBrokersRequest.broker_ids": Refused("regnum_election.brokers.description", "BROKERS_MAX"),
    "admin.v1.DescribeConfigsRequest.resources": _RESOURCES,
    "admin.v1.DescribeDelegationTokenRequest.owners": _PRINCIPALS,
    "admin.v1.ElectLeadersRequest.topics": _ELECTED,
    "admin.v1.ElectionTopic.partitions": _ELECTED,
    "admin.v1.EventFilter.kinds": Refused("regnum_election.servicers.events", "KINDS_MAX"),
    "admin.v1.GiveUpPartitionsRequest.partitions": Refused("regnum_election.partitions.giving_up", "PARTITIONS_MAX"),
    "admin.v1.IncrementalAlterConfigsRequest.alterations": _RESOURCES,
    "admin.v1.ListOfflinePartitionsRequest.topics": Refused("regnum_election.leaders.offline", "TOPICS_MAX"),
    "admin.v1.ListPartitionReassignmentsRequest.topics": _TOPICS,
    "admin.v1.NewPartitions.assignment": _ASSIGNED,
    "admin.v1.NewTopic.assignment": _ASSIGNED,
    "admin.v1.NewTopic.configs": BYTES,
    "admin.v1.QuotaAlteration.operations": BYTES,
    "admin.v1.ReassignablePartition.replicas": Refused("regnum_election.reassignment.decisions", "REPLICAS_MAX"),
    "admin.v1.RecoverPartitionsRequest.partitions": Refused("regnum_election.recovery.calls", "PARTITIONS_MAX"),
    "admin.v1.ReplicaAssignment.replicas": BYTES,
    "broker.v1.DeleteGroupsRequest.group_ids": Refused(_GROUP, "DESCRIBED_MAX"),
    "broker.v1.DeleteRecordsRequest.partitions": Refused("regnum_broker.serving.delete_records", "PARTITIONS_MAX"),
    "broker.v1.DescribeGroupsRequest.group_ids": Refused(_GROUP, "DESCRIBED_MAX"),
    "broker.v1.DescribeReplicasRequest.queries": _LOG,
    "broker.v1.FetchRequest.partitions": Refused("regnum_broker.serving.fetching.admission", "PARTITIONS_MAX"),
    "broker.v1.FindCoordinatorRequest.group_ids": Refused(_GROUP, "GROUPS_MAX"),
    "broker.v1.FindCoordinatorRequest.transactional_ids": Refused(_GROUP, "GROUPS_MAX"),
    "broker.v1.JoinGroupRequest.protocols": Refused(_GROUP, "PROTOCOLS_MAX"),
    "broker.v1.LeaveGroupRequest.members": Refused(_GROUP, "MEMBERS_MAX"),
    "broker.v1.ListGroupsRequest.states": Refused(_GROUP, "STATES_MAX"),
    "broker.v1.ListOffsetsRequest.queries": _LOG,
    "broker.v1.OffsetCommitRequest.offsets": Refused(_GROUP, "OFFSETS_MAX"),
    "broker.v1.OffsetFetchRequest.partitions": Refused(_GROUP, "OFFSETS_MAX"),
    "broker.v1.OffsetForLeaderEpochRequest.queries": _LOG,
    "broker.v1.PlainRecords.records": BYTES,
    "broker.v1.ProducePartition.records": BYTES,
    "broker.v1.ProduceRequest.partitions": Refused("regnum_broker.serving.produce_requests", "PARTITIONS_MAX"),
    "broker.v1.ProduceStreamRequest.more": Refused("regnum_broker.servicers.produce_stream", "TOGETHER_MAX"),
    "broker.v1.Record.headers": BYTES,
    "broker.v1.SyncGroupRequest.assignments": Refused(_GROUP, "MEMBERS_MAX"),
    "election.v1.BrokerLifelineRequest.isr_reports": CLUSTER,
    "election.v1.BrokerLifelineRequest.moving_replicas": CLUSTER,
    "election.v1.BrokerLifelineRequest.offline_replicas": CLUSTER,
    "election.v1.BusyPartitions.topics": CLUSTER,
    "election.v1.BusyTopic.partitions": CLUSTER,
    "election.v1.FetchContacts.silent_followers": CLUSTER,
    "election.v1.UncommittedPartitions.topics": CLUSTER,
    "election.v1.FetchContacts.unreachable_leaders": CLUSTER,
    "election.v1.IsrReport.isr": CLUSTER,
    "metadata.v1.DescribeImageRequest.topics": Refused(_IMAGE, "STATES_TOPICS_MAX"),
    "metadata.v1.DescribeImageRequest.topics_of_sections": Refused(_IMAGE, "SECTIONS"),
    "metadata.v1.DescribeTopicsRequest.topics": _NAMES,
    "metadata.v1.GetMetadataRequest.topics": _NAMES,
    "metadata.v1.TopicFilter.troubles": BYTES,
    "metadata.v1.WatchMetadataRequest.known_topics": _WATCHED,
    "metadata.v1.WatchMetadataRequest.topics": _WATCHED,
    "propagation.v1.PublishChangesRequest.brokers": CLUSTER,
    "propagation.v1.PublishChangesRequest.removed_brokers": CLUSTER,
    "propagation.v1.PublishChangesRequest.topics": CLUSTER,
    "quota.v1.Admission.mutations": CLUSTER,
    "quota.v1.AdmitRequest.admissions": Refused("regnum_quota.requests", "ADMISSIONS_MAX"),
    "quota.v1.AdmitRequest.known": Refused("regnum_quota.requests", "KNOWN_MAX"),
    "replication.v1.FetchReplicaRequest.forgotten": CLUSTER,
    "replication.v1.FetchReplicaRequest.positions": CLUSTER,
    "replication.v1.GetReplicaLogInfoRequest.queries": Refused("regnum_broker.servicers.replica_logs", "QUERIES_MAX"),
    "replication.v1.LeaderAndIsrPartition.adding_replicas": CLUSTER,
    "replication.v1.LeaderAndIsrPartition.members": CLUSTER,
    "replication.v1.LeaderAndIsrRequest.live_leaders": CLUSTER,
    "replication.v1.LeaderAndIsrRequest.partitions": Refused("regnum_broker.servicers.control", "PARTITIONS_MAX"),
    "replication.v1.OffsetForLeaderEpochRequest.queries": Refused("regnum_broker.servicers.replication", "QUERIES_MAX"),
    "replication.v1.StopReplicaRequest.partitions": CLUSTER,
    "replication.v1.UpdateMetadataRequest.brokers": CLUSTER,
    "replication.v1.UpdateMetadataRequest.removed_brokers": CLUSTER,
    "replication.v1.UpdateMetadataRequest.topics": CLUSTER,
    "types.v1.PartitionState.adding_replicas": CLUSTER,
    "types.v1.PartitionState.elr": CLUSTER,
    "types.v1.PartitionState.isr": CLUSTER,
    "types.v1.PartitionState.offline_replicas": CLUSTER,
    "types.v1.PartitionState.replicas": CLUSTER,
    "types.v1.TopicState.partitions": CLUSTER,
}
"""By the field's full name, without ``regnum.``."""
