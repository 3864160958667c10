"""From calls to a destination of the audit log, without ever holding one up.

Goals: whoever is audited never waits, whatever the disk does; what a client can cause is bounded in memory, in lines
and in bytes; what is missing is said in the log itself, in a metric and in the process's log.

Algorithm: what was changed goes into a bounded queue (full: dropped and counted); what was not, the denials and the
failures, is counted (``repeats``). One thread writes both, each to a sink of its own where there are two: refused
callers do not push out what others changed. A kill of the process loses what waits, usually milliseconds, of denials
and failures up to a second; a loss of power also what was written within the last second.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

import structlog
from regnum_model.access import Operation, ResourceType
from regnum_model.principals import NOBODY
from regnum_telemetry import tracing
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.propagation import parse

from regnum_service.access.audit import DONE, Mutated
from regnum_service.access.auditing.lines import DENIED, MISSED, MUTATED, UNAUTHENTICATED, Entry, kept, rendered
from regnum_service.access.auditing.repeats import OTHERS, Repeats
from regnum_service.access.authorization import FAILED
from regnum_service.access.identity import Caller
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of

ITEMS_MAX: Final = 20_000
"""Lines that may wait: some 20 MB."""

FAILURES_MAX: Final = 100
"""Failures of one call that are looked at one by one; the others are counted."""

BATCH: Final = 256
"""Lines of one write."""

SYNC_S: Final = 1.0
"""How often the disk is asked to keep what was written."""

CLOSE_TIMEOUT_S: Final = 3.0
"""Time for what waits at the end."""

_NOBODY: Final = Caller(principal=NOBODY, listener="")


class Sink(Protocol):
    """Where lines go. Called on the thread, but for the opening."""

    def append(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError."""

    def sync(self) -> None:
        """See to it that they stay. Raises OSError."""

    def close(self) -> None:
        """No more will come."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Changes of one call."""

    at_ms: int
    who: Caller
    call: str
    client_id: str
    trace_id: str
    items: Sequence[Mutated]


class _Output:
    """A sink, and what is missing in it. Belongs to the thread, but for ``missing``, which the lock guards."""

    def __init__(self, sink: Sink) -> None:
        self.sink: Final = sink
        self.missing = 0
        """Lines that were dropped since the last one that says so."""
        self.failing = False
        self.unsynced = False


