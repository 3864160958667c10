"""Logs of this broker: records deleted, sizes and idempotent producers told, between Kafka's messages and the log's."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from immutables import Map
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen import describe_producers_response
from regnum_kafka_wire.gen.delete_records_request import DeleteRecordsRequest
from regnum_kafka_wire.gen.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from regnum_kafka_wire.gen.describe_log_dirs_request import DescribeLogDirsRequest
from regnum_kafka_wire.gen.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from regnum_kafka_wire.gen.describe_producers_request import DescribeProducersRequest
from regnum_kafka_wire.gen.describe_producers_response import DescribeProducersResponse, PartitionResponse
from regnum_model.access import Operation, ResourceType
from regnum_service.access.authorization import Authorizer, Right
from regnum_service.errors import Code
from regnum_service.limits.answers import making
from regnum_service.slices import Turns

from regnum_broker.disk_room import DiskRooms
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.refusals import check_once
from regnum_broker.log.replica.producers.states import ProducerEntry
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.storage import Storage

TO_THE_END: Final = -1
"""Offset of DeleteRecords that means: all that is committed."""
ROW_BYTES: Final = 200
"""About what a replica, or a producer, takes of an answer, before it is encoded."""
NO_REPLICA: Final = "this broker has no replica of it; refresh metadata, and ask one that has"
SLICE: Final = 1_000
"""Partitions, or producers, put into an answer before the event loop gets a turn (safety rule S22)."""

DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
READ_TOPIC: Final = Right(Operation.READ, ResourceType.TOPIC)


class LogAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        *,
        log: Any,
        replicas: Replicas,
        leaders: CurrentLeaders,
        storage: Storage,
        disk: DiskRooms,
        authorizer: Authorizer,
    ) -> None:
        """Only assigns.

        Args:
            log: LogService, guarded.
            replicas: what is here.
            leaders: what there is elsewhere.
            storage: the logs.
            disk: how much room they have.
            authorizer: which logs a caller may be told of.
        """
        self._log: Final = log
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._storage: Final = storage
        self._disk: Final = disk
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            21: (self.delete_records, self.no_delete_records),
            35: (self.directories, self.no_directories),
            61: (self.producers, self.no_producers),
        }

    async def delete_records(self, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
        """Have logs begin later."""
        asked = log_pb2.DeleteRecordsRequest(timeout_ms=max(0, request.timeout_ms))
        for topic in request.topics:
            for one in topic.partitions:
                wanted = asked.partitions.add(topic=topic.name, partition=one.partition_index)
                if one.offset == TO_THE_END:
                    wanted.all_committed.SetInParent()
                else:
                    wanted.before_offset = one.offset
        results = iter((await self._log.DeleteRecords(asked, context)).results)

        def result(partition: int) -> DeleteRecordsPartitionResult:
            found = next(results)
            return DeleteRecordsPartitionResult(
                partition, -1 if found.error_code else found.low_watermark, found.error_code
            )

        return _of_records(request, result)

    def no_delete_records(self, request: DeleteRecordsRequest, context: Context, code: Code) -> DeleteRecordsResponse:
        """That nothing was deleted."""
        del context
        return _of_records(request, lambda partition: DeleteRecordsPartitionResult(partition, -1, code))

    async def directories(self, request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
        """How large replicas are, in the one directory that a broker has."""
        del context
        DESCRIBE_CLUSTER.require(self._authorizer)
        directory, room = self._storage.directory, self._disk.now
        if directory.failed:
            failed = DescribeLogDirsResult(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(directory.path))
            return DescribeLogDirsResponse(results=[failed])
        wanted: set[tuple[str, int]] | None = None
        if request.topics is not None:
            wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
        by_topic: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        turns = Turns(SLICE)
        for partition in tuple(self._replicas):
            await turns.took()
            number, log = partition.key.partition, partition.log
            if wanted is None or (partition.topic, number) in wanted:
                making(ROW_BYTES)
                lag = max(0, partition.high_watermark - log.log_end_offset)
                by_topic[partition.topic].append(DescribeLogDirsPartition(number, log.size_bytes, lag))
        result = DescribeLogDirsResult(
            log_dir=str(directory.path),
            topics=[DescribeLogDirsTopic(topic, by_topic[topic]) for topic in sorted(by_topic)],
            total_bytes=-1 if room.size_bytes is None else room.size_bytes,
            usable_bytes=-1 if room.free_bytes is None else room.free_bytes,
        )
        return DescribeLogDirsResponse(results=[result])

    def no_directories(self, request: DescribeLogDirsRequest, context: Context, code: Code) -> DescribeLogDirsResponse:
        """That it is not told."""
        del request, context
        return DescribeLogDirsResponse(error_code=code)

    async def producers(self, request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
        """Which idempotent producers replicas here remember (KIP-664)."""
        del context
        check_once(
            ((topic.name, number) for topic in request.topics for number in topic.partition_indexes), "partition"
        )
        turns = Turns(SLICE)
        topics = []
        held_of = dict[str, bool]()
        for topic in request.topics:
            await turns.took()
            held_of[topic.name] = READ_TOPIC.held(self._authorizer, topic.name)
        remembered = iter(await self._remembered(request, held_of, turns))
        for topic in request.topics:
            held = held_of[topic.name]
            answers = []
            for number in topic.partition_indexes:
                await turns.took()
                if not held:
                    error = READ_TOPIC.refusal(topic.name)
                    answers.append(PartitionResponse(number, error.code, error.message))
                    continue
                entries = next(remembered)
                if entries is None:
                    answers.append(PartitionResponse(number, self._why_none(topic.name, number), NO_REPLICA))
                    continue
                states = []
                making(ROW_BYTES * len(entries))
                for id, entry in entries.items():
                    await turns.took()
                    states.append(_producer(id, entry))
                answers.append(PartitionResponse(number, 0, None, states))
            topics.append(describe_producers_response.TopicResponse(topic.name, answers))
        return DescribeProducersResponse(topics=topics)

    async def _remembered(
        self, request: DescribeProducersRequest, held: Mapping[str, bool], turns: Turns
    ) -> list[Map[int, ProducerEntry] | None]:
        """Producers by partition, of topics that may be read, in the order of the request; None: no replica is here."""
        logs = []
        for topic in request.topics:
            for number in topic.partition_indexes if held[topic.name] else ():
                await turns.took()
                # (As in Kafka, of followers too: tools ask the replica that they name.)
                found = self._replicas.named(topic.name, number)
                logs.append(None if found is None else found.log)
        told: list[Map[int, ProducerEntry] | None] = []
        for first in range(0, len(logs), SLICE):
            part = logs[first : first + SLICE]
            # They belong to the thread that appends.
            told += await self._storage.write(
                lambda part=part: [None if log is None else log.producers.entries for log in part]  # type: ignore[misc]
            )
        return told

    def _why_none(self, topic: str, partition: int) -> Code:
        """The error where this broker has no replica of a partition."""
        if self._leaders.knows(topic, partition):
            return errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
        return errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION

    def no_producers(
        self, request: DescribeProducersRequest, context: Context, code: Code
    ) -> DescribeProducersResponse:
        """That they are not told."""
        del context
        return DescribeProducersResponse(
            topics=[
                describe_producers_response.TopicResponse(
                    topic.name, [PartitionResponse(number, code, None) for number in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )


def _of_records(
    request: DeleteRecordsRequest, result: Callable[[int], DeleteRecordsPartitionResult]
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [result(one.partition_index) for one in topic.partitions])
            for topic in request.topics
        ]
    )


def _producer(id: int, entry: ProducerEntry) -> describe_producers_response.ProducerState:
    """Without a transaction, which there is none of."""
    return describe_producers_response.ProducerState(
        producer_id=id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence,
        last_timestamp=entry.seen_ms,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )
