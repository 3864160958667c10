"""The work of `regnum consume`: records in, lines out."""

from collections.abc import Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.commands.invocation import Output, note
from regnum_client.commands.rendering import RecordPrinter
from regnum_client.consumer.consumer import Consumer
from regnum_client.consumer.positions import Start
from regnum_client.records import TopicPartition

WAIT_S: Final = 3600.0
"""How long one read waits when nobody said how long."""


async def print_records(
    topic: str,
    *,
    bootstrap: str | None,
    partitions: Sequence[int] | None,
    start: Start,
    records_max: int | None,
    until_end: bool,
    idle_s: float | None,
    key_separator: str | None,
    output: Output,
) -> None:
    """Print records until one of the limits. Raises REQUEST_TIMED_OUT when none came for ``idle_s``."""
    printer: RecordPrinter | None = None
    printed = 0
    try:
        async with Consumer(bootstrap, client_id="regnum-consume") as consumer:
            assigned = await consumer.assign(topic, partitions=partitions, start=start)
            printer = RecordPrinter(output, key_separator=key_separator)
            ends = dict(await consumer.end_offsets(assigned)) if until_end else {}
            while records_max is None or printed < records_max:
                if until_end and _drop_finished(consumer, ends):
                    break
                left = 1000 if records_max is None else min(1000, records_max - printed)
                records = await consumer.read(records_max=left, timeout_s=idle_s or WAIT_S)
                if not records and idle_s is not None:
                    raise RegnumError(
                        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                        f"no record came from {topic!r} for {idle_s:g} s; see `regnum topics describe {topic}`",
                    )
                for record in records:
                    end = ends.get(TopicPartition(record.topic, record.partition))
                    if until_end and (end is None or record.offset >= end):
                        continue
                    printer.print(record)
                    printed += 1
                printer.flush()
    finally:
        if printer is not None:
            printer.close()
            if output is Output.TABLE:
                note(f"{printed} {'record' if printed == 1 else 'records'}")


def _drop_finished(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Stop reading partitions that were read to their end; True when none is left."""
    for partition, end in tuple(ends.items()):
        if consumer.position(partition) >= end:
            consumer.unassign(partition)
            del ends[partition]
    return not ends
