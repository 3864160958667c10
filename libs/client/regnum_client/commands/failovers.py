"""`regnum failovers`: where the time of failovers went, by the traces."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regnum_client.commands.invocation import (
    CommandFailedError,
    DebugOption,
    Failure,
    Group,
    Output,
    OutputOption,
    note,
    run,
)
from regnum_client.commands.local import DATA_DIR
from regnum_client.commands.rendering import emit_one

group = typer.Typer(cls=Group, help="Failovers, by the traces of the services.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.add_typer(group, name="failovers")


@group.callback()
def _failovers() -> None:
    """Failovers, by the traces of the services."""


@group.command("report")
def report(
    *,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces", metavar="DIR", help="Folder of *.jsonl. Default: traces of the cluster of `regnum up`."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for the tables (Parquet). Default: failovers, beside traces."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Run the Spark job over traces: one row for each failover, with the length of each stage. Needs Java 17."""

    async def work() -> str:
        from regnum_local.failover_job import JobError, run_failover_job  # noqa: PLC0415
        from regnum_local.profile import read_profile  # noqa: PLC0415

        profile = read_profile() if traces is None else None
        source = traces or (DATA_DIR if profile is None else profile.data_dir) / "traces"
        tables = out or source.absolute().parent / "failovers"
        note(f"Spark reads {source}; it takes a while to start")
        try:
            return await run_failover_job(source, tables, form="table" if output is Output.TABLE else "json")
        except JobError as error:
            status = error.exit_status
            failure = Failure(code=CODES[int(status)], message=str(error), exit_status=int(status), metadata={})
            raise CommandFailedError(failure) from error

    printed = run(work())
    if output is Output.TABLE:
        typer.echo(printed, nl=False)
    else:
        emit_one(json.loads(printed), output)


CODES = {1: "JOB_FAILED", 3: "NO_TRACES", 5: "SPARK_UNAVAILABLE"}
"""Names of the failures by their exit status."""
