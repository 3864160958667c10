"""DescribeReplicas: how large the replicas here are, and where they end (KIP-113)."""

from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import PartitionKey, TopicId
from regnum_service.errors import Code
from regnum_service.item_errors import item_status

from regnum_broker.replication.decisions.isr import UNKNOWN_OFFSET
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import Replicas
from regnum_broker.storage import Storage


class ReplicaDescriber:
    """Answers from what is in memory: no file is looked at. Belongs to the event loop."""

    def __init__(self, *, replicas: Replicas, storage: Storage) -> None:
        """Only assigns.

        Args:
            replicas: what is described.
            storage: knows which replicas cannot be used.
        """
        self._replicas: Final = replicas
        self._storage: Final = storage

    def describe(self, query: log_pb2.ReplicaQuery) -> log_pb2.ReplicaDescription:
        """One replica, or why there is none."""
        result = log_pb2.ReplicaDescription(topic=query.topic, partition=query.partition, leader_epoch=-1)
        offline = self._storage.directory.offline.get(PartitionKey(TopicId(query.topic_id), query.partition))
        found = self._replicas.named(query.topic, query.partition)
        if offline is not None:
            _refuse(result, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(offline))
        elif found is None:
            _refuse(
                result,
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self._replicas.broker} has no replica of {query.topic}/{query.partition}",
            )
        elif query.topic_id and query.topic_id != found.key.topic_id:
            _refuse(
                result,
                errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
                f"topic {query.topic} has id {found.key.topic_id} here; refresh metadata",
            )
        else:
            log, role = found.log, found.role
            result.leader_epoch = found.leader_epoch
            result.size_bytes = log.size_bytes
            result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset
            result.high_watermark = found.high_watermark
            if isinstance(role, Leadership):
                result.leading = True
                _add_followers(result, role)
        return result


def _refuse(result: log_pb2.ReplicaDescription, code: Code, message: str) -> None:
    result.error_code, result.error_message = code, message
    result.status.CopyFrom(item_status(code, message))


def _add_followers(result: log_pb2.ReplicaDescription, leadership: Leadership) -> None:
    for id in leadership.replicas:
        progress = leadership.progress_of(id)
        if progress is None:
            continue
        follower = result.followers.add(broker_id=id, in_sync=id in leadership.state.isr)
        if progress.log_end_offset != UNKNOWN_OFFSET:
            follower.log_end_offset = progress.log_end_offset
