"""From ended spans to an exporter, without ever holding up whoever ends them.

Goals: spans of a process that is killed a second later are out; no event loop ever waits for an export; a collector
that does not answer costs nothing but its spans.

Algorithm: ``on_end`` puts the span into a bounded queue (full: dropped and counted) and wakes one thread. The thread
waits a moment for company, takes what is there in batches, and exports.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

SPANS_MAX: Final = 16_384
"""Spans that may wait."""

BATCH_MAX: Final = 256
"""Spans of one export: encoding holds the interpreter for a while."""

COMPANY_S: Final = 0.02
"""Wait for further spans; with the export itself it stays below 50 ms."""

CLOSE_TIMEOUT_S: Final = 2.0
"""Time for the last export."""


class Sink(Protocol):
    """Where spans go. Called on the thread."""

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Bring spans out; False: they are lost."""

    def close(self) -> None:
        """No more will come; an export under way ends soon. Any thread."""


class ExportQueue(SpanProcessor):
    """The queue and its thread."""

    def __init__(
        self,
        sink: Sink,
        *,
        spans_max: int = SPANS_MAX,
        company_s: float = COMPANY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink: Final = sink
        self._spans_max: Final = spans_max
        self._company_s: Final = company_s
        self._queue: Final[deque[ReadableSpan]] = deque()
        self._wake: Final = threading.Event()
        self._closing: Final = threading.Event()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._exported = 0
        self._told = False
        self._monotonic: Final = monotonic
        self._began_s: float | None = None
        """When the export under way began."""

    @property
    def dropped(self) -> int:
        """Spans that found the queue full or whose export failed (conventions.SPANS_DROPPED)."""
        return self._dropped

    @property
    def exported(self) -> int:
        """Spans that are out."""
        return self._exported

    @property
    def waiting(self) -> int:
        """Spans that are not out yet, besides those of the export under way."""
        return len(self._queue)

    @property
    def under_way_s(self) -> float:
        """For how long the export under way has lasted; 0: there is none. Any thread."""
        began_s = self._began_s
        return 0.0 if began_s is None else self._monotonic() - began_s

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span; returns at once. Any thread."""
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        if len(self._queue) >= self._spans_max or self._closing.is_set():
            self._dropped += 1
            return
        self._queue.append(span)
        if not self._wake.is_set():
            self._wake.set()

    def shutdown(self) -> None:
        """Bring out what waits, within a bounded time."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        self._sink.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - OpenTelemetry's signature
        """Not supported: nobody may wait for an export."""
        return not self._queue

    def _run(self) -> None:
        while True:
            self._wake.wait()
            closing = self._closing.wait(self._company_s)
            # Cleared before the queue is emptied: a span that comes meanwhile wakes the thread again.
            self._wake.clear()
            while self._queue:
                self._export_some()
            if closing:
                return

    def _export_some(self) -> None:
        batch: list[ReadableSpan] = []
        while self._queue and len(batch) < BATCH_MAX:
            batch.append(self._queue.popleft())
        self._began_s = self._monotonic()
        try:
            taken = self._sink.export(batch)
        except Exception:  # noqa: BLE001 - what an exporter fails with costs its batch, and not all that come after it
            taken = False
        self._began_s = None
        if taken:
            self._exported += len(batch)
        else:
            self._dropped += len(batch)
        if self._dropped and not self._told:
            self._told = True
            logging.getLogger(__name__).warning("spans are dropped: the exporter fails or is too slow")
