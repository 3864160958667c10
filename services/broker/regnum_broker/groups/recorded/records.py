"""Groups and offsets as records of the internal topic, and back."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError
from regnum.groups.v1 import records_pb2
from regnum_records.record import NewRecord, Record

from regnum_broker.groups.decisions.offsets import CommittedOffset, Place
from regnum_broker.groups.decisions.rebalance import with_members
from regnum_broker.groups.decisions.state import Group, GroupState, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """What a record says of an offset."""

    group_id: str
    """Whose."""
    place: Place
    """Where."""
    offset: CommittedOffset | None
    """None: forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """What a record says of a group."""

    group_id: str
    """Which."""
    record: records_pb2.GroupRecord | None
    """None: forgotten."""


Change = OffsetChange | GroupChange


class UnreadableRecordError(Exception):
    """A record of the internal topic that no release of this product wrote."""


def offset_record(group_id: str, place: Place, offset: CommittedOffset) -> NewRecord:
    """An offset that is committed."""
    value = records_pb2.OffsetRecord(
        offset=offset.offset,
        metadata=offset.metadata,
        committed_ms=offset.committed_ms,
        topic_id=offset.topic_id,
        metadata_version=offset.metadata_version,
    )
    if offset.leader_epoch >= 0:
        value.leader_epoch = offset.leader_epoch
    return NewRecord(key=_offset_key(group_id, place), value=value.SerializeToString())


def forgotten_offset(group_id: str, place: Place) -> NewRecord:
    """An offset that is over."""
    return NewRecord(key=_offset_key(group_id, place), value=None)


def group_record(group: Group) -> NewRecord:
    """A group as it is; what only a life of a coordinator knows is left out."""
    value = records_pb2.GroupRecord(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        assigned=group.state is GroupState.STABLE,
        emptied_ms=group.emptied_ms if group.state is GroupState.EMPTY else 0,
        members=[
            records_pb2.MemberRecord(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=round(member.session_timeout_s * 1000),
                rebalance_timeout_ms=round(member.rebalance_timeout_s * 1000),
                protocols=[records_pb2.MemberProtocol(name=name, metadata=data) for name, data in member.protocols],
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return NewRecord(key=_group_key(group.group_id), value=value.SerializeToString())


def forgotten_group(group_id: str) -> NewRecord:
    """A group that is over."""
    return NewRecord(key=_group_key(group_id), value=None)


def change_of(record: Record) -> Change:
    """What a record says. Raises UnreadableRecordError."""
    try:
        key = records_pb2.GroupRecordKey.FromString(record.key or b"")
        if key.HasField("offset"):
            place = Place(key.offset.topic, key.offset.partition)
            return OffsetChange(group_id=key.group_id, place=place, offset=_offset_of(record.value))
        value = None if record.value is None else records_pb2.GroupRecord.FromString(record.value)
        return GroupChange(group_id=key.group_id, record=value)
    except DecodeError as error:
        raise UnreadableRecordError(f"the record at offset {record.offset} is none of a group: {error}") from error


def group_of(group_id: str, record: records_pb2.GroupRecord) -> Group:
    """A group as its record says; its members' sessions begin with ``membership.resumed``."""
    members = [
        Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            session_timeout_s=one.session_timeout_ms / 1000,
            rebalance_timeout_s=one.rebalance_timeout_ms / 1000,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in one.protocols),
            assignment=one.assignment,
            synced=record.assigned,
            deadline_s=0.0,
        )
        for one in record.members
    ]
    state = GroupState.EMPTY
    if members:
        state = GroupState.STABLE if record.assigned else GroupState.COMPLETING_REBALANCE
    group = Group(
        group_id=group_id,
        state=state,
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        emptied_ms=record.emptied_ms,
    )
    return with_members(group, members)


def _offset_of(value: bytes | None) -> CommittedOffset | None:
    if value is None:
        return None
    found = records_pb2.OffsetRecord.FromString(value)
    return CommittedOffset(
        offset=found.offset,
        leader_epoch=found.leader_epoch if found.HasField("leader_epoch") else -1,
        metadata=found.metadata,
        committed_ms=found.committed_ms,
        topic_id=found.topic_id,
        metadata_version=found.metadata_version,
    )


def _offset_key(group_id: str, place: Place) -> bytes:
    where = records_pb2.OffsetPlace(topic=place.topic, partition=place.partition)
    return records_pb2.GroupRecordKey(group_id=group_id, offset=where).SerializeToString(deterministic=True)


def _group_key(group_id: str) -> bytes:
    return records_pb2.GroupRecordKey(group_id=group_id).SerializeToString(deterministic=True)
