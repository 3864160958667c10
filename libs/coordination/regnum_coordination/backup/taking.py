"""Taking a backup: the tree is read page by page and goes out line by line.

On etcd all pages show one moment; on ZooKeeper each node is as it was at some time of the reading, and the plan of a
restore leaves nothing to chance there (``regnum_model.backup.plan``). Never more than a page is held.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from regnum_model import paths
from regnum_model.backup.lines import Entry, Header, LineWriter
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.backup.plan import KNOWN, PROCESSES
from regnum_model.nodes import MalformedNodeError

from regnum_coordination.errors import Compacted, NoNode
from regnum_coordination.paths import ROOT
from regnum_coordination.port import Node, Store, TreePage

LINES_PER_TURN: Final = 200
"""Lines made between two turns of the event loop."""

READINGS_MAX: Final = 3
"""How often the reading begins anew where the store has let go of the moment that was being read."""


class NoTreeError(Exception):
    """What the store holds is not to be backed up; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A backup that was taken."""

    header: Header
    nodes: int
    """Nodes in it, with those of processes."""
    bytes: int
    """Its size."""
    processes: int
    """Processes that were registered."""
    brokers: int
    """Brokers among them: what a restore knows of their logs."""
    topics: int
    """Topic nodes."""
    tokens: int
    """Nodes of delegation tokens: secrets."""


async def take_backup(
    store: Store,
    *,
    kind: str,
    regnum: str,
    wall_ms: Callable[[], int],
    begin: Callable[[], Callable[[bytes], object]],
    progress: Callable[[int], None],
) -> Taken:
    """Read the tree and write its lines.

    Args:
        store: an open session.
        kind: kind of the store, for the header.
        regnum: version of the program.
        wall_ms: time of day in ms since 1970.
        begin: called before each reading; returns what takes the bytes, at the beginning of an empty file.
        progress: told how many nodes there are by now, after each page.

    Raises:
        NoTreeError: there is no tree, or one that is not whole.
        Compacted: the store let go of what was being read, again and again.
        ConnectionLoss, SessionExpired: as the store's reads.
    """
    for _ in range(READINGS_MAX - 1):
        try:
            return await _take(store, kind, regnum, wall_ms(), begin(), progress)
        except Compacted:
            continue
    return await _take(store, kind, regnum, wall_ms(), begin(), progress)


async def _take(
    store: Store,
    kind: str,
    regnum: str,
    taken_ms: int,
    write: Callable[[bytes], object],
    progress: Callable[[int], None],
) -> Taken:
    cluster_id = await _cluster_of(store)
    lines = LineWriter()
    header: Header | None = None
    nodes = size = processes = brokers = topics = tokens = 0
    async with aclosing(store.read_tree(ROOT, current=True)) as pages:
        async for page in pages:
            if header is None:
                header = _header(page, cluster_id, kind, regnum, taken_ms)
                line = lines.header(header)
                size += len(line)
                write(line)
            for path, node in _in_order(page):
                entry = Entry(
                    path=path,
                    data=node.data,
                    version=node.stat.version,
                    live=node.stat.ephemeral_owner is not None,
                )
                line = lines.entry(entry)
                size += len(line)
                nodes += 1
                processes += entry.live and path.rpartition("/")[0] in PROCESSES
                brokers += entry.live and path.startswith(f"{paths.BROKER_IDS}/")
                topics += path.startswith(f"{paths.TOPICS}/") and path.count("/") == 3
                tokens += path.startswith("/delegation_tokens/")
                write(line)
                if nodes % LINES_PER_TURN == 0:
                    # The session has to be kept meanwhile.
                    await asyncio.sleep(0)
            progress(nodes)
    if header is None:
        raise AssertionError("a tree has at least one page")
    line = lines.end()
    write(line)
    return Taken(
        header=header,
        nodes=nodes,
        bytes=size + len(line),
        processes=processes,
        brokers=brokers,
        topics=topics,
        tokens=tokens,
    )


async def _cluster_of(store: Store) -> str:
    try:
        mark = RestoreMark.decode((await store.get(MARK, current=True)).data)
    except NoNode:
        mark = None
    except MalformedNodeError as error:
        raise NoTreeError(
            f"{MARK} cannot be read ({error}); look at it before this tree is used for anything"
        ) from None
    if mark is not None and not mark.whole:
        raise NoTreeError(
            "this tree is being restored and is not whole; run `regnum restore --execute` again until it ends"
        )
    try:
        node = await store.get(paths.CLUSTER_ID, current=True)
    except NoNode:
        raise NoTreeError(
            f"there is no tree of Regnum here ({paths.CLUSTER_ID} is missing); look at the URL and its prefix"
        ) from None
    cluster_id = node.data.decode("utf-8", errors="replace")
    if not cluster_id:
        raise NoTreeError(f"{paths.CLUSTER_ID} is empty; a restored cluster could not be told from others")
    return cluster_id


def _header(page: TreePage, cluster_id: str, kind: str, regnum: str, taken_ms: int) -> Header:
    return Header(
        cluster_id=cluster_id,
        store=kind,
        taken_ms=taken_ms,
        one_moment=page.revision is not None,
        revision=page.revision,
        regnum=regnum,
    )


def _in_order(page: TreePage) -> list[tuple[str, Node]]:
    """Nodes of the tree, parents first."""
    known = [(path, node) for path, node in page.nodes.items() if path.split("/", 2)[1] in KNOWN]
    return sorted(known, key=lambda item: item[0].split("/"))


async def tree_pages(store: Store, path: str) -> AsyncGenerator[list[tuple[str, Node]], None]:
    """A subtree's nodes, page by page, parents first."""
    async with aclosing(store.read_tree(path, current=True)) as pages:
        async for page in pages:
            yield sorted(page.nodes.items(), key=lambda item: item[0].split("/"))
