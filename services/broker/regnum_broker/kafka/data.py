"""Produce, Fetch, offsets and producer ids, between Kafka's messages and those of the handlers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from regnum.broker.v1 import log_pb2, producer_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen import (
    fetch_response,
    produce_response,
)
from regnum_kafka_wire.gen.fetch_request import FetchRequest
from regnum_kafka_wire.gen.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from regnum_kafka_wire.gen.init_producer_id_request import InitProducerIdRequest
from regnum_kafka_wire.gen.init_producer_id_response import InitProducerIdResponse
from regnum_kafka_wire.gen.list_offsets_request import ListOffsetsRequest
from regnum_kafka_wire.gen.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from regnum_kafka_wire.gen.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from regnum_kafka_wire.gen.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from regnum_kafka_wire.gen.produce_request import ProduceRequest
from regnum_kafka_wire.gen.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from regnum_model.topics import MAX_NAME_LENGTH
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns

from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import Key, Place, Said
from regnum_broker.kafka.refusals import is_waited_for, no_transactions, unheard
from regnum_broker.serving.fetching.admission import check_count
from regnum_broker.serving.fetching.handler import FETCH_BYTES_MAX

BY_ID_PRODUCE: Final = 13
BY_ID_FETCH: Final = 13
"""First versions that name topics by their ids."""
HINTS_PRODUCE: Final = 10
HINTS_FETCH: Final = 16
"""First versions whose refusals say who leads (KIP-951)."""
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
"""KIP-405: of logs that are on this broker, which all are."""
READ_COMMITTED: Final = 1
SLICE: Final = 500
"""Partitions between two turns of the event loop (safety rule S22)."""
NO_ID: Final = bytes(16)

ACKS: Final[Mapping[int, log_pb2.Acks.ValueType]] = {
    -1: log_pb2.ACKS_ALL,
    0: log_pb2.ACKS_NONE,
    1: log_pb2.ACKS_LEADER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToProduce:
    """What a Produce request asks of the handler, and what is known of its answer."""

    request: log_pb2.ProduceRequest
    """Of the partitions that are known."""
    places: Sequence[PartitionProduceResponse]
    """Where their results go."""
    response: ProduceResponse
    """They are in there, beside those of unknown ones."""


class Data:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, log: Any, producers: Any, addresses: Addresses, follows: Callable[[str, int], bool]) -> None:
        """Only assigns.

        Args:
            log: LogService, guarded.
            producers: ProducerService, guarded.
            addresses: who leads where.
            follows: whether this broker follows the leader of a partition.
        """
        self._log: Final = log
        self._producers: Final = producers
        self._addresses: Final = addresses
        self._follows: Final = follows

    async def produce(self, request: ProduceRequest, context: Context) -> ProduceResponse | None:
        """Append; None: its producer waits for no answer. Raises RegnumError: likewise, and not all was appended."""
        asked = await self.to_produce(request, context)
        done = await self._log.Produce(asked.request, context) if asked.places else log_pb2.ProduceResponse()
        if done.results and all(is_waited_for(result.error_code) for result in done.results):
            # Nothing was appended.
            raise RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "the disk is behind")
        turns = Turns(SLICE)
        for place, result in zip(asked.places, done.results, strict=True):
            await turns.took()
            self._tell_produced(place, result, context)
        return self._answer_of(asked, done, context)

    async def to_produce(self, request: ProduceRequest, context: Context) -> ToProduce:
        """What is to be appended. Raises RegnumError: nothing of it may be."""
        if request.transactional_id is not None:
            raise no_transactions()
        if request.acks not in ACKS:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS, f"acks is {request.acks}; give -1, 0 or 1")
        asked = log_pb2.ProduceRequest(acks=ACKS[request.acks], timeout_ms=max(0, request.timeout_ms))
        asked.header.client_id = context.call.client_id
        answers: list[TopicProduceResponse] = []
        places: list[PartitionProduceResponse] = []
        turns = Turns(SLICE)
        for topic in request.topic_data:
            by_id = context.version >= BY_ID_PRODUCE
            name = self._addresses.name_of(topic.topic_id) if by_id else topic.name
            # (Else what was meant for a topic would go to the next one of its name.)
            topic_id = self._addresses.text_of(topic.topic_id) if by_id else ""
            answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
            answers.append(answer)
            found: list[PartitionProduceResponse] = []
            for one in topic.partition_data:
                await turns.took()
                place = PartitionProduceResponse(index=one.index, base_offset=-1)
                found.append(place)
                if name is None:
                    place.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
                    continue
                places.append(place)
                asked.partitions.add(
                    topic=name, topic_id=topic_id, partition=one.index, record_batch=bytes(one.records or b"")
                )
            answer.partition_responses = found
        return ToProduce(request=asked, places=places, response=ProduceResponse(responses=answers))

    def produced(self, asked: ToProduce, done: log_pb2.ProduceResponse, context: Context) -> ProduceResponse | None:
        """The answer to one that was appended with others, a small one; None and RegnumError as of ``produce``."""
        for place, result in zip(asked.places, done.results, strict=True):
            self._tell_produced(place, result, context)
        return self._answer_of(asked, done, context)

    def _answer_of(self, asked: ToProduce, done: log_pb2.ProduceResponse, context: Context) -> ProduceResponse | None:
        response = asked.response
        if asked.request.acks == log_pb2.ACKS_NONE:
            for topic in response.responses:
                for one in topic.partition_responses:
                    if one.error_code:
                        raise unheard(errors_pb2.ErrorCode.ValueType(one.error_code))
            return None
        response.throttle_time_ms = done.throttle_time_ms
        if asked.places and context.version >= HINTS_PRODUCE:
            response.node_endpoints = [
                produce_response.NodeEndpoint(broker.id, broker.kafka.host, broker.kafka.port, broker.rack or None)
                for broker in self._addresses.named(
                    result.current_leader.leader for result in done.results if result.HasField("current_leader")
                )
            ]
        return response

    def _tell_produced(self, place: PartitionProduceResponse, result: log_pb2.ProduceResult, context: Context) -> None:
        # (librdkafka takes THROTTLING_QUOTA_EXCEEDED for final here. It is said where the disk is behind.)
        behind = is_waited_for(result.error_code)
        place.error_code = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR if behind else result.error_code
        if result.error_code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID:
            # Of Produce Kafka's producers know that by this name alone.
            place.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
        place.error_message = result.error_message or None
        place.base_offset, place.log_start_offset = result.base_offset, result.log_start_offset
        if result.HasField("log_append_time_ms") and not result.error_code:
            place.log_append_time_ms = result.log_append_time_ms
        if result.error_code and context.version >= HINTS_PRODUCE and result.HasField("current_leader"):
            place.current_leader = produce_response.LeaderIdAndEpoch(
                result.current_leader.leader, result.current_leader.leader_epoch
            )

    def no_produce(self, request: ProduceRequest, context: Context, code: Code) -> ProduceResponse:
        """That nothing was appended. Raises RegnumError: its producer waits for no answer."""
        del context
        if not request.acks:
            raise unheard(code)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    async def fetch(self, request: FetchRequest, context: Context) -> FetchResponse:
        """Read, in the session of the connection if it has one."""
        check_count(sum(len(topic.partitions) for topic in request.topics))
        named, turns = _places(request), Turns(SLICE)
        await turns.took(len(named))
        forgotten = [
            (topic.topic, topic.topic_id, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ]
        session = context.session
        wanted = session.wanted(request.session_id, request.session_epoch, named, forgotten)
        if not isinstance(wanted, Mapping):
            return FetchResponse(error_code=wanted)
        asked = log_pb2.FetchRequest(
            max_wait_ms=max(0, request.max_wait_ms),
            min_bytes=max(0, request.min_bytes),
            max_bytes=min(max(1, request.max_bytes), FETCH_BYTES_MAX),
            client_rack=request.rack_id,
        )
        asked.header.client_id = context.call.client_id
        rack = self._addresses.reached(request.rack_id)
        keys, answers = list[Key](), list[tuple[Key, PartitionData]]()
        for key, place in wanted.items():
            await turns.took()
            name = key[0] if context.version < BY_ID_FETCH else self._addresses.name_of(key[1])
            if name is None:
                unknown = PartitionData(key[2], errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, -1, records=b"")
                answers.append((key, unknown))
                # (Somebody waits for nothing: what is unknown is said at once.)
                asked.max_wait_ms = 0
                continue
            keys.append(key)
            item = asked.partitions.add(
                topic=name,
                partition=key[2],
                offset=place.offset,
                max_bytes=max(1, place.bytes_max),
                read_from=self._read_from(rack, name, key[2]),
            )
            if context.version >= BY_ID_FETCH:
                item.topic_id = self._addresses.text_of(key[1])
            if place.leader_epoch >= 0:
                item.current_leader_epoch = place.leader_epoch
            if place.last_epoch >= 0:
                item.last_fetched_epoch = place.last_epoch
        throttle_ms, leaders = 0, set[int]()
        if keys or not answers:
            done = await self._read(asked, context, request.session_epoch)
            throttle_ms = done.throttle_time_ms
            for key, result in zip(keys, done.results, strict=True):
                await turns.took()
                answers.append((key, _partition_data(result, context, isolation=request.isolation_level)))
                if result.HasField("current_leader"):
                    leaders.add(result.current_leader.leader)
        return await self._fetched(answers, context, throttle_ms=throttle_ms, leaders=leaders)

    def _read_from(self, rack: str, topic: str, partition: int) -> log_pb2.ReadFrom.ValueType:
        """Kafka's consumers send the same request to a leader and to whom it names (KIP-392)."""
        if not rack:
            return log_pb2.READ_FROM_LEADER
        return log_pb2.READ_FROM_ANY_REPLICA if self._follows(topic, partition) else log_pb2.READ_FROM_NEAREST

    async def _read(self, asked: log_pb2.FetchRequest, context: Context, epoch: int) -> log_pb2.FetchResponse:
        try:
            done: log_pb2.FetchResponse = await self._log.Fetch(asked, context)
        except RegnumError as error:
            if is_waited_for(error.code):
                context.session.again(epoch)
            raise
        return done

    async def _fetched(
        self, answers: Sequence[tuple[Key, PartitionData]], context: Context, *, throttle_ms: int, leaders: set[int]
    ) -> FetchResponse:
        session, topics = context.session, dict[tuple[str, bytes], list[PartitionData]]()
        full: list[Key] = []
        turns = Turns(SLICE)
        for key, data in answers:
            await turns.took()
            has_records = bool(data.records)
            worth_saying = (
                has_records
                or bool(data.error_code)
                or data.preferred_read_replica >= 0
                or data.diverging_epoch is not None
            )
            said = Said(data.high_watermark, data.log_start_offset)
            if session.news(key, said, worth_saying=worth_saying):
                topics.setdefault(key[:2], []).append(data)
            if has_records:
                full.append(key)
        session.served(full)
        response = FetchResponse(
            throttle_time_ms=throttle_ms,
            session_id=session.id,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=data)
                for (name, topic_id), data in topics.items()
            ],
        )
        if context.version >= HINTS_FETCH:
            response.node_endpoints = [
                fetch_response.NodeEndpoint(broker.id, broker.kafka.host, broker.kafka.port, broker.rack or None)
                for broker in self._addresses.named(leaders)
            ]
        return response

    def no_fetch(self, request: FetchRequest, context: Context, code: Code) -> FetchResponse:
        """That nothing is read."""
        return FetchResponse(
            error_code=code if context.version >= 7 else 0,
            session_id=context.session.id,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[PartitionData(one.partition, code, -1, records=b"") for one in topic.partitions],
                )
                for topic in request.topics
            ],
        )

    async def list_offsets(self, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
        """Offsets of the beginning, the end, and of times."""
        asked = log_pb2.ListOffsetsRequest()
        asked.header.client_id = context.call.client_id
        check_count(sum(len(topic.partitions) for topic in request.topics))
        turns = Turns(SLICE)
        for topic in request.topics:
            for one in topic.partitions:
                await turns.took()
                query = asked.queries.add(topic=topic.name, partition=one.partition_index)
                if one.timestamp == MAX_TIMESTAMP:
                    query.max_timestamp.SetInParent()
                else:
                    query.timestamp_ms = EARLIEST if one.timestamp == EARLIEST_LOCAL else one.timestamp
        done = await self._log.ListOffsets(asked, context) if asked.queries else log_pb2.ListOffsetsResponse()
        results = iter(done.results)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=[_offset(next(results), one.timestamp) for one in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def no_list_offsets(self, request: ListOffsetsRequest, context: Context, code: Code) -> ListOffsetsResponse:
        """That no offsets are told."""
        del context
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def ends_of_epochs(
        self, request: OffsetForLeaderEpochRequest, context: Context
    ) -> OffsetForLeaderEpochResponse:
        """Where leader epochs end."""
        asked = log_pb2.OffsetForLeaderEpochRequest()
        check_count(sum(len(topic.partitions) for topic in request.topics))
        turns = Turns(SLICE)
        for topic in request.topics:
            for one in topic.partitions:
                await turns.took()
                query = asked.queries.add(topic=topic.topic, partition=one.partition, leader_epoch=one.leader_epoch)
                if one.current_leader_epoch >= 0:
                    query.current_leader_epoch = one.current_leader_epoch
        done = (
            await self._log.OffsetForLeaderEpoch(asked, context)
            if asked.queries
            else log_pb2.OffsetForLeaderEpochResponse()
        )
        results = iter(done.results)
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(
                            error_code=result.error_code,
                            partition=result.partition,
                            leader_epoch=result.leader_epoch,
                            end_offset=result.end_offset,
                        )
                        for result in (next(results) for _ in topic.partitions)
                    ],
                )
                for topic in request.topics
            ]
        )

    def no_ends_of_epochs(
        self, request: OffsetForLeaderEpochRequest, context: Context, code: Code
    ) -> OffsetForLeaderEpochResponse:
        """That none are told."""
        del context
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[EpochEndOffset(error_code=code, partition=one.partition) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    async def producer_id(self, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
        """An id for an idempotent producer. Transactions are not offered."""
        if request.transactional_id is not None:
            raise no_transactions()
        done = await self._producers.InitProducerId(producer_pb2.InitProducerIdRequest(), context)
        return InitProducerIdResponse(producer_id=done.producer_id, producer_epoch=done.producer_epoch)

    def no_producer_id(self, request: InitProducerIdRequest, context: Context, code: Code) -> InitProducerIdResponse:
        """That there is none."""
        del request, context
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _places(request: FetchRequest) -> dict[Key, Place]:
    """What a request names. Raises INVALID_TOPIC_EXCEPTION for a name that no topic has: a session would keep it."""
    if any(len(topic.topic) > MAX_NAME_LENGTH for topic in request.topics):
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION, "no topic has so long a name")
    return {
        (topic.topic, topic.topic_id, one.partition): Place(
            one.fetch_offset, one.partition_max_bytes, one.current_leader_epoch, one.last_fetched_epoch
        )
        for topic in request.topics
        for one in topic.partitions
    }


def _partition_data(result: log_pb2.FetchResult, context: Context, *, isolation: int) -> PartitionData:
    data = PartitionData(
        partition_index=result.partition,
        error_code=result.error_code,
        high_watermark=-1 if result.error_code else result.high_watermark,
        last_stable_offset=-1 if result.error_code else result.high_watermark,
        log_start_offset=-1 if result.error_code else result.log_start_offset,
        aborted_transactions=() if isolation == READ_COMMITTED else None,
        preferred_read_replica=result.preferred_read_replica if result.HasField("preferred_read_replica") else -1,
        records=result.record_batches,
    )
    if result.HasField("diverging_epoch"):
        data.diverging_epoch = fetch_response.EpochEndOffset(
            result.diverging_epoch.epoch, result.diverging_epoch.end_offset
        )
    if context.version >= HINTS_FETCH and result.error_code and result.HasField("current_leader"):
        data.current_leader = fetch_response.LeaderIdAndEpoch(
            result.current_leader.leader, result.current_leader.leader_epoch
        )
    return data


def _offset(result: log_pb2.OffsetResult, asked_ms: int) -> ListOffsetsPartitionResponse:
    by_time = asked_ms >= 0 or asked_ms == MAX_TIMESTAMP
    return ListOffsetsPartitionResponse(
        partition_index=result.partition,
        error_code=result.error_code,
        timestamp=result.timestamp_ms if by_time and result.HasField("timestamp_ms") else -1,
        offset=result.offset,
        leader_epoch=result.offset_leader_epoch if result.HasField("offset_leader_epoch") else -1,
    )