class AuditWriter:
    """An audit log (see ``audit.AuditLog``). Any thread."""

    def __init__(
        self,
        changes: Sink,
        refusals: Sink | None = None,
        *,
        process: str,
        clock: Clock,
        metrics: Metrics,
        destination: str = "file",
        items_max: int = ITEMS_MAX,
    ) -> None:
        """Only assigns.

        Args:
            changes: where lines of what was changed go.
            refusals: where the others go: denials, failures; None: to the same.
            destination: what the sinks are, for metrics and the process's log: ``file``, ``stdout``, ``otlp``.
            process: whose log it is: ``election-1``.
            clock: says when; read on any thread.
            metrics: where lines are counted, and what is dropped.
            items_max: lines that may wait.
        """
        self._changes: Final = _Output(changes)
        self._refusals: Final = self._changes if refusals is None else _Output(refusals)
        self._outputs: Final = (self._changes,) if refusals is None else (self._changes, self._refusals)
        self._destination: Final = destination
        self._process: Final = process
        self._clock: Final = clock
        self._items_max: Final = items_max
        self._lock: Final = threading.Lock()
        self._queue: Final[deque[_Waiting]] = deque()
        self._queued = 0
        self._repeats: Final = Repeats()
        self._wake: Final = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._written: Final = {
            event: metrics.counter(instruments.AUDIT_LINES, event, destination)
            for event in (MUTATED, DENIED, UNAUTHENTICATED, MISSED)
        }
        self._overflow: Final = metrics.counter(instruments.AUDIT_DROPPED, "queue", destination)
        self._lost: Final = metrics.counter(instruments.AUDIT_DROPPED, "disk", destination)
        self._log: Final = structlog.get_logger("audit")

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Write what waits, within a bounded time."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_S)

    def denied(
        self,
        who: Caller,
        operation: Operation,
        type: ResourceType,
        name: str,
        *,
        rule: str,
        call: str,
        client_id: str = "",
    ) -> None:
        """Count a refusal. See ``audit.AuditLog``."""
        entry = Entry(
            event=DENIED,
            who=who,
            client_id=kept(client_id),
            call=call,
            operation=operation.name,
            resource=f"{type.name.lower()}:{kept(name)}",
            result=reason_of(FAILED[type]),
            rule=rule,
            trace_id=_trace_id(),
        )
        self._note(((entry, 1),))

    def unauthenticated(self, who: Caller, error: RegnumError, *, call: str) -> None:
        """Count a caller that is not believed. See ``audit.AuditLog``."""
        entry = Entry(
            event=UNAUTHENTICATED,
            who=who,
            call=call,
            result=reason_of(error.code),
            rule=kept(error.message),
            trace_id=_trace_id(),
        )
        self._note(((entry, 1),))

    def mutated(self, who: Caller, call: str, items: Sequence[Mutated], *, client_id: str = "") -> None:
        """Take down what a call changed, and count what it did not. See ``audit.AuditLog``."""
        client_id, trace_id = kept(client_id), _trace_id()
        done = tuple(item for item in items if item.result == DONE)
        if done:
            self._put(_Waiting(self._clock.wall_ms(), who, call, client_id, trace_id, done))
        failures = len(items) - len(done)
        if not failures:
            return
        # The others are counted only: a call of ten thousand failures costs the loop no more than one of a hundred.
        shown = islice((item for item in items if item.result != DONE), FAILURES_MAX)
        noted = [(_entry(who, call, client_id, trace_id, item), 1) for item in shown]
        if failures > FAILURES_MAX:
            rest = Mutated(resource=OTHERS, result=OTHERS)
            noted.append((_entry(who, call, client_id, trace_id, rest), failures - FAILURES_MAX))
        self._note(noted)

    def _put(self, waiting: _Waiting) -> None:
        with self._lock:
            room = self._items_max - self._queued
            missing = max(0, len(waiting.items) - room)
            if missing:
                self._overflow.add(missing)
                self._changes.missing += missing
            if missing < len(waiting.items):
                self._queued += len(waiting.items) - missing
                items = waiting.items[: len(waiting.items) - missing]
                self._queue.append(
                    _Waiting(waiting.at_ms, waiting.who, waiting.call, waiting.client_id, waiting.trace_id, items)
                )
        self._wake.set()

    def _note(self, noted: Sequence[tuple[Entry, int]]) -> None:
        at_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        with self._lock:
            wakes = not len(self._repeats)
            for entry, count in noted:
                self._repeats.note(entry, at_ms=at_ms, now_s=now_s, count=count)
        if wakes:
            self._wake.set()

    def _run(self) -> None:
        synced_s = self._clock.monotonic()
        while True:
            with self._lock:
                due_s = self._repeats.due_s(self._clock.monotonic())
            if self._unsynced:
                due_s = SYNC_S if due_s is None else min(due_s, SYNC_S)
            self._wake.wait(due_s)
            # Cleared before it is looked at what there is: what comes meanwhile wakes the thread again.
            self._wake.clear()
            closing = self._closing
            self._write_all(closing=closing)
            if self._unsynced and (closing or self._clock.monotonic() - synced_s >= SYNC_S):
                synced_s = self._clock.monotonic()
                self._sync()
            if closing:
                for output in self._outputs:
                    output.sink.close()
                return

    @property
    def _unsynced(self) -> bool:
        return any(output.unsynced for output in self._outputs)

    def _write_all(self, *, closing: bool) -> None:
        """Write what there is."""
        while True:
            with self._lock:
                waiting = self._queue.popleft() if self._queue else None
            if waiting is None:
                break
            lines = [
                (_entry(waiting.who, waiting.call, waiting.client_id, waiting.trace_id, item), waiting.at_ms, 1)
                for item in waiting.items
            ]
            self._append(self._changes, lines)
            with self._lock:
                self._queued -= len(lines)
        now_s = self._clock.monotonic()
        with self._lock:
            due_s = self._repeats.due_s(now_s)
            counted = self._repeats.take(now_s) if due_s is not None and (due_s <= 0 or closing) else []
        self._append(self._refusals, counted)

    def _append(self, output: _Output, lines: Sequence[tuple[Entry, int, int]]) -> None:
        for begin in range(0, len(lines), BATCH):
            self._append_some(output, lines[begin : begin + BATCH])

    def _append_some(self, output: _Output, lines: Sequence[tuple[Entry, int, int]]) -> None:
        with self._lock:
            missing, output.missing = output.missing, 0
        if missing:
            said = (Entry(event=MISSED, who=_NOBODY), self._clock.wall_ms(), missing)
            lines = (said, *lines)
        data = b"".join(
            rendered(entry, at_ms=at_ms, process=self._process, count=count) for entry, at_ms, count in lines
        )
        try:
            output.sink.append(data)
        except Exception as error:  # noqa: BLE001 - the thread goes on whatever a destination fails with
            dropped = len(lines) - (1 if missing else 0)
            self._lost.add(dropped)
            with self._lock:
                output.missing += missing + dropped
            self._tell_failing(output, error)
            return
        output.unsynced = True
        for entry, _, _ in lines:
            self._written[entry.event].add()
        if missing:
            self._log.warning(
                "audit lines are missing: their destination was full or too slow",
                lines=missing,
                destination=self._destination,
            )
        output.failing = False

    def _sync(self) -> None:
        for output in self._outputs:
            if not output.unsynced:
                continue
            output.unsynced = False
            try:
                output.sink.sync()
            except Exception as error:  # noqa: BLE001 - likewise
                self._tell_failing(output, error)

    def _tell_failing(self, output: _Output, error: Exception) -> None:
        if not output.failing:
            output.failing = True
            self._log.error(
                "the audit log cannot be written; lines are dropped until it can",
                error=(error.strerror if isinstance(error, OSError) else None) or str(error),
                destination=self._destination,
            )


def _entry(who: Caller, call: str, client_id: str, trace_id: str, item: Mutated) -> Entry:
    return Entry(
        event=MUTATED,
        who=who,
        client_id=client_id,
        call=call,
        resource=kept(item.resource),
        result=item.result,
        detail=kept(item.detail),
        trace_id=trace_id,
    )


def _trace_id() -> str:
    context = parse(tracing.current())
    return "" if context is None else context.trace_id
