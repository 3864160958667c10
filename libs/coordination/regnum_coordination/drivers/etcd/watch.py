"""Watches that survive what etcd3's own do not.

Goals: after the first answer no change is lost: neither by a lost connection, nor a cancel by the server, nor a
compaction.

Constraints: a watch resumes only at a revision that is not compacted; a member without a leader must not keep it silent
(``hasleader``), nor one whose disk hangs, which answers pings and keep-alives and learns of nothing
(``EtcdRpc.find_silent``); a stream that ends at once must not be opened again in a tight loop.

Algorithm: read a snapshot at revision R and answer it. Watch from R + 1; each batch of events moves the next revision
behind its last event, each progress notification behind itself. When the stream ends, open it again at the next
revision after a pause with jitter. When that revision is compacted away, take a snapshot again.

A large answer comes in fragments, which parse in few milliseconds each, and one transaction may lie in two of them. It
is complete when a later one begins or an answer ends that is no fragment; a stream that breaks before begins again
with it.

A watch of a tree is the same without the snapshot: what to do about a compaction is for whoever has read the tree.

Example: snapshot at 40; events at 41 and 43; the connection breaks; watch from 44.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc
from etcd3.etcdrpc import rpc_pb2
from regnum_service.slices import Turns

from regnum_coordination.drivers.etcd.fragments import in_fragments, is_fragment
from regnum_coordination.drivers.etcd.keys import Keys, child_name, visible
from regnum_coordination.drivers.etcd.reading import EtcdReader, node_of
from regnum_coordination.drivers.etcd.rpc import EtcdRpc, compacted
from regnum_coordination.drivers.session_state import SessionStateFeed, expired, unless
from regnum_coordination.errors import Compacted, ConnectionLoss
from regnum_coordination.paths import RESERVED, ROOT, folder_prefix
from regnum_coordination.port import Children, Node, TreeChange
from regnum_coordination.timing import Backoff

_EVENTS_PER_TURN: Final = 500
"""Events of a tree between two turns of the event loop (safety rule S22)."""


class EtcdWatcher:
    """Watches of one store."""

    def __init__(
        self, rpc: EtcdRpc, reader: EtcdReader, keys: Keys, session: SessionStateFeed, *, backoff: Backoff
    ) -> None:
        self._rpc = rpc
        self._reader = reader
        self._keys = keys
        self._session = session
        self._backoff = backoff

    async def node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The present state of a node and its changes."""
        key = self._keys.key(path)
        attempts = 0
        while True:
            try:
                node, revision = await self._session.unless_lost(self._reader.node(path))
            except ConnectionLoss:
                attempts += 1
                await self._pause(attempts)
                continue
            attempts = 0
            yield node
            try:
                async with aclosing(self._events(key, None, revision + 1)) as batches:
                    async for events in batches:
                        yield _last_state(events)
            except Compacted:
                continue

    async def children(self, path: str) -> AsyncGenerator[Children, None]:
        """The present children of a folder and every change of the set."""
        folder, end = self._keys.below(path)
        attempts = 0
        while True:
            try:
                snapshot = await self._session.unless_lost(self._reader.snapshot(path))
            except ConnectionLoss:
                attempts += 1
                await self._pause(attempts)
                continue
            attempts = 0
            names = set(snapshot.names)
            hidden = RESERVED if path == ROOT else frozenset[str]()
            yield Children(names=visible(names, path), children_id=snapshot.revision)
            try:
                async with aclosing(self._events(folder, end, snapshot.revision + 1)) as batches:
                    async for events in batches:
                        if _apply(events, folder, names, hidden):
                            revision = max(event.kv.mod_revision for event in events)
                            yield Children(names=visible(names, path), children_id=revision)
            except Compacted:
                continue

    async def tree(self, path: str, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """Changes of a node and of all that lies below it, one for each transaction; raises Compacted."""
        upper, (_, end) = self._keys.key(path) if path != ROOT else self._keys.folder(path), self._keys.below(path)
        below = folder_prefix(path)
        turns = Turns(_EVENTS_PER_TURN)
        revision, changed = 0, dict[str, Node | None]()
        async with aclosing(self._answers(upper, end, after_revision + 1)) as answers:
            async for answer in answers:
                for event in answer.events:
                    await turns.took()
                    kv = event.kv
                    if kv.mod_revision != revision:
                        if changed:
                            yield TreeChange(revision=revision, changed=changed)
                        revision, changed = kv.mod_revision, {}
                    where = self._keys.path(kv.key)
                    if where is not None and (where == path or where.startswith(below)):
                        changed[where] = None if event.type == event.DELETE else node_of(kv, revision)
                if changed and not is_fragment(answer):
                    yield TreeChange(revision=revision, changed=changed)
                    changed = {}

    async def _events(self, key: bytes, end: bytes | None, next_revision: int) -> AsyncGenerator[Sequence[Any], None]:
        """Batches of events from a revision on; raises Compacted, SessionExpired."""
        async with aclosing(self._answers(key, end, next_revision)) as answers:
            async for answer in answers:
                yield answer.events

    async def _answers(self, key: bytes, end: bytes | None, next_revision: int) -> AsyncGenerator[Any, None]:
        """Answers with events, in order; after a broken stream perhaps those of one transaction again."""
        attempts = 0
        while True:
            stream = self._rpc.watch_stream()
            try:
                await self._session.unless_lost(_begin(stream.call, key, end, next_revision))
                while True:
                    reading = unless(stream.silent, stream.call.read(), TimeoutError)
                    answer = await self._session.unless_lost(reading)
                    if answer is grpc.aio.EOF:
                        await self._session.unless_lost(self._rpc.recover(stream, None))
                        break
                    if answer.compact_revision > 0:
                        raise compacted()
                    if answer.canceled:
                        # Also what an unknown token meets with.
                        await self._session.unless_lost(self._rpc.recover(stream, None))
                        break
                    attempts = 0
                    if answer.events:
                        last = answer.events[-1].kv.mod_revision
                        next_revision = last if is_fragment(answer) else last + 1
                        yield answer
                    elif not answer.created:
                        next_revision = max(next_revision, answer.header.revision + 1)
            except (TimeoutError, grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                # The stream broke, or its member is silent: the same as its end.
                await self._session.unless_lost(self._rpc.recover(stream, error))
            finally:
                stream.call.cancel()
            attempts += 1
            await self._pause(attempts)

    async def _pause(self, attempts: int) -> None:
        if self._session.is_lost:
            raise expired()
        await self._session.unless_lost(asyncio.sleep(self._backoff.pause_s(attempts)))


async def _begin(stream: Any, key: bytes, end: bytes | None, revision: int) -> None:
    create = rpc_pb2.WatchCreateRequest(key=key, start_revision=revision, progress_notify=True)
    if end is not None:
        create.range_end = end
    await stream.write(rpc_pb2.WatchRequest(create_request=in_fragments(create)))


def _last_state(events: Sequence[Any]) -> Node | None:
    event = events[-1]
    if event.type == event.DELETE:
        return None
    return node_of(event.kv, event.kv.mod_revision)


def _apply(events: Sequence[Any], folder: bytes, names: set[str], hidden: frozenset[str]) -> bool:
    """Carry events over to the names; whether the set changed, be it only for a moment."""
    changed = False
    for event in events:
        name = child_name(event.kv.key, folder)
        if name is None or name in hidden:
            continue
        if event.type == event.DELETE:
            names.discard(name)
            changed = True
        elif event.kv.create_revision == event.kv.mod_revision:
            names.add(name)
            changed = True
    return changed
