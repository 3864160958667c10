"""`regnum explain --timing`: where the time of a partition's last change went, by traces on this machine."""

import asyncio
from pathlib import Path
from typing import Any

import typer

from regnum_client.commands.failovers.traces import NO_TRACES_STATUS, failed, traces_of
from regnum_client.commands.invocation import Output, run, visible
from regnum_client.commands.rendering import emit_one


def show_timing(topic: str, partition: int, *, traces: Path | None, change: str, output: Output) -> None:
    """Print the chain; asks no cluster."""

    async def work() -> tuple[str, dict[str, Any]]:
        return await asyncio.to_thread(_timing, traces_of(traces), topic, partition, change)

    text, document = run(work())
    if output is Output.TABLE:
        typer.echo("\n".join(visible(line) for line in text.splitlines()))
    else:
        emit_one(document, output)


def _timing(source: Path, topic: str, partition: int, trace_id: str) -> tuple[str, dict[str, Any]]:
    """The chain as text and as a document. Raises CommandFailedError where there is none."""
    # Only this command needs what reads traces.
    from regnum_insight.engine import analyse  # noqa: PLC0415
    from regnum_insight.reporting.rows import chain_row, row_of  # noqa: PLC0415
    from regnum_insight.reporting.timing import change_of_partition, timing_text  # noqa: PLC0415

    try:
        changes = analyse(source).changes
    except FileNotFoundError as error:
        raise failed(NO_TRACES_STATUS, f"{error}; name the folder that has traces with --traces") from error
    found = change_of_partition(changes, topic, partition, trace_id)
    name = f"{topic}/{partition}"
    if found is None:
        named = f" whose trace begins with {trace_id}" if trace_id else ""
        raise failed(
            NO_TRACES_STATUS,
            f"the traces of {source} tell of no change of {name}'s leader{named}; they tell of "
            f"{len(changes):,} changes: see `regnum failovers report`",
        )
    change, chain = found
    document = {"topic": topic, "partition": partition, "chain": chain_row(chain), "change": row_of(change)}
    return timing_text(name, change, chain), document
