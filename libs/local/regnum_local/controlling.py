"""`regnum stop`, `kill`, `pause` and `resume`: one process of a cluster on this machine, by its name.

A signal is enough for these: the launcher of `regnum up` sees what becomes of its children. What starts one is its own
(``restarting``).
"""

import asyncio
import enum
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from regnum_model.spelling import did_you_mean
from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local.cluster import LOGS, ProcessRow, ProcessState
from regnum_local.identity import ProcessIdentity
from regnum_local.lifecycle import chosen_folder, read_status
from regnum_local.runtime_record import read_record

STOPPED_S: Final = 60.0
"""Time that a process gets to stop: a broker first hands over what it leads."""
LOOK_S: Final = 0.05
"""Between two looks at what became of a process."""


class Action(enum.Enum):
    """What is done with a process."""

    STOP = "stop"
    """It ends in order."""
    KILL = "kill"
    """It ends at once, as in a crash."""
    PAUSE = "pause"
    """It does nothing and holds its connections open, as a machine that hangs."""
    RESUME = "resume"
    """It goes on."""


SIGNALS: Final[Mapping[Action, signal.Signals]] = MappingProxyType(
    {
        Action.STOP: signal.SIGTERM,
        Action.KILL: signal.SIGKILL,
        Action.PAUSE: signal.SIGSTOP,
        Action.RESUME: signal.SIGCONT,
    }
)
"""What each is to the operating system."""


def chosen_rows(rows: Sequence[ProcessRow], names: Sequence[str]) -> list[ProcessRow]:
    """The processes of these names, in their order. Raises StartRefusedError (exit status 3) for one that is not."""
    by_name = {row.name: row for row in rows}
    for name in names:
        if name not in by_name:
            raise StartRefusedError(
                f"there is no process {name!r}{did_you_mean(name, by_name) or ';'} there are {', '.join(by_name)}",
                exit_status=ExitStatus.NOT_FOUND,
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def check_action(row: ProcessRow, action: Action) -> None:
    """Raise StartRefusedError (exit status 4) where an action makes no sense in the state of a process."""
    if row.state is ProcessState.ELSEWHERE:
        raise StartRefusedError(f"{row.name} was not started by `regnum up`; use the means that started it")
    if row.state is ProcessState.EXITED:
        raise StartRefusedError(f"{row.name} does not run; `regnum start {row.name}` starts it")
    if action is Action.RESUME and row.state is not ProcessState.PAUSED:
        raise StartRefusedError(f"{row.name} is not paused")
    if action is Action.STOP and row.state is ProcessState.PAUSED:
        raise StartRefusedError(
            f"{row.name} is paused, so it cannot stop in order; `regnum resume {row.name}` first, or "
            f"`regnum kill {row.name}`"
        )


async def run_action(
    data_dir: Path | None, names: Sequence[str], action: Action, *, report: Callable[[str], None]
) -> list[ProcessRow]:
    """Do something with processes of the cluster in a folder (None: the profile's); returns them as they are then.

    Args:
        data_dir: folder of the cluster.
        names: of the processes in it: ``broker-2``.
        action: what to do.
        report: gets a line about what is waited for.

    Raises:
        StartRefusedError: there is no cluster or no such process (exit status 3); it is in a state in which that makes
            no sense (4), and nothing was done then; it does not stop in time (5).
        ProfileError: the profile cannot be read.
    """
    folder = chosen_folder(data_dir)
    rows = chosen_rows(read_status(folder), names)
    for row in rows:
        check_action(row, action)
    record = read_record(folder)
    known = {} if record is None else record.processes
    for row in rows:
        known[row.name].send(SIGNALS[action])
    if action in {Action.STOP, Action.KILL}:
        report(f"waiting until {', '.join(row.name for row in rows)} ended")
    try:
        async with asyncio.timeout(STOPPED_S):
            # The kernel carries a signal out a moment later, and they are not our children: a look now and then.
            waiting = rows
            while waiting:
                waiting = [row for row in waiting if not _is_done(known[row.name], action)]
                await asyncio.sleep(LOOK_S if waiting else 0)
    except TimeoutError:
        left = next(row.name for row in rows if not _is_done(known[row.name], action))
        raise StartRefusedError(
            f"{left} is not {_DONE[action]} after {STOPPED_S:g} s; see `regnum logs {left}`, or end it with `regnum "
            f"kill {left}`",
            exit_status=ExitStatus.UNAVAILABLE,
        ) from None
    if action in {Action.STOP, Action.KILL}:
        # Its port may be taken for a moment yet, by what the kernel still closes.
        return [replace(row, state=ProcessState.EXITED, pid=None) for row in rows]
    return chosen_rows(read_status(folder), names)


_DONE: Final[Mapping[Action, str]] = MappingProxyType(
    {Action.STOP: "stopped", Action.KILL: "ended", Action.PAUSE: "paused", Action.RESUME: "resumed"}
)


def _is_done(process: ProcessIdentity, action: Action) -> bool:
    state = process.state()
    match action:
        case Action.STOP | Action.KILL:
            return state is None
        case Action.PAUSE:
            return state in {None, "T"}
        case Action.RESUME:
            return state != "T"


def log_of(data_dir: Path | None, name: str) -> Path:
    """The file that has the output of a process. Raises StartRefusedError (exit status 3) and ProfileError."""
    folder = chosen_folder(data_dir)
    (row,) = chosen_rows(read_status(folder), [name])
    path = folder / LOGS / f"{row.name}.log"
    if not path.is_file():
        raise StartRefusedError(f"{row.name} has written nothing yet ({path})", exit_status=ExitStatus.NOT_FOUND)
    return path
