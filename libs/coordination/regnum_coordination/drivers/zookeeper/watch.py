"""Watches that always arrive at the last state.

Goals: after the first answer no last state is lost, whatever breaks; a watch that is given up leaves nothing behind
that grows.

Constraints: a watch of the server fires once, is set by the read that it belongs to, and only if the node is there
(for one that is not, a question for its existence sets it); kazoo forgets all watches when the connection breaks, and
calls each of them once for that. Kazoo cannot take a single watch back, so there is at most one for each path.

Algorithm: note that nothing has fired, read and set the watch in one request, answer if the state differs from the one
answered last, wait until something fires or the state of the session changes. A read that fails for want of a
connection is repeated when the session's state changes, or after a pause. A set of children that only this session's
own checks of absence have changed is the one that was answered last (``absences``).

Example: node absent: get says NoNode, exists sets the watch and says absent; created; fired; get.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kazoo.exceptions import NoNodeError

from regnum_coordination.drivers.session_state import SessionStateFeed, expired
from regnum_coordination.drivers.zookeeper.absences import AbsencesChecked
from regnum_coordination.drivers.zookeeper.answers import node_of
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls, value
from regnum_coordination.drivers.zookeeper.mailbox import Mailbox
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Children, Node
from regnum_coordination.timing import Backoff

_T = TypeVar("_T")


class _Fuses:
    """One watch function for each path that was ever watched and has not fired since."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._functions: dict[str, Callable[..., None]] = {}
        self._listeners: dict[str, set[asyncio.Event]] = {}

    def function(self, path: str) -> Callable[..., None]:
        """What kazoo is to call, on its own thread."""
        found = self._functions.get(path)
        if found is None:
            found = self._functions[path] = partial(self._fired, path)
        return found

    def listen(self, path: str, changed: asyncio.Event) -> None:
        """Set the event whenever the path's watch fires."""
        self._listeners.setdefault(path, set()).add(changed)

    def unlisten(self, path: str, changed: asyncio.Event) -> None:
        """Undo ``listen``."""
        listeners = self._listeners.get(path, set())
        listeners.discard(changed)
        if not listeners:
            self._listeners.pop(path, None)

    def _fired(self, path: str, event: Any) -> None:
        del event
        self._mailbox.put(partial(self._burn, path))

    def _burn(self, path: str) -> None:
        listeners = self._listeners.get(path)
        if listeners is None:
            self._functions.pop(path, None)
            return
        for changed in listeners:
            changed.set()


class ZooKeeperWatcher:
    """Watches of one session."""

    def __init__(
        self,
        calls: ZooKeeperCalls,
        names: ServerNames,
        session: SessionStateFeed,
        mailbox: Mailbox,
        absences: AbsencesChecked,
        *,
        backoff: Backoff,
    ) -> None:
        self._calls = calls
        self._names = names
        self._session = session
        self._nodes = _Fuses(mailbox)
        self._folders = _Fuses(mailbox)
        self._absences = absences
        self._backoff = backoff

    async def node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The present state of a node and its changes."""
        changed = asyncio.Event()
        self._session.listen(changed)
        self._nodes.listen(path, changed)
        try:
            answered = False
            last: Node | None = None
            while True:
                node = await self._last_state(changed, partial(self._read_node, path))
                if not answered or _identity(node) != _identity(last):
                    answered, last = True, node
                    yield node
                else:
                    await changed.wait()
        finally:
            self._session.unlisten(changed)
            self._nodes.unlisten(path, changed)

    async def children(self, path: str) -> AsyncGenerator[Children, None]:
        """The present children of a folder and every change of the set."""
        changed = asyncio.Event()
        self._session.listen(changed)
        self._nodes.listen(path, changed)
        self._folders.listen(path, changed)
        self._absences.watch(path)
        try:
            last: _Set | None = None
            while True:
                found = await self._last_state(changed, partial(self._read_children, path))
                if last is None or self._differ(path, last, found):
                    last = found
                    yield found.children
                else:
                    last = found
                    await changed.wait()
        finally:
            self._session.unlisten(changed)
            self._nodes.unlisten(path, changed)
            self._folders.unlisten(path, changed)
            self._absences.unwatch(path)

    def _differ(self, folder: str, before: "_Set", now: "_Set") -> bool:
        """Whether the set changed, be it only for a moment; a folder without children is as good as none."""
        if before.children.names != now.children.names:
            return True
        if before.life is None or now.life is None or before.children.children_id == now.children.children_id:
            return False
        ours = self._absences.changes(folder, before.children.children_id, now.children.children_id)
        return before.life != now.life or now.changes - before.changes != ours

    async def _last_state(self, changed: asyncio.Event, read: Callable[[], Awaitable[_T]]) -> _T:
        """The state now; ``changed`` is set by whatever happens after the read."""
        attempts = 0
        while True:
            changed.clear()
            if self._session.is_lost:
                raise expired()
            try:
                return await read()
            except ConnectionLoss:
                attempts += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._backoff.pause_s(attempts)):
                        await changed.wait()

    async def _read_node(self, path: str) -> Node | None:
        place, watch = self._names.path(path), self._nodes.function(path)
        while True:
            answer = await self._calls.ask(self._calls.get(place, watch))
            if not isinstance(answer.exception, NoNodeError):
                return node_of(value(answer, path))
            if value(await self._calls.ask(self._calls.exists(place, watch)), path) is None:
                return None

    async def _read_children(self, path: str) -> "_Set":
        place = self._names.path(path)
        while True:
            answer = await self._calls.ask(self._calls.children(place, self._folders.function(path)))
            if not isinstance(answer.exception, NoNodeError):
                names, stat = value(answer, path)
                children = Children(names=self._names.children(path, names), children_id=stat.pzxid)
                return _Set(children=children, life=stat.czxid, changes=stat.cversion)
            answer = await self._calls.ask(self._calls.exists(place, self._nodes.function(path)))
            if value(answer, path) is None:
                return _Set(children=Children(names=(), children_id=answer.zxid), life=None, changes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """The children of a folder as read."""

    children: Children
    """What is answered of them."""
    life: int | None
    """The transaction that created the folder; None: there is none."""
    changes: int
    """How often a child came or went since then."""


def _identity(node: Node | None) -> tuple[int, int] | None:
    return None if node is None else (node.stat.creation_id, node.stat.modification_id)
