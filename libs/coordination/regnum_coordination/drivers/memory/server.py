"""The state that memory stores share, its sessions, its watches and its faults.

Faults, each a method, so that a test reads as a story:

    lose_reply      the next write happens, its answer does not arrive (safety rule S1)
    drop_write      the next write never happens, no answer arrives
    hold_write      no answer arrives; the write happens when the test says so, if ever: a late commit (safety rule S1)
    freeze_reads    reads without ``current`` answer from the past until ``thaw_reads``
    hold_watches    watches deliver nothing until ``release_watches``, then only the last state
    disconnect      nothing of a session gets through until ``reconnect``; it is SUSPENDED
    expire          ends a session; with ``announce=False`` its owner learns of it at its next write, or by ``announce``
    put_back        the store goes back to what ``snapshot`` gave, and all sessions end: a restored backup of its files
    compact         the history is gone; tree watches that have not answered all of it end
    overwrite       a hand edit from outside of every session; also strips an ephemeral node's owner (safety rule S7)
"""

import asyncio
import enum
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from regnum_coordination.drivers.memory.tree import Touched, Tree
from regnum_coordination.drivers.session_state import SessionStateFeed
from regnum_coordination.errors import BadVersion, Compacted, ConnectionLoss, NodeExists, NoNode, NotEmpty
from regnum_coordination.paths import check_written_path
from regnum_coordination.port import (
    Check,
    Expired,
    Fenced,
    Group,
    Outcome,
    Refused,
    SessionState,
    TreeChange,
    Written,
)

_FIRST_SESSION_ID: Final = 0x7000_0000_0000_0001

HISTORY: Final = 10_000
"""Changes that are kept for watches of trees; earlier ones are compacted away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What a store sends: groups that each happen or not, under one session and one fence."""

    session_id: int
    """Session that writes."""
    groups: tuple[Group, ...]
    """Groups; a multi is one."""
    fence: Check | None = None
    """Check that all groups share."""

    def touches(self, path: str) -> bool:
        """Whether any operation names the path."""
        return any(operation.path == path for group in self.groups for operation in group)


@dataclass(slots=True, kw_only=True)
class Session:
    """A session as the server sees it, and what its owner has been told."""

    id: int
    """Session id."""
    alive: bool = True
    """Whether the server still honours it."""
    feed: SessionStateFeed = field(default_factory=lambda: SessionStateFeed(SessionState.CONNECTED))
    """What the owner knows."""


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """Somebody who waits for changes of a node or of a folder's children."""

    session_id: int
    """Session that watches."""
    path: str
    """Node or folder."""
    of_children: bool = False
    """Whether the set of children is watched rather than the node."""
    of_tree: bool = False
    """Whether the node is watched with all that lies below it."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when something may be new."""


class HeldWrite:
    """A write whose sender has been told nothing and that has not happened yet."""

    def __init__(self, server: "MemoryServer") -> None:
        self._server = server
        self._transaction: Transaction | None = None
        self.arrived: Final = asyncio.Event()
        """Set when the write was sent."""

    def capture(self, transaction: Transaction) -> None:
        """Called by the server when the write comes."""
        self._transaction = transaction
        self.arrived.set()

    def commit(self) -> tuple[Outcome, ...]:
        """Let it happen now, if what it checks still holds."""
        if self._transaction is None:
            raise AssertionError("the held write has not been sent yet; await arrived first")
        return self._server.carry_out(self._transaction)


class _Fault(enum.Enum):
    LOSE_REPLY = "lose reply"
    DROP = "drop"
    HOLD = "hold"


@dataclass(slots=True, kw_only=True)
class _PlannedFault:
    kind: _Fault
    session_id: int | None
    touching: str | None
    held: HeldWrite | None = None

    def matches(self, transaction: Transaction) -> bool:
        return (self.session_id is None or self.session_id == transaction.session_id) and (
            self.touching is None or transaction.touches(self.touching)
        )


