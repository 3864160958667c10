"""What bounds every field of a request that may be long: lists, texts, bytes, and requests within requests.

``fields`` enumerates them for every call of every service, each with its bound; a list or bytes without a line in
BOUNDS have none, and a test fails. docs/request_bounds.md is made of this (``bounds_page``).

``Refused``: a call with more than the constant says is answered INVALID_REQUEST, and tests send it. ``RECORDS``: what
producers send is as large as the listener takes, its items are counted before it is parsed, and a topic says how large
a batch may be. ``CLUSTER``: only a process of the cluster sends it, at a listener that takes no one else's calls.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import regnum
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from regnum_service.request_sizes import RECORDS as WITH_RECORDS

PREFIX: Final = "regnum."


@dataclass(frozen=True, slots=True)
class Refused:
    """So many, and no more."""

    module: str
    """Where the constant is."""
    constant: str
    """Its name."""
    in_bytes: bool = False
    """Whether it counts bytes, and not elements."""

    @property
    def most(self) -> int:
        """The constant."""
        value: int = getattr(import_module(self.module), self.constant)
        return value


RECORDS: Final = "records"
"""As large as the listener takes, and counted before it is parsed."""
CLUSTER: Final = "cluster"
"""Other processes are trusted with it."""

Bound = Refused | str

TEXT: Final = Refused("regnum_service.request_sizes", "TEXT_BYTES_MAX", in_bytes=True)
"""Of any text in a request without records, wherever it stands; what it names has a smaller bound, of its own error."""
LIST: Final = Refused("regnum_service.request_sizes", "LIST_MAX")
"""Of any list in such a request, of numbers in one field too, where its method has no smaller bound."""
OBJECTS: Final = Refused("regnum_service.request_sizes", "OBJECTS_MAX")
"""Messages inside of any request that a client sends."""

OF_CLIENTS: Final = frozenset(
    {
        "admin.v1.AdminService",
        "admin.v1.EventService",
        "broker.v1.FiguresService",
        "broker.v1.GroupService",
        "broker.v1.LogService",
        "broker.v1.ProducerService",
        "metadata.v1.ImageService",
        "metadata.v1.MetadataService",
    }
)
"""Services at listeners of clients; all others are at internal ones."""

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
    "admin.v1.ConfigAlteration.configs": LIST,
    "admin.v1.ConfigReplacement.configs": LIST,
    "admin.v1.CreateAclsRequest.creations": Refused("regnum_election.servicers.acls", "BINDINGS_MAX"),
    "admin.v1.CreateDelegationTokenRequest.renewers": _PRINCIPALS,
    "admin.v1.CreatePartitionsRequest.topics": _TOPICS,
    "admin.v1.CreateTopicsRequest.topics": _TOPICS,
    "admin.v1.DeletablePartitions.partitions": LIST,
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
    "admin.v1.NewTopic.configs": LIST,
    "admin.v1.QuotaAlteration.operations": LIST,
    "admin.v1.ReassignablePartition.replicas": Refused("regnum_election.reassignment.decisions", "REPLICAS_MAX"),
    "admin.v1.RecoverPartitionsRequest.partitions": Refused("regnum_election.recovery.calls", "PARTITIONS_MAX"),
    "admin.v1.ReplicaAssignment.replicas": LIST,
    "broker.v1.DeleteGroupsRequest.group_ids": Refused(_GROUP, "DESCRIBED_MAX"),
    "broker.v1.DeleteRecordsRequest.partitions": Refused("regnum_broker.serving.delete_records", "PARTITIONS_MAX"),
    "broker.v1.DescribeGroupsRequest.group_ids": Refused(_GROUP, "DESCRIBED_MAX"),
    "broker.v1.DescribeReplicasRequest.queries": _LOG,
    "broker.v1.FetchRequest.partitions": Refused("regnum_broker.serving.fetching.admission", "PARTITIONS_MAX"),
    "broker.v1.FindCoordinatorRequest.group_ids": Refused(_GROUP, "GROUPS_MAX"),
    "broker.v1.FindCoordinatorRequest.transactional_ids": Refused(_GROUP, "GROUPS_MAX"),
    "broker.v1.JoinGroupRequest.protocols": Refused(_GROUP, "PROTOCOLS_MAX"),
    "broker.v1.GroupAssignment.assignment": Refused(_GROUP, "ASSIGNMENT_BYTES_MAX", in_bytes=True),
    "broker.v1.GroupProtocol.metadata": Refused(_GROUP, "MEMBER_BYTES_MAX", in_bytes=True),
    "broker.v1.LeaveGroupRequest.members": Refused(_GROUP, "MEMBERS_MAX"),
    "broker.v1.ListGroupsRequest.states": Refused(_GROUP, "STATES_MAX"),
    "broker.v1.ListOffsetsRequest.queries": _LOG,
    "broker.v1.OffsetCommitRequest.offsets": Refused(_GROUP, "OFFSETS_MAX"),
    "broker.v1.OffsetFetchRequest.partitions": Refused(_GROUP, "OFFSETS_MAX"),
    "broker.v1.OffsetForLeaderEpochRequest.queries": _LOG,
    "broker.v1.ProducePartition.record_batch": RECORDS,
    "broker.v1.Record.key": RECORDS,
    "broker.v1.Record.value": RECORDS,
    "broker.v1.RecordHeader.value": RECORDS,
    "broker.v1.PlainRecords.records": RECORDS,
    "broker.v1.ProducePartition.records": RECORDS,
    "broker.v1.ProduceRequest.partitions": Refused("regnum_broker.serving.produce_requests", "PARTITIONS_MAX"),
    "broker.v1.ProduceStreamRequest.more": Refused("regnum_broker.servicers.produce_stream", "TOGETHER_MAX"),
    "broker.v1.Record.headers": RECORDS,
    "broker.v1.SyncGroupRequest.assignments": Refused(_GROUP, "MEMBERS_MAX"),
    "election.v1.BrokenConnections.connections": CLUSTER,
    "election.v1.BrokerLifelineRequest.first_acknowledgements": CLUSTER,
    "election.v1.BrokerLifelineRequest.isr_reports": CLUSTER,
    "election.v1.BrokerLifelineRequest.moving_replicas": CLUSTER,
    "election.v1.BrokerLifelineRequest.offline_replicas": CLUSTER,
    "election.v1.BusyPartitions.topics": CLUSTER,
    "election.v1.BusyTopic.partitions": CLUSTER,
    "election.v1.EnvelopeRequest.request": CLUSTER,
    "election.v1.IsrReport.node": CLUSTER,
    "election.v1.FetchContacts.silent_followers": CLUSTER,
    "election.v1.UncommittedPartitions.topics": CLUSTER,
    "election.v1.FetchContacts.unreachable_leaders": CLUSTER,
    "election.v1.IsrReport.isr": CLUSTER,
    "metadata.v1.DescribeImageRequest.topics": Refused(_IMAGE, "STATES_TOPICS_MAX"),
    "metadata.v1.DescribeImageRequest.topics_of_sections": Refused(_IMAGE, "SECTIONS"),
    "metadata.v1.DescribeTopicsRequest.topics": _NAMES,
    "metadata.v1.GetMetadataRequest.topics": _NAMES,
    "metadata.v1.TopicFilter.troubles": LIST,
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
"""Of lists and bytes, by the field's full name, without ``regnum.``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongField:
    """A field of a request that may be long."""

    path: tuple[FieldDescriptor, ...]
    """From the request to it."""
    bound: Bound | None
    """None: it has none."""

    @property
    def field(self) -> FieldDescriptor:
        """Itself."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """As in ``topics.assignment.replicas``."""
        return ".".join(one.name for one in self.path)


def methods() -> Iterator[MethodDescriptor]:
    """Every call of every service that is generated."""
    for root in map(Path, regnum.__path__):
        for file in sorted(root.rglob("*_pb2.py")):
            module = importlib.import_module(".".join(("regnum", *file.relative_to(root).with_suffix("").parts)))
            for service in module.DESCRIPTOR.services_by_name.values():
                yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    """Its name on the wire."""
    return f"/{method.containing_service.full_name}/{method.name}"


def sender_of(method: MethodDescriptor) -> str:
    """RECORDS or CLUSTER; empty: clients send it, and it has no records."""
    if method.containing_service.full_name.removeprefix(PREFIX) not in OF_CLIENTS:
        return CLUSTER
    return RECORDS if path_of(method) in WITH_RECORDS else ""


def fields(method: MethodDescriptor) -> Iterator[LongField]:
    """Every list, text, bytes field and message inside of its requests; one within itself is gone into once."""
    yield from _inside(method.input_type, (), sender_of(method))


def _inside(message: Descriptor, above: tuple[FieldDescriptor, ...], sender: str) -> Iterator[LongField]:
    for field in message.fields:
        path = (*above, field)
        inner = field.message_type
        if field.is_repeated or inner is not None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            yield LongField(path=path, bound=_bound(field, sender))
        if inner is not None and all(one.containing_type is not inner for one in path):
            yield from _inside(inner, path, sender)


def _bound(field: FieldDescriptor, sender: str) -> Bound | None:
    name = field.full_name.removeprefix(PREFIX)
    if field.is_repeated or field.type == FieldDescriptor.TYPE_BYTES:
        own = BOUNDS.get(name)
        # (What is trusted with one method is not with another; a bound of its own is everybody's.)
        return sender or None if own in (RECORDS, CLUSTER) and own != sender else own
    if field.message_type is not None:
        return sender if sender == CLUSTER else OBJECTS
    return sender or TEXT
