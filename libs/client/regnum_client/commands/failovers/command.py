"""`regnum failovers`: where the time of failovers went, by the traces."""

import asyncio
import json
import os
import time
from dataclasses import asdict
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regnum_client.commands.console.spans import OtlpOption, TracesDirOption
from regnum_client.commands.failovers import changes
from regnum_client.commands.failovers.traces import NO_TRACES_STATUS, TracesOption, failed, traces_of
from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    note,
    run,
    visible,
    wrong_use,
)
from regnum_client.commands.rendering import emit_one

group = typer.Typer(cls=Group, help="Failovers, by the traces of the services.", no_args_is_help=True)


class By(StrEnum):
    """Parts of time, as ``regnum_insight.tables.trends`` names them."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.add_typer(group, name="failovers")


@group.callback()
def _failovers() -> None:
    """Failovers, by the traces of the services."""


@group.command("report")
def report(
    *,
    traces: TracesOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the report. Default: failovers, beside traces."),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="PATH",
            help="Traces of before: which step of failures and of planned changes differs, and by how much.",
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Run the Spark job, which writes tables (Parquet), instead. Needs Java 17."),
    ] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Where the time went: a chain of steps for each partition that had to wait, and a page with pictures."""

    async def work() -> str:
        source = traces_of(traces)
        into = out or source.absolute().parent / "failovers"
        if spark:
            return await _by_spark(source, into, output)
        return await asyncio.to_thread(_here, source, into, output, compare)

    printed = run(work())
    if output is Output.TABLE:
        typer.echo(visible(printed), nl=False)
    else:
        emit_one(json.loads(printed), output)


@group.command("trends")
def trends(
    *,
    tables: Annotated[
        Path, typer.Option("--tables", metavar="DIR", help="Folder of tables that the job over traces writes.")
    ],
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="DATE", formats=["%Y-%m-%d"], help="Changes that began on this day or later."),
    ] = None,
    by: Annotated[By, typer.Option("--by", help="Count by so much time.")] = By.MONTH,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Months of changes: how many, how long producers waited, and which step a release made longer."""

    async def work() -> str:
        return await asyncio.to_thread(_trends, tables, None if since is None else since.date(), by, output)

    printed = run(work())
    if output is Output.TABLE:
        typer.echo(visible(printed))
    else:
        emit_one(json.loads(printed), output)


@group.command("publish")
def publish(
    *,
    traces: TracesDirOption = None,
    otlp: OtlpOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    _debug: DebugOption = False,
) -> None:
    """Write traces to the topic __traces until Ctrl-C, for whatever reads them live: the Spark job, any consumer."""

    async def work() -> dict[str, object]:
        # Spans of this process would be published in their turn.
        os.environ["OTEL_SDK_DISABLED"] = "true"
        from regnum_console.publishing.publisher import Options, publish  # noqa: PLC0415 - only this needs it

        def ready(address: str) -> None:
            note(f"spans are taken at {address}; Ctrl-C ends it" if address else "Ctrl-C ends it")

        folder = traces_of(traces) if traces is not None or (otlp is None and bootstrap is None) else None
        if folder is None and otlp is None:
            raise wrong_use("from where? --traces DIR, --otlp HOST:PORT, or both")
        try:
            done = await publish(Options(bootstrap=bootstrap, traces=folder, otlp=otlp), ready=ready, tell=note)
        except (OSError, ValueError) as error:
            raise failed(1, str(error)) from error
        return {**asdict(done.counted), "lost_bytes": done.lost_bytes}

    found = run(work())
    if output is Output.TABLE:
        typer.echo(", ".join(f"{name} {value:,}" for name, value in found.items()))
    else:
        emit_one(found, output)


def _trends(tables: Path, since: date | None, by: By, output: Output) -> str:
    """What tables say. Raises CommandFailedError."""
    try:
        # Only this command needs what reads tables.
        from regnum_insight.tables.reading import TablesError, rows_of_table  # noqa: PLC0415
        from regnum_insight.tables.trends import COLUMNS, Period, trends_of, trends_text, trends_values  # noqa: PLC0415
    except ModuleNotFoundError:
        raise failed(5, "pyarrow is not installed; install it with: pip install 'regnum[spark]'") from None
    try:
        found = trends_of(rows_of_table(tables, "changes", COLUMNS, since), Period(by))
    except TablesError as error:
        raise failed(NO_TRACES_STATUS, str(error)) from error
    return trends_text(found) if output is Output.TABLE else json.dumps(trends_values(found))


def _here(source: Path, out: Path, output: Output, before: Path | None) -> str:
    """In this process. Raises CommandFailedError where there are no traces."""
    from regnum_insight.engine import no_collection  # noqa: PLC0415 - only this command needs what reads traces

    # All that is read is let go of within: a collection after it would look through millions of objects.
    with no_collection():
        return _reported(source, out, output, before)


def _reported(source: Path, out: Path, output: Output, before: Path | None) -> str:
    from regnum_insight.engine import analyse  # noqa: PLC0415
    from regnum_insight.reporting.comparing import compare, comparison_text  # noqa: PLC0415
    from regnum_insight.reporting.files import document_of, text_of, write_files  # noqa: PLC0415

    try:
        analysis = analyse(source)
        compared = None
        if before is not None:
            other = analyse(before)
            wrote = (other.intake.processes, analysis.intake.processes)
            compared = compare(other.changes, analysis.changes, wrote=wrote)
    except FileNotFoundError as error:
        raise failed(NO_TRACES_STATUS, f"{error}; name the folder that has traces with --traces") from error
    try:
        write_files(analysis, out, source=str(source), now_s=time.time())
    except OSError as error:
        raise failed(1, f"the report cannot be written: {error}") from error
    if output is Output.TABLE:
        told = [] if compared is None else [f"\nbeside {before}: {comparison_text(compared)}"]
        return "\n".join([text_of(analysis, out), *told, ""])
    return json.dumps(document_of(analysis, out, compared))


async def _by_spark(source: Path, out: Path, output: Output) -> str:
    """By the Spark job. Raises CommandFailedError."""
    from regnum_local.failover_job import JobError, run_failover_job  # noqa: PLC0415

    note(f"Spark reads {source}; it takes a while to start")
    try:
        return await run_failover_job(source, out, form="table" if output is Output.TABLE else "json")
    except JobError as error:
        raise failed(int(error.exit_status), str(error)) from error


changes.add_to(group)
