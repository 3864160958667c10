"""Keeps the tokens of a process as the store has them: read at the start of each session, and what is announced.

A process that cannot read goes on with what it knows, and ends what expires by the clock; of a token that is ended at
once it hears when it has a session again.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.stored_quotas import Reader, StoreReader
from regnum_coordination.timing import Backoff
from regnum_model.delegation_tokens import FOLDER, DelegationToken, is_token_id, path_of
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import CHANGES

from regnum_service.access.tokens.table import TokenTable
from regnum_service.clock import Clock
from regnum_service.slices import slices

NODES_PER_READ: Final = 500
"""Nodes read and decoded between two turns of the event loop (safety rule S22)."""

_PREFIX: Final = f"{FOLDER}/"


class TokenFollower:
    """Fills a table. Belongs to one event loop."""

    def __init__(self, table: TokenTable, clock: Clock, *, changed: Callable[[Iterable[str]], None]) -> None:
        """Only assigns.

        Args:
            table: what is filled.
            clock: paces the tries.
            changed: told the ids of tokens that came, went, or live longer or shorter now.
        """
        self._table: Final = table
        self._clock: Final = clock
        self._changed: Final = changed
        self._log: Final = structlog.get_logger("delegation tokens")
        self._complained: frozenset[str] = frozenset()
        self._is_known = False

    @property
    def is_known(self) -> bool:
        """Whether all tokens were read once."""
        return self._is_known

    async def follow(self, wait_store: Callable[[], Awaitable[Store]]) -> None:
        """Follow one session after another, for ever; a task of the supervisor."""
        backoff, attempts = Backoff(), 0
        while True:
            store = await wait_store()
            announced, reader = Announced(), StoreReader(store)
            try:
                async with aclosing(store.watch_children(CHANGES)) as changes:
                    async for children in changes:
                        paths = await announced.look(reader, children.names)
                        if paths is None:
                            await self._read_all(reader)
                        else:
                            ids = [path[len(_PREFIX) :] for path in paths if path.startswith(_PREFIX)]
                            await self._read([id for id in ids if is_token_id(id)], reader)
                        attempts = 0
            except (ConnectionLoss, SessionExpired) as error:
                self._log.info("tokens not followed; trying on", reason=str(error))
            attempts += 1
            await self._clock.sleep(backoff.pause_s(attempts))

    async def _read_all(self, reader: Reader) -> None:
        names = await reader.names(FOLDER)
        there = frozenset(names)
        gone = [id for id in self._table.ids() if id not in there]
        async for part in slices(gone, NODES_PER_READ):
            for id in part:
                self._table.drop(id)
            self._changed(part)
        async for some in slices(names, NODES_PER_READ):
            await self._read([name for name in some if is_token_id(name)], reader)
        self._is_known = True

    async def _read(self, ids: Sequence[str], reader: Reader) -> None:
        if not ids:
            return
        nodes = await reader.read_many([path_of(id) for id in ids])
        wrong: set[str] = set()
        for id in ids:
            node = nodes.get(path_of(id))
            self._table.drop(id)
            if node is None:
                continue
            try:
                self._table.put(DelegationToken.decode(id, node.data))
            except MalformedNodeError as error:
                wrong.add(id)
                if id not in self._complained:
                    self._log.error(
                        "delegation token ignored: its node cannot be read", path=path_of(id), why=str(error)
                    )
        self._complained = (self._complained - frozenset(ids)) | wrong
        self._changed(ids)
