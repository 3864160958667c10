"""The work of `regnum consume`: records in, lines out."""

from collections.abc import Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.commands.invocation import Output, note
from regnum_client.commands.records.places import Span
from regnum_client.commands.records.template import Template
from regnum_client.commands.rendering import RecordPrinter
from regnum_client.consumer.consumer import Consumer
from regnum_client.consumer.positions import LATEST, AtTime, Start
from regnum_client.records import TopicPartition

WAIT_S: Final = 3600.0
"""How long one read waits when nobody said how long."""


async def print_records(
    topic: str,
    *,
    bootstrap: str | None,
    partitions: Sequence[int] | None,
    start: Start,
    until: Start | None,
    records_max: int | None,
    idle_s: float | None,
    key_separator: str | None,
    template: Template | None,
    output: Output,
) -> None:
    """Print records until one of the limits. Raises REQUEST_TIMED_OUT when none came for ``idle_s``."""
    printer: RecordPrinter | None = None
    printed = 0
    try:
        async with Consumer(bootstrap, client_id="regnum-consume") as consumer:
            assigned = await consumer.assign(topic, partitions=partitions, start=start)
            printer = RecordPrinter(
                output, key_separator=key_separator, render=None if template is None else template.render
            )
            span = await _span(consumer, assigned, start, until)
            while records_max is None or printed < records_max:
                for partition in span.finished({one: consumer.position(one) for one in span.open}):
                    consumer.unassign(partition)
                if span.is_over:
                    break
                left = 1000 if records_max is None else min(1000, records_max - printed)
                records = await consumer.read(records_max=left, timeout_s=idle_s or WAIT_S)
                if not records and idle_s is not None:
                    raise RegnumError(
                        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                        f"no record came from {topic!r} for {idle_s:g} s; see `regnum topics describe {topic}`",
                    )
                for record in records:
                    if span.wants(record):
                        printer.print(record)
                        printed += 1
                printer.flush()
    finally:
        if printer is not None:
            printer.close()
            if output is Output.TABLE:
                note(f"{printed} {'record' if printed == 1 else 'records'}")


async def _span(consumer: Consumer, assigned: Sequence[TopicPartition], start: Start, until: Start | None) -> Span:
    """What is wanted of the partitions that were assigned from ``start`` on."""
    not_before_ms = start.timestamp_ms if isinstance(start, AtTime) else None
    if until is None:
        return Span(not_before_ms=not_before_ms)
    if isinstance(until, AtTime) or until == LATEST:
        ends = await consumer.end_offsets(assigned)
    elif isinstance(until, int):
        ends = dict.fromkeys(assigned, until)
    else:
        ends = await consumer.beginning_offsets(assigned)
    before_ms = until.timestamp_ms if isinstance(until, AtTime) else None
    return Span(not_before_ms=not_before_ms, before_ms=before_ms, ends=ends)
