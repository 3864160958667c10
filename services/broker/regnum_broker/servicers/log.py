"""LogService: records in and out."""

import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_service.deadlines import waitable_s
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.grpc_calls import GrpcCalls
from regnum_service.limits.held_bytes import Purpose
from regnum_service.slices import slices
from regnum_telemetry import propagation, tracing

from regnum_broker.limits.throttling import Throttling
from regnum_broker.replication.traces.new_leader import FirstAnswers
from regnum_broker.servicers.produce_stream import ProduceStream, Told, UnderWay
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.admission import PARTITIONS_MAX, asked_once
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetLookup, OffsetsHandler
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.replica_descriptions import ReplicaDescriber

SLICE: Final = 500
"""Partitions answered between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class LogServicer(log_pb2_grpc.LogServiceServicer):
    """Passes calls on."""

    def __init__(
        self,
        *,
        producing: ProduceHandler,
        fetching: FetchHandler,
        offsets: OffsetsHandler,
        describing: ReplicaDescriber,
        deleting: DeleteRecordsHandler,
        budget: Budget,
        throttling: Throttling,
    ) -> None:
        """Only assigns.

        Args:
            producing: appends.
            fetching: reads.
            offsets: answers questions about offsets.
            describing: tells sizes and ends.
            deleting: deletes records.
            budget: pays for what calls hold, unpack and have threads do, and is told of answers that are on their way.
            throttling: what clients send and read is measured there.
        """
        self._budget: Final = budget
        self._throttling: Final = throttling
        self._producing: Final = producing
        self._fetching: Final = fetching
        self._offsets: Final = offsets
        self._describing: Final = describing
        self._deleting: Final = deleting
        self._first_answers: Final = FirstAnswers()

    def _call(self, context: Context, client_id: str = "") -> Call:
        return GrpcCalls(self._budget.call, self._throttling.clock).of(context, client_id)

    async def Produce(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ProduceRequest,
        context: Context,
    ) -> log_pb2.ProduceResponse:
        """Append. A producer that comes back after an outage is told in trailing metadata what caused it."""
        back = propagation.parse_recovering(context.invocation_metadata())
        began_unix_nano = 0 if back is None else tracing.now_unix_nano()
        response = await self._produce(request, context, waitable_s(context))
        if back is not None:
            causes = self._producing.causes(request)
            if causes:
                named = {at for at, one in enumerate(request.partitions) if (one.topic_id, one.partition) in back}
                context.set_trailing_metadata(tuple(propagation.render_causes(causes, first=named)))
            done = ((request.partitions[at], cause) for at, cause in causes if not response.results[at].error_code)
            self._first_answers.record(began_unix_nano, done, below=back)
        return response

    async def _produce(
        self, request: log_pb2.ProduceRequest, context: Context, within_s: float = math.inf
    ) -> log_pb2.ProduceResponse:
        client_id = request.header.client_id
        call = self._call(context, client_id)
        quota = self._throttling.writing(call)
        size = request.ByteSize() if quota.is_on else 0
        quota.check(client_id, size)
        # Before it is appended: who hangs up meanwhile has sent it all the same.
        until_s = quota.charge(client_id, size)
        response = await self._producing.produce(request, waitable_s=within_s, call=call)
        response.throttle_time_ms = quota.left_ms(until_s)
        return response

    async def take(
        self, requests: Sequence[log_pb2.ProduceRequest], told: Told, *, call: Call
    ) -> Mapping[int, UnderWay]:
        """Append what came together by another door than gRPC's, as ``ProduceStream`` does: all, or none.

        Returns those that are not answered yet, by place, once all are on their way to the writer.

        Raises:
            RegnumError: a quota keeps them out; nothing was appended.
        """
        quota = self._throttling.writing(call)
        sizes = [request.ByteSize() if quota.is_on else 0 for request in requests]
        for client_id in {request.header.client_id for request in requests}:
            quota.check(client_id, sum(sizes))
        until_s = [quota.charge(request.header.client_id, size) for request, size in zip(requests, sizes, strict=True)]

        def told_how_long(place: int, outcome: log_pb2.ProduceResponse | RegnumError) -> None:
            if not isinstance(outcome, RegnumError):
                outcome.throttle_time_ms = quota.left_ms(until_s[place])
            told(place, outcome)

        return await self._producing.take(requests, told_how_long, call=call)

    async def ProduceStream(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[log_pb2.ProduceStreamRequest],
        context: Context,
    ) -> AsyncIterator[log_pb2.ProduceStreamResponse]:
        """Append, request after request."""
        call = self._call(context)
        stream = ProduceStream(self._producing, held=self._budget.held, call=call, quota=self._throttling.writing(call))
        async with contextlib.aclosing(stream.answers(request_iterator)) as answers:
            async for answer in answers:
                yield answer

    async def Fetch(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.FetchRequest,
        context: Context,
    ) -> log_pb2.FetchResponse:
        """Read."""
        back = propagation.parse_recovering(context.invocation_metadata())
        began_unix_nano = 0 if back is None else tracing.now_unix_nano()
        call = self._call(context, request.header.client_id)
        holding = self._budget.holding(call, Purpose.FETCH)
        # Until the answer has left, and not only until it is there.
        call.at_end(holding.close)
        quota = self._throttling.reading(call)
        response = await self._fetching.fetch(request, waitable_s=waitable_s(context), holding=holding, quota=quota)
        response.throttle_time_ms = quota.answered(holding.sent)
        if back is not None:
            causes = self._fetching.causes(request)
            if causes:
                context.set_trailing_metadata(tuple(propagation.render_fetch_causes(causes, first=back)))
            of = {(topic_id, number): cause for topic_id, number, cause in causes}
            asked = zip(request.partitions, response.results, strict=True)
            read = (item for item, result in asked if not result.error_code)
            done = ((item, of.get((item.topic_id, item.partition), "")) for item in read)
            self._first_answers.record(began_unix_nano, done, below=back)
        call.at_end(self._budget.unread.begin(call.peer, holding.size).close)
        return response

    async def Consume(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ConsumeRequest,
        context: Context,
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        """Stream."""
        call = self._call(context, request.header.client_id)
        quota = self._throttling.reading(call)
        holding = self._budget.holding(call, Purpose.FETCH)
        waitable = waitable_s(context)
        with contextlib.closing(holding):
            async for response in self._fetching.consume(request, waitable_s=waitable, holding=holding, quota=quota):
                quota.charge(holding.sent)
                with self._budget.unread.sending(call.peer, holding.size):
                    yield response
                # A stream that waits for its quota keeps nothing meanwhile.
                del response

    async def ListOffsets(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ListOffsetsRequest,
        context: Context,
    ) -> log_pb2.ListOffsetsResponse:
        """Offsets."""
        if len(request.queries) > PARTITIONS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
            )
        results: list[log_pb2.OffsetResult] = []
        lookups: dict[tuple[str, int, int], OffsetLookup] = {}
        async for queries in slices(request.queries, SLICE):
            for query, answer in zip(queries, map(self._offsets.list_offsets, queries), strict=True):
                if isinstance(answer, OffsetLookup):
                    lookups[asked_once(query, answer.wanted_ms, lookups)] = answer
                results.append(answer.result if isinstance(answer, OffsetLookup) else answer)
        call = self._call(context, request.header.client_id)
        with contextlib.closing(self._budget.holding(call, Purpose.UNPACKED)) as holding:
            await self._offsets.look_up(tuple(lookups.values()), holding)
        return log_pb2.ListOffsetsResponse(results=results)

    async def OffsetForLeaderEpoch(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.OffsetForLeaderEpochRequest,
        context: Context,  # noqa: ARG002
    ) -> log_pb2.OffsetForLeaderEpochResponse:
        """Where leader epochs end."""
        if len(request.queries) > PARTITIONS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
            )
        response = log_pb2.OffsetForLeaderEpochResponse()
        async for queries in slices(request.queries, SLICE):
            response.results.extend(map(self._offsets.end_of_epoch, queries))
        return response

    async def DescribeReplicas(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.DescribeReplicasRequest,
        context: Context,  # noqa: ARG002
    ) -> log_pb2.DescribeReplicasResponse:
        """Sizes and ends of replicas."""
        if len(request.queries) > PARTITIONS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
            )
        response = log_pb2.DescribeReplicasResponse()
        async for queries in slices(request.queries, SLICE):
            response.results.extend(map(self._describing.describe, queries))
        return response

    async def DeleteRecords(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.DeleteRecordsRequest,
        context: Context,
    ) -> log_pb2.DeleteRecordsResponse:
        """Delete what is committed."""
        return await self._deleting.delete(request, waitable_s=waitable_s(context))
