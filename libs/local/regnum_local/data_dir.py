"""The folder of a cluster: one launcher at a time, and what an earlier one left running."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local.identity import ProcessIdentity
from regnum_local.runtime_record import read_record, remove_record

POLL_S: Final = 0.05
TERMINATE_TIMEOUT_S: Final = 15.0
"""Time that a process of an earlier launcher gets to end by itself."""


class DataDirLock:
    """Held by the launcher for its whole life; the kernel lets go of it when the launcher dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, data_dir: Path) -> Self:
        """Make the folder if need be and lock it; raises StartRefusedError when another launcher has it."""
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(data_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartRefusedError(
                f"cannot use {data_dir}: {error.strerror}; choose another folder", exit_status=ExitStatus.FAILED
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            record = read_record(data_dir)
            owner = "" if record is None else f" (pid {record.launcher.pid})"
            raise StartRefusedError(
                f"a cluster already runs in {data_dir}{owner}; stop it with `regnum down`, or choose another folder"
            ) from None
        return cls(descriptor)

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


async def end_all(processes: Iterable[ProcessIdentity], timeout_s: float = TERMINATE_TIMEOUT_S) -> None:
    """SIGTERM to processes that are not our children; SIGKILL to those that do not heed it in time."""
    remaining = [process for process in processes if process.send(signal.SIGTERM)]
    for process in remaining:
        # A stopped process ends only when it goes on.
        process.send(signal.SIGCONT)
    try:
        async with asyncio.timeout(timeout_s):
            await gone(remaining)
    except TimeoutError:
        for process in remaining:
            process.send(signal.SIGKILL)
        await gone(remaining)


async def end_leftovers(data_dir: Path) -> list[str]:
    """End what a launcher that was killed left behind, brokers first; returns the names. Call it with the lock held."""
    record = read_record(data_dir)
    if record is None:
        return []
    left = {name: process for name, process in record.processes.items() if process.alive()}
    for role in ("broker", "election", ""):
        batch = [process for name, process in left.items() if name.startswith(role) and process.alive()]
        await end_all(batch)
    remove_record(data_dir)
    return list(left)


async def gone(processes: Iterable[ProcessIdentity]) -> None:
    """Wait until none of them runs. Not our children, so there is nothing to wait on but a look now and then."""
    waiting = [process for process in processes if process.alive()]
    while waiting:
        await asyncio.sleep(POLL_S)
        waiting = [process for process in waiting if process.alive()]
