"""`regnum quotas calibrate`: find by trial what rate of changes this cluster bears."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.rendering import emit_one

if TYPE_CHECKING:
    from regnum_client.commands.quotas.calibration import Proposal, Step

CLIENT_ID: Final = "regnum-calibrate"


def calibrate(
    *,
    first: Annotated[
        float, typer.Option("--from", metavar="PARTITIONS_PER_S", min=1.0, max=10_000.0, help="The first rate.")
    ] = 10.0,
    most: Annotated[
        float, typer.Option("--to", metavar="PARTITIONS_PER_S", min=1.0, max=100_000.0, help="No rate above this.")
    ] = 1_000.0,
    step_s: Annotated[
        float, typer.Option("--step", metavar="SECONDS", min=1.0, max=120.0, help="How long each rate is tried.")
    ] = 5.0,
    wait_max_ms: Annotated[
        float,
        typer.Option(
            "--max-wait", metavar="MS", min=1.0, help="Longest wait in the controller's queue to accept, milliseconds."
        ),
    ] = 50.0,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw the plot into it, too.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also on a cluster under load, or an unhealthy one.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Only delete what calibrations left behind.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Create and delete topics of its own at rising rates, and propose a quota for the cluster.

    Nothing else is touched, and its topics are deleted at the end, also after Ctrl-C or kill -9.
    """
    if most < first:
        raise wrong_use(f"--to {most:g} is below --from {first:g}; give a larger one")
    if png is not None:
        _check_png(png)

    async def work() -> "tuple[Step, ...] | None":
        from regnum_service.clock import SystemClock  # noqa: PLC0415

        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.cluster.bootstrap import bootstrap_addresses  # noqa: PLC0415
        from regnum_client.commands.quotas.janitor import PREFIX, sweep  # noqa: PLC0415
        from regnum_client.commands.quotas.trial import why_not  # noqa: PLC0415

        clock, addresses = SystemClock(), ",".join(map(str, bootstrap_addresses(bootstrap)))
        async with Admin(addresses, timeout_s=timeout or TIMEOUT_S, client_id=CLIENT_ID) as admin:
            if clean:
                note(f"{await sweep(admin, PREFIX, clock=clock, quiet_s=0.0)} topics of calibrations deleted")
                return None
            reason = None if force else await why_not(admin, clock, wait_max_ms)
            if reason is not None:
                raise CommandFailedError(
                    Failure(
                        code="CLUSTER_BUSY",
                        message=f"{reason}; what is measured now would say nothing, and might hurt others. Try later, "
                        "delete what an earlier one left with --clean, or give --force",
                        exit_status=4,
                        metadata={},
                    )
                )
            return await _try(admin, clock, addresses, first, most, step_s, wait_max_ms)

    steps = run(work())
    if steps is not None:
        _show(steps, wait_max_ms, png, output)


async def _try(
    admin: Any, clock: Any, bootstrap: str, first: float, most: float, step_s: float, wait_max_ms: float
) -> "tuple[Step, ...]":
    from regnum_client.commands.quotas.calibration import next_rate  # noqa: PLC0415
    from regnum_client.commands.quotas.trial import trial  # noqa: PLC0415

    steps: list[Step] = []
    async with trial(admin, clock, bootstrap) as trying:
        while (rate := next_rate(steps, first=first, most=most, wait_max_ms=wait_max_ms)) is not None:
            note(f"{rate:g} partitions a second, for {step_s:g} s")
            steps.append(await trying.step(rate, step_s))
        note("deleting the topics of the calibration")
    return tuple(steps)


def _show(steps: "tuple[Step, ...]", wait_max_ms: float, png: Path | None, output: Output) -> None:
    from regnum_client.commands.quotas.calibration import plot, propose  # noqa: PLC0415

    proposal = propose(steps, wait_max_ms)
    if output is Output.TABLE:
        for line in plot(steps, wait_max_ms):
            typer.echo(line)
        typer.echo(_advice(proposal))
    else:
        emit_one(document_of(steps, proposal, wait_max_ms), output)
    if png is not None:
        _draw(steps, wait_max_ms, png)


def _advice(proposal: "Proposal | None") -> str:
    if proposal is None:
        return "not even the first rate was borne; try a lower one with --from, or a quieter hour"
    return f"proposed: regnum quotas set --cluster --rate {proposal.rate:g} --burst {proposal.burst:g}"


def document_of(steps: "tuple[Step, ...]", proposal: "Proposal | None", wait_max_ms: float) -> dict[str, Any]:
    """All of it for machines; a time that nobody can tell is null."""
    return {
        "max_wait_ms": wait_max_ms,
        "steps": [
            {
                "offered_rate": step.offered_rate,
                "done_rate": round(step.done_rate, 3),
                "seconds": round(step.seconds, 3),
                "wait_p99_ms": None if step.wait_p99_ms == float("inf") else step.wait_p99_ms,
                "borne": step.is_borne(wait_max_ms),
            }
            for step in steps
        ],
        "proposal": None if proposal is None else {"rate": proposal.rate, "burst": proposal.burst},
    }


def _check_png(file: Path) -> None:
    """Before anything is tried: minutes later is too late to learn that there is no picture."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("matplotlib") is None:
        raise wrong_use('no picture without matplotlib: pip install "regnum[bench]", or leave out --png')
    if not file.parent.is_dir():
        raise wrong_use(f"{file.parent} is no folder; make it, or choose another FILE for --png")


def _draw(steps: "tuple[Step, ...]", wait_max_ms: float, file: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    known = [step for step in steps if step.wait_p99_ms != float("inf")]
    axes.plot([step.done_rate for step in known], [step.wait_p99_ms for step in known], "o-", color="#1f6feb")
    axes.axhline(wait_max_ms, color="#8b949e", linestyle="--")
    axes.set_xlabel("partitions created and deleted a second")
    axes.set_ylabel("99 of 100 events wait at most, ms")
    axes.set_ylim(bottom=0)
    figure.savefig(file, format="png", dpi=150)
    note(f"drawn: {file}")
