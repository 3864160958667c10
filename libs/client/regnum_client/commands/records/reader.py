"""The work of `regnum consume`: records in, lines out."""

from collections.abc import Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.commands.invocation import Output, note
from regnum_client.commands.records.places import BeforeEnd, Place, Span
from regnum_client.commands.records.search import Search
from regnum_client.commands.records.template import Template
from regnum_client.commands.rendering import RecordPrinter
from regnum_client.consumer.consumer import Consumer
from regnum_client.consumer.positions import LATEST, AtTime, ResetPolicy, Start
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.errors import CommitFailedError
from regnum_client.records import ConsumedRecord, TopicPartition

WAIT_S: Final = 3600.0
"""How long one read waits when nobody said how long."""
READ_MAX: Final = 1000
"""Records of one read."""
LOOK_S: Final = 1.0
"""How often to look whether partitions have ended: batches that are left out, or hold nothing, bring no record."""


async def print_records(
    topic: str,
    *,
    topic_wait_s: float,
    bootstrap: str | None,
    partitions: Sequence[int] | None,
    group: str | None,
    matching: bool,
    start: Place,
    until: Start | None,
    rack: str,
    skip_unreadable: bool,
    search: Search | None,
    records_max: int | None,
    idle_s: float | None,
    key_separator: str | None,
    template: Template | None,
    output: Output,
) -> None:
    """Print records until one of the limits. Raises REQUEST_TIMED_OUT when none came for ``idle_s``.

    A member of a group commits what it has printed and flushed, and nothing else: what is printed may be printed again
    after a failure, and is not left out.
    """
    begins = ResetPolicy.LATEST if start == LATEST else ResetPolicy.EARLIEST
    printer: RecordPrinter | None = None
    printed = 0
    try:
        async with Consumer(
            bootstrap,
            client_id="regnum-consume",
            topics=() if group is None or matching else (topic,),
            group_id=group,
            settings=ConsumerSettings(
                enable_auto_commit=False,
                auto_offset_reset=begins,
                client_rack=rack,
                skip_unreadable=skip_unreadable,
            ),
        ) as consumer:
            if matching and not isinstance(start, BeforeEnd):
                await consumer.subscribe(pattern=topic, start=start)
                span = Span(not_before_ms=start.timestamp_ms if isinstance(start, AtTime) else None)
            else:
                # Also where a group assigns: a member waits for a topic; a person has mistyped it.
                await consumer.partitions_of(topic, wait_s=topic_wait_s)
                span = await _span(consumer, topic, partitions, start, until, grouped=group is not None)
            printer = RecordPrinter(
                output, key_separator=key_separator, render=None if template is None else template.render
            )
            while (records_max is None or printed < records_max) and not _over(consumer, span):
                left = READ_MAX if records_max is None else min(READ_MAX, records_max - printed)
                if search is not None and group is None:
                    # How many of them are found is not known; a group must not commit what was not looked at.
                    left = READ_MAX
                records = await _read(consumer, topic, span, left, idle_s)
                for record in filter(span.wants, records):
                    if printed != records_max and (search is None or search.finds(record)):
                        printer.print(record)
                        printed += 1
                printer.flush()
                if group is not None and records:
                    await _commit(consumer)
    finally:
        if printer is not None:
            printer.close()
            if output is Output.TABLE:
                note(f"{printed} {'record' if printed == 1 else 'records'}")


def _over(consumer: Consumer, span: Span) -> bool:
    """Let go of partitions that were read to their ends; whether all were."""
    for partition in span.finished({one: consumer.position(one) for one in span.open}):
        consumer.unassign(partition)
    return span.is_over


async def _read(
    consumer: Consumer, topic: str, span: Span, records_max: int, idle_s: float | None
) -> Sequence[ConsumedRecord]:
    """The next records; none when all partitions have ended, or none came in an hour."""
    left_s = idle_s or WAIT_S
    while left_s > 0 and not _over(consumer, span):
        wait_s = min(LOOK_S, left_s) if span.open else left_s
        if records := await consumer.read(records_max=records_max, timeout_s=wait_s):
            return records
        left_s -= wait_s
    if idle_s is not None and not span.is_over:
        raise RegnumError(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            f"no record came from {topic!r} for {idle_s:g} s; see `regnum topics describe {topic}`",
        )
    return ()


async def _commit(consumer: Consumer) -> None:
    try:
        await consumer.commit()
    except CommitFailedError as error:
        note(error.message)


async def _go_back(consumer: Consumer, assigned: Sequence[TopicPartition], start: BeforeEnd) -> None:
    """Read partitions from so many records before their ends on."""
    begins, ends = await consumer.beginning_offsets(assigned), await consumer.end_offsets(assigned)
    for partition in assigned:
        consumer.seek(partition, max(begins[partition], ends[partition] - start.count))


async def _span(
    consumer: Consumer,
    topic: str,
    partitions: Sequence[int] | None,
    start: Place,
    until: Start | None,
    *,
    grouped: bool,
) -> Span:
    """Assign partitions from ``start`` on, unless their group does; what is wanted of them."""
    if grouped:
        return Span()
    at_first = LATEST if isinstance(start, BeforeEnd) else start
    assigned = await consumer.assign(topic, partitions=partitions, start=at_first)
    if isinstance(start, BeforeEnd):
        await _go_back(consumer, assigned, start)
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
