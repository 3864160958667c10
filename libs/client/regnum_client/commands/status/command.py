"""`regnum status`: the processes of this machine's cluster, and what the controller says is wrong."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    run,
)
from regnum_client.commands.local import DataDirOption, process_rows
from regnum_client.commands.status.asking import Found, find
from regnum_client.commands.status.figures import unanswered, without_controller
from regnum_client.commands.status.shown import show

TIMEOUT_S: Final = 5.0
"""How long the controller is waited for unless told otherwise: who looks at a sick cluster wants to see it."""

LOOK_S: Final = 0.5
"""Between two looks with --wait."""


def add_to(app: typer.Typer) -> None:
    """Hang the command into the command line."""
    app.command("status")(status)


def status(
    *,
    data_dir: DataDirOption = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=1000, help="How many unhealthy partitions to name.")
    ] = 20,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for the controller.")
    ] = TIMEOUT_S,
    lag: Annotated[bool, typer.Option("--lag", help="And how far groups are behind: a call for each group.")] = False,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", min=0.1, help="Look again until all is well, at most for so long."),
    ] = None,
    _debug: DebugOption = False,
) -> None:
    """Show processes, brokers, unhealthy partitions, orders without an answer. Exit status 5: not all is well."""
    ask = functools.partial(find, data_dir, bootstrap, timeout_s=timeout, partitions_max=partitions, with_lags=lag)
    found = run(ask() if wait is None else _wait_until_well(ask, wait))
    rows = process_rows(found.processes)
    resting, paused, problems = assess(rows, found)
    show(rows, found, problems, output)
    said = "; ".join(problems)
    if resting:
        back = "`regnum up` with the same folder brings the cluster back"
        if len(resting) < len(rows):
            back = f"`regnum restart {resting[0]}` starts one again"
        raise _failed("NOT_RUNNING", f"{said}; {back}")
    if paused:
        pids = " ".join(map(str, paused.values()))
        raise _failed("PAUSED", f"{said}; `kill -CONT {pids}` lets {'it' if len(paused) == 1 else 'them'} go on")
    if found.health is None:
        raise _failed("NOT_CONTROLLER", said)
    if problems:
        raise _failed("UNHEALTHY", f"the cluster is not healthy: {said}")


async def _wait_until_well(ask: Callable[[], Awaitable[Found]], wait_s: float) -> Found:
    """What was found when all was well, or when the time was over. Raises StartRefusedError when no cluster came."""
    from regnum_service.clock import SystemClock  # noqa: PLC0415 - help is to be there at once
    from regnum_service.errors import ExitStatus, StartRefusedError  # noqa: PLC0415

    clock = SystemClock()
    until_s = clock.monotonic() + wait_s
    while True:
        late = clock.monotonic() + LOOK_S > until_s
        try:
            found = await ask()
        except StartRefusedError as error:
            if late or error.exit_status is not ExitStatus.NOT_FOUND:
                raise
            # `regnum up` may only be starting.
        else:
            # A controller that has not looked at everything yet may know of too little.
            looked = found.health is not None and found.health.complete
            if late or (looked and not assess(process_rows(found.processes), found)[-1]):
                return found
        await clock.sleep(LOOK_S)


def assess(rows: Sequence[Mapping[str, Any]], found: Found) -> tuple[list[str], dict[str, int], list[str]]:
    """Names of processes that do not run, pids of those that are paused, and all that is wrong."""
    resting = [row["name"] for row in rows if row["state"] == "exited"]
    paused = {row["name"]: row["pid"] for row in rows if row["state"] == "paused"}
    problems = [
        *([f"not running: {', '.join(resting)}"] if resting else []),
        *([f"paused: {', '.join(paused)}"] if paused else []),
        *problems_in(found),
    ]
    return resting, paused, problems


def problems_in(found: Found) -> tuple[str, ...]:
    """What is wrong by the word of the controller, and who did not answer; without a controller, what brokers say."""
    if found.health is None:
        return (found.reason, *without_controller(found.figures))
    return (*found.health.problems, *unanswered(found.figures, found.health))


def _failed(code: str, message: str) -> CommandFailedError:
    return CommandFailedError(Failure(code=code, message=message, exit_status=5, metadata={}))
