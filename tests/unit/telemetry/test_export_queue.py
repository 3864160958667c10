"""Spans leave by a thread of their own, soon, and whoever ends them never waits."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from regnum_service.clock import SystemClock
from regnum_service.loop_lag import LoopLag
from regnum_telemetry.export_queue import ExportQueue
from regnum_telemetry.otel import OtelTracer
from regnum_telemetry.rpc_client import DIRECT
from regnum_telemetry.setup import CollectorSink
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S


class _Sink:
    """Takes spans, once it may."""

    def __init__(self, *, open_: bool = True, takes: bool = True) -> None:
        self.door = threading.Event()
        if open_:
            self.door.set()
        self.takes = takes
        self.names: list[str] = []
        self.moments: list[float] = []
        self.threads: set[str] = set()
        self.came = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        self.door.wait(DEADLINE_S)
        self.threads.add(threading.current_thread().name)
        self.moments.append(time.monotonic())
        self.names.extend(span.name for span in spans)
        self.came.set()
        return self.takes

    def close(self) -> None:
        self.door.set()


def _tracer(queue: ExportQueue, **named: object) -> OtelTracer:
    provider = TracerProvider(shutdown_on_exit=False, **named)  # type: ignore[arg-type]
    provider.add_span_processor(queue)
    return OtelTracer(provider)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_spans_that_are_late_are_seen() -> None:
    sink, now_s = _Sink(open_=False), [100.0]
    queue = ExportQueue(sink, company_s=0.0, monotonic=lambda: now_s[0])
    queue.start()
    tracer = _tracer(queue)
    assert (queue.waiting, queue.under_way_s) == (0, 0.0)
    tracer.start("first").end()
    _until(lambda: queue.waiting == 0)
    tracer.start("second").end()
    now_s[0] = 107.0
    _until(lambda: queue.under_way_s == 7.0)
    assert queue.waiting == 1
    sink.door.set()
    _until(lambda: queue.exported == 2)
    assert (queue.waiting, queue.under_way_s) == (0, 0.0)
    queue.shutdown()


def test_a_span_is_out_soon_by_another_thread() -> None:
    sink = _Sink()
    queue = ExportQueue(sink)
    queue.start()
    tracer = _tracer(queue)
    shortest = float("inf")
    sent = 0
    # The best of a hundred: a busy machine may delay any one thread.
    while shortest >= 0.05 and sent < 100:
        sink.came.clear()
        ended = time.monotonic()
        tracer.start(f"span-{sent}").end()
        sent += 1
        assert sink.came.wait(DEADLINE_S)
        shortest = min(shortest, sink.moments[-1] - ended)
    queue.shutdown()
    assert shortest < 0.05
    assert sink.threads == {"telemetry"}
    assert sink.names == [f"span-{number}" for number in range(sent)]
    assert (queue.exported, queue.dropped) == (sent, 0)


def test_a_full_queue_drops_and_counts_and_nobody_waits() -> None:
    sink = _Sink(open_=False)
    queue = ExportQueue(sink, spans_max=10)
    queue.start()
    tracer = _tracer(queue)
    tracer.start("held").end()
    # The thread holds this one at the door; ten more fit, the rest do not.
    _until(lambda: not queue._queue)
    for number in range(110):
        tracer.start(f"span-{number}").end()
    assert queue.dropped == 100
    assert (sink.names, sink.door.is_set()) == ([], False), "they ended while the sink took nothing"
    sink.door.set()
    _until(lambda: queue.exported == 11)
    queue.shutdown()
    assert sink.names == ["held", *(f"span-{number}" for number in range(10))]


def test_what_a_sink_refuses_is_counted_as_dropped() -> None:
    sink = _Sink(takes=False)
    queue = ExportQueue(sink)
    queue.start()
    _tracer(queue).start("span").end()
    _until(lambda: queue.dropped == 1)
    queue.shutdown()
    assert queue.exported == 0


def test_closing_brings_out_what_waits_and_ends_the_thread() -> None:
    sink = _Sink()
    queue = ExportQueue(sink, company_s=30.0)
    queue.start()
    tracer = _tracer(queue)
    for number in range(600):
        tracer.start(f"span-{number}").end()
    queue.shutdown()
    assert len(sink.names) == 600
    assert not any(thread.name == "telemetry" for thread in threading.enumerate())
    tracer.start("too late").end()
    assert queue.dropped == 1


def test_what_is_not_sampled_is_not_exported() -> None:
    sink = _Sink()
    queue = ExportQueue(sink)
    queue.start()
    _tracer(queue, sampler=ALWAYS_OFF).start("span").end()
    queue.shutdown()
    assert (queue.exported, queue.dropped, sink.names) == (0, 0, [])


@pytest.mark.alone
async def test_without_a_collector_the_event_loop_does_not_lag() -> None:
    """Nobody listens where the exporter sends: its retries happen elsewhere, and the process still ends in time."""
    exporter = OTLPSpanExporter(channel_options=DIRECT, endpoint=f"http://127.0.0.1:{unused_port()}")  # type: ignore[arg-type]
    queue = ExportQueue(CollectorSink(exporter), spans_max=500)
    queue.start()
    tracer = _tracer(queue)
    lag = LoopLag(SystemClock())
    watching = asyncio.create_task(lag.run())
    begin = time.monotonic()
    worst: list[float] = []
    # The best second of several: other processes of the machine make lag, too.
    while time.monotonic() - begin < 10.0:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            for _ in range(20):
                tracer.start("span", attributes={"text": "x" * 100}).end()
            # Traffic, not a wait: so many spans a second.
            await asyncio.sleep(0.005)
        worst.append(lag.worst_s(0.9))
        if worst[-1] < 0.05 and queue.dropped:
            break
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    closing = time.monotonic()
    await asyncio.to_thread(queue.shutdown)
    assert time.monotonic() - closing < 5.0
    assert queue.dropped > 0
    assert min(worst) < 0.05, worst


def test_an_exporter_that_raises_costs_the_spans_of_its_batch_and_no_others() -> None:
    class Raising(_Sink):
        def export(self, spans: Sequence[ReadableSpan]) -> bool:
            if not self.came.is_set():
                self.came.set()
                raise RuntimeError("no sink says so")
            return super().export(spans)

    sink = Raising()
    queue = ExportQueue(sink, company_s=0.0)
    queue.start()
    tracer = _tracer(queue)
    tracer.start("first").end()
    _until(lambda: queue.dropped == 1)
    assert queue.under_way_s == 0.0
    tracer.start("second").end()
    _until(lambda: queue.exported == 1)
    queue.shutdown()
    assert sink.names == ["second"]
