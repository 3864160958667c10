"""A session with ZooKeeper: heartbeats of our own, a local deadline, three states.

Goals: the owner knows before the store does that its session may be over; a server that is gone, stopped or silent
costs a reconnect to another one and no session; kazoo's habit of going on with a new session is never visible.

Constraints: a heartbeat counts from the moment it was sent. A follower passes on to the leader which sessions it heard
of with the leader's next ping, half a tick later, and not at all if it dies before: what the leader knows may be older
by one heartbeat and half a tick (a sixth of the time-out at the servers' default tick). Kazoo's own pings do not start
while anything else is sent, so that they notice no silent server.

Algorithm: a read every eighth of the time-out that the server granted. Each answer moves the local deadline to its
sending time plus two thirds of the time-out. No answer within a quarter: SUSPENDED, and the connection is cut, so that
kazoo tries the next server; a connection on which no server has taken the session after an eighth is cut too. A broken
connection: SUSPENDED. Past the deadline, or when the store says so: LOST, for good (safety rules S6, S8); then the
client is stopped, which also ends the session in case it was still alive.

Example, 6 s: heartbeats every 0.75 s; the server stops at 0; SUSPENDED at 2.25 s at the latest, on another server some
milliseconds later; without one LOST at 4 s, while the store keeps the session until 6 s.
"""

import asyncio
from typing import Final

from regnum_coordination.drivers.session_state import SessionStateFeed
from regnum_coordination.drivers.zookeeper.answers import to_error
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls
from regnum_coordination.errors import ConnectionLoss, CoordinationError, NoAuth, SessionExpired
from regnum_coordination.paths import ROOT
from regnum_coordination.port import SessionState

DEADLINE_SHARE: Final = 2 / 3
"""Part of the session time-out after which the owner gives the session up by itself."""
HEARTBEATS: Final = 8
"""Heartbeats in a session time-out."""
SILENCE_SHARE: Final = 1 / 4
"""Part of the session time-out after which a server without an answer is left."""


STIR_S: Final = 1.0
"""Time between two times that all watches read again, while calls are refused for want of rights."""


class HeartbeatSession:
    """Keeps one session alive. ``start`` it once, when its calls are linked."""

    def __init__(self, calls: ZooKeeperCalls, *, root: str, opened_at_s: float) -> None:
        self._calls = calls
        self._root = root
        self.session_id: Final = calls.session_id
        """The server's id of the session."""
        self._timeout_s: Final = calls.granted_s
        self._deadline_s = opened_at_s + DEADLINE_SHARE * self._timeout_s
        self.feed: Final = SessionStateFeed(SessionState.CONNECTED)
        """The state; read it through ``state``."""
        self._changed = asyncio.Event()
        self._stirred_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        """The state at this moment: LOST also when the loop was held beyond the deadline."""
        self._is_over()
        return self.feed.state

    def start(self) -> None:
        """Begin to keep the session alive."""
        self._calls.on_change(self._link_changed)
        self._calls.on_refusal(self._refused)
        self._link_changed()
        self._task = asyncio.create_task(self._keep_alive(), name=f"zookeeper session {self.session_id:x}")

    async def stop(self) -> None:
        """LOST, and no more heartbeats."""
        self.lose()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def lose(self) -> None:
        """The session is over."""
        self._calls.end()
        self.feed.set(SessionState.LOST)
        self._changed.set()

    def _link_changed(self) -> None:
        if self._calls.over or (self._calls.linked and self._calls.session_id != self.session_id):
            self.lose()
        elif not self._calls.linked:
            self.feed.set(SessionState.SUSPENDED)
        self._changed.set()

    def _refused(self) -> None:
        """Have all watches read again, now and then: a server tells no event of a node that may not be read.

        Its watch is gone all the same (CVE-2024-23944), and who waits for it would wait for ever.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._stirred_s >= STIR_S:
            self._stirred_s = now_s
            self.feed.stir()

    def _is_over(self) -> bool:
        if self._calls.over or self._left_s() <= 0:
            self.lose()
        return self.feed.is_lost

    def _left_s(self) -> float:
        return self._deadline_s - asyncio.get_running_loop().time()

    async def _keep_alive(self) -> None:
        try:
            while not self._is_over():
                if self._calls.linked:
                    await self._beat()
                else:
                    patience_s = self._timeout_s / HEARTBEATS
                    left_s = patience_s - self._calls.link_age_s
                    # A connection that was made a moment after this began is not waited for twice as long.
                    await self._pause(left_s if left_s > 0 else patience_s)
                    if not self._calls.linked and self._calls.link_age_s >= patience_s:
                        self._calls.abort_link()
        finally:
            # However this task ends, nobody keeps the session alive any more, and waiters must learn of it.
            self.lose()
        await self._calls.stop()

    async def _beat(self) -> None:
        """One heartbeat, and the time until the next one or a change of the connection."""
        loop = asyncio.get_running_loop()
        sent_at_s = loop.time()
        try:
            answering = self._calls.submit(self._calls.exists(self._root))
        except SessionExpired:
            self.lose()
            return
        await asyncio.wait({answering}, timeout=max(0.0, min(self._timeout_s * SILENCE_SHARE, self._left_s())))
        if not answering.done():
            if self._left_s() > 0:
                self.feed.set(SessionState.SUSPENDED)
                self._calls.abort_link()
                await self._pause(self._timeout_s / HEARTBEATS)
            return
        answer = answering.result()
        # A refusal is an answer too; kazoo's own failures are none.
        if answer.successful() or _is_refusal(to_error(answer.exception, ROOT)):
            self._deadline_s = max(self._deadline_s, sent_at_s + DEADLINE_SHARE * self._timeout_s)
            if self._calls.linked and not self._is_over():
                self.feed.set(SessionState.CONNECTED)
        await self._pause(sent_at_s + self._timeout_s / HEARTBEATS - loop.time())

    async def _pause(self, seconds: float) -> None:
        """Wait that long, or until the connection changes."""
        try:
            async with asyncio.timeout(max(0.0, min(seconds, self._left_s()))):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()


def _is_refusal(error: CoordinationError) -> bool:
    return isinstance(error, NoAuth) or not isinstance(error, ConnectionLoss | SessionExpired)
