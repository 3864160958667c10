"""WatchMetadata and DescribeCluster, for brokers and metadata processes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from regnum.metadata.v1 import metadata_pb2

from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import from_wire
from regnum_service.cluster_image.watchers import Watcher
from regnum_service.errors import RegnumError

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
    watcher = Watcher(position=from_wire(first.version), all_topics=first.all_topics, connection=connection)
    reader: asyncio.Future[None] | None = None
    try:
        feed.watchers.admit(watcher)
        _take(feed, watcher, first)
        reader = asyncio.ensure_future(_read(feed, watcher, requests))
        beat = False
        while True:
            watcher.wake.clear()
            async for message in feed.changes(watcher, beat=beat):
                feed.sent_bytes += len(message)
                yield message
            beat = not await _wait(watcher, beat_s)
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


async def _wait(watcher: Watcher, beat_s: float) -> bool:
    """Whether something happened before it was time for a beat."""
    watcher.is_idle = True
    try:
        async with asyncio.timeout(beat_s):
            await watcher.wake.wait()
    except TimeoutError:
        return False
    finally:
        watcher.is_idle = False
    return True


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
