"""Calls to ZooKeeper from the event loop: one kazoo client, one session, never a second one.

Goals: after the end of the session nothing is ever sent, although kazoo would silently open a new one (D12: a paused
writer's request must not arrive under another session); nothing waits without a limit, and nothing waits for kazoo's
thread.

Algorithm: a call is put into kazoo's queue under a lock, unless the session is over; kazoo's thread takes the same
lock to note the end before it fails what its queue holds. So each call is either refused here, failed there, or was
sent in time. At most ``WINDOW`` calls are without an answer; the others wait here.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

from kazoo.exceptions import NoAuthError, WriterNotClosedException
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE
from regnum_model.nodes.processes import joined

from regnum_coordination.drivers.session_state import expired
from regnum_coordination.drivers.zookeeper.answers import to_error
from regnum_coordination.drivers.zookeeper.bulk_client import BulkClient
from regnum_coordination.drivers.zookeeper.bulk_reads import BulkRead
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite
from regnum_coordination.drivers.zookeeper.handler import Answer, Link, LoopHandler
from regnum_coordination.drivers.zookeeper.mailbox import Mailbox
from regnum_coordination.errors import ConnectionLoss

WINDOW: Final = 1000
"""Calls under way; a heartbeat waits for all of them to be answered."""

_STRIDE: Final = 100
"""Calls that are made before other tasks may run (safety rule S22)."""

LINK_SHARE: Final = 1 / 8
"""Part of the session time-out for which a call waits for another server before it is a ConnectionLoss."""

_STOP_PATIENCE_S: Final = 1.0
"""Seconds that a server has to confirm the end of a session, again and again, before its connection is cut."""

Call = Callable[[], Any]
"""Puts a request into kazoo's queue and gives its result to come."""


