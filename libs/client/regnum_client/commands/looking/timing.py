"""`regnum explain --timing`: where the time of a partition's last change went, by traces on this machine.

Every process brings its spans out by itself, within 50 ms of their end; but the root of a change ends when the new
leaders have acknowledged records again, or 5 s after they led. Whoever asks right after a failure is before that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from regnum_client.commands.failovers.traces import NO_TRACES_STATUS, failed, traces_of
from regnum_client.commands.invocation import Output, note_wait, run, visible
from regnum_client.commands.rendering import emit_one

if TYPE_CHECKING:
    from regnum_insight.attribution.changes import Change
    from regnum_service.clock import Clock

WAIT_MAX_S: Final = 3600.0
"""Longer than any change takes, whatever is asked for."""

PAUSE_S: Final = 0.25
"""Between two looks at traces that are not whole."""


class Asked(NamedTuple):
    """Which chain is asked for."""

    topic: str
    """The topic that it is of, by name."""
    partition: int
    """Number of its partition."""
    trace_id: str
    """Begin of the trace id of the change; empty: the last one."""

    @property
    def name(self) -> str:
        """``orders/0``."""
        return f"{self.topic}/{self.partition}"


def show_timing(asked: Asked, *, traces: Path | None, wait_s: float, output: Output) -> None:
    """Print the chain; asks no cluster. ``wait_s``: for so long it waits for what is not written of a new change."""

    async def work() -> tuple[str, dict[str, Any]]:
        from regnum_service.clock import SystemClock  # noqa: PLC0415 - help is to be there at once

        source = traces_of(traces)

        async def look() -> "Sequence[Change]":
            return await asyncio.to_thread(_changes_in, source)

        changes, late = await whole(look, asked, wait_s=wait_s, clock=SystemClock(), tell=note_wait)
        return _told(changes, late, asked, source=source, wait_s=wait_s)

    text, document = run(work())
    if output is Output.TABLE:
        typer.echo("\n".join(visible(line) for line in text.splitlines()))
    else:
        emit_one(document, output)


async def whole(
    look: "Callable[[], Awaitable[Sequence[Change]]]",
    asked: Asked,
    *,
    wait_s: float,
    clock: "Clock",
    tell: Callable[[str], None],
) -> "tuple[Sequence[Change], list[str]]":
    """Changes once the chain that is asked for is whole, or the time is up; and what is not written then, in words.

    Args:
        look: reads the traces.
        asked: the chain.
        wait_s: waits for so long, and for changes that are not older than that when it begins.
        clock: source of time.
        tell: takes what it waits for, once.
    """
    from regnum_insight.reporting.timing import lacking  # noqa: PLC0415 - only this command needs what reads traces

    wait_s = min(WAIT_MAX_S, wait_s)
    until_s, told = clock.monotonic() + wait_s, False
    since_ns = clock.wall_ms() * 1_000_000 - round(wait_s * 1e9)
    while True:
        changes = await look()
        late = lacking(changes, *asked, since_ns=since_ns)
        if late and not told:
            told = True
            tell(f"waiting up to {wait_s:g} s for {'; '.join(late)}")
        left_s = until_s - clock.monotonic()
        if not late or left_s <= 0:
            return changes, late
        await clock.sleep(min(PAUSE_S, left_s))


def _changes_in(source: Path) -> "Sequence[Change]":
    """Raises CommandFailedError where there are no traces."""
    from regnum_insight.engine import analyse  # noqa: PLC0415

    try:
        return analyse(source).changes
    except FileNotFoundError as error:
        raise failed(NO_TRACES_STATUS, f"{error}; name the folder that has traces with --traces") from error


def _told(
    changes: "Sequence[Change]", late: Sequence[str], asked: Asked, *, source: Path, wait_s: float
) -> tuple[str, dict[str, Any]]:
    """The chain as text and as a document. Raises CommandFailedError where there is none."""
    from regnum_insight.reporting.rows import chain_row, row_of  # noqa: PLC0415
    from regnum_insight.reporting.timing import change_of_partition, timing_text  # noqa: PLC0415

    missing = f"after {wait_s:g} s there was not yet {'; '.join(late)}: ask again later, or wait longer (--wait)"
    found = change_of_partition(changes, *asked)
    if found is None:
        named = f" whose trace begins with {asked.trace_id}" if asked.trace_id else ""
        raise failed(
            NO_TRACES_STATUS,
            f"the traces of {source} tell of no change of {asked.name}'s leader{named}; they tell of "
            f"{len(changes):,} changes: see `regnum failovers report`{f'; {missing}' if late else ''}",
        )
    change, chain = found
    document = {
        "topic": asked.topic,
        "partition": asked.partition,
        "chain": chain_row(chain),
        "change": row_of(change),
        "not_written": list(late),
    }
    text = timing_text(asked.name, change, chain)
    return f"{text}\n  {missing}" if late else text, document