class MemoryServer:
    """The store that memory sessions share."""

    def __init__(self, *, groups_per_transaction: int = 64) -> None:
        self.groups_per_transaction: Final = groups_per_transaction
        """Groups of a batch that share a transaction, and so a fault."""
        self._tree = Tree()
        self._past: Tree | None = None
        self._sessions: dict[int, Session] = {}
        self._watches: dict[Watch, None] = {}
        """In the order they came, so that a simulation finds the same order each time."""
        self._watches_held = False
        self._delayed: dict[Watch, None] = {}
        self._faults: list[_PlannedFault] = []
        self._history: deque[TreeChange] = deque()
        self._compacted = 0

    # Sessions

    def open_session(self) -> Session:
        """A new session."""
        session = Session(id=_FIRST_SESSION_ID + len(self._sessions))
        self._sessions[session.id] = session
        return session

    def sessions(self) -> tuple[int, ...]:
        """Ids of the sessions that are alive, oldest first."""
        return tuple(id for id, session in self._sessions.items() if session.alive)

    def expire(self, session_id: int, *, announce: bool = True) -> None:
        """End a session: its ephemeral nodes go in one change."""
        session = self._sessions[session_id]
        if session.alive:
            session.alive = False
            if owned := self._tree.owned_by(session_id):
                self._notify(self._tree.remove(owned))
        if announce:
            self.announce(session_id)

    def announce(self, session_id: int) -> None:
        """Tell the owner that its session is over."""
        self._sessions[session_id].feed.set(SessionState.LOST)

    def disconnect(self, session_id: int) -> None:
        """From now on nothing of the session gets through; its owner sees SUSPENDED."""
        self._sessions[session_id].feed.set(SessionState.SUSPENDED)

    def reconnect(self, session_id: int) -> None:
        """Undo ``disconnect``; a session that ended meanwhile is LOST."""
        session = self._sessions[session_id]
        session.feed.set(SessionState.CONNECTED if session.alive else SessionState.LOST)
        for watch in self._watches:
            if watch.session_id == session_id:
                watch.changed.set()

    # Faults

    def lose_reply(self, *, times: int = 1, session_id: int | None = None, touching: str | None = None) -> None:
        """The next matching writes happen, and their answers are lost."""
        for _ in range(times):
            self._faults.append(_PlannedFault(kind=_Fault.LOSE_REPLY, session_id=session_id, touching=touching))

    def drop_write(self, *, times: int = 1, session_id: int | None = None, touching: str | None = None) -> None:
        """The next matching writes never happen, and no answer comes."""
        for _ in range(times):
            self._faults.append(_PlannedFault(kind=_Fault.DROP, session_id=session_id, touching=touching))

    def hold_write(self, *, session_id: int | None = None, touching: str | None = None) -> HeldWrite:
        """The next matching write gets no answer and happens when the test says so."""
        held = HeldWrite(self)
        self._faults.append(_PlannedFault(kind=_Fault.HOLD, session_id=session_id, touching=touching, held=held))
        return held

    def forget_faults(self) -> None:
        """Take back the faults that no write has met yet."""
        self._faults.clear()

    def freeze_reads(self) -> None:
        """Reads without ``current`` answer from this moment until ``thaw_reads``."""
        self._past = self._tree.copy()

    def thaw_reads(self) -> None:
        """Undo ``freeze_reads``."""
        self._past = None

    def hold_watches(self) -> None:
        """Watches deliver nothing until ``release_watches``."""
        self._watches_held = True

    def release_watches(self) -> None:
        """Undo ``hold_watches``: what changed meanwhile arrives as one last state."""
        self._watches_held = False
        for watch in self._watches:
            if watch.of_tree or watch in self._delayed:
                watch.changed.set()
        self._delayed.clear()

    def compact(self) -> None:
        """Forget all changes until now."""
        self._history.clear()
        self._compacted = self._tree.last_id
        for watch in self._watches:
            if watch.of_tree:
                watch.changed.set()

    def snapshot(self) -> Tree:
        """What the store holds, for ``put_back``."""
        return self._tree.copy()

    def put_back(self, snapshot: Tree) -> None:
        """Go back to an earlier state, ids of changes included; no session of that time or of now lives on."""
        self._tree = snapshot.copy()
        self._history.clear()
        self._compacted = self._tree.last_id
        for id, session in self._sessions.items():
            if owned := self._tree.owned_by(id):
                self._tree.remove(owned)
            session.alive = False
            self.announce(id)

    def overwrite(self, path: str, data: bytes) -> None:
        """Put a node from outside, as a person would: no session, no check, and an owner is stripped."""
        check_written_path(path)
        self._notify(self._tree.overwrite(path, data))

    # What stores call

    def reading(self, *, current: bool) -> Tree:
        """The nodes to answer a read from."""
        return self._tree if current or self._past is None else self._past

    def next_sequence(self, folder: str) -> int:
        """Number of the next sequential node of a folder."""
        return self._tree.next_sequence(folder)

    def send(self, transaction: Transaction) -> tuple[Outcome, ...]:
        """Carry out a transaction, or what the planned faults make of it; raises ConnectionLoss for no answer."""
        if self._sessions[transaction.session_id].feed.state is SessionState.SUSPENDED:
            raise ConnectionLoss("the session is disconnected; resolve by repeating (safety rule S1)")
        planned = next((fault for fault in self._faults if fault.matches(transaction)), None)
        if planned is None:
            return self.carry_out(transaction)
        self._faults.remove(planned)
        if planned.kind is _Fault.LOSE_REPLY:
            self.carry_out(transaction)
        elif planned.held is not None:
            planned.held.capture(transaction)
        raise ConnectionLoss("no answer; resolve by repeating (safety rule S1)")

    def carry_out(self, transaction: Transaction) -> tuple[Outcome, ...]:
        """Carry out a transaction; one outcome for each group."""
        session = self._sessions[transaction.session_id]
        if not session.alive:
            self.announce(session.id)
            return (Expired(),) * len(transaction.groups)
        if transaction.fence is not None and self._tree.refusal(transaction.fence) is not None:
            return (Fenced(),) * len(transaction.groups)
        return tuple(self._carry_out_group(group, session.id) for group in transaction.groups)

    def _carry_out_group(self, group: Group, session_id: int) -> Outcome:
        try:
            results, touched = self._tree.apply(group, session_id)
        except (NoNode, NodeExists, BadVersion, NotEmpty) as error:
            return Refused(error)
        self._notify(touched)
        return Written(results)

    def watch(self, watch: Watch) -> None:
        """Begin to watch."""
        self._watches[watch] = None

    def unwatch(self, watch: Watch) -> None:
        """Stop watching."""
        self._watches.pop(watch, None)
        self._delayed.pop(watch, None)

    def watches_open(self) -> int:
        """Number of open watches; a test asserts that none is left behind."""
        return len(self._watches)

    @property
    def watches_held(self) -> bool:
        """Whether watches deliver nothing at the moment."""
        return self._watches_held

    def changes(self, after: int) -> tuple[TreeChange, ...]:
        """All changes of the store after one of them; raises Compacted."""
        if after < self._compacted:
            raise Compacted("the history was compacted; read anew")
        missed = list(takewhile(lambda change: change.revision > after, reversed(self._history)))
        return tuple(reversed(missed))

    def _notify(self, touched: Touched) -> None:
        if len(self._history) == HISTORY:
            self._compacted = self._history.popleft().revision
        changed = {path: self._tree.get(path) for path in sorted(touched.nodes)}
        self._history.append(TreeChange(revision=self._tree.last_id, changed=changed))
        for watch in self._watches:
            if watch.of_tree or watch.path in (touched.folders if watch.of_children else touched.nodes):
                if self._watches_held:
                    self._delayed[watch] = None
                else:
                    watch.changed.set()
