"""The API of a cluster, through one ``kubectl proxy`` on a socket that only this user can open.

kubectl knows every way to log in; the proxy spares a process for each question (0.3 s of processor time on a busy
machine, while what is measured are tenths of a second).
"""

import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

ANSWER_S: Final = 30.0
"""How long the API may take for an answer."""


class ApiError(Exception):
    """The API refused, or did not answer. ``status`` is that of HTTP; 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status: Final = status


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path: Final = path

    def connect(self) -> None:
        """As the base class, elsewhere."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Api:
    """Questions and orders to the API server. Thread-safe: every call has a connection of its own."""

    def __init__(self, kubectl: Sequence[str]) -> None:
        """``kubectl``: the command with its options for a context."""
        self.kubectl: Final = tuple(kubectl)
        self._folder: Final = Path(tempfile.mkdtemp(prefix="regnum-judge-"))
        self._path: Final = self._folder / "api"
        self._proxy: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._proxy = subprocess.Popen(
            [*self.kubectl, "proxy", f"--unix-socket={self._path}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + ANSWER_S
        while not (self._path.exists() or self._ended()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._ended():
            raise ApiError(0, f"kubectl proxy ended: {self._proxy.communicate()[1].decode().strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._proxy is not None:
            self._proxy.terminate()
            self._proxy.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> bool:
        return self._proxy is not None and self._proxy.poll() is not None

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """One call. Raises ApiError."""
        connection = _SocketConnection(self._path, ANSWER_S)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, _message(content))
        found: dict[str, Any] = json.loads(content)
        return found

    def get(self, path: str) -> dict[str, Any]:
        """Read. Raises ApiError."""
        return self.call("GET", path)

    def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a change. Raises ApiError."""
        return self.call("PATCH", path, change, kind="application/strategic-merge-patch+json")

    def lines(self, path: str) -> Iterator[str]:
        """Lines of an answer that does not end by itself, such as a log that is followed. Raises ApiError."""
        connection = _SocketConnection(self._path, None)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise ApiError(answer.status, _message(answer.read()))
            while line := answer.readline():
                yield line.decode(errors="replace").rstrip("\n")
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"GET {path}: {error!r}") from error
        finally:
            connection.close()

    def run(self, *arguments: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
        """Run kubectl itself, for what the API alone does not do. Returns its output. Raises ApiError."""
        try:
            done = subprocess.run(
                [*self.kubectl, *arguments], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ApiError(0, f"kubectl {' '.join(arguments)}: no end within {timeout_s:.0f} s") from error
        if done.returncode:
            raise ApiError(0, f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[:2000]}")
        return done.stdout


def _message(content: bytes) -> str:
    try:
        told: Mapping[str, Any] = json.loads(content)
    except ValueError:
        return content.decode(errors="replace")[:500]
    return str(told.get("message", told))[:500]
