"""Produce, Fetch, offsets and producer ids, between Kafka's messages and the values of calls about the log.

Constraints: nothing but values lies between the socket and the log. The records of a batch are copied once, out of the
request, which would be kept for as long as any batch of it is; those of an answer are sent as the log gave them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from regnum_broker.serving import produce_requests as requests
from regnum_broker.serving.calls.rights import GuardedLog
from regnum_broker.serving.fetching import requests as fetching
from regnum_broker.serving.fetching.admission import check_count
from regnum_broker.serving.fetching.handler import FETCH_BYTES_MAX
from regnum_broker.serving.fetching.requests import EARLIEST, MAX_TIMESTAMP, ReadFrom, StoredBatches
from regnum_broker.serving.produce_requests import Acks

BY_ID_PRODUCE: Final = 13
BY_ID_FETCH: Final = 13
"""First versions that name topics by their ids."""
HINTS_PRODUCE: Final = 10
HINTS_FETCH: Final = 16
"""First versions whose refusals say who leads (KIP-951)."""
EARLIEST_LOCAL: Final = -4
"""KIP-405: of logs that are on this broker, which all are."""
READ_COMMITTED: Final = 1
SLICE: Final = 500
"""Partitions between two turns of the event loop (safety rule S22)."""
NO_ID: Final = bytes(16)

ACKS: Final[Mapping[int, Acks]] = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToProduce:
    """What a Produce request asks of the handler, and what is known of its answer."""

    request: requests.ProduceRequest
    """Of the partitions that are known."""
    places: Sequence[PartitionProduceResponse]
    """Where their results go."""
    response: ProduceResponse
    """They are in there, beside those of unknown ones."""


class Data:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, log: GuardedLog, addresses: Addresses, follows: Callable[[str, int], bool]) -> None:
        """Only assigns.

        Args:
            log: the calls, behind rights.
            addresses: who leads where.
            follows: whether this broker follows the leader of a partition.
        """
        self._log: Final = log
        self._addresses: Final = addresses
        self._follows: Final = follows

    async def produce(self, request: ProduceRequest, context: Context) -> ProduceResponse | None:
        """Append; None: its producer waits for no answer. Raises RegnumError: likewise, and not all was appended."""
        asked = await self.to_produce(request, context)
        done = await self._log.produce(asked.request, context.call) if asked.places else requests.ProduceResponse()
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
        items: list[requests.ProducePartition] = []
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
                items.append(requests.ProducePartition(name, one.index, bytes(one.records or b""), topic_id))
            answer.partition_responses = found
        asked = requests.ProduceRequest(
            items, ACKS[request.acks], max(0, request.timeout_ms), context.call.client_id, context.size_bytes
        )
        return ToProduce(request=asked, places=places, response=ProduceResponse(responses=answers))

    def produced(self, asked: ToProduce, done: requests.ProduceResponse, context: Context) -> ProduceResponse | None:
        """The answer to one that was appended with others, a small one; None and RegnumError as of ``produce``."""
        for place, result in zip(asked.places, done.results, strict=True):
            self._tell_produced(place, result, context)
        return self._answer_of(asked, done, context)

    def _answer_of(self, asked: ToProduce, done: requests.ProduceResponse, context: Context) -> ProduceResponse | None:
        response = asked.response
        if asked.request.acks == Acks.NONE:
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
                    result.current_leader.leader for result in done.results if result.current_leader is not None
                )
            ]
        return response

    def _tell_produced(self, place: PartitionProduceResponse, result: requests.ProduceResult, context: Context) -> None:
        # (librdkafka takes THROTTLING_QUOTA_EXCEEDED for final here. It is said where the disk is behind.)
        behind = is_waited_for(result.error_code)
        place.error_code = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR if behind else result.error_code
        if result.error_code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID:
            # Of Produce Kafka's producers know that by this name alone.
            place.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
        place.error_message = result.error_message or None
        place.base_offset, place.log_start_offset = result.base_offset, result.log_start_offset
        if result.log_append_time_ms is not None and not result.error_code:
            place.log_append_time_ms = result.log_append_time_ms
        leader = result.current_leader
        if result.error_code and context.version >= HINTS_PRODUCE and leader is not None:
            place.current_leader = produce_response.LeaderIdAndEpoch(leader.leader, leader.leader_epoch)

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
        items: list[fetching.FetchPartition] = []
        max_wait_ms = max(0, request.max_wait_ms)
        rack = self._addresses.reached(request.rack_id)
        keys, answers = list[Key](), list[tuple[Key, PartitionData]]()
        for key, place in wanted.items():
            await turns.took()
            name = key[0] if context.version < BY_ID_FETCH else self._addresses.name_of(key[1])
            if name is None:
                unknown = PartitionData(key[2], errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, -1, records=b"")
                answers.append((key, unknown))
                # (Somebody waits for nothing: what is unknown is said at once.)
                max_wait_ms = 0
                continue
            keys.append(key)
            items.append(
                fetching.FetchPartition(
                    name,
                    key[2],
                    place.offset,
                    max(1, place.bytes_max),
                    self._addresses.text_of(key[1]) if context.version >= BY_ID_FETCH else "",
                    place.leader_epoch if place.leader_epoch >= 0 else None,
                    place.last_epoch if place.last_epoch >= 0 else None,
                    self._read_from(rack, name, key[2]),
                )
            )
        throttle_ms, leaders = 0, set[int]()
        if keys or not answers:
            bytes_max = min(max(1, request.max_bytes), FETCH_BYTES_MAX)
            asked = fetching.FetchRequest(
                items, max_wait_ms, max(0, request.min_bytes), bytes_max, client_rack=request.rack_id
            )
            done = await self._read(asked, context, request.session_epoch)
            throttle_ms = done.throttle_time_ms
            for key, result in zip(keys, done.results, strict=True):
                await turns.took()
                answers.append((key, _partition_data(result, context, isolation=request.isolation_level)))
                if result.current_leader is not None:
                    leaders.add(result.current_leader.leader)
        return await self._fetched(answers, context, throttle_ms=throttle_ms, leaders=leaders)

    def _read_from(self, rack: str, topic: str, partition: int) -> ReadFrom:
        """Kafka's consumers send the same request to a leader and to whom it names (KIP-392)."""
        if not rack:
            return ReadFrom.LEADER
        return ReadFrom.ANY_REPLICA if self._follows(topic, partition) else ReadFrom.NEAREST

    async def _read(self, asked: fetching.FetchRequest, context: Context, epoch: int) -> fetching.FetchResponse:
        try:
            return await self._log.fetch(asked, context.call)
        except RegnumError as error:
            if is_waited_for(error.code):
                context.session.again(epoch)
            raise

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
        check_count(sum(len(topic.partitions) for topic in request.topics))
        turns = Turns(SLICE)
        queries: list[fetching.OffsetQuery] = []
        for topic in request.topics:
            for one in topic.partitions:
                await turns.took()
                at_ms = EARLIEST if one.timestamp == EARLIEST_LOCAL else one.timestamp
                queries.append(fetching.OffsetQuery(topic.name, one.partition_index, at_ms))
        done = fetching.ListOffsetsResponse([])
        if queries:
            done = await self._log.list_offsets(fetching.ListOffsetsRequest(queries), context.call)
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
        check_count(sum(len(topic.partitions) for topic in request.topics))
        turns = Turns(SLICE)
        queries: list[fetching.EpochQuery] = []
        for topic in request.topics:
            for one in topic.partitions:
                await turns.took()
                known = one.current_leader_epoch if one.current_leader_epoch >= 0 else None
                queries.append(fetching.EpochQuery(topic.topic, one.partition, one.leader_epoch, known))
        done = fetching.OffsetForLeaderEpochResponse([])
        if queries:
            done = await self._log.ends_of_epochs(fetching.OffsetForLeaderEpochRequest(queries), context.call)
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
        return InitProducerIdResponse(producer_id=await self._log.producer_id(None, context.call), producer_epoch=0)

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


