"""Spans that processes or a collector send: OTLP over gRPC, to the console or into a topic.

Constraints: senders are not authenticated, as at a collector, and may send anything, uncompressed. Nothing may look at
changes for a long time.

Algorithm: of each message the spans that say something of changes are taken, by their names, before anything of them is
decoded; all else is let go. They wait for the next look, PENDING_MAX of them, the newest: OTLP has a way to say how
many were left out, and the sender hears it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import orjson
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from regnum_insight.spans.otlp import Selection, spans_of
from regnum_insight.spans.span import Span
from regnum_service.errors import PortTakenError, RegnumError
from regnum_service.listening import make_server

PENDING_MAX: Final = 50_000
"""Spans that wait to be looked at, the newest."""
SPAN_BYTES_MAX: Final = 16 * 2**10
"""Of one span: those of changes have some hundreds."""
LINKS_MAX: Final = 32
"""Of one span, the first: decoded, each takes seven times its bytes. Some changes have one for each failed broker."""
MESSAGE_BYTES_MAX: Final = 4 * 2**20
"""Of one message, as collectors have it."""
MESSAGES_MAX: Final = 8
"""Messages that are read at a time; others are told to come again."""


class SpanReceiver(TraceServiceServicer):
    """Takes spans, and is the source of a ``ChangeFeed``."""

    def __init__(self, selection: Selection, *, pending_max: int = PENDING_MAX) -> None:
        """Only assigns; ``selection`` says what is held of the spans."""
        self._selection: Final = selection
        self._pending: Final[deque[Span]] = deque(maxlen=pending_max)

    async def Export(  # noqa: N802 - the name in the proto
        self, request: ExportTraceServiceRequest, context: Any
    ) -> ExportTraceServiceResponse:
        """See OTLP."""
        del context
        spans, large = await asyncio.to_thread(self._read, request)
        room = (self._pending.maxlen or 0) - len(self._pending)
        self._pending.extend(spans)
        answer, over = ExportTraceServiceResponse(), max(0, len(spans) - room)
        reasons = [
            *(["nothing looks at changes: the oldest spans were let go"] if over else []),
            *([f"{large} spans have more than {SPAN_BYTES_MAX:,} bytes"] if large else []),
        ]
        if reasons:
            answer.partial_success.rejected_spans = over + large
            answer.partial_success.error_message = "; ".join(reasons)
        return answer

    def look(self) -> list[Span]:
        """See ``Source``."""
        found = []
        # (One by one: more may come meanwhile.)
        while self._pending:
            found.append(self._pending.popleft())
        return found

    def _read(self, request: ExportTraceServiceRequest) -> tuple[list[Span], int]:
        """Spans that say something of changes, and how many of them were too large."""
        found: list[Span] = []
        large = 0
        for group in request.resource_spans:
            for scope in group.scope_spans:
                wanted = [one for one in scope.spans if self._selection.is_wanted(one.name)]
                taken = [one for one in wanted if one.ByteSize() <= SPAN_BYTES_MAX]
                large += len(wanted) - len(taken)
                for one in taken:
                    del one.links[LINKS_MAX:]
                if taken:
                    spans = {"spans": [MessageToDict(one) for one in taken]}
                    document = {"resourceSpans": [{"resource": MessageToDict(group.resource), "scopeSpans": [spans]}]}
                    found += [one for one in spans_of(document, self._selection) if isinstance(one, Span)]
        return found, large


class DocumentReceiver(TraceServiceServicer):
    """Hands all that comes on, as documents of JSON, and takes it when that has been done.

    Nothing waits here: a sender that is not answered, or is told to come again, keeps its spans, as collectors and our
    own processes do within their bounds.
    """

    def __init__(self, write: Callable[[Sequence[bytes]], Awaitable[Sequence[bool]]]) -> None:
        """Only assigns; ``write`` brings documents out, and says of each whether it did or leaves it out for good."""
        self._write: Final = write

    async def Export(  # noqa: N802 - the name in the proto
        self, request: ExportTraceServiceRequest, context: Any
    ) -> ExportTraceServiceResponse:
        """See OTLP."""
        documents = await asyncio.to_thread(_documents, request)
        answer = ExportTraceServiceResponse()
        try:
            taken = await self._write(documents)
        except RegnumError as error:
            # OTLP's word for: send it again. What the topic cannot be written for may be over then, and is no fault of
            # the spans.
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        groups = zip(request.resource_spans, taken, strict=True)
        refused = sum(len(scope.spans) for group, is_taken in groups if not is_taken for scope in group.scope_spans)
        if refused:
            answer.partial_success.rejected_spans = refused
            answer.partial_success.error_message = "they are more in one message than a record may have; send fewer"
        return answer


def _documents(request: ExportTraceServiceRequest) -> list[bytes]:
    """One for each process that spans are of."""
    return [orjson.dumps({"resourceSpans": [MessageToDict(group)]}) for group in request.resource_spans]


@asynccontextmanager
async def receiving(
    address: str, receiver: TraceServiceServicer, *, messages_max: int = MESSAGES_MAX
) -> AsyncIterator[int]:
    """Listen at ``host:port`` until the context ends; the port. Raises PortTakenError."""
    server = make_server(("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), calls_max=messages_max)
    add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]  # generated without types
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise PortTakenError(f"cannot listen on {address} for spans; choose another --otlp") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
