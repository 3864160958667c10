"""What the replicas here hold, for a controller that looks for a leader where nobody may lead (KIP-966)."""

from collections.abc import Sequence
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, PartitionKey, TopicId
from regnum_service.errors import Code
from regnum_service.slices import slices

from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.storage import Storage

QUERIES_MAX: Final = 1_000
"""Replicas of one message."""

SLICE: Final = 200
"""Replicas looked at between two turns of the event loop (safety rule S22)."""


class ReplicaLogs:
    """Answers GetReplicaLogInfo. Belongs to the event loop."""

    def __init__(self, replicas: Replicas, storage: Storage) -> None:
        self._replicas: Final = replicas
        self._storage: Final = storage

    async def describe(self, queries: Sequence[control_pb2.ReplicaLogQuery]) -> list[control_pb2.ReplicaLogInfo]:
        """One answer for each query, in order."""
        answers: list[control_pb2.ReplicaLogInfo] = []
        async for part in slices(queries, SLICE):
            answers += [self._describe(PartitionKey(TopicId(query.topic_id), query.partition)) for query in part]
        return answers

    def _describe(self, key: PartitionKey) -> control_pb2.ReplicaLogInfo:
        directory = self._storage.directory
        if directory.failed or key in directory.offline:
            return _nothing(key, directory.log_id, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR)
        partition = self._replicas.get(key)
        if partition is None:
            return _nothing(key, directory.log_id, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION)
        return _described(partition, directory.log_id)


def _nothing(key: PartitionKey, log_id: str, code: Code) -> control_pb2.ReplicaLogInfo:
    return control_pb2.ReplicaLogInfo(
        topic_id=key.topic_id,
        partition=key.partition,
        error_code=code,
        log_id=log_id,
        last_written_leader_epoch=NO_EPOCH,
        current_leader_epoch=NO_EPOCH,
    )


def _described(partition: Partition, log_id: str) -> control_pb2.ReplicaLogInfo:
    log = partition.log
    return control_pb2.ReplicaLogInfo(
        topic_id=partition.key.topic_id,
        partition=partition.key.partition,
        log_id=log_id,
        last_written_leader_epoch=log.last_record_epoch,
        current_leader_epoch=max(partition.leader_epoch, log.highest_leader_epoch),
        log_start_offset=log.log_start_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=log.log_end_offset,
        leading=isinstance(partition.role, Leadership),
    )
