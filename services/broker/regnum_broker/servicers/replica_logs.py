"""What the replicas here hold, for a controller that looks for a leader where nobody may lead (KIP-966)."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, PartitionKey, TopicId
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import slices

from regnum_broker.cluster.strays.key_pages import page_of
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

    async def describe_all(self, after: PartitionKey | None) -> tuple[list[control_pb2.ReplicaLogInfo], bool]:
        """The next ``QUERIES_MAX`` of all replicas on the disks, and whether there are more.

        Those that cannot be used are among them. Each page looks at all keys and keeps the smallest: replicas may come
        and go between two pages.

        Raises RegnumError: KAFKA_STORAGE_ERROR where nobody can say what is there.
        """
        directory = self._storage.directory
        if directory.failed:
            raise RegnumError(
                errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, "the log directory cannot be used; see the broker's log"
            )
        # Both are of one moment: what goes offline, or comes back, meanwhile is in one of them.
        offline, there = frozenset(directory.offline), tuple(self._replicas)
        found, more = await page_of(
            chain((one.key for one in there if one.key not in offline), offline), after, QUERIES_MAX
        )
        answers: list[control_pb2.ReplicaLogInfo] = []
        async for part in slices(found, SLICE):
            answers += [self._describe(key) for key in part]
        return answers, more

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
