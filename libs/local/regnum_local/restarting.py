"""`regnum restart`: a request in the cluster's folder, which its launcher carries out and answers there.

The processes are the launcher's children: one that anybody else started would be seen by no `regnum up` and ended by no
`regnum down`. It is a file and not a signal because a launcher of an earlier release would die of one.

    requests/ID.json         what is asked for; the launcher takes it away when it begins
    requests/ID.answer.json  how it ended
"""

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from regnum_service.clock import Clock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.ports import is_free

from regnum_local.cluster import HEALTHY_TIMEOUT_S, LocalCluster, ProcessRow, ProcessState
from regnum_local.files import read_json, write_json

REQUESTS: Final = "requests"
"""Folder of requests, in the cluster's."""
LOOK_S: Final = 0.2
"""Between two looks for requests, and for an answer."""
TAKEN_UP_S: Final = 90.0
"""So long a request waits for its turn: there may be one before it."""
ANSWERED_S: Final = HEALTHY_TIMEOUT_S + 30.0
"""So long one takes that was taken up: an orderly end, then a start until the process serves."""
_ANSWER: Final = ".answer.json"
_NAME: Final = re.compile(r"[0-9a-f]{32}(\.answer)?\.json")


def forget_requests(data_dir: Path) -> None:
    """Requests of an earlier run go: who asked has gone. Before anybody is told that this one is ready."""
    for path in _files(data_dir):
        path.unlink(missing_ok=True)


def _files(data_dir: Path) -> list[Path]:
    """Requests and answers; what else is in their folder is not Regnum's."""
    return sorted(
        path for path in (data_dir / REQUESTS).glob("*.json") if _NAME.fullmatch(path.name) and path.is_file()
    )


async def serve_requests(cluster: LocalCluster, clock: Clock) -> None:
    """Carry out what is asked for, one after another, without end. Belongs to the launcher."""
    while True:
        for path in _files(cluster.data_dir):
            if not path.name.endswith(_ANSWER):
                await _carry_out(cluster, path)
        await clock.sleep(LOOK_S)


async def _carry_out(cluster: LocalCluster, path: Path) -> None:
    try:
        asked = _taken(path)
        if asked is None:
            return
        name, force = str(asked["restart"]), bool(asked["force"])
        check_restart(cluster.status(), name, force=force)
        await cluster.restart(name)
        await cluster.wait_healthy(name)
        answer: dict[str, Any] = {}
    except StartRefusedError as error:
        slow = error.exit_status is ExitStatus.UNAVAILABLE
        goes_on = "\nIt goes on starting: `regnum status` says when it serves" if slow else ""
        answer = {"error": f"{error}{goes_on}", "exit_status": int(error.exit_status)}
    except (KeyError, TypeError, ValueError) as error:
        answer = {"error": f"{path.name} asks for nothing that is known here: {error!r}", "exit_status": 1}
    except OSError as error:
        # No room, no descriptors, no more processes: that of the others goes on.
        answer = {"error": f"the machine does not let it start: {error}", "exit_status": 1}
    with suppress(OSError):
        # Whoever asked waits for it no longer than for a process that is slow.
        write_json(_answer_to(path), answer)


def _taken(path: Path) -> Any | None:
    """The request, which is there no more then; None: whoever asked has gone."""
    asked = read_json(path)
    path.unlink(missing_ok=True)
    return asked


def check_restart(processes: Sequence[ProcessRow], name: str, *, force: bool) -> None:
    """Raise StartRefusedError for a process that is not there, one that runs, and one whose port somebody else has."""
    row = next((one for one in processes if one.name == name), None)
    if row is None:
        raise StartRefusedError(
            f"there is no process {name}; there are {', '.join(one.name for one in processes)}",
            exit_status=ExitStatus.NOT_FOUND,
        )
    if row.state is not ProcessState.EXITED:
        if force:
            return
        raise StartRefusedError(
            f"{name} is {row.state.value} (pid {row.pid}); give --force to end it first, and start it again then"
        )
    for address in row.addresses.values():
        if not is_free(address.port, address.host):
            raise StartRefusedError(
                f"{name} does not run here, and another process listens at its address {address}: end that first; "
                "perhaps it was started by hand"
            )


async def ask_for_restart(
    data_dir: Path, name: str, *, force: bool, launcher_lives: Callable[[], bool], clock: Clock
) -> None:
    """Have the launcher of the cluster in a folder start a process again; done when it serves.

    Raises StartRefusedError: what the launcher refuses (see ``check_restart``), how the start failed, and UNAVAILABLE
    when it does not answer.
    """
    path = data_dir / REQUESTS / f"{uuid.uuid4().hex}.json"
    answered = _answer_to(path)
    write_json(path, {"restart": name, "force": force})
    try:
        began_s = clock.monotonic()
        taken_up_s: float | None = None
        while (answer := read_json(answered)) is None:
            now_s = clock.monotonic()
            if taken_up_s is None and not path.exists():
                taken_up_s = now_s
            late = now_s - began_s >= TAKEN_UP_S if taken_up_s is None else now_s - taken_up_s >= ANSWERED_S
            if late or not launcher_lives():
                raise _unanswered(name)
            await clock.sleep(LOOK_S)
    finally:
        path.unlink(missing_ok=True)
        answered.unlink(missing_ok=True)
    if "error" in answer:
        raise StartRefusedError(str(answer["error"]), exit_status=ExitStatus(answer["exit_status"]))


def _unanswered(name: str) -> StartRefusedError:
    return StartRefusedError(
        f"`regnum up` does not answer, so {name} was perhaps not started again; look at its terminal and at `regnum "
        "status`. One of an earlier release knows no restart: `regnum down`, then `regnum up` with the same folder",
        exit_status=ExitStatus.UNAVAILABLE,
    )


def _answer_to(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".json") + _ANSWER)
