"""What the demo prints: steps while it runs, a table at the end."""

from collections.abc import Iterator, Sequence

from regnum_insight.attribution import steps
from rich.console import Console
from rich.table import Table

from regnum_local.demo.timeline import Outage, Timeline
from regnum_local.demo.verdict import Verdict


class Narrator:
    """Says what happens, on stderr, with the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def step(self, text: str) -> None:
        """A new scene."""
        self._console.print(f"[bold cyan]>[/] {text}", highlight=False)

    def detail(self, text: str) -> None:
        """Something within a scene."""
        self._console.print(f"  {text}", style="dim", highlight=False)

    def complaint(self, text: str) -> None:
        """Something that is wrong."""
        self._console.print(f"[bold red]![/] {text}", highlight=False)


def outage_table(outages: Sequence[Outage], *, usual_s: float) -> Table:
    """One row for each kill, and for the planned move."""
    table = Table(title="kills and a planned move, as the client saw them", title_justify="left")
    table.add_column("what")
    table.add_column("partitions", justify="right")
    table.add_column("longest wait for an ack", justify="right")
    table.add_column("successor known after", justify="right")
    for outage in outages:
        table.add_row(outage.victim, str(outage.partitions), f"{outage.client_s:.3f} s", f"{outage.successor_s:.3f} s")
    table.caption = f"without a kill the longest wait between two acks was {usual_s:.3f} s"
    table.caption_justify = "left"
    return table


def verdict_table(verdict: Verdict, *, partitions: int, unequal: Sequence[str], reader: Verdict) -> Table:
    """The whole judgement."""
    table = Table(title="what became of the records", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows = [
        ("acknowledged", verdict.acknowledged),
        ("in the log", verdict.found),
        ("lost", len(verdict.lost)),
        ("duplicated", len(verdict.duplicated)),
        ("out of order", len(verdict.reordered)),
        ("at another offset than acknowledged", len(verdict.moved)),
        ("never sent", len(verdict.invented)),
        ("read live by the consumer", reader.found),
        ("acknowledged and not read by it", len(reader.lost)),
        ("read by it where the log has another", len(reader.misread)),
    ]
    for name, count in rows:
        wrong = count and name not in {"acknowledged", "in the log", "read live by the consumer"}
        table.add_row(name, f"[bold red]{count:,}[/]" if wrong else f"{count:,}")
    equal = f"{partitions - len(unequal)} of {partitions} partitions"
    table.add_row("byte-equal on all replicas", f"[bold red]{equal}[/]" if unequal else equal)
    return table


def timeline_tables(timelines: Sequence[Timeline]) -> Iterator[Table]:
    """A column for each kill and each planned move: steps as the traces saw them, then the outage as both saw it.

    A controller's succession has other steps than a change of leaders, and a table of its own, before theirs.
    """
    for of_leaders in (False, True):
        alike = [timeline for timeline in timelines if timeline.outage.of_leaders is of_leaders]
        if not alike:
            continue
        table = Table(title="where the time went, by the traces", title_justify="left")
        table.add_column("until the end of")
        for timeline in alike:
            table.add_column(timeline.outage.planned or timeline.outage.process, justify="right")
        for name in steps.ALL_STEPS:
            if any(name in timeline.stages_ms for timeline in alike):
                table.add_row(name.replace("_", " "), *(_ms(timeline.stages_ms.get(name)) for timeline in alike))
        table.add_section()
        table.add_row("total", *(_ms(timeline.total_ms) for timeline in alike))
        table.add_section()
        table.add_row("longest wait for an ack, by the traces", *(_ms(each.traced_outage_ms) for each in alike))
        table.add_row("longest wait for an ack, by the client", *(_ms(each.outage.client_s * 1000) for each in alike))
        yield table


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
