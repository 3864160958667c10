"""Which children of a folder changed, so that one that changed costs one read, and not one for each that did not.

Goals: every child that came, went, was written or was made anew is named after that; also one that went and came back
between two looks, of which a list of names tells nothing (safety rule S10).

Constraints: a store without tree watches (ZooKeeper) tells that the set of children changed, and not how; its watches
of nodes tell of one change each and are set again by the next read.

Algorithm: with tree watches, a watch of the folder's tree from a read of it; when it is compacted away, anything may
have changed, and a new one begins. Without, a watch of the set and one of each child in it. The answer that anything
may have changed comes when all of these are set, so that whoever reads after it misses nothing.

Example: broker 7 of 1,000 restarts: {"7"}, once or twice; nothing is said of the others.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from regnum_coordination.errors import Compacted, ConnectionLoss
from regnum_coordination.paths import folder_prefix
from regnum_coordination.port import Store
from regnum_coordination.timing import Backoff, Clock


async def changed_children(
    store: Store, folder: str, clock: Clock, *, backoff: Backoff | None = None
) -> AsyncGenerator[frozenset[str] | None, None]:
    """Names of children to read; None: all of them, and what is in no listing is gone. The first answer is None.

    Names merge while nobody asks. Ends by raising SessionExpired. Close the iterator (``aclose``) to stop watching.
    """
    changes = (
        _of_tree(store, folder, clock, Backoff() if backoff is None else backoff)
        if store.tree_watch_offered
        else _NodeWatches(store, folder).names()
    )
    async with aclosing(changes) as answers:
        async for answer in answers:
            yield answer


async def _of_tree(
    store: Store, folder: str, clock: Clock, backoff: Backoff
) -> AsyncGenerator[frozenset[str] | None, None]:
    prefix, attempts = folder_prefix(folder), 0
    while True:
        try:
            revision = 0
            async with aclosing(store.read_tree(folder)) as pages:
                async for page in pages:
                    revision = page.revision or revision
            attempts = 0
            yield None
            async with aclosing(store.watch_tree(folder, after_revision=revision)) as changes:
                async for change in changes:
                    below = [path[len(prefix) :] for path in change.changed if path.startswith(prefix)]
                    if names := frozenset(name for name in below if "/" not in name):
                        yield names
        except Compacted:
            continue
        except ConnectionLoss:
            attempts += 1
            await clock.sleep(backoff.pause_s(attempts))


class _NodeWatches:
    """A watch of the set of children, and one of each child; used once."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._children: dict[str, asyncio.Task[None]] = {}
        self._unset: set[str] | None = None
        """Children of the first listing whose watch is not set yet; None before the listing."""
        self._names: set[str] = set()
        self._news = asyncio.Event()

    async def names(self) -> AsyncGenerator[frozenset[str] | None, None]:
        listing = asyncio.create_task(self._list(), name=f"children of {self._folder}")
        listing.add_done_callback(lambda _: self._news.set())
        began = False
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                for task in (listing, *self._children.values()):
                    if task.done():
                        task.result()
                        raise AssertionError("a watch ends by raising")
                if not began and self._unset is not None and not self._unset:
                    began = True
                    self._names.clear()
                    yield None
                elif began and self._names:
                    names = frozenset(self._names)
                    self._names.clear()
                    yield names
        finally:
            tasks = (listing, *self._children.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _list(self) -> None:
        async with aclosing(self._store.watch_children(self._folder)) as sets:
            async for children in sets:
                names = set(children.names)
                if self._unset is None:
                    self._unset = set(names)
                for name in self._children.keys() - names:
                    self._end(name)
                for name in sorted(names - self._children.keys()):
                    self._begin(name)
                self._news.set()

    def _begin(self, name: str) -> None:
        watching = asyncio.create_task(self._watch(name), name=f"child {name} of {self._folder}")
        watching.add_done_callback(self._ended)
        self._children[name] = watching

    def _end(self, name: str) -> None:
        self._children.pop(name).cancel()
        self._tell(name)

    def _ended(self, _watching: asyncio.Task[None]) -> None:
        # Also where it was cancelled, from outside: one that is watched no more is no longer among the children.
        self._news.set()

    async def _watch(self, name: str) -> None:
        async with aclosing(self._store.watch_node(folder_prefix(self._folder) + name)) as states:
            # Also the first state: it says that the watch is set, and is news of a child that has just come.
            async for _ in states:
                self._tell(name)

    def _tell(self, name: str) -> None:
        if self._unset:
            self._unset.discard(name)
        self._names.add(name)
        self._news.set()
