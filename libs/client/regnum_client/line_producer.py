"""The work of `regnum produce`: lines in, records out, a count at the end."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from regnum_client.invocation import Output, note
from regnum_client.producer import Producer, ProducerSettings
from regnum_client.records import RecordMetadata
from regnum_client.rendering import emit_one

READ_BYTES: Final = 256 * 1024
PROGRESS_S: Final = 2.0
"""A line of progress so often, when there are many records."""


class _Count:
    """What became of the lines."""

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.failure: BaseException | None = None
        self._reported_s = time.monotonic()

    def ended(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Done callback of a record."""
        error = asyncio.CancelledError() if delivery.cancelled() else delivery.exception()
        if error is not None:
            self.failed += 1
            self.failure = self.failure or error
            return
        self.acknowledged += 1
        if self._output is Output.JSONL:
            where = delivery.result()
            sys.stdout.write(
                json.dumps({"topic": where.topic, "partition": where.partition, "offset": where.offset}) + "\n"
            )

    def report(self) -> None:
        """Say how far it is, now and then."""
        now_s = time.monotonic()
        if now_s - self._reported_s >= PROGRESS_S:
            self._reported_s = now_s
            note(f"{self.acknowledged} of {self.sent} acknowledged")


async def produce_lines(
    topic: str,
    *,
    bootstrap: str | None,
    settings: ProducerSettings,
    partition: int | None,
    key_separator: str | None,
    output: Output,
) -> None:
    """Send stdin line by line. Raises what the first failed record failed with."""
    separator = None if key_separator is None else key_separator.encode()
    count = _Count(output)
    try:
        async with Producer(bootstrap, settings=settings, client_id="regnum-produce") as producer:
            # Also when stdin is empty: a topic that does not exist is an error.
            await producer.check_topic(topic, partition=partition)
            async for line in _lines(sys.stdin.fileno()):
                key, value = _split(line, separator)
                delivery = await producer.send(topic, value, key=key, partition=partition)
                delivery.add_done_callback(count.ended)
                count.sent += 1
                if count.failure is not None:
                    break
                count.report()
            await producer.flush()
    finally:
        sys.stdout.flush()
        summary = {"topic": topic, "sent": count.sent, "acknowledged": count.acknowledged, "failed": count.failed}
        if output in {Output.JSON, Output.YAML} and count.failure is None:
            emit_one(summary, output)
        note(f"{count.acknowledged} of {count.sent} records acknowledged by {topic}")
    if count.failure is not None:
        raise count.failure


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """Lines without their ends; the last one may lack it."""
    rest = b""
    async for piece in _pieces(descriptor):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line
    if rest:
        yield rest


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read, as soon as it can: no thread may sit in a read that Ctrl-C cannot end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A regular file: always readable, and epoll will not have it.
        while piece := os.read(descriptor, READ_BYTES):
            yield piece
            await asyncio.sleep(0)
        return
    try:
        while True:
            await readable.wait()
            readable.clear()
            piece = os.read(descriptor, READ_BYTES)
            if not piece:
                return
            yield piece
    finally:
        loop.remove_reader(descriptor)
