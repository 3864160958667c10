"""Connections that are held up because their clients used more than they may (KIP-219, KIP-599).

Goals: a client that ignores the throttle time of its answers gets no more through than one that waits; nobody else
notices; what is held costs little, however many come.

Algorithm: the answer goes out at once, with the time to wait; further calls of its connection are held before their
messages are read (see ``gates``). When the time is over they go on one after another, each when the one before it has
ended: that one may have made the connection wait again. Those beyond ``held_max`` are refused with the time to wait.
A held call whose deadline passes, or whose client hangs up, is dropped and never carried out.

A connection is what gRPC calls its peer, an address and a port. gRPC does not tell when one closes, so the kernel is
asked from time to time: one that is open no more, or whose socket is another one by now, is forgotten
(``forget_departed``). So whoever gets the port of a muted connection waits for one look, and not for the other's debt.

Example: a connection is muted for 2 s and sends 150 calls. 100 are held, 50 refused. After 2 s the first goes on and
is found to be over the quota again, by 1 s: its answer says so, and the second waits for another second.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

HELD_MAX: Final = 100
"""Calls of one connection that are held."""
CONNECTIONS_MAX: Final = 10_000
"""Connections that are remembered; whoever opens more than that needs no mute to get around this one."""
LOOK_S: Final = 1.0
"""How often is looked which connections are gone, while any are muted."""
LOOK_SHARE: Final = 0.05
"""Looking takes no more than this part of a processor: with very many connections it is rarer."""
MUTE_S_MAX: Final = 3_600.0
"""A debt of more than that is paid off later: the next call finds what is left of it."""


class Mutes:
    """Until when which connections are muted. Pure: times are monotonic seconds that the caller brings."""

    def __init__(self, *, connections_max: int = CONNECTIONS_MAX) -> None:
        """Only assigns; of more connections those are forgotten whose time is over first."""
        self._connections_max: Final = connections_max
        self._until_s: Final[dict[str, float]] = {}
        self._incarnations: Final[dict[str, int]] = {}
        """Sockets of those that were looked at."""

    def __len__(self) -> int:
        """Connections that are remembered; the time of some may be over."""
        return len(self._until_s)

    def __contains__(self, connection: str) -> bool:
        """Whether there is anything to look at: false for every connection that behaves."""
        return connection in self._until_s

    def mute(self, connection: str, for_s: float, now_s: float) -> None:
        """Hold that connection up from now on, unless it is for longer already. Zero, less, or NaN changes nothing."""
        if not for_s > 0.0:
            return
        until_s = now_s + min(for_s, MUTE_S_MAX)
        if until_s <= self._until_s.get(connection, until_s - 1.0):
            return
        self._until_s[connection] = until_s
        if len(self._until_s) > self._connections_max:
            self._make_room(now_s)

    def left_s(self, connection: str, now_s: float) -> float:
        """Seconds for which it is still muted; 0 when it is not."""
        until_s = self._until_s.get(connection)
        return 0.0 if until_s is None else max(0.0, until_s - now_s)

    def forget(self, connection: str) -> None:
        """Its time is over, and nobody waits for that."""
        self._until_s.pop(connection, None)
        self._incarnations.pop(connection, None)

    def names(self) -> tuple[str, ...]:
        """Those that are remembered."""
        return tuple(self._until_s)

    def keep(self, looked_at: Collection[str], found: Mapping[str, int]) -> None:
        """Forget those of ``looked_at`` that are open no more, or have another socket than the last time."""
        for connection in looked_at:
            incarnation = found.get(connection)
            if incarnation is None or self._incarnations.get(connection, incarnation) != incarnation:
                self.forget(connection)
            elif connection in self._until_s:
                self._incarnations[connection] = incarnation

    def _make_room(self, now_s: float) -> None:
        """Drop what is over; if that is less than a tenth, those that are over next."""
        target = self._connections_max - self._connections_max // 10
        over = [connection for connection, until_s in self._until_s.items() if until_s <= now_s]
        for connection in over:
            self.forget(connection)
        if len(self._until_s) > target:
            soonest = sorted(self._until_s, key=self._until_s.__getitem__)
            for connection in soonest[: len(self._until_s) - target]:
                self.forget(connection)


class _Line:
    """Calls of one connection, one after another."""

    __slots__ = ("held", "inside", "turn")

    def __init__(self) -> None:
        self.held = 0
        """Calls that wait."""
        self.inside = 0
        """Calls that wait or go on."""
        self.turn: Final = asyncio.Lock()


class _Turn:
    """The pass of a call whose turn it is."""

    def __init__(self, line: _Line, left: Callable[[], None]) -> None:
        self._line: Final = line
        self._left: Final = left
        self._gone = False

    def took(self, size_bytes: int) -> None:
        """Its message was read: that is as well."""

    def lasts(self) -> None:
        """It streams: the next in line may go on, and the stream's own messages pass one by one."""
        self.leave()

    def leave(self) -> None:
        """The next in line may go on."""
        if not self._gone:
            self._gone = True
            self._line.turn.release()
            self._left()


