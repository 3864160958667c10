"""The outermost frame of a service process."""

import asyncio
import faulthandler
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import structlog
from regnum_telemetry.build import this_build

from regnum_service.collector import short_collections
from regnum_service.errors import ExitStatus, StartRefusedError

FILES_WANTED: Final = 65_536
"""Files and connections that a service may have open, where the system lets it."""


def run(main: Callable[[], Coroutine[Any, Any, int]], *, name: str = "") -> int:
    """Run a service to its end and return its exit status. SIGUSR1 writes all stacks to stderr.

    The first line of its log says which build it is of. ``name``: of the process, for what is written on stderr beside
    the log: ``election-1``.
    """
    build = this_build()
    structlog.get_logger("process").info(
        "running", version=build.version, commit=build.commit, python=platform.python_version()
    )
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _allow_files()
    signal.signal(signal.SIGTERM, _end_at_once)
    try:
        with short_collections():
            return asyncio.run(main())
    except StartRefusedError as error:
        sys.stderr.write(f"{name} cannot start: {error}\n" if name else f"{error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        # Before the supervisor took the signal over.
        return ExitStatus.FAILED


def _end_at_once(signum: int, _frame: object) -> None:
    """SIGTERM while the process starts, until its supervisor takes the signal over.

    It may wait for a lock or the store, and look through its logs on threads that nobody can end: what a signal does to
    a process that does not handle it is right here. But the first process of a container is sent no such signal, so
    that a Pod that was deleted while it started was there until its grace was over, and killed then.
    """
    with suppress(OSError):
        os.write(sys.stderr.fileno(), b"stopped while starting: SIGTERM\n")
    os._exit(128 + signum)


def _allow_files() -> None:
    """Raise this process's own limit as far as it may: shells set it low, for programs older than ``poll``."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if most == resource.RLIM_INFINITY else min(FILES_WANTED, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
