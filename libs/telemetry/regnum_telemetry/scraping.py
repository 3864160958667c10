"""The HTTP endpoint that Prometheus scrapes: ``GET /metrics``, on threads of its own (safety rule S22).

Goals: a scrape never takes a turn of an event loop; connections that say nothing, read slowly or come a thousand times
a second cost two threads and one text in each ``KEPT_S``, and keep no scrape out.

Algorithm: one thread does all that waits for clients: it accepts, reads heads, and sends answers as far as each socket
takes them. A connection has ``DEADLINE_S`` from its beginning to its end. With ``CONNECTIONS_MAX`` of them, the next
one takes the place of the oldest that waits for its client. A scrape asks at once, so those that do not go before it.
The text is made on a thread of its own, one at a time, and serves everybody for ``KEPT_S``; where it cannot be made,
the answer is a 500, and that thread ends with the error, which ``threading.excepthook`` tells.

Example: 32 connections say nothing, and each connects again when it is closed. A scrape takes the place of the oldest.
"""

import contextlib
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CONNECTIONS_MAX: Final = 32
"""Connections at the same time."""

BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted."""

DEADLINE_S: Final = 5.0
"""Time that a connection has from its beginning to its end."""

HEAD_BYTES_MAX: Final = 16 * 1024
"""Largest head of a request."""

KEPT_S: Final = 0.5
"""For so long a text is what is there."""

ANYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what the settings say
"""Hosts that mean all addresses."""

PATH: Final = "/metrics"
"""Where the metrics are."""

PLAIN: Final = "text/plain; charset=utf-8"

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"
"""The other form that is offered; Prometheus asks for it."""

Render = Callable[[str], tuple[bytes, str]]
"""The text and its content type, in the form that an ``Accept`` header asks for; on a thread of this endpoint."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The text, as a request asks for it."""

    form: str
    """Empty, or OPENMETRICS."""
    is_bare: bool
    """Whether the head of the answer will do."""


@dataclass(slots=True, eq=False)
class _Connection:
    """One client."""

    socket: socket.socket
    deadline_s: float
    """Monotonic time of its end, whatever it does."""
    head: bytes = b""
    """Of its request, as far as it has come."""
    wanted: _Wanted | None = None
    """What is being made for it."""
    rest: memoryview | None = None
    """Of its answer: what is still to be sent; None: there is none yet."""


def _listening(host: str, port: int) -> socket.socket:
    """A listener. Raises OSError."""
    if host in ANYWHERE:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        host = "0.0.0.0"  # noqa: S104 - what the settings say
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name of both families is the IPv4 address, as for who scrapes it since before there was a choice.
    family, _, _, _, place = min(answers, key=lambda answer: answer[0] is not socket.AF_INET)
    return socket.create_server(place, family=family, backlog=BACKLOG)


