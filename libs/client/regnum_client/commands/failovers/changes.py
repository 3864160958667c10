"""`regnum failovers list` and `compare`: changes chosen by what they are about, and two of them stage by stage."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regnum_client.commands.failovers.traces import NO_TRACES_STATUS, TracesOption, failed, traces_of
from regnum_client.commands.invocation import DebugOption, Output, OutputOption, note, run, visible, wrong_use
from regnum_client.commands.moments import moment_ms
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_insight.attribution.changes import Change

COLUMNS = ("started", "kind", "victim", "partitions", "worst", "total_ms", "outage_ms", "errors", "trace_id")
TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Trace id of a change, or how it begins.")]


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum failovers`."""
    group.command("list")(list_changes)
    group.command("compare")(compare)


def list_changes(
    *,
    kind: Annotated[
        str, typer.Option("--kind", help="Only of this kind or cause: broker-failure, balance, silence, ...")
    ] = "",
    victim: Annotated[str, typer.Option("--victim", metavar="NAME", help="Process that failed: 2, broker-2.")] = "",
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", min=0, help="Broker that failed, or leads since."),
    ] = None,
    partition: Annotated[
        str, typer.Option("--partition", metavar="TOPIC[/N]", help="Only where this partition, or topic, changed.")
    ] = "",
    min_ms: Annotated[
        float, typer.Option("--min-ms", metavar="MS", min=0, help="Only where the slowest partition took so long.")
    ] = 0.0,
    error: Annotated[
        str,
        typer.Option(
            "--error",
            metavar="NAME",
            help="Only where a client was answered with this error; any: with one, or the change is unfinished.",
        ),
    ] = "",
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Only those since: 2h, or a time.")] = "",
    longest: Annotated[bool, typer.Option("--longest", help="The longest first. Default: the newest.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="So many at most. Default: all.")] = None,
    traces: TracesOption = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """List changes of leadership that the traces tell of, with the id of each trace."""
    begin_ms = moment_ms(since, time.time_ns() // 1_000_000) if since else 0
    if begin_ms is None:
        raise wrong_use(f"--since {since!r} is no time: give an age such as 2h, or 2026-01-31T12:00:00Z")

    async def work() -> "tuple[int, list[Change]]":
        from regnum_insight.reporting.choosing import ChangeFilter  # noqa: PLC0415 - only this needs it

        changes = await _changes(traces)
        chosen = ChangeFilter(
            kind=kind, victim=victim, broker=broker, partition=partition, min_ms=min_ms, error=error,
            since_ns=begin_ms * 1_000_000,
        )  # fmt: skip
        return len(changes), [one for one in reversed(changes) if chosen.finds(one)]

    of, found = run(work())
    if longest:
        found.sort(key=lambda one: -one.total_ms)
    shown = found[:limit]
    rows = [_row(one, output) for one in shown]
    emit_rows(rows, output, columns=COLUMNS, empty=f"none of {of:,} changes matches")
    if len(shown) < len(found) and output is Output.TABLE:
        note(f"{len(found) - len(shown):,} more; raise --limit")


def compare(
    *,
    first: TraceArgument,
    second: TraceArgument,
    traces: TracesOption = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Show two changes side by side, stage by stage: what each took, and which differ most."""

    async def work() -> tuple[str, dict[str, Any]]:
        from regnum_insight.reporting.comparing import pair_of, pair_text, pair_value  # noqa: PLC0415

        changes = await _changes(traces)
        pair = pair_of(_one(changes, first), _one(changes, second))
        return pair_text(pair), pair_value(pair)

    text, document = run(work())
    if output is Output.TABLE:
        typer.echo(visible(text))
    else:
        emit_one(document, output)


async def _changes(traces: Path | None) -> "list[Change]":
    """The oldest first. Raises CommandFailedError where there are no traces."""
    from regnum_insight.engine import analyse  # noqa: PLC0415 - only these commands need what reads traces

    try:
        return list((await asyncio.to_thread(analyse, traces_of(traces))).changes)
    except FileNotFoundError as error:
        raise failed(NO_TRACES_STATUS, f"{error}; name the folder that has traces with --traces") from error


def _one(changes: "list[Change]", trace_id: str) -> "Change":
    found = [one for one in changes if trace_id and one.trace_id.startswith(trace_id.lower())]
    if not found:
        raise failed(
            NO_TRACES_STATUS,
            f"no change's trace begins with {trace_id!r}; the {len(changes):,} that there are: `regnum failovers list`",
        )
    if len(found) > 1:
        raise wrong_use(f"{len(found):,} changes have a trace that begins with {trace_id!r}; give more of it")
    return found[0]


def _row(change: "Change", output: Output) -> dict[str, Any]:
    from regnum_insight.reporting.choosing import errors_of  # noqa: PLC0415
    from regnum_insight.reporting.rows import marked_label_of, summary_of  # noqa: PLC0415

    row = {**summary_of(change), "errors": list(errors_of(change))}
    if output is not Output.TABLE:
        return row
    outage = "-" if change.outage_ms is None else f"{change.outage_ms:.1f}"
    return {**row, "kind": marked_label_of(change), "total_ms": f"{change.total_ms:.1f}", "outage_ms": outage}
