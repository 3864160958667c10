"""The port every driver implements: ZooKeeper's semantics, in asyncio, with names for each outcome.

What each operation needs from the store:

    compare-and-set      set, delete with a version, multi, write_batch
    create-if-absent     create, takeover of one's own node
    time-critical        session keep-alive, and the local deadline it maintains
    last state           watch_node, watch_children (changes may merge; the last state always arrives)
    every change         watch_tree, where ``tree_watch_offered``

Versions start at 0 when a node is created and grow by one with each set; they start again at 0 when a node is created
anew (safety rule S2). ``None`` as an expected version means "any version"; such writes are never repeated by a driver
(S1).

An operation that got no answer raises ConnectionLoss (S1); ``resolve`` in ``recipes.resolve`` repeats a conditional
one until the store gives a definite answer. A ZooKeeper-style path is absolute, has no empty parts, no "." or "..",
no NUL and no trailing slash.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from regnum_coordination.errors import ConnectionLoss


class SessionState(enum.Enum):
    """What is known of the session; the same meaning on every store."""

    CONNECTED = "connected"
    """The store confirmed the session and the local deadline has not passed."""
    SUSPENDED = "suspended"
    """No contact; the session may still be alive. Whoever must be sure of it stops acting."""
    LOST = "lost"
    """The session is over, or the local deadline passed without word from the store. Final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What the store knows of a node besides its data."""

    creation_id: int
    """Creation zxid or create revision: unique over the whole store and growing."""
    modification_id: int
    """Zxid or revision of the last change of the data."""
    version: int
    """Number of sets since creation, from 0."""
    children_id: int
    """ZooKeeper: zxid of the last change of the children (pzxid). etcd: revision of the read. Never goes back."""
    ephemeral_owner: int | None
    """Session id that owns the node; None for a persistent one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as read."""

    data: bytes
    """Its content."""
    stat: Stat
    """Its stat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The children of a folder as read."""

    names: tuple[str, ...]
    """Last path parts, sorted."""
    children_id: int
    """As in Stat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePage:
    """A part of a subtree as read. A node comes in the same page as what lies below it, or in an earlier one."""

    nodes: Mapping[str, Node]
    """Nodes by path; the subtree's uppermost node is one of them, the root of the store is none."""
    revision: int | None
    """The moment of the read, where a tree watch is offered: all pages of one read share it, and a watch that begins
    after it misses nothing. None on other stores, whose pages show each node as it was at some time of the read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChange:
    """One transaction's changes in a subtree."""

    revision: int
    """Its revision; ``modification_id`` of what it wrote, and of each change greater than of the one before."""
    changed: Mapping[str, Node | None]
    """Each node that it wrote, with its data and versions; None for one that it deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A node that was created."""

    path: str
    """Its path; differs from the one asked for when sequential."""
    stat: Stat
    """Its stat."""


@dataclass(frozen=True, slots=True)
class Check:
    """Requires a node to exist, at ``version`` unless that is None."""

    path: str
    """Absolute path."""
    version: int | None = None
    """Expected version; None means any."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Requires that there is no such node, which holds where its parent is missing.

    Otherwise the group fails with NodeExists; below an ephemeral node with NoNode, as a Create there does.
    """

    path: str
    """Absolute path; no other operation of the group may write it."""


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node whose parent exists."""

    path: str
    """Absolute path."""
    data: bytes
    """Content."""
    ephemeral: bool = False
    """Whether it ends with the session."""


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces the data of a node."""

    path: str
    """Absolute path."""
    data: bytes
    """Content."""
    version: int | None
    """Expected version; None means any."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children."""

    path: str
    """Absolute path."""
    version: int | None
    """Expected version; None means any."""


Operation = Check | Absent | Create | Set | Delete
"""One step of a multi."""

Group = tuple[Operation, ...]
"""A few checks and one or two writes that happen together or not at all. A group writes a path at most once."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What one operation of a multi or a written group left behind."""

    path: str
    """Its path."""
    stat: Stat | None
    """Stat after a Create or Set; None after Check, Absent and Delete."""


@dataclass(frozen=True, slots=True)
class Written:
    """The group happened."""

    results: tuple[OperationResult, ...]
    """One for each operation, in order."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The group did not happen because of one node."""

    error: Exception
    """NodeExists, NoNode, NotEmpty or BadVersion, with the path of the first operation that failed; InvalidRequest
    where the store can never take the group. From ``recipes.resolve`` also NoAuth."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The group did not happen because the check that all groups share failed: the writer's reign is over."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The group did not happen because the session is over."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The group may have happened, may not, or may yet happen (safety rule S1)."""

    because: ConnectionLoss | None = field(default=None, compare=False)
    """Why there is no answer, where a driver says it; NoAuth: this attempt did nothing."""


Outcome = Written | Refused | Fenced | Expired | Unknown
"""What became of one group of a batch."""


