"""Restoring a backup into a store: beside nobody, nothing by halves, and from the start again when it was cut off.

Goals: no process ever uses a tree of which a part is missing; two restores at once do not mix; a restore that was
killed is simply run again.

Constraint: a process may start at any moment of it, also one that knows nothing of restores.

Algorithm: nobody may be registered. ``/restored`` is created, or taken over from a restore that was cut off, which
moves its version; every write of this restore is fenced by that version. It is looked again whether anybody is
registered: whoever won an election before the mark stood is seen, and whoever wins after it reads the mark and lets go.
What is left of the former tree goes. ``/controller_epoch`` comes first, and gives way to one that somebody has written
meanwhile. Then everything else, parents first. At the end it is looked again whether anybody is registered, and one
transaction marks the tree as whole, gives it an id of its own, by which brokers know that their logs go on, and writes
``/cluster/id``, without which no broker registers.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from regnum_model import paths
from regnum_model.backup.nodes import MARK, Numbers, RestoreMark
from regnum_model.backup.plan import KNOWN, PROCESSES, SEATS, Write
from regnum_model.nodes import MalformedNodeError, ProducerIdBlockNode, decode_controller_epoch

from regnum_coordination.backup.taking import tree_pages
from regnum_coordination.errors import ConnectionLoss, NodeExists, NodeFailure, NoNode, SessionExpired
from regnum_coordination.paths import ROOT
from regnum_coordination.port import (
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Operation,
    Outcome,
    Refused,
    Set,
    Store,
    Written,
)
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Clock

WRITES_TOGETHER: Final = 1_000
"""Nodes of one batch."""

ANSWER_S_MAX: Final = 60.0
"""How long a batch may stay without a definite answer."""

CLUSTER_FOLDER: Final = paths.CLUSTER_ID.split("/")[1]
"""What holds the cluster's id."""

NAMED_MAX: Final = 5
"""Processes, or nodes, that a message names."""


class RestoreRefusedError(Exception):
    """Nothing was restored, or the restore was ended; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the store holds before a restore."""

    cluster_id: str | None
    """Cluster whose tree is there; None: no tree says."""
    mark: RestoreMark | None
    """Mark of an earlier restore."""
    mark_version: int | None
    """Its version."""
    has_tree: bool
    """Whether there is anything of a tree, besides the mark."""
    topics: int
    """Topics of it."""
    processes: tuple[str, ...]
    """Nodes of processes that are registered."""
    former: Numbers = field(default_factory=Numbers)
    """How far it has come, or the one had that a restore which was cut off took the place of."""

    @property
    def is_cut_off(self) -> bool:
        """Whether what is there is a restore that did not end."""
        return self.mark is not None and not self.mark.whole


async def look(store: Store) -> Found:
    """See what is there, as of now. Raises RestoreRefusedError, ConnectionLoss, SessionExpired."""
    tops = (await store.children(ROOT, current=True)).names
    mark, mark_version = None, None
    try:
        node = await store.get(MARK, current=True)
        mark, mark_version = RestoreMark.decode(node.data), node.stat.version
    except NoNode:
        pass
    except MalformedNodeError as error:
        raise RestoreRefusedError(f"{MARK} cannot be read ({error}); look at it, and delete it by hand") from None
    cluster_id = None
    with suppress(NoNode):
        cluster_id = (await store.get(paths.CLUSTER_ID, current=True)).data.decode("utf-8", errors="replace")
    return Found(
        cluster_id=cluster_id,
        mark=mark,
        mark_version=mark_version,
        has_tree=any(name in KNOWN or f"/{name}" in SEATS for name in tops),
        topics=len(await _names(store, paths.TOPICS)),
        processes=await registered(store),
        # What was written of one that was cut off has been used by nobody, and the former tree's may be gone.
        former=await _numbers(store) if mark is None or mark.whole else mark.former,
    )


