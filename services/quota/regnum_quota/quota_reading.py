"""All quotas of the store, read in few round trips.

The newest change is read first: what is read afterwards is at least as new as the number says. What people wrote there
and nobody can read is logged and left out: a quota that cannot be read limits nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

import structlog
from regnum_coordination.errors import NoNode
from regnum_coordination.port import Node, Store
from regnum_model import quotas
from regnum_model.bucket import Limit
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import QuotaEntity, QuotaNode, QuotaTable

NODES_PER_READ: Final = 500
"""Nodes read and decoded between two turns of the event loop (safety rule S22)."""

FOLDERS_AT_A_TIME: Final = 50
"""Folders that are listed at the same time."""

_LOG = structlog.get_logger("quotas")


async def read_quotas(store: Store) -> QuotaTable:
    """Every quota. Raises ConnectionLoss, SessionExpired."""
    change = newest_change(await _names(store, quotas.CHANGES))
    limits: dict[QuotaEntity, Limit] = {}
    entities = await _entities(store)
    async for path, node in _nodes(store, tuple(entities)):
        try:
            limit = QuotaNode.decode(node.data).limit
        except MalformedNodeError as error:
            _LOG.error("quota ignored; set it again", path=path, reason=str(error))
            continue
        if limit is not None:
            limits[entities[path]] = limit
    return QuotaTable(limits=limits, change=change)


def newest_change(names: Iterable[str]) -> int:
    """Number of the newest change among nodes; 0 without one."""
    return max((number for name in names if (number := quotas.change_number(name)) is not None), default=0)


async def _entities(store: Store) -> dict[str, QuotaEntity]:
    """Whose quota may lie where."""
    clients, users = await _names(store, quotas.CLIENTS), await _names(store, quotas.USERS)
    found = {quotas.CLUSTER: QuotaEntity()}
    for some in _slices(clients, NODES_PER_READ):
        for name in some:
            _add(found, f"{quotas.CLIENTS}/{name}", client=name)
        await asyncio.sleep(0)
    for some in _slices(users, NODES_PER_READ):
        for name in some:
            _add(found, f"{quotas.USERS}/{name}", user=name)
        await asyncio.sleep(0)
    folders = {f"{quotas.USERS}/{name}/{quotas.CLIENTS_BELOW}": name for name in users}
    there = [path async for path, _ in _nodes(store, tuple(folders))]
    for some in _slices(there, FOLDERS_AT_A_TIME):
        for folder, names in zip(some, await asyncio.gather(*(_names(store, path) for path in some)), strict=True):
            for name in names:
                _add(found, f"{folder}/{name}", user=folders[folder], client=name)
    return found


def _add(found: dict[str, QuotaEntity], path: str, *, user: str | None = None, client: str | None = None) -> None:
    try:
        found[path] = QuotaEntity(
            user=None if user is None else quotas.decode_part(user),
            client_id=None if client is None else quotas.decode_part(client),
        )
    except MalformedNodeError as error:
        _LOG.error("quota ignored; delete it", path=path, reason=str(error))


async def _nodes(store: Store, paths: Sequence[str]) -> AsyncIterator[tuple[str, Node]]:
    for some in _slices(paths, NODES_PER_READ):
        for path, node in zip(some, await store.get_many(some, current=True), strict=True):
            if node is not None:
                yield path, node


async def _names(store: Store, folder: str) -> tuple[str, ...]:
    try:
        return (await store.children(folder, current=True)).names
    except NoNode:
        return ()


def _slices(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