class Store(ABC):
    """One session with a coordination store. Made by ``open_store``; owned by the process's composition root.

    All methods may be called from the event loop the store was opened on, concurrently. Every method is bounded in
    time (the operation time-out given at opening) and raises only what ``errors`` names. Once the session is LOST
    every operation, reads too, raises SessionExpired. Path parts ``.sessions`` and ``.sequences`` below the root are
    kept by the drivers.
    """

    @property
    @abstractmethod
    def session_id(self) -> int:
        """Id of the session; equals ``ephemeral_owner`` of its nodes."""

    @property
    @abstractmethod
    def session_state(self) -> SessionState:
        """What is known of the session at this moment; takes the local deadline into account."""

    @abstractmethod
    async def wait_lost(self) -> None:
        """Return when the session is LOST. Any number of tasks may wait."""

    @abstractmethod
    def session_states(self) -> AsyncGenerator[SessionState, None]:
        """The present state and then every change, ending after LOST."""

    @abstractmethod
    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        """Create a node. ``sequential`` appends ten digits that grow; ``make_parents`` creates missing parents, empty.

        Raises NodeExists, NoNode (no parent), SessionExpired, ConnectionLoss.
        """

    @abstractmethod
    async def get(self, path: str, *, current: bool = False) -> Node:
        """Read a node; ``current`` never answers from the past (ZooKeeper: behind a void transaction).

        Raises NoNode, ConnectionLoss.
        """

    @abstractmethod
    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Read many nodes in few round trips, not as one snapshot.

        One answer for each path, in order; None where there is no node. Raises ConnectionLoss.
        """

    @abstractmethod
    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """Stat of a node, None if there is none. Raises ConnectionLoss."""

    @abstractmethod
    async def children(self, path: str, *, current: bool = False) -> Children:
        """Names of a folder's children; never reads deeper. Raises NoNode, ConnectionLoss."""

    @abstractmethod
    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """Replace data.

        An ephemeral node stays ephemeral. Raises NoNode, BadVersion, SessionExpired, ConnectionLoss.
        """

    @abstractmethod
    async def delete(self, path: str, *, version: int | None) -> None:
        """Delete a node. Raises NoNode, BadVersion, NotEmpty, SessionExpired, ConnectionLoss."""

    async def delete_below(self, path: str) -> None:
        """Delete everything below a node that must go, whatever its versions; in vain while others add to it.

        A store in which keys may lie where no listing shows them deletes these too. Raises NoNode, BadVersion and
        NotEmpty where others change it meanwhile, SessionExpired, ConnectionLoss.
        """
        waiting = [path]
        while waiting:
            folder = waiting[-1]
            names = (await self.children(folder, current=True)).names
            if names:
                waiting.extend(f"{folder}/{name}" for name in names)
                continue
            waiting.pop()
            if folder != path and (stat := await self.exists(folder, current=True)) is not None:
                await self.delete(folder, version=stat.version)

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none.

        Raises what the first failing operation raises, or InvalidRequest for a path written twice.
        """

    @abstractmethod
    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Many independent small groups, packed into as few transactions as the store allows (safety rule S4).

        ``fence`` is checked in the same transaction as every group. One outcome for each group, in order; a conflict
        in one never fails its neighbours. Groups that write a path which an earlier group writes go into a later
        transaction. Raises only InvalidRequest, for the whole batch, when one of its groups can never succeed
        (``recipes.resolve`` makes an outcome of it); everything else is an outcome.
        """

    @abstractmethod
    def watch_node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The present state of a node (None: absent) and then its changes.

        Changes may merge; the last state always arrives, also after a reconnect. Ends by raising SessionExpired.
        Close the iterator (``aclose``) to stop watching.
        """

    @abstractmethod
    def watch_children(self, path: str) -> AsyncGenerator[Children, None]:
        """The present children of a folder (absent folder: none) and then one answer after every change of the set.

        A change is also a child that was removed and created again between two answers. Changes may merge; the last
        state always arrives. Ends by raising SessionExpired.
        """

    @property
    @abstractmethod
    def tree_watch_offered(self) -> bool:
        """Whether ``watch_tree`` can be asked for and pages of ``read_tree`` have a revision; never changes."""

    @abstractmethod
    def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """A node and everything below it, in pages that take few milliseconds each; at least one page.

        Where a tree watch is offered all pages show one moment. Nodes whose parent does not exist, which only people
        can make, may be among them. Raises ConnectionLoss, SessionExpired, and Compacted: begin again in each case but
        the second. Close the iterator (``aclose``) to stop reading.
        """

    @abstractmethod
    def watch_tree(self, path: str, *, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """All changes of a node and of everything below it after a revision, none merged, in order.

        Goes on by itself after a lost connection. So whoever writes a node of the tree and then meets that write here
        has met everything that happened before it. Raises Compacted when changes are gone that were not answered yet
        (read the tree anew), SessionExpired, and InvalidRequest where no tree watch is offered.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once where the store can be reached. Idempotent."""