async def _numbers(store: Store) -> Numbers:
    """How far the numbers of a tree have come; what nobody can read counts for nothing."""
    epoch = first = 0
    with suppress(NoNode, MalformedNodeError):
        epoch = decode_controller_epoch((await store.get(paths.CONTROLLER_EPOCH, current=True)).data)
    with suppress(NoNode, MalformedNodeError):
        block = ProducerIdBlockNode.decode((await store.get(paths.PRODUCER_ID_BLOCK, current=True)).data)
        first = block.first + block.count
    return Numbers(controller_epoch=epoch, producer_id=first)


async def registered(store: Store) -> tuple[str, ...]:
    """Nodes of processes, as of now."""
    found = [f"{folder}/{name}" for folder in PROCESSES for name in await _names(store, folder)]
    found += [path for path in SEATS if await store.exists(path, current=True) is not None]
    return tuple(found)


async def _names(store: Store, folder: str) -> tuple[str, ...]:
    try:
        return (await store.children(folder, current=True)).names
    except NoNode:
        return ()


def objection(found: Found, cluster_id: str, *, replace_tree: bool) -> str | None:
    """Why nothing may be restored into what was found; None: it may be.

    Args:
        found: what is there.
        cluster_id: cluster of the backup.
        replace_tree: whether a tree that stands there is to go.
    """
    if found.processes:
        return (
            f"{_named(found.processes)} in this store: a process runs. Stop every process of the cluster, wait for its "
            "session to end (6 s by default), and try again"
        )
    if found.is_cut_off or not found.has_tree:
        return None
    whose = "of which nobody knows the cluster" if found.cluster_id is None else f"of cluster {found.cluster_id}"
    if not replace_tree:
        already = "" if found.mark is None else ", restored already (`regnum status` tells more when it runs)"
        return (
            f"there is a tree {whose} in this store, with {found.topics} topics{already}; give the URL of an empty "
            "store or another prefix, or --replace if that tree is to be deleted"
        )
    if found.cluster_id != cluster_id and found.topics:
        return (
            f"the tree in this store is one {whose}, with {found.topics} topics, and the backup is of cluster "
            f"{cluster_id}; --replace takes no other cluster's place. Give another store or prefix"
        )
    return None


