"""The HTTP endpoint that Prometheus scrapes: ``GET /metrics``, on threads of its own (safety rule S22).

Goals: a scrape never takes a turn of an event loop; whoever connects and says nothing, reads slowly or comes a thousand
times a second costs a bounded number of threads and one text in each ``KEPT_S``.

Algorithm: one thread accepts; each connection gets a thread that reads one request head and answers it, if fewer than
``CONNECTIONS_MAX`` are there, and is closed at once otherwise. All that a connection does has to be done by
``DEADLINE_S``. The text is made by one thread at a time and serves everybody for ``KEPT_S``; where it cannot be made,
the answer is a 500, and the thread ends with the error, which ``threading.excepthook`` tells.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

CONNECTIONS_MAX: Final = 8
"""Connections that are answered at the same time."""

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


def _listening(host: str, port: int) -> socket.socket:
    """A listener. Raises OSError."""
    if host in ANYWHERE:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=CONNECTIONS_MAX
            )
        host = "0.0.0.0"  # noqa: S104 - what the settings say
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name of both families is the IPv4 address, as for who scrapes it since before there was a choice.
    family, _, _, _, place = min(answers, key=lambda answer: answer[0] is not socket.AF_INET)
    return socket.create_server(place, family=family, backlog=CONNECTIONS_MAX)


class MetricsEndpoint:
    """One listener. ``start`` and ``close`` are called once, from any thread."""

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
        self._free: Final = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._rendering: Final = threading.Lock()
        self._kept: dict[str, tuple[float, bytes, str]] = {}
        self.renderings: int = 0
        """Texts made so far."""

    @property
    def port(self) -> int:
        """Where it listens, once started."""
        return self._port

    def start(self) -> None:
        """Listen and answer. Raises OSError when it cannot listen there."""
        listener = _listening(self._host, self._port)
        self._port = int(listener.getsockname()[1])
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="metrics", daemon=True).start()

    def close(self) -> None:
        """Listen no more; connections that are being answered end by themselves."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread that accepts; closing alone would not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                connection, _ = listener.accept()
            except OSError:
                # Closed, or no file descriptor is left: then others need it more.
                if self._listener is listener:
                    time.sleep(KEPT_S)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="metrics-answer", daemon=True).start()
            except RuntimeError:
                # The machine gives no more threads: whoever asks again may have more luck.
                connection.close()
                self._free.release()

    def _serve(self, connection: socket.socket) -> None:
        deadline_s = self._monotonic() + self._deadline_s
        with connection:
            try:
                head = self._head(connection, deadline_s)
                if head is not None:
                    self._reply(connection, head, deadline_s)
            finally:
                # Before the connection ends: whoever sees its end and asks again finds the place free.
                self._free.release()

    def _reply(self, connection: socket.socket, head: bytes, deadline_s: float) -> None:
        """Answer one request; whatever a gauge raises is raised once that has been answered, too."""
        answer = _FAILED
        try:
            answer = self._answer(head)
        finally:
            # Somebody who went away is nobody's fault, and hides no error of a gauge.
            with contextlib.suppress(OSError):
                self._send(connection, answer, deadline_s)

    def _head(self, connection: socket.socket, deadline_s: float) -> bytes | None:
        """The head of the request; None when it does not come in time, is too large, or whoever asked has gone."""
        received = b""
        while b"\r\n\r\n" not in received:
            part = b""
            if self._limit(connection, deadline_s):
                with contextlib.suppress(OSError):
                    part = connection.recv(4096)
            received += part
            if not part or len(received) > HEAD_BYTES_MAX:
                return None
        return received.partition(b"\r\n\r\n")[0]

    def _send(self, connection: socket.socket, answer: bytes, deadline_s: float) -> None:
        rest = memoryview(answer)
        while rest and self._limit(connection, deadline_s):
            rest = rest[connection.send(rest) :]

    def _limit(self, connection: socket.socket, deadline_s: float) -> bool:
        """Let the next step wait no longer than is left; False: nothing is."""
        left_s = deadline_s - self._monotonic()
        if left_s <= 0:
            return False
        connection.settimeout(left_s)
        return True

    def _answer(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _message(400, "Bad Request", b"this is an HTTP/1.1 server\n")
        method, target = words[0], words[1].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return _message(405, "Method Not Allowed", b"GET /metrics\n")
        if target != PATH:
            return _message(404, "Not Found", b"the metrics are at /metrics\n")
        body, content_type = self._text(_accept_of(lines[1:]))
        return _message(200, "OK", body, content_type=content_type, bare=method == "HEAD")

    def _text(self, accept: str) -> tuple[bytes, str]:
        form = OPENMETRICS if "application/openmetrics-text" in accept else ""
        with self._rendering:
            known = self._kept.get(form)
            if known is not None and self._monotonic() - known[0] < KEPT_S:
                return known[1:]
            text, content_type = self._render(form)
            self.renderings += 1
            self._kept[form] = (self._monotonic(), text, content_type)
            return text, content_type


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
