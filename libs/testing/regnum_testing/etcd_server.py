"""A real etcd server of one node, in a process of the test."""

import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regnum_testing.etcd_process import EtcdProcess, etcd_binary
from regnum_testing.ports import unused_port


class EtcdServer:
    """One etcd on ports and a data directory that survive ``kill`` and ``start``."""

    def __init__(
        self,
        directory: Path,
        *,
        max_txn_ops: int = 128,
        tls: ssl.SSLContext | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.port: Final = unused_port()
        """Port for clients."""
        scheme = "http" if tls is None else "https"
        client, peer = f"{scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{unused_port()}"
        self._process = EtcdProcess(
            [
                *("--name", "one", "--data-dir", str(directory / "data")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"one={peer}", "--max-txn-ops", str(max_txn_ops)),
                *("--experimental-initial-corrupt-check", "--log-level", "warn"),
                *options,
            ],
            port=self.port,
            log=directory / "etcd.log",
            tls=tls,
        )

    @property
    def binary(self) -> Path:
        """The program; etcdctl lies beside it."""
        return etcd_binary()

    def control(self, *arguments: str) -> str:
        """Run etcdctl, which fails the test where it fails; returns what it prints."""
        patient = ("--command-timeout=60s", "--dial-timeout=30s")
        at = f"--endpoints=http://127.0.0.1:{self.port}"
        command = [str(self.binary.with_name("etcdctl")), at, *patient, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def start(self) -> None:
        """Start it and return when it serves."""
        self._process.launch()
        self._process.wait_until_ready()

    def kill(self) -> None:
        """End it as a loss of the process would: kill -9. Does nothing when it is not running."""
        self._process.kill()