class Restore:
    """One restore; ``begin``, ``write`` as often as there is something, ``end``."""

    def __init__(self, store: Store, clock: Clock, *, mark: RestoreMark, progress: Callable[[int], None]) -> None:
        """Only assigns.

        Args:
            store: an open session.
            clock: source of time.
            mark: of this restore; not whole.
            progress: told how many nodes were written by now.
        """
        self._store: Final = store
        self._resolver: Final = Resolver(store, clock)
        self._mark: Final = mark
        self._progress: Final = progress
        self._fence: Check | None = None
        self._written = 0
        self.deleted = 0
        """Nodes of the former tree that went."""
        self.left_out: Final[list[str]] = []
        """Nodes that the store does not take, with the reason: without a parent, or too large for it."""

    async def begin(self, found: Found, first: Write) -> None:
        """Mark the store, remove what is left of the former tree, write the controller epoch.

        Raises RestoreRefusedError, ConnectionLoss, SessionExpired; as ``write`` and ``end`` do.
        """
        data = self._mark.encode()
        operation = Create(MARK, data) if found.mark_version is None else Set(MARK, data, found.mark_version)
        try:
            (marked,) = await self._resolver.multi([operation], deadline_s=ANSWER_S_MAX)
        except NodeFailure as error:
            raise _another(error) from None
        if marked.stat is None:
            raise AssertionError("a create and a set leave stats")
        self._fence = Check(MARK, marked.stat.version)
        # Who won before the mark stood is still there, and the versions of a tree written anew may be those it knows.
        await self._beside_nobody()
        await self._clear()
        await self.write([first])

    async def write(self, writes: Sequence[Write]) -> None:
        """Create these nodes; parents come before what lies below them."""
        groups: list[Group] = [(Create(one.path, one.data),) for one in writes]
        for one, outcome in zip(writes, await self._batch(groups), strict=True):
            if isinstance(outcome, Written):
                self._written += 1
                continue
            error = outcome.error if isinstance(outcome, Refused) else None
            if one.path.rpartition("/")[0] == paths.TOPICS and not isinstance(error, NodeExists):
                # Its guard without it would be an order to delete what brokers have of it.
                raise RestoreRefusedError(
                    f"the store does not take the topic {one.path} ({error}); restore into one that does. What was "
                    "written is used by nobody"
                )
            if isinstance(error, NodeExists):
                raise RestoreRefusedError(
                    f"{one.path} was written by somebody else meanwhile: a process runs. Stop every process of the "
                    "cluster and run the restore again; what it has written so far is used by nobody"
                )
            self.left_out.append(f"{one.path}: {error}")
        self._progress(self._written)

    async def end(self, cluster_id: str, *, mark: RestoreMark) -> None:
        """Let the tree be used.

        Args:
            cluster_id: cluster of the backup.
            mark: of this restore, with everything that it says; it becomes whole.
        """
        await self._beside_nobody()
        if self._fence is None or self._fence.version is None:
            raise AssertionError("a restore begins before it ends")
        operations: list[Operation] = [
            # A version that moved is somebody's win.
            Check(paths.CONTROLLER_EPOCH, 0),
            Set(MARK, replace(mark, whole=True).encode(), self._fence.version),
            Create(paths.TREE_ID, mark.run.encode()),
            Create(paths.CLUSTER_ID, cluster_id.encode()),
        ]
        try:
            await self._resolver.multi(operations, deadline_s=ANSWER_S_MAX)
        except NodeFailure as error:
            raise _another(error) from None

    async def _beside_nobody(self) -> None:
        if running := await registered(self._store):
            raise _started(running)

    async def _clear(self) -> None:
        """Delete the former tree, what lies below before what it lies in."""
        tops = (await self._store.children(ROOT, current=True)).names
        # The cluster's id first: without it no broker registers, should this be cut off.
        for top in sorted(KNOWN.intersection(tops), key=lambda name: (name != CLUSTER_FOLDER, name)):
            found: list[tuple[str, int]] = []
            async for nodes in tree_pages(self._store, f"/{top}"):
                if live := [path for path, node in nodes if node.stat.ephemeral_owner is not None]:
                    raise _started(live)
                found += [(path, node.stat.version) for path, node in nodes]
            found.sort(key=lambda one: one[0].count("/"), reverse=True)
            for start in range(0, len(found), WRITES_TOGETHER):
                some = found[start : start + WRITES_TOGETHER]
                groups: list[Group] = [(Delete(path, version),) for path, version in some]
                for (path, _), outcome in zip(some, await self._batch(groups), strict=True):
                    error = outcome.error if isinstance(outcome, Refused) else None
                    if error is not None and not isinstance(error, NoNode):
                        raise RestoreRefusedError(
                            f"{path} cannot be deleted ({error}): somebody writes into this store. Stop every process "
                            "of the cluster and run the restore again"
                        )
                self.deleted += len(some)

    async def _batch(self, groups: Sequence[Group]) -> tuple[Outcome, ...]:
        outcomes = await self._resolver.write_batch(groups, fence=self._fence, deadline_s=ANSWER_S_MAX)
        for outcome in outcomes:
            if isinstance(outcome, Fenced):
                raise RestoreRefusedError("another restore has begun in this store; let one of them end")
            if isinstance(outcome, Expired):
                raise SessionExpired("the session with the store is over; run the restore again")
            if not isinstance(outcome, Written | Refused):
                raise ConnectionLoss("the store does not answer; run the restore again")
        return outcomes


def _started(running: Sequence[str]) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"{_named(running)} meanwhile: a process was started. Stop it and run the restore again; what was written is "
        "used by nobody"
    )


def _another(error: NodeFailure) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"another restore has begun in this store, or a process was started ({error}); let one of them end, stop every "
        "process, and run the restore again"
    )


def _named(nodes: Iterable[str]) -> str:
    all_ = list(nodes)
    more = f" and {len(all_) - NAMED_MAX} more" if len(all_) > NAMED_MAX else ""
    return f"{', '.join(all_[:NAMED_MAX])}{more} {'stands' if len(all_) == 1 else 'stand'}"
