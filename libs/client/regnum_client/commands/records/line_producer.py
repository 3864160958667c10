"""The work of `regnum produce`: lines in, records out, a count at the end."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from regnum_client.commands.invocation import Output, note, wrong_use
from regnum_client.commands.rendering import emit_one
from regnum_client.producer.producer import Producer, ProducerSettings
from regnum_client.records import RecordMetadata

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
        self._reader_gone = False
        self._flush_due = False
        self._reported_s = time.monotonic()

    def ended(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Done callback of a record."""
        error = asyncio.CancelledError() if delivery.cancelled() else delivery.exception()
        if error is not None:
            self.failed += 1
            self.failure = self.failure or error
            return
        self.acknowledged += 1
        if self._output is Output.JSONL and not self._reader_gone:
            self._print(delivery.result())

    def flush(self) -> None:
        """Let a reader of a pipe see what is acknowledged."""
        self._flush_due = False
        with self._writing():
            sys.stdout.flush()

    def report(self) -> None:
        """Say how far it is, now and then."""
        now_s = time.monotonic()
        if self._output is Output.TABLE and now_s - self._reported_s >= PROGRESS_S:
            self._reported_s = now_s
            note(f"{self.acknowledged} of {self.sent} acknowledged")

    def _print(self, where: RecordMetadata) -> None:
        offset = where.offset if where.offset >= 0 else None
        line = json.dumps({"topic": where.topic, "partition": where.partition, "offset": offset})
        with self._writing():
            sys.stdout.write(line + "\n")
        if not self._flush_due:
            # Once for all that are acknowledged together.
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What goes wrong on stdout would be lost in a callback."""
        try:
            yield
        except BrokenPipeError:
            # Whoever read has seen enough (`| head`); the records go on to the brokers.
            self._reader_gone = True
        except OSError as error:
            self.failure = self.failure or error
            self._reader_gone = True


async def produce_lines(
    topic: str,
    *,
    bootstrap: str | None,
    settings: ProducerSettings,
    partition: int | None,
    key_separator: str | None,
    headers: tuple[tuple[str, bytes], ...],
    descriptor: int | None,
    output: Output,
) -> None:
    """Send what can be read from a descriptor (None: stdin) line by line.

    Raises what the first failed record failed with, or OSError of the descriptor.
    """
    if descriptor is None and sys.stdin is None:
        raise wrong_use("stdin is closed; give lines to it, for example: seq 10 | regnum produce " + topic)
    separator = None if key_separator is None else os.fsencode(key_separator)
    count = _Count(output)
    topic_known = False
    try:
        async with Producer(bootstrap, settings=settings, client_id="regnum-produce") as producer:
            # Also when stdin is empty: a topic that does not exist is an error.
            await producer.check_topic(topic, partition=partition)
            topic_known = True
            async for line in _lines(sys.stdin.fileno() if descriptor is None else descriptor):
                key, value = _split(line, separator)
                delivery = await producer.send(topic, value, key=key, partition=partition, headers=headers)
                delivery.add_done_callback(count.ended)
                count.sent += 1
                if count.failure is not None:
                    break
                count.report()
            await producer.flush()
    finally:
        if topic_known:
            count.flush()
            _sum_up(topic, count, output)
    if count.failure is not None:
        raise count.failure


def _sum_up(topic: str, count: _Count, output: Output) -> None:
    if output is Output.TABLE:
        note(f"{count.acknowledged} of {count.sent} records acknowledged by {topic}")
    elif output is not Output.JSONL:
        emit_one(
            {"topic": topic, "sent": count.sent, "acknowledged": count.acknowledged, "failed": count.failed}, output
        )


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
    while True:
        try:
            await _readable(descriptor)
        except PermissionError:
            # A regular file: always readable, and epoll will not have it.
            await asyncio.sleep(0)
        try:
            piece = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            continue
        if not piece:
            return
        yield piece


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, or the end.

    The descriptor is watched for this once only: asked a second time between the news and the read, the loop would say
    again "readable", and the read after that would stop everything until the next line.
    """
    loop = asyncio.get_running_loop()
    news: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        loop.remove_reader(descriptor)
        if not news.done():
            news.set_result(None)

    loop.add_reader(descriptor, arrived)
    try:
        await news
    finally:
        loop.remove_reader(descriptor)
