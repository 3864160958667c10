"""`regnum brokers remove-check`: whether brokers may be taken away for good. It changes nothing."""

from typing import TYPE_CHECKING, Annotated

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
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
)
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regnum_client.admin.health.figures import Figures


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum brokers`."""
    group.command("remove-check")(remove_check)


def remove_check(
    *,
    brokers: Annotated[list[int], typer.Argument(metavar="ID...", min=0, help="Brokers that are to go together.")],
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Say whether brokers may be taken away for good. Exit status 5: one may not, with the reasons.

    Strays that one has (`regnum brokers strays`) are told of, and go with its disk.
    """

    async def work() -> "tuple[Mapping[int, tuple[str, ...]], Figures]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import removable  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=CLIENT_ID) as admin:
            return await removable(admin, brokers), await admin.describe_figures()

    found, figures = run(work())
    strays = {id: getattr(figures.get(id), "strays", None) for id in found}
    rows = [
        {"broker": id, "safe": not reasons, "reasons": list(reasons), "strays": strays[id]}
        for id, reasons in found.items()
    ]
    emit_rows(rows, output, columns=("broker", "safe", "reasons"))
    for id, count in strays.items():
        if count and output is Output.TABLE:
            note(
                f"broker {id} has {count} logs of topics or partitions that nobody knows, perhaps the only ones: they "
                f"go with its disk; see `regnum brokers strays --broker {id}`"
            )
    unsafe = [id for id, reasons in found.items() if reasons]
    if unsafe:
        said = "; ".join(f"broker {id}: {reason}" for id in unsafe for reason in found[id])
        raise CommandFailedError(Failure(code="NOT_REMOVABLE", message=said, exit_status=5, metadata={}))
    if output is Output.TABLE:
        note("no replica is on them and none will come; they can be taken away")
