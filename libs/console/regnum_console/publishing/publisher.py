"""`regnum failovers publish`: the process that brings traces into ``__traces``.

Constraints: what writes spans must not wait for this process, nor for the topic; this process records no spans, which
would be published in their turn.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from regnum_client.admin.admin import Admin
from regnum_client.producer.producer import Producer, ProducerSettings
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_console.live.otlp import DocumentReceiver, receiving
from regnum_console.publishing.folder import TraceFiles
from regnum_console.publishing.topic import Counted, TracesTopic
from regnum_console.stopping import stop_signals

CLIENT_ID: Final = "regnum-traces"
"""Name of the client, by which quotas know it."""
LOOK_S: Final = 0.5
"""Pause before files are looked at again that had nothing new."""
RETRY_S: Final = 2.0
"""Pause after an attempt to write that failed."""
DELIVERY_S: Final = 20.0
"""How long one attempt lasts."""
MESSAGES_MAX: Final = 32
"""Messages of senders that wait for the topic at a time, of 4 MiB at most: three collectors as they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the process was asked for."""

    bootstrap: str | None
    """Brokers to begin with; None: as the SDK finds them."""
    traces: Path | None
    """Folder of traces; None: there is none."""
    otlp: str | None
    """``host:port`` where spans are taken by OTLP; None: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the process did."""

    counted: Counted
    """Of the topic."""
    lost_bytes: int
    """Of files that went before they were published."""


async def follow(files: TraceFiles, topic: TracesTopic, clock: Clock, tell: Callable[[str], None]) -> None:
    """Publish what comes to files, without end; while the topic cannot be written it waits in the files.

    Raises RegnumError for what does not pass, such as a missing right; OSError, ValueError of the files.
    """
    lost_bytes = 0
    while True:
        try:
            await topic.ensure()
            while True:
                chunk = await asyncio.to_thread(files.next)
                if files.lost_bytes > lost_bytes:
                    lost_bytes = files.lost_bytes
                    tell(f"{lost_bytes:,} bytes of traces were removed, or were no lines, before they were published")
                if chunk is None:
                    await clock.sleep(LOOK_S)
                    continue
                await topic.write(chunk.lines)
                await asyncio.to_thread(files.published, chunk)
        except RegnumError as error:
            if not error.retriable:
                raise
            tell(f"traces wait in their files: {error}")
            await clock.sleep(RETRY_S)


async def publish(options: Options, *, ready: Callable[[str], None], tell: Callable[[str], None]) -> Published:
    """Publish until SIGINT or SIGTERM.

    Args:
        options: from where, and to which cluster.
        ready: hears where spans are taken, once they are; empty: from files only.
        tell: hears of trouble, a sentence each.

    Raises:
        RegnumError: no broker answers at first, or what ``follow`` raises.
        PortTakenError: spans cannot be taken there.
        OSError: of the files; likewise ValueError.
    """
    settings = ProducerSettings(compression="zstd", delivery_timeout_s=DELIVERY_S)
    files = None if options.traces is None else TraceFiles(options.traces)
    async with AsyncExitStack() as stack:
        maker = await stack.enter_async_context(Admin(options.bootstrap, client_id=CLIENT_ID))
        writer = await stack.enter_async_context(Producer(options.bootstrap, settings=settings, client_id=CLIENT_ID))
        topic = TracesTopic(writer, maker)
        await topic.ensure()
        address = ""
        if options.otlp is not None:
            port = await stack.enter_async_context(
                receiving(options.otlp, DocumentReceiver(topic.write), messages_max=MESSAGES_MAX)
            )
            address = f"{options.otlp.rpartition(':')[0]}:{port}"
        stop = stack.enter_context(stop_signals())
        ready(address)
        stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
        tasks: set[asyncio.Task[Any]] = {stopping}
        if files is not None:
            tasks.add(asyncio.create_task(follow(files, topic, SystemClock(), tell), name="publish files"))
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for task in done:
            task.result()
    return Published(counted=topic.counted, lost_bytes=0 if files is None else files.lost_bytes)
