"""Sessions with the memory store whose calls take time, and whose end is a matter of time.

A session lives as long as its process is heard: one that is dead, paused or cut off for the session time-out is
expired by the server. A process that is cut off sees SUSPENDED at once, and the end of its session at that time, as it
has a clock of its own; one that was paused learns of it when it goes on.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.drivers.memory.tree import Tree
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Check, Group, Node, Outcome, SessionState, Unknown, Written

from regnum_testing.simulation.judging.writes import StoreWrite, Writes
from regnum_testing.simulation.loop import Process, SimulatedLoop

STORE: Final = "store"
"""Name of the store, where links to it are cut."""
OPENING_S: Final = 0.5
"""What an attempt to open a session takes that fails."""


class SimulatedStore(MemoryStore):
    """One session of one process."""

    def __init__(self, stores: "Stores", process: Process) -> None:
        """Opens it."""
        super().__init__(stores.server)
        self._stores: Final = stores
        self._process: Final = process

    async def _send(self, groups: tuple[Group, ...], fence: Check | None) -> tuple[Outcome, ...]:
        stores = self._stores
        stores.sends(self._process, groups)
        await stores.travel()
        if stores.is_cut(self._process):
            outcomes: tuple[Outcome, ...] = (Unknown(),) * len(groups)
        else:
            outcomes = await super()._send(groups, fence)
            await stores.travel()
            if stores.is_cut(self._process):
                outcomes = (Unknown(),) * len(groups)
        for group, outcome in zip(groups, outcomes, strict=True):
            stores.writes.answered(self._process.name, group, known=not isinstance(outcome, Unknown))
        return outcomes

    async def _read(self, *, current: bool) -> Tree:
        self._stores.on_read(self._process)
        await self._stores.travel()
        tree = await super()._read(current=current)
        await self._stores.travel()
        if self._stores.is_cut(self._process):
            raise ConnectionLoss("no answer; read again later")
        return tree


class _Server(MemoryServer):
    """A store that shows each group that it carries out."""

    def __init__(self, carried_out: Callable[[Group, int, dict[str, Node | None]], None]) -> None:
        super().__init__()
        self._carried_out: Final = carried_out

    def _carry_out_group(self, group: Group, session_id: int) -> Outcome:
        before = {operation.path: self._tree.get(operation.path) for operation in group}
        outcome = super()._carry_out_group(group, session_id)
        if isinstance(outcome, Written):
            self._carried_out(group, session_id, before)
        return outcome


class Stores:
    """All sessions."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, *, session_timeout_s: float) -> None:
        """Only assigns."""
        self._loop: Final = loop
        self._chance: Final = chance
        self._timeout_s: Final = session_timeout_s
        self.server: Final[MemoryServer] = _Server(self._carried_out)
        self.writes: Final = Writes(session_timeout_s=session_timeout_s)
        self.on_wrong: Callable[[str], None] = lambda _: None
        """Told of each write that a safety rule forbids."""
        self.is_listening: Callable[[Process], bool] = lambda _: True
        """Whether a process takes connections."""
        self.on_write: Callable[[Process, tuple[Group, ...]], None] = lambda *_: None
        """Told of each write that is sent, and by which process."""
        self.on_read: Callable[[Process], None] = lambda _: None
        """Told of each process that reads."""
        self._sessions: Final[dict[int, Process]] = {}
        self._silent_since_s: Final[dict[Process, float]] = {}
        self._cuts: Final[dict[Process, None]] = {}

    async def travel(self) -> None:
        """What a message takes between a process and the store."""
        await asyncio.sleep(self._chance.uniform(2e-4, 4e-3))

    def is_cut(self, process: Process) -> bool:
        """Whether the process cannot reach the store."""
        return process in self._cuts

    async def open(self, process: Process) -> SimulatedStore:
        """Open a session. Raises ConnectionLoss."""
        await self.travel()
        if self.is_cut(process):
            await asyncio.sleep(OPENING_S)
            raise ConnectionLoss("the store does not answer")
        store = SimulatedStore(self, process)
        self._sessions[store.session_id] = process
        return store

    def owner(self, session_id: int) -> str:
        """Process that a session belongs to; empty: none that is simulated."""
        process = self._sessions.get(session_id)
        return "" if process is None else process.name

    def sends(self, process: Process, groups: tuple[Group, ...]) -> None:
        """A process sends a write."""
        self.on_write(process, groups)
        for group in groups:
            self._wrong(self.writes.sent(process.name, group, self._loop.time()))

    def _carried_out(self, group: Group, session_id: int, before: dict[str, Node | None]) -> None:
        writer = self._sessions.get(session_id)
        if writer is None:
            return
        self._wrong(
            self.writes.judged(
                StoreWrite(
                    writer=writer.name,
                    session_alive=session_id in self.server.sessions(),
                    at_s=self._loop.time(),
                    group=group,
                    before=before,
                    read=self.server.reading(current=True).get,
                    is_reachable=lambda id: id in self._sessions and self.is_listening(self._sessions[id]),
                )
            )
        )

    def _wrong(self, found: list[str]) -> None:
        for one in found:
            self.on_wrong(one)

    def sessions_of(self, process: Process) -> list[int]:
        """Those that are alive."""
        alive = self.server.sessions()
        return [id for id in alive if self._sessions.get(id) is process]

    def expire(self, process: Process) -> None:
        """End the sessions of a process before their time."""
        for id in self.sessions_of(process):
            self.server.expire(id)

    def cut(self, process: Process) -> None:
        """Nothing gets through between it and the store."""
        self._cuts[process] = None
        for id in self.sessions_of(process):
            self.server.disconnect(id)
        self.silent(process)

    def heal(self) -> None:
        """Undo all cuts."""
        healed = tuple(self._cuts)
        self._cuts.clear()
        for process in healed:
            self.heard(process)
            for id, owner in self._sessions.items():
                if owner is process:
                    self.server.reconnect(id)

    def silent(self, process: Process) -> None:
        """Nothing is heard of it from now on."""
        if process not in self._silent_since_s:
            since_s = self._silent_since_s[process] = self._loop.time()
            self._loop.in_world(self._timeout_s, self._time_out, process, since_s)

    def heard(self, process: Process) -> None:
        """It may be heard again."""
        if not (process.dead or process.paused or self.is_cut(process)):
            self._silent_since_s.pop(process, None)
            for id, owner in self._sessions.items():
                if owner is process and id not in self.server.sessions():
                    self.server.announce(id)

    def _time_out(self, process: Process, since_s: float) -> None:
        if self._silent_since_s.get(process) == since_s:
            for id in self.sessions_of(process):
                # One that is cut off knows by its own clock, as drivers do (safety rule S8).
                self.server.expire(id, announce=self.is_cut(process))


def is_over(store: MemoryStore) -> bool:
    """Whether its owner was told that it is."""
    return store.session_state is SessionState.LOST