def _partition_data(result: fetching.FetchResult, context: Context, *, isolation: int) -> PartitionData:
    content = result.content
    assert isinstance(content, StoredBatches)  # noqa: S101 - no other was asked for
    data = PartitionData(
        partition_index=result.partition,
        error_code=result.error_code,
        high_watermark=-1 if result.error_code else result.high_watermark,
        last_stable_offset=-1 if result.error_code else result.high_watermark,
        log_start_offset=-1 if result.error_code else result.log_start_offset,
        aborted_transactions=() if isolation == READ_COMMITTED else None,
        preferred_read_replica=-1 if result.preferred_read_replica is None else result.preferred_read_replica,
        records=content.batches,
    )
    diverging, leader = result.diverging_epoch, result.current_leader
    if diverging is not None:
        data.diverging_epoch = fetch_response.EpochEndOffset(diverging.epoch, diverging.end_offset)
    if context.version >= HINTS_FETCH and result.error_code and leader is not None:
        data.current_leader = fetch_response.LeaderIdAndEpoch(leader.leader, leader.leader_epoch)
    return data


def _offset(result: fetching.OffsetResult, asked_ms: int) -> ListOffsetsPartitionResponse:
    by_time = asked_ms >= 0 or asked_ms == MAX_TIMESTAMP
    return ListOffsetsPartitionResponse(
        partition_index=result.partition,
        error_code=result.error_code,
        timestamp=result.timestamp_ms if by_time and result.timestamp_ms is not None else -1,
        offset=result.offset,
        leader_epoch=-1 if result.offset_leader_epoch is None else result.offset_leader_epoch,
    )
