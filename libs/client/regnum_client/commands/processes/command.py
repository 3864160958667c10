"""`regnum start`, `stop`, `kill`, `pause`, `resume`: processes of `regnum up` by their names."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.invocation import DebugOption, Output, OutputOption, completed, note_wait, run
from regnum_client.commands.local import COLUMNS, DataDirOption, process_rows
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_local.cluster import ProcessRow

NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        autocompletion=completed("processes"),
        help="Names of processes, as `regnum status` shows them.",
    ),
]

HELP: Final = {
    "stop": "End processes in order: a broker first hands over what it leads. `regnum start` brings them back.",
    "kill": "End processes at once, as a crash does (kill -9). `regnum start` brings them back.",
    "pause": "Have processes do nothing, with connections open, as a machine that hangs (SIGSTOP).",
    "resume": "Have processes that were paused go on (SIGCONT).",
}


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.command("start")(start)
    for name, text in HELP.items():
        app.command(name, help=text)(_doing(name))


def start(
    *,
    names: NamesArgument,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Start processes of `regnum up` that have ended or were killed. Done when they serve."""

    async def work() -> "list[ProcessRow]":
        from regnum_local.lifecycle import run_restart  # noqa: PLC0415 - gRPC is loaded when there is something to do

        return [await run_restart(data_dir, name, report=note_wait) for name in dict.fromkeys(names)]

    emit_rows(process_rows(run(work())), output, columns=COLUMNS)


def _doing(action: str) -> Any:
    """The command that does something with processes."""

    def command(
        *,
        names: NamesArgument,
        data_dir: DataDirOption = None,
        output: OutputOption = Output.TABLE,
        _debug: DebugOption = False,
    ) -> None:
        async def work() -> "list[ProcessRow]":
            from regnum_local.controlling import Action, run_action  # noqa: PLC0415

            return await run_action(data_dir, names, Action(action), report=note_wait)

        emit_rows(process_rows(run(work())), output, columns=COLUMNS)

    return command