class Muting:
    """A gate (see ``gates``) for the calls of muted connections. Belongs to one event loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        applies: Callable[[str], bool] = lambda _: True,
        held_max: int = HELD_MAX,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """Only assigns.

        Args:
            clock: tells when a time is over.
            applies: whether calls of a method (``/package.Service/Method``) are held; others pass.
            held_max: calls of one connection that are held.
            connections_max: connections that are remembered.
        """
        self._clock: Final = clock
        self._applies: Final = applies
        self._held_max: Final = held_max
        self._mutes: Final = Mutes(connections_max=connections_max)
        self._lines: Final[dict[str, _Line]] = {}
        self.refused = 0
        """Calls that were refused so far: too many were held already, or their deadlines had passed."""

    @property
    def held(self) -> int:
        """Calls that are held now. Any thread: one copy, for the loop's thread changes it meanwhile."""
        return sum(line.held for line in tuple(self._lines.values()))

    @property
    def connections(self) -> int:
        """Connections that are remembered as muted."""
        return len(self._mutes)

    def mute(self, connection: str, for_s: float) -> None:
        """Hold further calls of a connection (``Call.peer``) for so many seconds from now."""
        self._mutes.mute(connection, for_s, self._clock.monotonic())

    def left_s(self, connection: str) -> float:
        """Seconds for which its calls are still held."""
        return self._mutes.left_s(connection, self._clock.monotonic())

    def names(self) -> tuple[str, ...]:
        """Connections that are remembered as muted."""
        return self._mutes.names()

    def keep(self, looked_at: Collection[str], found: Mapping[str, int]) -> None:
        """Of those that were looked at, the ones that were not found as they were are not muted any more."""
        self._mutes.keep(looked_at, found)

    async def until_over(self, connection: str) -> None:
        """Return when the connection is not muted, however often it is muted meanwhile; for calls behind the gate."""
        while (left_s := self.left_s(connection)) > 0.0:
            # It may be forgotten meanwhile.
            await self._clock.sleep(min(left_s, LOOK_S))

    async def enter(self, method: str, call: Call) -> "_Turn | None":
        """Return when the call's connection may go on. Raises RegnumError when too many wait."""
        if not self._mutes and not self._lines:
            return None
        connection = call.peer
        if not self._applies(method) or not self._is_held_up(connection):
            return None
        line = await self._wait_in_line(connection, call)
        return _Turn(line, lambda: self._leave(connection, line))

    async def read(self, method: str, call: Call) -> None:
        """Return when a further message of a stream may be read."""
        turn = await self.enter(method, call)
        if turn is not None:
            # The messages of one stream follow one another by themselves.
            turn.leave()

    def _is_held_up(self, connection: str) -> bool:
        if connection in self._lines or self.left_s(connection) > 0.0:
            return True
        self._mutes.forget(connection)
        return False

    async def _wait_in_line(self, connection: str, call: Call) -> _Line:
        """Its line, with the turn taken."""
        line = self._lines.setdefault(connection, _Line())
        if line.held >= self._held_max:
            raise self._refusal(connection, f"{self._held_max} calls of it wait already")
        line.inside += 1
        line.held += 1
        with ExitStack() as undo:
            undo.callback(self._leave, connection, line)
            try:
                await line.turn.acquire()
                undo.callback(line.turn.release)
                await self.until_over(connection)
            finally:
                line.held -= 1
            if call.left_s(self._clock.monotonic()) <= 0.0:
                raise self._refusal(connection, "the call was held until its deadline")
            undo.pop_all()
        return line

    def _leave(self, connection: str, line: _Line) -> None:
        line.inside -= 1
        if not line.inside:
            del self._lines[connection]
            if self.left_s(connection) <= 0.0:
                self._mutes.forget(connection)

    def _refusal(self, connection: str, why: str) -> RegnumError:
        self.refused += 1
        return RegnumError(
            errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
            f"this connection is over its quota, and {why}; nothing was done: wait as long as its last answer said, and"
            " send it again",
            retry_after_ms=max(1, round(self.left_s(connection) * 1000)),
        )


class OfConnections(Protocol):
    """What is kept of connections, and let go when they are gone."""

    def names(self) -> Collection[str]:
        """Which they are."""

    def keep(self, looked_at: Collection[str], found: Mapping[str, int]) -> None:
        """Of these, those were found, each as that socket."""


async def forget_departed(
    mutings: Collection[OfConnections], look: Callable[[Collection[str]], Mapping[str, int] | None], clock: Clock
) -> None:
    """Let go of connections that are gone, for ever; a task of the supervisor.

    Args:
        mutings: where they are muted, or kept otherwise.
        look: which of these are open, and as which socket (``connections.incarnations``); called on a thread. None:
            nobody knows, and nobody is forgotten.
        clock: paces it.
    """
    pause_s = LOOK_S
    while True:
        await clock.sleep(pause_s)
        asked = [muting.names() for muting in mutings]
        names = frozenset[str]().union(*asked)
        if not names:
            pause_s = LOOK_S
            continue
        began_s = clock.monotonic()
        found = await asyncio.to_thread(look, names)
        pause_s = max(LOOK_S, (clock.monotonic() - began_s) / LOOK_SHARE)
        if found is not None:
            for muting, looked_at in zip(mutings, asked, strict=True):
                muting.keep(looked_at, found)