class ZooKeeperCalls:
    """One kazoo client. ``start`` it once; its session is over when ``stop`` is called or kazoo says so."""

    def __init__(self, client: BulkClient, handler: LoopHandler, mailbox: Mailbox, *, timeout_s: float) -> None:
        self._client = client
        self._handler = handler
        self._mailbox = mailbox
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._over = False
        self._linked = False
        self._settled = asyncio.Event()
        self._granted_s = 0.0
        self._linked_at_s = 0.0
        self._window = asyncio.Semaphore(WINDOW)
        self._stopping: asyncio.Task[None] | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._on_refusal: Callable[[], None] = lambda: None

    @property
    def linked(self) -> bool:
        """Whether a server has taken the session over and the connection has not broken since."""
        return self._linked

    @property
    def over(self) -> bool:
        """Whether nothing is sent any more."""
        return self._over

    @property
    def session_id(self) -> int:
        """Id of the session; while linked."""
        identity = self._client.client_id
        return 0 if identity is None else int(identity[0])

    @property
    def granted_s(self) -> float:
        """Session time-out that the server granted; 0 before."""
        return self._granted_s

    @property
    def linked_at_s(self) -> float:
        """When the connection was made on which a server took the session last; on the loop's clock."""
        return self._linked_at_s

    @property
    def link_age_s(self) -> float:
        """How old the newest connection is."""
        link = self._handler.link
        return 0.0 if link is None else asyncio.get_running_loop().time() - link.opened_at_s

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have it called on the loop when ``linked`` or ``over`` changes."""
        self._on_change = listener

    def on_refusal(self, listener: Callable[[], None]) -> None:
        """Have it called on the loop when a call is refused for want of rights."""
        self._on_refusal = listener

    async def start(self) -> None:
        """Connect; raises ConnectionLoss."""
        self._handler.zxid = lambda: int(self._client.last_zxid)
        self._client.add_listener(self._state_changed)
        # Its own ``start`` would wait on another thread and, when nobody answers, stop the client there while we do.
        self._client.start_async()
        try:
            # Some servers may take connections and be silent.
            async with asyncio.timeout(self._timeout_s * len(self._client.hosts)):
                await self._settled.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise
        except TimeoutError:
            pass
        if not self._linked:
            await self.stop()
            hosts = ",".join(joined(host, port) for host, port in self._client.hosts)
            raise ConnectionLoss(f"no ZooKeeper answers at {hosts}; is it running, and do the URL's options fit?")

    def abort_link(self) -> None:
        """End the connection, not the session; kazoo goes on to another server."""
        self._handler.abort()

    def end(self) -> None:
        """Send nothing more; from any thread."""
        with self._lock:
            self._over = True
        self._mailbox.put(self._settled.set)

    async def stop(self) -> None:
        """End the session where a server can be reached, and kazoo's thread. Idempotent."""
        self.end()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="zookeeper stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        stopping = asyncio.create_task(asyncio.to_thread(self._client.stop), name="zookeeper client stop")
        if not self._client.connected:
            self._handler.close()
        while not (await asyncio.wait({stopping}, timeout=_STOP_PATIENCE_S))[0]:
            self._handler.close()
        # Kazoo's thread still waits for a name server, say; it is a daemon, and it may not connect any more.
        with suppress(WriterNotClosedException):
            await stopping
            self._client.close()

    def _state_changed(self, state: str) -> None:
        """On kazoo's thread, before it fails what its queue holds."""
        if state == KazooState.LOST:
            self.end()
        link = self._handler.link
        self._mailbox.put(partial(self._note, link if state == KazooState.CONNECTED else None))

    def _note(self, link: Link | None) -> None:
        self._linked = link is not None
        if link is not None:
            self._granted_s = link.granted_s or self._granted_s
            self._linked_at_s = link.opened_at_s
            self._settled.set()
        elif not self._over:
            self._settled.clear()
        self._on_change()

    async def _wait_for_link(self) -> None:
        """Return when there is a connection; raises ConnectionLoss, SessionExpired."""
        if not self._settled.is_set():
            try:
                async with asyncio.timeout(min(self._timeout_s, self._granted_s * LINK_SHARE)):
                    await self._settled.wait()
            except TimeoutError:
                raise ConnectionLoss("there is no connection to ZooKeeper; nothing was sent") from None
        if self._over:
            raise expired()

    def submit(self, call: Call, *, then: Callable[[], None] | None = None) -> "asyncio.Future[Answer]":
        """Send a request; the future is done when the answer is there. ``then`` is called at that time in any case."""
        with self._lock:
            if self._over:
                raise expired()
            answer = call()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.add_done_callback(self._look_for_refusal)
        answer.rawlink(lambda result: self._mailbox.put(partial(_hand_over, future, result, then)))
        return future

    def _look_for_refusal(self, answered: "asyncio.Future[Answer]") -> None:
        if not answered.cancelled() and isinstance(answered.result().exception, NoAuthError):
            self._on_refusal()

    async def ask(self, call: Call) -> Answer:
        """Send one request and wait for its answer; raises ConnectionLoss, SessionExpired."""
        (answer,) = await self.ask_all([call])
        return answer

    async def ask_all(self, calls: Sequence[Call]) -> list[Answer]:
        """Send requests one behind the other on one connection and wait for all answers, failures among them.

        Raises ConnectionLoss if they do not come in time, or the connection stays away.
        """
        await self._wait_for_link()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(calls)
        except TimeoutError:
            raise ConnectionLoss(
                f"no answer from ZooKeeper within {self._timeout_s:g} s; a write may have happened, repeat it"
            ) from None

    async def _exchange(self, calls: Sequence[Call]) -> list[Answer]:
        futures: list[asyncio.Future[Answer]] = []
        for number, call in enumerate(calls, start=1):
            await self._window.acquire()
            with ExitStack() as undo:
                undo.callback(self._window.release)
                futures.append(self.submit(call, then=self._window.release))
                undo.pop_all()
            if number % _STRIDE == 0:
                await asyncio.sleep(0)
        answers: list[Answer] = []
        for number, future in enumerate(futures, start=1):
            answers.append(await future)
            if number % _STRIDE == 0:
                await asyncio.sleep(0)
        return answers

    # What kazoo can be asked; paths are the server's.

    def get(self, path: str, watch: Callable[..., None] | None = None) -> Call:
        """Data and stat."""
        return partial(self._client.get_async, path, watch=watch)

    def read_together(self, paths: Sequence[str], *, of_children: bool = False) -> Call:
        """For each path ``Found``, or the names of its children, or an exception."""
        return partial(self._client.ask_async, BulkRead(paths, of_children))

    def exists(self, path: str, watch: Callable[..., None] | None = None) -> Call:
        """Stat, or None."""
        return partial(self._client.exists_async, path, watch=watch)

    def children(self, path: str, watch: Callable[..., None] | None = None) -> Call:
        """Names and stat."""
        return partial(self._client.get_children_async, path, watch=watch, include_data=True)

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequential: bool) -> Call:
        """Path and stat."""
        return partial(
            self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequential, include_data=True
        )

    def set(self, path: str, data: bytes, version: int) -> Call:
        """Stat."""
        return partial(self._client.set_async, path, data, version)

    def delete(self, path: str, version: int) -> Call:
        """Nothing."""
        return partial(self._client.delete_async, path, version)

    def ensure_path(self, path: str) -> Call:
        """Create a path and its parents where they are missing."""
        return partial(self._client.ensure_path_async, path)

    @property
    def access(self) -> Sequence[Any]:
        """Who may do what with nodes that are created."""
        access: Sequence[Any] = self._client.default_acl or OPEN_ACL_UNSAFE
        return access

    def transaction(self, request: BulkWrite) -> Call:
        """A list: of each operation that is sent what is told of it."""
        return partial(self._client.ask_async, request)


def value(answer: Answer, path: str, version: int | None = None) -> Any:
    """What was answered; raises the port's error."""
    if answer.successful():
        return answer.value
    raise to_error(answer.exception, path, version) from None


def _hand_over(future: "asyncio.Future[Answer]", answer: Answer, then: Callable[[], None] | None) -> None:
    if then is not None:
        then()
    if not future.done():
        future.set_result(answer)
