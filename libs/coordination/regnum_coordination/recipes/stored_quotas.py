"""All quotas of the store, read in few round trips.

The newest change is read first: what is read afterwards is at least as new as the number says. What people wrote there
and nobody can read is logged and left out, each limit by itself: one that cannot be read limits nobody, and those that
stand beside it in its node count.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from regnum_model import quotas
from regnum_model.bucket import Limit, Windows
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import DEFAULT_WINDOWS, QuotaEntity, QuotaNode, QuotaTable

from regnum_coordination.errors import NoNode
from regnum_coordination.port import Node, Store

NODES_PER_READ: Final = 500
"""Nodes read and decoded between two turns of the event loop (safety rule S22)."""

FOLDERS_AT_A_TIME: Final = 50
"""Folders that are listed at the same time."""

_REMEDY: Final = f"correct or delete the node, then create a node of any new name below {quotas.CHANGES}"
"""What a person has to do: nobody looks before it is announced."""

_LOG = logging.getLogger(__name__)


class Reader(Protocol):
    """Reads that are never stale."""

    async def names(self, folder: str) -> tuple[str, ...]:
        """Children of a folder; none when there is no folder."""

    async def read_many(self, wanted: Sequence[str]) -> Mapping[str, Node]:
        """The nodes that exist, by path."""


class StoreReader:
    """Reader over a store, as it is. Raises what the store raises."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def names(self, folder: str) -> tuple[str, ...]:
        """Children of a folder; none when there is no folder."""
        try:
            return (await self._store.children(folder, current=True)).names
        except NoNode:
            return ()

    async def read_many(self, wanted: Sequence[str]) -> Mapping[str, Node]:
        """The nodes that exist, by path."""
        nodes = await self._store.get_many(wanted, current=True)
        return {path: node for path, node in zip(wanted, nodes, strict=True) if node is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuotas:
    """All quotas, as read at one time."""

    table: QuotaTable = field(default_factory=QuotaTable)
    """Limits by entity, and the newest change announced before."""
    nodes: Mapping[QuotaEntity, QuotaNode] = field(default_factory=dict)
    """What is set for each entity; those for whom nothing of ours is set are left out."""
    silent: tuple[str, ...] = ()
    """Nodes that say nothing, and stand for the mutations that they know."""
    announced: frozenset[str] = frozenset()
    """Names of the nodes that announced changes before."""


class Complaints:
    """What cannot be read, said once for as long as it stays so: all quotas are read with every change of one."""

    def __init__(self) -> None:
        """Only assigns."""
        self._before: frozenset[str] = frozenset()
        self._now: set[str] = set()

    def add(self, text: str) -> None:
        """This is so at present."""
        if text not in self._before and text not in self._now:
            _LOG.error("%s; %s", text, _REMEDY)
        self._now.add(text)

    def end(self) -> None:
        """All was read: what was not complained of is in order."""
        self._before, self._now = frozenset(self._now), set()


async def read_quotas(reader: Reader, complaints: Complaints | None = None) -> StoredQuotas:
    """Read every quota as of now. Raises what the reader raises.

    Args:
        reader: reads.
        complaints: keeps what was said of unreadable ones from one reading to the next; None: it is said again.
    """
    complaints = complaints or Complaints()
    announced = await reader.names(quotas.CHANGES)
    nodes: dict[QuotaEntity, QuotaNode] = {}
    limits: dict[QuotaEntity, Limit] = {}
    client_rates: dict[str, dict[QuotaEntity, float]] = {}
    silent: list[str] = []
    windows = await _windows(reader, complaints)
    entities = await _entities(reader, complaints)
    async for path, found in _nodes(reader, tuple(entities)):
        try:
            node, wrong = QuotaNode.decode(found.data).readable()
        except MalformedNodeError as error:
            complaints.add(f"quota {path} ignored: {error}")
            continue
        for reason in wrong:
            complaints.add(f"one limit of quota {path} ignored: {reason}")
        if node.values:
            nodes[entities[path]] = node
        if not node.config and not wrong and found.data:
            silent.append(path)
        limit = node.limit(windows)
        if limit is not None:
            limits[entities[path]] = limit
        if entities[path] != QuotaEntity():
            for key, rate in node.client_rates.items():
                client_rates.setdefault(key, {})[entities[path]] = rate
    complaints.end()
    table = QuotaTable(limits=limits, client_rates=client_rates, windows=windows, change=newest_change(announced))
    return StoredQuotas(table=table, nodes=nodes, silent=tuple(silent), announced=frozenset(announced))


def newest_change(names: Iterable[str]) -> int:
    """Number of the newest change among nodes; 0 without one."""
    return max((number for name in names if (number := quotas.change_number(name)) is not None), default=0)


async def _windows(reader: Reader, complaints: Complaints) -> Windows:
    """What the cluster says of windows: before any quota, for bursts follow from them."""
    path = QuotaEntity().path
    found = (await reader.read_many((path,))).get(path)
    try:
        return DEFAULT_WINDOWS if found is None else QuotaNode.decode(found.data).windows
    except MalformedNodeError as error:
        complaints.add(f"windows of quotas as if nobody had set them: {path}: {error}")
        return DEFAULT_WINDOWS


async def _entities(reader: Reader, complaints: Complaints) -> dict[str, QuotaEntity]:
    """Whose quota may lie where."""
    clients, users = await asyncio.gather(reader.names(quotas.CLIENTS), reader.names(quotas.USERS))
    found = {QuotaEntity().path: QuotaEntity()}
    for some in _slices(clients, NODES_PER_READ):
        for name in some:
            _add(found, complaints, f"{quotas.CLIENTS}/{name}", client=name)
        await asyncio.sleep(0)
    for some in _slices(users, NODES_PER_READ):
        for name in some:
            _add(found, complaints, f"{quotas.USERS}/{name}", user=name)
        await asyncio.sleep(0)
    folders = {f"{quotas.USERS}/{name}/{quotas.CLIENTS_BELOW}": name for name in users}
    there = [path async for path, _ in _nodes(reader, tuple(folders))]
    for some in _slices(there, FOLDERS_AT_A_TIME):
        for folder, names in zip(some, await asyncio.gather(*(reader.names(path) for path in some)), strict=True):
            for name in names:
                _add(found, complaints, f"{folder}/{name}", user=folders[folder], client=name)
    return found


def _add(
    found: dict[str, QuotaEntity],
    complaints: Complaints,
    path: str,
    *,
    user: str | None = None,
    client: str | None = None,
) -> None:
    try:
        found[path] = QuotaEntity(
            user=None if user is None else quotas.decode_part(user),
            client_id=None if client is None else quotas.decode_part(client),
        )
    except MalformedNodeError as error:
        complaints.add(f"quota {path} ignored: {error}")


async def _nodes(reader: Reader, paths: Sequence[str]) -> AsyncIterator[tuple[str, Node]]:
    for some in _slices(paths, NODES_PER_READ):
        nodes = await reader.read_many(some)
        await asyncio.sleep(0)
        for path, node in nodes.items():
            yield path, node


def _slices(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
