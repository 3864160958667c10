"""A broker of the fake cluster, over real gRPC: what clients ask of it, answered as a test wants."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc, producer_pb2, producer_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.servicers.produce_stream import ProduceStream
from regnum_model.broker_lists import NO_BROKERS, digest_of
from regnum_service.errors import RegnumError
from regnum_service.name_order import NameOrder
from regnum_service.topic_pages import TopicPages

from regnum_testing.fake_listener import FakeMember
from regnum_testing.fake_partition import NONE, FakePartition
from regnum_testing.fake_produce import OneByOne

if TYPE_CHECKING:
    from regnum_testing.fake_cluster import FakeCluster

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic as a broker describes it."""

    name: str
    topic_id: str
    partitions: Mapping[int, types_pb2.PartitionState]
    """States by number."""


class FakeBroker(
    FakeMember,
    log_pb2_grpc.LogServiceServicer,
    producer_pb2_grpc.ProducerServiceServicer,
    metadata_pb2_grpc.MetadataServiceServicer,
):
    """A broker as clients see it."""

    def __init__(self, cluster: "FakeCluster", number: int) -> None:
        super().__init__(cluster, number)
        self.epoch = number * 10
        self.kafka_port: int | None = None
        """Where it says that it takes clients of Kafka; None: nowhere."""
        self.frozen = asyncio.Event()
        """While set, calls wait without an answer."""
        self.thawed = asyncio.Event()
        self.stale: metadata_pb2.GetMetadataResponse | None = None
        """Metadata that this broker answers in place of the truth."""
        self.cut_off_at: dict[tuple[str, int], int] | None = None
        """Since it was cut off from all but clients: log ends by partition that it led then."""
        self.throttles: deque[int] = deque()
        """Throttle times, in milliseconds, of the next answers to Produce and Fetch."""
        self.fetch_refusals: deque[RegnumError] = deque()
        """What the next calls of Fetch fail with."""
        self.names_the_leader = False
        """Refusals say who leads."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add the services."""
        log_pb2_grpc.add_LogServiceServicer_to_server(self, server)
        producer_pb2_grpc.add_ProducerServiceServicer_to_server(self, server)
        metadata_pb2_grpc.add_MetadataServiceServicer_to_server(self, server)
        self.cluster.groups.register(server, self.number)
        for add in self.cluster.more_services:
            add(server, self.number)

    async def freeze(self) -> None:
        """As SIGSTOP looks from outside, for calls that come from now on."""
        self.frozen.set()

    async def cut_off(self) -> None:
        """From now on it reaches nobody but clients: it believes what was true, and nothing it takes is confirmed."""
        self.stale = self._metadata([])
        self.cut_off_at = {key: one.end for key, one in self.cluster.partitions.items() if one.leader == self.number}

    async def _answering(self) -> None:
        if self.frozen.is_set():
            await self.thawed.wait()

    async def GetMetadata(  # noqa: N802 - names of the wire
        self, request: metadata_pb2.GetMetadataRequest, _context: Context
    ) -> metadata_pb2.GetMetadataResponse:
        """Brokers that listen, the controller, topics."""
        self.cluster.calls["GetMetadata"] += 1
        self.cluster.asked.append(self.number)
        self.cluster.named.append(tuple(request.topics) if request.topics or request.brokers_only else None)
        await self._answering()
        if self.stale is not None:
            return self.stale
        answer = self._metadata([] if request.brokers_only else list(request.topics), none=request.brokers_only)
        if answer.brokers_digest == request.known_brokers != NO_BROKERS:
            answer.brokers_unchanged = True
            del answer.brokers[:]
        else:
            self.cluster.broker_lists_sent += 1
        return answer

    async def DescribeCluster(  # noqa: N802
        self, _request: metadata_pb2.DescribeClusterRequest, _context: Context
    ) -> metadata_pb2.DescribeClusterResponse:
        """What GetMetadata says without topics."""
        self.cluster.calls["DescribeCluster"] += 1
        await self._answering()
        known = self.stale or self._metadata([])
        return metadata_pb2.DescribeClusterResponse(
            cluster_id=known.cluster_id,
            controller=known.controller,
            brokers=known.brokers,
            version=known.version,
            topics=len(known.topics),
        )

    async def WatchMetadata(  # noqa: N802
        self, request_iterator: AsyncIterator[metadata_pb2.WatchMetadataRequest], context: Context
    ) -> AsyncIterator[metadata_pb2.WatchMetadataResponse]:
        """What the test lets it tell."""
        self.cluster.calls["WatchMetadata"] += 1
        if self.cluster.watch is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")
            return
        await self._answering()
        async for message in self.cluster.watch(self.number, request_iterator):
            yield metadata_pb2.WatchMetadataResponse.FromString(message)

    async def DescribeTopics(  # noqa: N802
        self, request: metadata_pb2.DescribeTopicsRequest, _context: Context
    ) -> metadata_pb2.DescribeTopicsResponse:
        """A page, as real brokers make it."""
        self.cluster.calls["DescribeTopics"] += 1
        await self._answering()
        known = self.stale or self._metadata([])
        views = {
            item.topic.name: DescribedTopic(
                item.topic.name, item.topic.topic_id, {one.partition: one for one in item.topic.partitions}
            )
            for item in known.topics
        }
        head = metadata_pb2.DescribeTopicsResponse(cluster_id=known.cluster_id, version=known.version)
        page = await TopicPages(lambda: views, NameOrder()).page(request, lambda: head)
        if self.cluster.after_page is not None:
            self.cluster.after_page()
        return metadata_pb2.DescribeTopicsResponse.FromString(page)

    def _metadata(self, topics: list[str], *, none: bool = False) -> metadata_pb2.GetMetadataResponse:
        cluster = self.cluster
        election = cluster.elections[cluster.controller].address
        answer = metadata_pb2.GetMetadataResponse(
            cluster_id=cluster.cluster_id,
            version=cluster.version,
            controller=types_pb2.Controller(
                id=cluster.controller,
                epoch=cluster.controller_epoch,
                client=types_pb2.Endpoint(host=election.host, port=election.port),
            ),
        )
        for broker in cluster.brokers.values():
            if broker.server is not None:
                endpoint = types_pb2.Endpoint(host=broker.address.host, port=broker.address.port)
                told = answer.brokers.add(id=broker.number, epoch=broker.epoch, client=endpoint, internal=endpoint)
                if broker.kafka_port is not None:
                    told.kafka.host, told.kafka.port = endpoint.host, broker.kafka_port
        answer.brokers_digest = digest_of(broker.SerializeToString() for broker in answer.brokers)
        by_topic: dict[str, list[FakePartition]] = {}
        for one in cluster.partitions.values():
            by_topic.setdefault(one.topic, []).append(one)
        for name in [] if none else topics or sorted(cluster.topic_ids):
            item = answer.topics.add()
            item.topic.name = name
            if name not in cluster.topic_ids:
                item.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
                continue
            item.topic.topic_id = cluster.topic_ids[name]
            for one in by_topic.get(name, ()):
                item.topic.partitions.add(
                    partition=one.number,
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=list(cluster.brokers),
                    replicas=cluster.replicas.get((one.topic, one.number), tuple(cluster.brokers)),
                    adding_replicas=one.adding,
                )
        return answer

    async def InitProducerId(  # noqa: N802
        self, _request: producer_pb2.InitProducerIdRequest, _context: Context
    ) -> producer_pb2.InitProducerIdResponse:
        """The next id."""
        await self._answering()
        if self.cluster.id_refusal is not None:
            raise self.cluster.id_refusal
        self.cluster.producer_ids += 1
        return producer_pb2.InitProducerIdResponse(producer_id=self.cluster.producer_ids, producer_epoch=0)

    async def Produce(  # noqa: N802
        self, request: log_pb2.ProduceRequest, _context: Context
    ) -> log_pb2.ProduceResponse:
        """Append, or answer what the test wants."""
        cluster = self.cluster
        cluster.calls["Produce"] += 1
        cluster.acks.append(request.acks)
        await self._answering()
        if cluster.before_produce is not None:
            await cluster.before_produce(self, request)
        answer = log_pb2.ProduceResponse()
        if self.throttles:
            answer.throttle_time_ms = self.throttles.popleft()
        if self.cut_off_at is not None:
            await asyncio.sleep(request.timeout_ms / 1000)
            raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "nobody confirmed it")
        for part in request.partitions:
            where = (part.topic, part.partition)
            refusals = cluster.answers.get(where)
            found = cluster.find(part.topic, part.partition, part.topic_id, self.number)
            code, base_offset = NONE, -1
            if refusals:
                code = refusals.popleft()
            elif isinstance(found, int):
                code = found
            else:
                code, base_offset = found.append(part.record_batch)
                lies = cluster.answers_after_append.get(where)
                if lies and code == NONE:
                    code, base_offset = lies.popleft(), -1
            message = "" if code == NONE else "said the test"
            answer.results.add(
                topic=part.topic,
                partition=part.partition,
                error_code=code,
                error_message=message,
                base_offset=base_offset,
            )
            self._name_leader(part.topic, part.partition, answer.results[-1])
        return answer

    async def ProduceStream(  # noqa: N802
        self, request_iterator: AsyncIterator[log_pb2.ProduceStreamRequest], context: Context
    ) -> AsyncIterator[log_pb2.ProduceStreamResponse]:
        """Request after request, as a broker does; UNIMPLEMENTED as a broker of before where the test wants it."""
        cluster = self.cluster
        cluster.calls["ProduceStream"] += 1
        if not cluster.has_produce_streams:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "what is that?")
        stream = ProduceStream(OneByOne(lambda request: self.Produce(request, context)))
        async with contextlib.aclosing(stream.answers(request_iterator)) as answers:
            async for answer in answers:
                yield answer

    async def Fetch(  # noqa: N802
        self, request: log_pb2.FetchRequest, _context: Context
    ) -> log_pb2.FetchResponse:
        """Batches from the offset on; waits once when there are none."""
        cluster = self.cluster
        cluster.calls["Fetch"] += 1
        await self._answering()
        if self.fetch_refusals:
            raise self.fetch_refusals.popleft()
        answer = self._fetch(request)
        if not any(
            result.record_batches or result.error_code or result.HasField("diverging_epoch")
            for result in answer.results
        ):
            waiting = [
                asyncio.create_task(cluster.partitions[(part.topic, part.partition)].grown.wait())
                for part in request.partitions
            ]
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(waiting, timeout=request.max_wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            answer = self._fetch(request)
        if self.throttles:
            answer.throttle_time_ms = self.throttles.popleft()
        return answer

    def _fetch(self, request: log_pb2.FetchRequest) -> log_pb2.FetchResponse:
        answer = log_pb2.FetchResponse()
        self.cluster.fetched_bytes_max.append(request.max_bytes)
        room = request.max_bytes or 8 << 20
        for part in request.partitions:
            result = answer.results.add(topic=part.topic, partition=part.partition)
            found = self.cluster.find(part.topic, part.partition, part.topic_id, self.number)
            if self.cut_off_at is not None and (part.topic, part.partition) in self.cut_off_at:
                result.high_watermark = self.cut_off_at[(part.topic, part.partition)]
                continue
            if isinstance(found, int):
                result.error_code, result.error_message = found, "said the test"
                self._name_leader(part.topic, part.partition, result)
                continue
            if (part.topic, part.partition) in self.cluster.fetch_answers:
                result.error_code = self.cluster.fetch_answers[(part.topic, part.partition)]
                result.error_message = "said the test"
                continue
            diverging = found.diverging(part.last_fetched_epoch, part.offset)
            if part.HasField("last_fetched_epoch") and diverging is not None:
                result.diverging_epoch.epoch, result.diverging_epoch.end_offset = diverging
                continue
            result.high_watermark, result.log_start_offset = found.end, found.log_start
            if not found.log_start <= part.offset <= found.end:
                result.error_code = errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
                result.error_message = f"the log has {found.log_start} to {found.end}"
                continue
            chosen: list[bytes] = []
            size = 0
            if room <= 0:
                continue
            bytes_max = min(part.max_bytes or 1 << 20, room)
            for header, batch in found.batches:
                if header.next_offset <= part.offset or (chosen and size + len(batch) > bytes_max):
                    continue
                chosen.append(batch)
                size += len(batch)
            result.record_batches = b"".join(chosen)
            room -= size
        return answer

    def _name_leader(self, topic: str, partition: int, result: log_pb2.ProduceResult | log_pb2.FetchResult) -> None:
        one = self.cluster.partitions.get((topic, partition))
        if self.names_the_leader and one is not None and result.error_code:
            address = self.cluster.brokers[one.leader].address
            result.current_leader.leader, result.current_leader.leader_epoch = one.leader, one.leader_epoch
            result.current_leader.client.host, result.current_leader.client.port = address.host, address.port

    async def ListOffsets(  # noqa: N802
        self, request: log_pb2.ListOffsetsRequest, _context: Context
    ) -> log_pb2.ListOffsetsResponse:
        """First offset and high watermark."""
        self.cluster.calls["ListOffsets"] += 1
        await self._answering()
        answer = log_pb2.ListOffsetsResponse()
        for query in request.queries:
            found = self.cluster.find(query.topic, query.partition, "", self.number)
            if isinstance(found, int):
                answer.results.add(topic=query.topic, partition=query.partition, error_code=found, offset=-1)
            elif query.HasField("latest") and found.end_questions_refused:
                found.end_questions_refused -= 1
                code = errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
                answer.results.add(topic=query.topic, partition=query.partition, error_code=code, offset=-1)
            else:
                offset = found.log_start if query.HasField("earliest") else found.end
                if query.HasField("at_or_after"):
                    offset = found.offset_for(query.at_or_after.ToMilliseconds())
                said = answer.results.add(topic=query.topic, partition=query.partition, offset=offset)
                if query.HasField("max_timestamp"):
                    newest = found.newest()
                    said.offset = -1 if newest is None else newest[0]
                    if newest is not None:
                        said.timestamp_ms = newest[1]
        return answer

    async def OffsetForLeaderEpoch(  # noqa: N802
        self, request: log_pb2.OffsetForLeaderEpochRequest, _context: Context
    ) -> log_pb2.OffsetForLeaderEpochResponse:
        """The SDK compares epochs with fetches."""
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"no test asks for {len(request.queries)} epochs")

    async def DescribeReplicas(  # noqa: N802
        self, request: log_pb2.DescribeReplicasRequest, _context: Context
    ) -> log_pb2.DescribeReplicasResponse:
        """A replica of each partition; those that follow are one record behind, if there is one."""
        self.cluster.calls["DescribeReplicas"] += 1
        await self._answering()
        answer = log_pb2.DescribeReplicasResponse()
        for query in request.queries:
            one = self.cluster.partitions[query.topic, query.partition]
            leads = one.leader == self.number
            answer.results.add(
                topic=query.topic,
                partition=query.partition,
                leading=leads,
                leader_epoch=one.leader_epoch,
                size_bytes=sum(len(batch) for _, batch in one.batches),
                log_start_offset=one.log_start,
                log_end_offset=one.end if leads else max(one.log_start, one.end - 1),
                followers=[log_pb2.FollowerPosition(broker_id=id, log_end_offset=0) for id in self.cluster.brokers],
            )
        return answer

    async def DeleteRecords(  # noqa: N802
        self, request: log_pb2.DeleteRecordsRequest, _context: Context
    ) -> log_pb2.DeleteRecordsResponse:
        """Moves log starts; followers follow at once."""
        self.cluster.calls["DeleteRecords"] += 1
        await self._answering()
        answer = log_pb2.DeleteRecordsResponse()
        for part in request.partitions:
            result = answer.results.add(topic=part.topic, partition=part.partition)
            found = self.cluster.find(part.topic, part.partition, part.topic_id, self.number)
            if isinstance(found, int):
                self.cluster.deletions_refused += 1
                result.error_code, result.error_message = found, "said the test"
                continue
            offset = found.end if part.HasField("all_committed") else part.before_offset
            if offset > found.end:
                result.error_code, result.error_message = errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, "beyond"
                continue
            result.log_start_offset, result.low_watermark = found.log_start, found.log_start
            result.new_log_start_offset = max(offset, found.log_start)
            if not request.validate_only:
                found.log_start = result.low_watermark = result.new_log_start_offset
                if self.cluster.after_deletion is not None:
                    result.error_code = self.cluster.after_deletion(found)
        return answer

    async def Consume(  # noqa: N802
        self, _request: log_pb2.ConsumeRequest, _context: Context
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        """Not used by the SDK: an empty stream."""
        nothing: log_pb2.ConsumeResponse
        for nothing in ():
            yield nothing
