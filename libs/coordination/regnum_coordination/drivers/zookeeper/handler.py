"""What kazoo does its work with: sockets, wake-ups, results. Its public way to be adapted (``handler=``).

Goals: kazoo's thread never waits for the loop, nor the loop for kazoo's thread; a connection that is silent can be
ended from outside; the session time-out that the server granted and the transaction id of each answer are known.

Constraints: a thread that comes back from a system call waits for the loop to let go of the interpreter, up to 5 ms
while the loop is busy, and kazoo asks before each read and each write whether it may. Kazoo pings only when nothing
else is sent, so that it never notices a silent server while requests are sent to it; it wakes its thread by a byte in a
socket pair, whose buffer fills after 278 of them; it tells nobody which session time-out the server granted.

Algorithm: one thread, kazoo's own, reads and writes; results are set on it and handed over by ``Mailbox``. The kernel
is asked once whether an answer has come; writes are tried, and waited for only where they do not fit. Wake-ups are
counted in the kernel. The first answer on a connection is read along: its second number is the time-out.
"""

import errno
import math
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

_HANDSHAKE: Final = struct.Struct("!iii")
"""Length, protocol version, session time-out in milliseconds."""

_READ_AHEAD: Final = 64 * 1024


class Wakeups:
    """Both ends of what kazoo takes for a socket pair: one byte for each request that waits."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Ready while requests wait."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Count a request."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, size: int) -> bytes:
        """Take one off."""
        del size
        os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        """Free it; both ends are one."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Link:
    """One connection to a server."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._deciphered: Callable[[], int] | None = getattr(connection, "pending", None)
        self._kept = b""
        self._at = 0
        self._head = b""
        # A TLS connection may want to read before it writes, and says so by errors that kazoo knows.
        self._is_plain = self._deciphered is None
        self._write_within_ms: int | None = None
        self.answered = False
        """Whether it was ready to be read when that was asked last, and has not been read since."""
        self.opened_at_s: Final = time.monotonic()
        """When it was made, on the monotonic clock."""
        self.granted_s: float | None = None
        """Session time-out that the server granted; None before its first answer."""

    def fileno(self) -> int:
        """Its descriptor."""
        return int(self._connection.fileno())

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as of a socket
        """As of a socket."""
        self._connection.setblocking(flag)

    def takes_writes(self, wait_ms: int | None) -> bool:
        """Whether a write may be tried without asking first: it then waits so long itself, None: as long as needed."""
        self._write_within_ms = wait_ms
        return self._is_plain

    def send(self, data: Any) -> int:
        """As of a socket; TimeoutError where nothing fits in time."""
        if not self._is_plain:
            return int(self._connection.send(data))
        while True:
            try:
                return int(self._connection.send(data))
            except BlockingIOError:
                full = select.poll()
                full.register(self.fileno(), select.POLLOUT)
                if not full.poll(self._write_within_ms):
                    raise TimeoutError("the server takes nothing more") from None

    def recv(self, size: int) -> bytes:
        """As of a socket; what has come already is read at once and kept, because kazoo asks for it in small parts."""
        self.answered = False
        if self._at == len(self._kept):
            self._kept, self._at = self._connection.recv(max(size, _READ_AHEAD)), 0
        chunk = self._kept[self._at : self._at + size]
        self._at += len(chunk)
        if self.granted_s is None:
            self._head += chunk
            if len(self._head) >= _HANDSHAKE.size:
                self.granted_s = _HANDSHAKE.unpack_from(self._head)[2] / 1000
                self._head = b""
        return chunk

    def pending(self) -> int:
        """Bytes that came and that kazoo has not read; it then does not wait for more."""
        kept = len(self._kept) - self._at
        if kept or self._deciphered is None:
            return kept
        return int(self._deciphered())

    def getpeername(self) -> Any:
        """As of a socket."""
        return self._connection.getpeername()

    def close(self) -> None:
        """As of a socket."""
        self._connection.close()

    def abort(self) -> None:
        """End it from another thread: its reader sees the end of the stream."""
        # Not the method of a TLS socket, which would take the ciphers away under the reader.
        with suppress(OSError):
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


class Answer(AsyncResult):  # type: ignore[misc] # kazoo is untyped
    """A result that remembers the transaction id that came with it."""

    def __init__(self, handler: "LoopHandler") -> None:
        super().__init__(handler)
        self._newest = handler
        self.zxid = 0
        """Last transaction that the server knew of when it answered; of a write that happened: its own."""

    def set(self, value: Any = None) -> None:
        """Store the value, once."""
        if not self.ready():
            self.zxid = self._newest.zxid()
            super().set(value)

    def set_exception(self, exception: Any) -> None:
        """Store the failure, once."""
        if not self.ready():
            self.zxid = self._newest.zxid()
            super().set_exception(exception)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo is untyped
    """Runs kazoo on one thread; everything that it calls back must be short."""

    def __init__(self, *, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._closing = False
        self.link: Link | None = None
        """The newest connection."""
        self.zxid: Callable[[], int] = lambda: 0
        """Gives the id of the last transaction that a server mentioned."""

    @property
    def running(self) -> bool:
        """Never: kazoo then calls back at once, on its own thread, instead of on one more."""
        return False

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def spawn(self, func: Any, *args: Any, **kwargs: Any) -> threading.Thread:
        """Start kazoo's thread."""
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name="zookeeper connection", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        """A watch fired."""
        callback.func(*callback.args)

    def async_result(self) -> Answer:
        """A result."""
        return Answer(self)

    def create_socket_pair(self) -> tuple[Any, Any]:
        """Where requests are announced to kazoo's thread."""
        if not hasattr(os, "eventfd"):
            pair: tuple[Any, Any] = super().create_socket_pair()
            return pair
        wakeups = Wakeups()
        return wakeups, wakeups

    def create_connection(
        self, address: Any, hostname: str | None = None, *, timeout: float | None = None, **options: Any
    ) -> Link:
        """Connect, with less patience than kazoo has: there may be other servers."""
        if self._closing:
            raise ConnectionAbortedError("the store is closed")
        patience_s = self._connect_timeout_s if timeout is None else min(timeout, self._connect_timeout_s)
        connection = super().create_connection(address, timeout=patience_s)
        link = Link(_secured(connection, hostname, options) if options.get("use_ssl") else connection)
        self.link = link
        return link

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """As ``select``, aware of what is known already, and in one system call: kazoo asks four times a request."""
        del xlist
        wait_ms = None if timeout is None else math.ceil(timeout * 1000)
        if not rlist and len(wlist) == 1 and isinstance(wlist[0], Link) and wlist[0].takes_writes(wait_ms):
            return [], wlist, []
        if not wlist and len(rlist) == 1 and isinstance(rlist[0], Link) and rlist[0].answered:
            return rlist, [], []
        kept = [item for item in rlist if isinstance(item, Link) and item.pending()]
        poll = select.poll()
        items = {}
        for item in rlist:
            items[item.fileno()] = item
            poll.register(item.fileno(), select.POLLIN)
        for item in wlist:
            items[item.fileno()] = item
            poll.register(item.fileno(), select.POLLOUT)
        ready = [items[fd] for fd, _ in poll.poll(0 if kept else wait_ms)]
        for item in rlist:
            if isinstance(item, Link) and item in ready:
                item.answered = True
        readable = [item for item in rlist if item in ready or item in kept]
        return readable, [item for item in wlist if item in ready], []

    def abort(self) -> None:
        """End the newest connection; kazoo makes another one."""
        if self.link is not None:
            self.link.abort()

    def close(self) -> None:
        """No more connections; ends the one there is."""
        self._closing = True
        self.abort()


def _secured(connection: socket.socket, hostname: str | None, options: Mapping[str, Any]) -> ssl.SSLSocket:
    """TLS on a connection, by kazoo's options; kazoo itself would forget connections that fail here."""
    try:
        context = ssl.create_default_context(cafile=options["ca"])
        if options["certfile"] is not None:
            context.load_cert_chain(options["certfile"], options["keyfile"])
        return context.wrap_socket(connection, server_hostname=hostname)
    except OSError:
        connection.close()
        raise
