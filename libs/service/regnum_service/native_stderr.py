"""What libraries in C write on stderr: read back, and only then passed on.

Goals: gRPC tells of failed handshakes, and of calls that it refuses, by lines on stderr alone. They are counted, and a
client that causes them fills no disk; what somebody has to see (the last words of a process that crashes) is not lost.

Algorithm: file descriptor 2 becomes a file of the process' own; ``sys.stderr``, which all of Python writes to, goes on
where stderr went before. A thread reads the file once a second: gRPC's lines are counted and dropped, any other is
passed on, and the file is emptied. What a crash left in it is passed on by the next start.

Only where GRPC_VERBOSITY is INFO, as services are started (``programs``): whoever sets it wants to see what gRPC says.
"""

import atexit
import fcntl
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from regnum_service.tls.handshakes import FAILURES, HandshakeFailures, failure_of

STDERR: Final = 2
"""File descriptor."""
PERIOD_S: Final = 1.0
"""How often lines are read."""
TOLD_S: Final = 60.0
"""Failures are a line in the log at most so often."""
WATCHED: Final = "INFO"
"""The value of GRPC_VERBOSITY with which lines are read."""

_GRPC: Final = re.compile(rb"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.]+:\d+\] ")
"""How gRPC's lines begin; F, of one that ends the process, is not among them."""


class LineFile:
    """A file that others write lines to, and this reads. Belongs to one thread."""

    def __init__(self, path: Path | None) -> None:
        """Only assigns; ``path`` None: a file of memory, which a crash does not outlive."""
        self._path: Final = path
        self._file = -1
        self._rest = b""

    def left(self) -> list[bytes]:
        """Lines that a process before this one left, before ``open``."""
        if self._path is None or not self._path.exists():
            return []
        return self._path.read_bytes().splitlines(keepends=True)

    def open(self) -> int:
        """An empty file to be written to; returns its descriptor. Raises OSError."""
        if self._path is None:
            self._file = os.memfd_create("stderr")
        else:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        return self._file

    def lines(self) -> list[bytes]:
        """Whole lines that are new; the file is empty afterwards."""
        found, read = self._rest, 0
        while piece := os.pread(self._file, 65_536, read):
            read += len(piece)
            found += piece
        if read:
            # What is written between the last look and this is lost: some microseconds, once a second.
            os.ftruncate(self._file, 0)
        whole, end, self._rest = found.rpartition(b"\n")
        return [] if not end else (whole + end).splitlines(keepends=True)

    def close(self) -> None:
        """Take it away."""
        os.close(self._file)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class NativeStderr:
    """The stderr of libraries in C, from ``start`` to the end of the process."""

    def __init__(
        self,
        file: LineFile,
        *,
        descriptor: int = STDERR,
        failures: HandshakeFailures = FAILURES,
        period_s: float = PERIOD_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Only assigns.

        Args:
            file: takes what is written.
            descriptor: what libraries write to.
            failures: where handshakes are counted.
            period_s: seconds between two looks.
            monotonic_s: time.
        """
        self._descriptor: Final = descriptor
        self._failures: Final = failures
        self._period_s: Final = period_s
        self._file: Final = file
        self._now_s: Final = monotonic_s
        self._stderr = descriptor
        """Where stderr goes in truth."""
        self._ending: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="native stderr", daemon=True)
        self._failed: Final[dict[str, int]] = {}
        self._told_s = float("-inf")
        self._log: Final = structlog.get_logger("tls")

    def start(self) -> int:
        """Take the descriptor over; returns one for where it led. Raises OSError."""
        left = self._file.left()
        self._stderr = os.dup(self._descriptor)
        os.dup2(self._file.open(), self._descriptor)
        for line in left:
            self._pass_on(line)
        self._thread.start()
        return self._stderr

    def close(self) -> None:
        """Pass on what waits, and give the descriptor back."""
        self._ending.set()
        self._thread.join(PERIOD_S)
        os.dup2(self._stderr, self._descriptor)
        for line in self._file.lines():
            self.take(line)
        self._file.close()

    def take(self, line: bytes) -> None:
        """A line came."""
        reason = failure_of(line)
        if reason is not None:
            self._failures.note(reason)
            self._failed[reason] = self._failed.get(reason, 0) + 1
        else:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        if _GRPC.match(line) is None:
            # Where nothing can be written the line is lost, and what comes after it is read all the same.
            with suppress(OSError):
                os.write(self._stderr, line)

    def tell(self) -> None:
        """Say in the log how many handshakes failed, once in ``TOLD_S``."""
        if self._failed and self._now_s() - self._told_s >= TOLD_S:
            self._told_s = self._now_s()
            self._log.warning("TLS handshakes failed", **self._failed)
            self._failed.clear()

    def _run(self) -> None:
        while not self._ending.wait(self._period_s):
            for line in self._file.lines():
                self.take(line)
            self.tell()


def take_over(name: str, run_dir: Path | None) -> None:
    """Read what libraries in C say on stderr, where GRPC_VERBOSITY asks for it; before logs are set up.

    Args:
        name: of the process, ``broker-3``.
        run_dir: folder where what a crash leaves is found by the next start; None: it is lost.
    """
    if os.environ.get("GRPC_VERBOSITY") != WATCHED:
        return
    try:
        if run_dir is not None:
            run_dir.mkdir(parents=True, exist_ok=True)
        native = NativeStderr(LineFile(None if run_dir is None else run_dir / f"{name}.stderr"))
        before = native.start()
    except OSError as error:
        sys.stderr.write(f"{name}: failed handshakes are not counted: {error}\n")
        return
    sys.stderr = os.fdopen(before, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    atexit.register(native.close)
