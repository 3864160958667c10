"""The quotas in the store, as one reign reads them."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import structlog
from regnum_coordination.port import Node
from regnum_model.bucket import Limit
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import (
    CHANGES,
    CLIENTS,
    CLIENTS_BELOW,
    CLUSTER,
    USERS,
    QuotaEntity,
    QuotaNode,
    QuotaTable,
    change_number,
    decode_part,
)

from regnum_election.writing import FencedStore

FOLDERS_AT_ONCE: Final = 50
"""Folders of users that are listed at the same time."""

NODES_PER_TURN: Final = 500
"""Nodes that are decoded between two turns of the event loop (safety rule S22)."""

LOG: Final = structlog.get_logger("quotas")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuotas:
    """All quotas, as read at one time."""

    table: QuotaTable = field(default_factory=QuotaTable)
    """Limits by entity, and the newest change announced before."""
    nodes: Mapping[QuotaEntity, QuotaNode] = field(default_factory=dict)
    """What is set for each entity; those for whom nothing of ours is set are left out."""
    announced: frozenset[str] = frozenset()
    """Names of the nodes that announced changes before."""


async def read_quotas(store: FencedStore) -> StoredQuotas:
    """Read all quotas as of now. What cannot be read is logged and counts as not set. Raises DeposedError."""
    # First: a change announced while the rest is read is read again.
    announced = await store.names(CHANGES)
    entities = {path: entity for path in await _paths(store) if (entity := _entity(path)) is not None}
    nodes: dict[QuotaEntity, QuotaNode] = {}
    limits: dict[QuotaEntity, Limit] = {}
    for count, (path, found) in enumerate((await store.read_many(tuple(entities))).items(), 1):
        if count % NODES_PER_TURN == 0:
            await asyncio.sleep(0)
        node = _decoded(path, found)
        if node is None or not node.values:
            continue
        nodes[entities[path]] = node
        if node.limit is not None:
            limits[entities[path]] = node.limit
    return StoredQuotas(
        table=QuotaTable(limits=limits, change=newest(announced)), nodes=nodes, announced=frozenset(announced)
    )


def newest(names: Iterable[str]) -> int:
    """Highest number among nodes that announce changes; 0 when there is none."""
    return max((number for name in names if (number := change_number(name)) is not None), default=0)


async def _paths(store: FencedStore) -> list[str]:
    users, clients = await asyncio.gather(store.names(USERS), store.names(CLIENTS))
    # Few users have such a folder, and listing costs more than reading.
    folders = list(await store.read_many([f"{USERS}/{user}/{CLIENTS_BELOW}" for user in users]))
    pairs: list[str] = []
    for start in range(0, len(folders), FOLDERS_AT_ONCE):
        some = folders[start : start + FOLDERS_AT_ONCE]
        listed = await asyncio.gather(*(store.names(folder) for folder in some))
        pairs.extend(f"{folder}/{name}" for folder, names in zip(some, listed, strict=True) for name in names)
    return list(chain((CLUSTER,), (f"{USERS}/{user}" for user in users), (f"{CLIENTS}/{id}" for id in clients), pairs))


def _entity(path: str) -> QuotaEntity | None:
    """Whose node a path is; None for a name that nobody can have."""
    try:
        match path.split("/")[2:]:
            case ["users", user]:
                return QuotaEntity(user=decode_part(user))
            case ["clients", client_id]:
                return QuotaEntity(client_id=decode_part(client_id))
            case ["users", user, _, client_id]:
                return QuotaEntity(user=decode_part(user), client_id=decode_part(client_id))
            case _:
                return QuotaEntity()
    except MalformedNodeError as error:
        LOG.warning("quota ignored", path=path, reason=f"{error}; delete the node")
        return None


def _decoded(path: str, found: Node) -> QuotaNode | None:
    try:
        node = QuotaNode.decode(found.data)
        # Reads the limits too.
        _ = node.values, node.limit
    except MalformedNodeError as error:
        LOG.warning("quota ignored", path=path, reason=f"{error}; correct the node, or delete it")
        return None
    return node
