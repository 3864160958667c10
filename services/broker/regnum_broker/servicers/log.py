"""LogService: records in and out."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_service.deadlines import waitable_s
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.grpc_calls import GrpcCalls
from regnum_service.slices import slices
from regnum_telemetry import propagation, tracing

from regnum_broker.limits.throttling import Throttling
from regnum_broker.replication.traces.new_leader import FirstAnswers
from regnum_broker.servicers import log_messages
from regnum_broker.servicers.produce_stream import ProduceStream, Told, UnderWay
from regnum_broker.serving.calls.log import LogCalls
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.admission import PARTITIONS_MAX
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.replica_descriptions import ReplicaDescriber

SLICE: Final = 500
"""Partitions answered between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class LogServicer(log_pb2_grpc.LogServiceServicer):
    """Passes calls on, and makes values of messages for them."""

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
        self.calls: Final = LogCalls(
            producing=producing, fetching=fetching, offsets=offsets, budget=budget, throttling=throttling
        )
        """Of clients about records and offsets, whichever door they come by."""
        self._budget: Final = budget
        self._throttling: Final = throttling
        self._producing: Final = producing
        self._fetching: Final = fetching
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
        asked = await log_messages.produce_request(
            request, size_bytes=request.ByteSize() if self.calls.measures_writes else 0
        )
        # What it brought is held once, while it waits to be written.
        del request
        response = await self.calls.produce(asked, self._call(context, asked.client_id))
        if back is not None:
            causes = self._producing.causes(asked)
            if causes:
                named = {at for at, one in enumerate(asked.partitions) if (one.topic_id, one.partition) in back}
                context.set_trailing_metadata(tuple(propagation.render_causes(causes, first=named)))
            done = ((asked.partitions[at], cause) for at, cause in causes if not response.results[at].error_code)
            self._first_answers.record(began_unix_nano, done, below=back)
        message = log_pb2.ProduceResponse()
        await log_messages.fill_produced(message, response)
        return message

    async def ProduceStream(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[log_pb2.ProduceStreamRequest],
        context: Context,
    ) -> AsyncIterator[log_pb2.ProduceStreamResponse]:
        """Append, request after request."""
        call = self._call(context)
        stream = ProduceStream(
            _Streamed(self._producing),
            fill=log_messages.fill_produced,
            held=self._budget.held,
            call=call,
            quota=self._throttling.writing(call),
        )
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
        message = log_pb2.FetchResponse()
        asked = await log_messages.fetch_request(request, message)
        response = await self.calls.fetch(asked, self._call(context, request.header.client_id))
        if back is not None:
            causes = self._fetching.causes(asked)
            if causes:
                context.set_trailing_metadata(tuple(propagation.render_fetch_causes(causes, first=back)))
            of = {(topic_id, number): cause for topic_id, number, cause in causes}
            answered = zip(asked.partitions, response.results, strict=True)
            read = (item for item, result in answered if not result.error_code)
            done = ((item, of.get((item.topic_id, item.partition), "")) for item in read)
            self._first_answers.record(began_unix_nano, done, below=back)
        await log_messages.fill_fetched(message, response)
        return message

    async def Consume(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ConsumeRequest,
        context: Context,
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        """Stream."""
        call = self._call(context, request.header.client_id)
        asked, form = log_messages.consumed_partition(request), request.form
        results = self.calls.consume(asked, call, form=form, make_content=log_messages.StepContent)
        async with contextlib.aclosing(results):
            async for result in results:
                yield log_messages.consume_response(result)
                # A stream at rest keeps nothing of what it answered.
                del result

    async def ListOffsets(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ListOffsetsRequest,
        context: Context,
    ) -> log_pb2.ListOffsetsResponse:
        """Offsets."""
        asked = await log_messages.list_offsets_request(request)
        response = await self.calls.list_offsets(asked, self._call(context, request.header.client_id))
        return await log_messages.list_offsets_response(response)

    async def OffsetForLeaderEpoch(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.OffsetForLeaderEpochRequest,
        context: Context,
    ) -> log_pb2.OffsetForLeaderEpochResponse:
        """Where leader epochs end."""
        asked = await log_messages.epochs_request(request)
        response = await self.calls.ends_of_epochs(asked, self._call(context))
        return await log_messages.epochs_response(response)

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


class _Streamed:
    """Takes what came together on a stream."""

    def __init__(self, producing: ProduceHandler) -> None:
        self._producing: Final = producing

    async def take(
        self, requests: Sequence[log_pb2.ProduceRequest], told: Told, *, call: Call
    ) -> Mapping[int, UnderWay]:
        asked = [await log_messages.produce_request(request) for request in requests]
        # What they brought is held once, while it waits to be written.
        del requests
        return await self._producing.take(asked, told, call=call)
