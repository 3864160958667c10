"""What a process takes of the machine beneath it, as one port.

Threads and event loops, servers and channels of gRPC, attempts to connect, ids, chance and time.

A process is given a ``Machine`` by its composition root and hands on to each part what that part needs. The machine of
every deployment is ``MACHINE``. Another one runs several processes in one thread, under a time of its own
(``regnum_testing.simulation``). Files are the port of storage (``regnum_broker.log.disk.system_calls``), the store is
opened by ``store_session``.
"""

import asyncio
import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

import grpc
from regnum_model.contact import Contact
from regnum_model.ids import encode_id
from regnum_model.nodes import Address

from regnum_service.channel import Open
from regnum_service.clock import Clock, SystemClock
from regnum_service.detection import connect
from regnum_service.listening import Option, make_server
from regnum_service.pools import DaemonThread, thread_pool
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class OwnLoop:
    """An event loop on a thread of its own, for what a busy main loop must not hold up."""

    def __init__(self, name: str, *, daemon: bool) -> None:
        """Makes the loop. ``daemon``: the end of the process does not wait for the thread."""
        self._name: Final = name
        self._daemon: Final = daemon
        self._loop: Final = asyncio.new_event_loop()

    def call(self, action: Callable[..., object], *args: object) -> None:
        """Run something on the loop, as soon as it runs; nothing happens once it is closed. Any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action, *args)

    async def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this on the loop, which runs; returns when it is done."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Do this on the loop, and close it. What is returned belongs to the loop that asks, and is done afterwards."""
        ended: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(work, ended), name=self._name, daemon=self._daemon)
        thread.start()
        return asyncio.wrap_future(ended)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """``begin``, and wait for the end. Work goes on when the caller is cancelled."""
        await asyncio.shield(self.begin(work))

    def _run(self, work: Coroutine[Any, Any, None], ended: "Future[None]") -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(work)
        except BaseException as error:  # noqa: BLE001 - told to the loop that waits, which raises it
            ended.set_exception(error)
        else:
            ended.set_result(None)


class Machine:
    """The one this process runs on."""

    clock: Clock = SystemClock()
    """Source of time."""
    chance: random.Random = random.SystemRandom()
    """Source of chance, and of ids."""

    def new_id(self) -> str:
        """An id that nothing else has."""
        return encode_id(self.new_uuid())

    def new_uuid(self) -> uuid.UUID:
        """The same as a UUID."""
        return uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def pool(self, name: str, threads: int) -> Executor:
        """Threads whose jobs the event loop, or another thread, hands in and does not wait for."""
        return thread_pool(name, threads)

    def daemon(self, name: str) -> Executor:
        """One thread, for which the end of the process does not wait."""
        return DaemonThread(name)

    def loop(self, name: str, *, daemon: bool = False) -> OwnLoop:
        """An event loop on a thread of its own."""
        return OwnLoop(name, daemon=daemon)

    def server(self, *options: Option, interceptors: Sequence[Any] = ()) -> grpc.aio.Server:
        """A gRPC server that does not listen yet, on the running event loop."""
        return make_server(*options, interceptors=interceptors)

    def opener(self, files: WatchedFiles | None) -> Open:
        """How channels to other processes are opened: over TLS with these files; None: in plaintext."""
        return opener(files)

    async def connect(self, address: Address) -> Contact:
        """Try to connect, and hang up at once."""
        return await connect(address)

    def boot_id(self) -> str:
        """Names the boot of the machine; empty: it does not say, which proves nothing (safety rule S10)."""
        return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""


MACHINE: Final = Machine()
"""That of every process that is deployed."""
