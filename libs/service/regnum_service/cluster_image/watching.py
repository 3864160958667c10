"""WatchMetadata and DescribeCluster, for brokers and metadata processes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from regnum.metadata.v1 import metadata_pb2

from regnum_service.access.identity import caller
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import from_wire
from regnum_service.cluster_image.watchers import Watcher
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

BEAT_S: Final = 10.0
"""After so long without anything to tell, a watcher is told the version."""


async def watch(
    feed: ClusterFeed,
    requests: AsyncIterator[metadata_pb2.WatchMetadataRequest],
    *,
    connection: str = "",
    beat_s: float = BEAT_S,
) -> AsyncGenerator[bytes, None]:
    """WatchMetadataResponses for one stream, of a connection. Raises RegnumError for what cannot be watched."""
    first = await anext(requests, None)
    if first is None:
        return
    watcher = Watcher(
        position=from_wire(first.version),
        all_topics=first.all_topics,
        connection=connection,
        principal=Call(peer=connection, principal=caller().principal).entity,
    )
    reader: asyncio.Future[None] | None = None
    try:
        feed.watchers.admit(watcher)
        _take(feed, watcher, first)
        reader = asyncio.ensure_future(_read(feed, watcher, requests))
        loop = asyncio.get_running_loop()
        beat, told_s = False, loop.time()
        while True:
            watcher.wake.clear()
            async for message in feed.changes(watcher, beat=beat):
                feed.sent_bytes += len(message)
                yield message
                told_s = loop.time()
            if beat:
                # There may have been nothing that could be said.
                told_s = loop.time()
            # By what it was told: it may be woken over and over by what does not concern it.
            await _wait(watcher, told_s + beat_s)
            beat = loop.time() >= told_s + beat_s
            if reader.done():
                # What was wrong with a message; a caller that has said everything goes on listening.
                reader.result()
    except RegnumError:
        feed.watchers.dropped += 1
        raise
    finally:
        feed.watchers.dismiss(watcher)
        if reader is not None:
            reader.cancel()


async def _wait(watcher: Watcher, beat_at_s: float) -> None:
    """Return when something has happened, or it is time for a beat by the loop's clock."""
    watcher.is_idle = True
    try:
        async with asyncio.timeout_at(beat_at_s):
            await watcher.wake.wait()
    except TimeoutError:
        pass
    finally:
        watcher.is_idle = False


async def _read(
    feed: ClusterFeed, watcher: Watcher, requests: AsyncIterator[metadata_pb2.WatchMetadataRequest]
) -> None:
    try:
        async for request in requests:
            _take(feed, watcher, request)
    finally:
        watcher.wake.set()


def _take(feed: ClusterFeed, watcher: Watcher, request: metadata_pb2.WatchMetadataRequest) -> None:
    """Raises RegnumError."""
    feed.watchers.name(watcher, request.known_topics if not watcher.topics else ())
    watcher.asked(feed.watchers.name(watcher, request.topics))
