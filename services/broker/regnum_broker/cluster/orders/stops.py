"""StopReplica, and replicas that belong here no more: roles end, and what is to go is deleted (safety rule S13).

A message costs one journal append and one fsync for each REPLICAS_PER_DELETION replicas that it deletes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_model.ids import TOPIC_DELETED_EPOCH, PartitionKey, TopicId, is_topic_id
from regnum_model.nodes import MAX_PARTITIONS
from regnum_service.errors import Code
from regnum_service.slices import Turns, slices

from regnum_broker.cluster.orders.roles import NONE, SLICE, end_role
from regnum_broker.cluster.strays.assignments import Assignment, assignments_of
from regnum_broker.log.errors import StorageError
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.replicas import Replicas
from regnum_broker.storage import Storage

REPLICAS_PER_DELETION: Final = 500
"""Replicas whose deletion one job of the writer notes: appends wait for one such job at most."""


class Stops:
    """Ends roles and deletes replicas. For the task of ``Orders`` only."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        fetchers: Fetchers,
        storage: Storage,
        store: Callable[[], Store | None],
        fits_now: Callable[[Store | None], Awaitable[bool]],
    ) -> None:
        """Only assigns; ``fits_now``: whether the store's word may delete anything (``Lives.fits_now``)."""
        self._fits_now: Final = fits_now
        self._store: Final = store
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._storage: Final = storage
        self._log: Final = structlog.get_logger("orders")

    async def carry_out(self, partitions: Sequence[control_pb2.StopReplicaPartition]) -> list[Code]:
        """One message; one result for each replica."""
        results: list[Code] = [NONE] * len(partitions)
        deleting: dict[PartitionKey, int] = {}
        offline = await self._offline_by_topic()
        assignments = await self._assignments(_reassigned(partitions))
        turns = Turns(SLICE)
        for index, message in enumerate(partitions):
            if not is_topic_id(message.topic_id) or not -1 <= message.partition < MAX_PARTITIONS:
                results[index] = errors_pb2.ERROR_CODE_INVALID_REQUEST
                continue
            await turns.took()
            if message.reassigned:
                said = assignments.get(PartitionKey(TopicId(message.topic_id), message.partition))
                if said is Assignment.UNKNOWN:
                    # To be ordered again: without the store nothing is deleted.
                    results[index] = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
                if said is not Assignment.ELSEWHERE:
                    continue
            for key in self._named_by(message, offline):
                await turns.took()
                if not self._may_stop(key, message):
                    results[index] = errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
                elif message.delete:
                    deleting[key] = index
        for index in await self._delete(deleting):
            results[index] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        return results

    async def remove_strays(self, keys: Sequence[PartitionKey]) -> int:
        """See ``Orders.remove_strays``."""
        idle = [one.key for one in filter(None, map(self._replicas.get, keys)) if self._fetchers.is_idle(one)]
        said = await self._assignments(idle)
        strays = [key for key in idle if said[key] is Assignment.ELSEWHERE]
        if strays:
            self._log.warning("replicas that are assigned to other brokers are deleted", strays=strays)
        for stray in filter(None, map(self._replicas.get, strays)):
            end_role(stray, replicas=self._replicas, fetchers=self._fetchers)
        failed = await self._delete({key: index for index, key in enumerate(strays)})
        return len(strays) - len(failed)

    async def _assignments(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Assignment]:
        """Whose partitions are, as the store says, as far as its word may delete anything."""
        said = await assignments_of(self._store(), keys, broker=self._replicas.broker)
        if Assignment.ELSEWHERE in said.values() and not await self._fits_now(self._store()):
            self._log.error("replicas of others are kept: the log directory and the store are not of one time")
            return dict.fromkeys(keys, Assignment.UNKNOWN)
        return said

    async def _delete(self, replicas: Mapping[PartitionKey, int]) -> set[int]:
        """Delete replicas, in portions between which appends get their turn; what was asked for and is not done."""
        left = list(replicas)
        while left:
            some = left[:REPLICAS_PER_DELETION]
            try:
                await self._storage.delete(some)
            except StorageError as error:
                self._log.critical("replicas not deleted", reason=str(error), count=len(left))
                break
            async for part in slices(some, SLICE):
                for key in part:
                    self._replicas.remove(key)
            left = left[REPLICAS_PER_DELETION:]
        if len(left) < len(replicas):
            self._log.info("replicas deleted", count=len(replicas) - len(left))
        return {replicas[key] for key in left}

    async def _offline_by_topic(self) -> dict[TopicId, list[PartitionKey]]:
        """Replicas that cannot be used can be deleted."""
        found: dict[TopicId, list[PartitionKey]] = {}
        async for part in slices(self._storage.directory.offline, SLICE):
            for key in part:
                found.setdefault(key.topic_id, []).append(key)
        return found

    def _may_stop(self, key: PartitionKey, message: control_pb2.StopReplicaPartition) -> bool:
        """End a replica's role; False: the order is older than what it, or without a role yet its log, knows."""
        partition = self._replicas.get(key)
        if partition is None:
            return True
        known = max(partition.leader_epoch, partition.log.highest_leader_epoch)
        if TOPIC_DELETED_EPOCH != message.leader_epoch < known:
            return False
        end_role(partition, replicas=self._replicas, fetchers=self._fetchers)
        return True

    def _named_by(
        self, message: control_pb2.StopReplicaPartition, offline: Mapping[TopicId, Sequence[PartitionKey]]
    ) -> list[PartitionKey]:
        topic_id = TopicId(message.topic_id)
        if message.partition >= 0:
            return [PartitionKey(topic_id, message.partition)]
        return [*self._replicas.of_topic(topic_id), *offline.get(topic_id, ())]


def _reassigned(partitions: Sequence[control_pb2.StopReplicaPartition]) -> list[PartitionKey]:
    """Replicas of which the store is asked before they are deleted (safety rule S13)."""
    return [
        PartitionKey(TopicId(message.topic_id), message.partition)
        for message in partitions
        if message.reassigned and is_topic_id(message.topic_id) and 0 <= message.partition < MAX_PARTITIONS
    ]
