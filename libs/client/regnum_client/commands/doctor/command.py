"""`regnum doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.commands.invocation import (
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    note,
    run,
)
from regnum_client.commands.local import DataDirOption
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_client.commands.doctor.findings import Finding

TIMEOUT_S: Final = 5.0
"""How long each process is waited for: one that hangs is a finding."""
COLUMNS: Final = ("level", "check", "subject", "evidence", "advice")
WARNED: Final = 1
"""Exit status where something should be seen to, and all works."""
BROKEN: Final = 5
"""Exit status where something does not work, or could not be looked at."""


def add_to(app: typer.Typer) -> None:
    """Hang the command into the command line."""
    app.command("doctor")(doctor)


def doctor(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Show what is well, too.")] = False,
    lag_max: Annotated[
        int, typer.Option("--lag-max", metavar="RECORDS", min=0, help="How far a group may be behind.")
    ] = 100_000,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE",
            help="Pack what a report needs into FILE (.tar.gz): no secrets, and no records.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long each process is waited for.")
    ] = TIMEOUT_S,
    _debug: DebugOption = False,
) -> None:
    """Look at everything and say what to do. Exit status 0: all is well, 1: something to see to, 5: broken."""

    async def work() -> "list[Finding]":
        from regnum_client.commands.doctor.checks import examine  # noqa: PLC0415 - help is to be there at once
        from regnum_client.commands.doctor.gathering import brokers_of, gather  # noqa: PLC0415

        gathered = await gather(data_dir, bootstrap, timeout_s=timeout, lag_max=lag_max)
        findings = examine(gathered)
        if bundle is not None:
            from regnum_client.commands.doctor.bundle import write_bundle  # noqa: PLC0415

            brokers = brokers_of(gathered.status, bootstrap)
            await write_bundle(bundle, gathered, findings, data_dir=data_dir, bootstrap=brokers, timeout_s=timeout)
        return findings

    findings = run(work())
    _show(findings, output, everything=everything)
    if bundle is not None:
        note(
            f"{bundle} has what a report needs; look at it before it goes to others: it names topics, groups and hosts"
        )
    levels = {finding.level.value for finding in findings}
    if levels & {"error", "unknown"}:
        raise typer.Exit(BROKEN)
    if "warning" in levels:
        raise typer.Exit(WARNED)


def _show(findings: "list[Finding]", output: Output, *, everything: bool) -> None:
    from regnum_client.commands.doctor.findings import Level, as_row  # noqa: PLC0415

    shown = [
        finding for finding in findings if everything or output is not Output.TABLE or finding.level is not Level.OK
    ]
    emit_rows([as_row(finding) for finding in shown], output, columns=COLUMNS)
    if output is Output.TABLE:
        counts = {level: sum(finding.level is level for finding in findings) for level in Level}
        note(", ".join(f"{count} {level.value}" for level, count in counts.items() if count))
