"""Keeps the rules of one process as the store has them.

Goals: a change is in force within a fraction of a second wherever there is a session; it costs what it changed; what
nobody can read is said once and grants nothing.

Algorithm: the announcements below ``/config/changes`` are watched. One that names a node of rules has that node read
again; where it cannot be told what changed (the beginning of a session, an announcement by hand) all are read, in
pages, and those that are as they were cost no more than that. Old rules count until new ones are there, pattern by
pattern; but for a process that was fenced, or gave up what it led, while it could not see the store (``surrendered``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Node, SessionState, Store
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.stored_quotas import Reader, StoreReader
from regnum_coordination.timing import Backoff
from regnum_model.acls.nodes import ACLS, FOLDERS, decode_rules, pattern_at
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import CHANGES

from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.clock import Clock

NODES_PER_READ: Final = 200
"""Nodes read and taken up between two turns of the event loop (safety rule S22)."""

RULES_BYTES_PER_TURN: Final = 100_000
"""Bytes of nodes that are decoded in one turn, about: some 10 ms."""

REOPEN_S: Final = 0.05
"""Pause before the next session is looked for."""

_REMEDY: Final = f"correct or delete the node, then create a node of any new name below {CHANGES}"


class AclFollower:
    """Fills one authorizer. Belongs to one event loop."""

    def __init__(self, authorizer: AclAuthorizer, clock: Clock) -> None:
        """Only assigns; ``clock`` paces the tries."""
        self._authorizer: Final = authorizer
        self._clock: Final = clock
        self._seen: Final[dict[str, int]] = {}
        """Modification ids of the nodes that were taken up, by path."""
        self._wrong: Final[dict[str, str]] = {}
        """What was said of nodes that cannot be read, by path."""
        self._following: Store | None = None
        """The session in which all rules were read, and whose watch stands."""
        self._anew: Final = asyncio.Event()
        self._log: Final = structlog.get_logger("acls")

    async def run(self, wait_store: Callable[[], Awaitable[Store]]) -> None:
        """Follow one session after another, for ever; a task of the supervisor."""
        while True:
            await self.follow(await wait_store())
            await self._clock.sleep(REOPEN_S)

    async def follow(self, store: Store) -> None:
        """Follow one session until it is over; returns then."""
        backoff, attempts = Backoff(), 0
        while store.session_state is not SessionState.LOST:
            self._anew.clear()
            following = asyncio.ensure_future(self._session(store))
            restarting = asyncio.ensure_future(self._anew.wait())
            try:
                await asyncio.wait((following, restarting), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            except (ConnectionLoss, SessionExpired) as error:
                self._log.info("access rules not followed; trying on", reason=str(error))
            finally:
                if self._following is store:
                    attempts = 0
                self._following = None
                for task in (following, restarting):
                    task.cancel()
                await asyncio.gather(following, restarting, return_exceptions=True)
            attempts += 1
            await self._clock.sleep(backoff.pause_s(attempts))

    def surrendered(self) -> None:
        """This process gave up what it had: what rules it read without being sure of the store count no more.

        With a session that is CONNECTED and followed nothing is outdated, and they stay.
        """
        store = self._following
        if store is None or store.session_state is not SessionState.CONNECTED:
            self._authorizer.forget()
            self._anew.set()

    async def _session(self, store: Store) -> None:
        announced, reader = Announced(), StoreReader(store)
        async with aclosing(store.watch_children(CHANGES)) as changes:
            async for children in changes:
                paths = await announced.look(reader, children.names)
                if paths is None:
                    await self.read_all(reader)
                else:
                    await self._read([path for path in sorted(paths) if path.startswith(f"{ACLS}/")], reader)
                self._following = store

    async def read_all(self, reader: Reader) -> None:
        """Read every rule as of now. Raises what the reader raises."""
        there: set[str] = set()
        for folder, names in zip(FOLDERS, await asyncio.gather(*map(reader.names, FOLDERS)), strict=True):
            paths = [f"{folder}/{name}" for name in names]
            there.update(paths)
            await self._read(paths, reader)
        await self._read([path for path in (*self._seen, *self._wrong) if path not in there], reader)
        if not self._authorizer.loaded:
            self._authorizer.read()
            self._log.info("access rules read", rules=self._authorizer.index.count, patterns=len(self._seen))

    async def _read(self, paths: Sequence[str], reader: Reader) -> None:
        for some in _slices(paths, NODES_PER_READ):
            nodes = await reader.read_many(some)
            changed, size = False, 0
            for path in some:
                node = nodes.get(path)
                size += 0 if node is None else len(node.data)
                changed |= self._take_up(path, node)
                if size > RULES_BYTES_PER_TURN:
                    self._tell(changed)
                    changed, size = False, 0
                    await asyncio.sleep(0)
            self._tell(changed)
            await asyncio.sleep(0)

    def _tell(self, changed: bool) -> None:  # noqa: FBT001 - says what happened
        if changed:
            self._authorizer.changed()

    def _take_up(self, path: str, node: Node | None) -> bool:
        """Whether anything is another way than before."""
        if node is not None and self._seen.get(path) == node.stat.modification_id:
            return False
        try:
            pattern = pattern_at(path)
        except MalformedNodeError as error:
            # Nobody knows what it is about: it grants nothing, and there is nothing that it could deny.
            self._complain(path, None if node is None else str(error))
            return False
        if node is None:
            self._seen.pop(path, None)
            self._complain(path, None)
            self._authorizer.put(pattern, ())
            return True
        self._seen[path] = node.stat.modification_id
        try:
            entries = decode_rules(pattern, node.data)
        except MalformedNodeError as error:
            self._complain(path, f"{error}; until then {pattern} is denied to all but super users")
            self._authorizer.put(pattern, None)
            return True
        self._complain(path, None)
        self._authorizer.put(pattern, entries)
        return True

    def _complain(self, path: str, reason: str | None) -> None:
        if reason is None:
            self._wrong.pop(path, None)
        elif self._wrong.get(path) != reason:
            self._wrong[path] = reason
            self._log.error("access rules cannot be read", path=path, reason=reason, remedy=_REMEDY)


def _slices(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