class MetricsEndpoint:
    """One listener. ``start`` and ``close`` are called once, from any thread; all else belongs to its own."""

    def __init__(
        self,
        host: str,
        port: int,
        render: Render,
        *,
        deadline_s: float = DEADLINE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Only assigns.

        Args:
            host: where to listen; IPv6 without brackets. 0.0.0.0 and :: are all addresses of both families, as gRPC
                has it.
            port: 0 lets the machine choose.
            render: makes the text.
            deadline_s: time that a connection has.
            monotonic: seconds that only grow.
        """
        self._host: Final = host
        self._port = port
        self._render: Final = render
        self._deadline_s: Final = deadline_s
        self._monotonic: Final = monotonic
        self._listener: socket.socket | None = None
        self._waking: socket.socket | None = None
        """What is written to it wakes the thread."""
        self._connections: Final[dict[socket.socket, _Connection]] = {}
        """Those first that have had their client to wait for the longest time."""
        self._rendering: Final = threading.Lock()
        self._made: Final[queue.SimpleQueue[tuple[str, tuple[bytes, str] | None]]] = queue.SimpleQueue()
        """Texts by form, from their threads; None: it could not be made."""
        self._being_made: Final[set[str]] = set()
        self._kept: Final[dict[str, tuple[float, bytes, str]]] = {}
        self.renderings: int = 0
        """Texts made so far."""

    @property
    def port(self) -> int:
        """Where it listens, once started."""
        return self._port

    def start(self) -> None:
        """Listen and answer. Raises OSError when it cannot listen there."""
        listener = _listening(self._host, self._port)
        listener.settimeout(0.0)
        self._port = int(listener.getsockname()[1])
        woken, waking = socket.socketpair()
        for each in (woken, waking):
            each.settimeout(0.0)
        self._listener, self._waking = listener, waking
        threading.Thread(target=self._serve, args=(listener, woken, waking), name="metrics", daemon=True).start()

    def close(self) -> None:
        """Listen no more; connections that are open end."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # At once for who comes after this; its thread, which may be looking at it, closes it.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            self._wake()

    def _wake(self) -> None:
        # (Where it is full, the thread wakes anyway; where it is closed, there is no thread.)
        if self._waking is not None:
            with contextlib.suppress(OSError):
                self._waking.send(b".")

    def _serve(self, listener: socket.socket, woken: socket.socket, waking: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, listener, woken, waking:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            try:
                while self._listener is listener:
                    for key, _ in selector.select(self._until_next_end_s()):
                        if key.fileobj is listener:
                            self._accept(listener, selector)
                        elif key.fileobj is woken:
                            with contextlib.suppress(OSError):
                                woken.recv(4096)
                            self._hand_out(selector)
                        elif key.data.socket in self._connections:
                            self._go_on(key.data, selector)
                    self._end_late(selector)
            finally:
                for connection in self._connections.values():
                    connection.socket.close()

    def _until_next_end_s(self) -> float | None:
        first_s = min((one.deadline_s for one in self._connections.values()), default=None)
        return None if first_s is None else max(0.0, first_s - self._monotonic())

    def _end_late(self, selector: selectors.BaseSelector) -> None:
        now_s = self._monotonic()
        for connection in [one for one in self._connections.values() if one.deadline_s <= now_s]:
            self._end(connection, selector)

    def _end(self, connection: _Connection, selector: selectors.BaseSelector) -> None:
        if connection.wanted is None:
            selector.unregister(connection.socket)
        del self._connections[connection.socket]
        connection.socket.close()

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError as error:
            # Closed, or its client has gone, or no file descriptor is left: then others need it more.
            if self._listener is listener and not isinstance(error, BlockingIOError | ConnectionError):
                time.sleep(KEPT_S)
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            silent = next((one for one in self._connections.values() if one.wanted is None), None)
            if silent is None:
                accepted.close()
                return
            self._end(silent, selector)
        accepted.settimeout(0.0)
        connection = _Connection(accepted, self._monotonic() + self._deadline_s)
        self._connections[accepted] = connection
        selector.register(accepted, selectors.EVENT_READ, connection)

    def _go_on(self, connection: _Connection, selector: selectors.BaseSelector) -> None:
        """Do what its client allows by now."""
        try:
            if connection.rest is not None:
                self._send(connection, connection.rest, selector)
                return
            part = connection.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        connection.head += part
        if not part or len(connection.head) > HEAD_BYTES_MAX:
            self._end(connection, selector)
        elif b"\r\n\r\n" in connection.head:
            self._answer(connection, selector)

    def _answer(self, connection: _Connection, selector: selectors.BaseSelector) -> None:
        """Begin to answer a request whose head is there."""
        asked = _asked(connection.head.partition(b"\r\n\r\n")[0])
        if isinstance(asked, bytes):
            self._reply(connection, asked, selector)
            return
        known = self._kept.get(asked.form)
        if known is not None and self._monotonic() - known[0] < KEPT_S:
            self._reply(connection, _page(asked, *known[1:]), selector)
            return
        selector.unregister(connection.socket)
        connection.wanted = asked
        if asked.form in self._being_made:
            return
        self._being_made.add(asked.form)
        try:
            threading.Thread(target=self._make, args=(asked.form,), name="metrics-answer", daemon=True).start()
        except RuntimeError:
            # The machine gives no more threads: whoever asks again may have more luck.
            self._made.put((asked.form, None))
            self._wake()

    def _make(self, form: str) -> None:
        """Make a text, on a thread of its own."""
        made: tuple[bytes, str] | None = None
        try:
            with self._rendering:
                made = self._render(form)
        finally:
            self._made.put((form, made))
            self._wake()

    def _hand_out(self, selector: selectors.BaseSelector) -> None:
        """Answer those that wait for texts that have been made."""
        while not self._made.empty():
            form, made = self._made.get()
            self._being_made.discard(form)
            if made is not None:
                self.renderings += 1
                self._kept[form] = (self._monotonic(), *made)
            for connection in tuple(self._connections.values()):
                wanted = connection.wanted
                if wanted is not None and wanted.form == form:
                    connection.wanted = None
                    # It was not its client that was waited for.
                    self._connections[connection.socket] = self._connections.pop(connection.socket)
                    selector.register(connection.socket, selectors.EVENT_WRITE, connection)
                    self._reply(connection, _FAILED if made is None else _page(wanted, *made), selector)

    def _reply(self, connection: _Connection, answer: bytes, selector: selectors.BaseSelector) -> None:
        selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._send(connection, memoryview(answer), selector)

    def _send(self, connection: _Connection, rest: memoryview, selector: selectors.BaseSelector) -> None:
        """Send as much as the socket takes; what is left waits for it."""
        try:
            while rest:
                rest = rest[connection.socket.send(rest) :]
        except BlockingIOError:
            connection.rest = rest
            return
        except OSError:
            # Somebody who went away is nobody's fault.
            pass
        self._end(connection, selector)


def _asked(head: bytes) -> _Wanted | bytes:
    """What is wanted, or the answer to a request that is no scrape."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _message(400, "Bad Request", b"this is an HTTP/1.1 server\n")
    method, target = words[0], words[1].partition("?")[0]
    if method not in {"GET", "HEAD"}:
        return _message(405, "Method Not Allowed", b"GET /metrics\n")
    if target != PATH:
        return _message(404, "Not Found", b"the metrics are at /metrics\n")
    is_open = "application/openmetrics-text" in _accept_of(lines[1:])
    return _Wanted(form=OPENMETRICS if is_open else "", is_bare=method == "HEAD")


def _page(wanted: _Wanted, text: bytes, content_type: str) -> bytes:
    return _message(200, "OK", text, content_type=content_type, bare=wanted.is_bare)


def _accept_of(lines: list[str]) -> str:
    values = (line.partition(":") for line in lines)
    return ",".join(value.strip() for name, _, value in values if name.strip().lower() == "accept")


def _message(status: int, reason: str, body: bytes, *, content_type: str = PLAIN, bare: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if bare else body)


_FAILED: Final = _message(500, "Internal Server Error", b"the metrics could not be made; the log says why\n")
