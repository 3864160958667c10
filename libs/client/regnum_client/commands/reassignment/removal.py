"""`regnum brokers remove-check`: whether brokers may be taken away for good. It changes nothing."""

from typing import TYPE_CHECKING, Annotated, Any

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
    """Say whether brokers may be taken away for good, and why not. Exit status 5: one may not; 3: one is not known.

    Strays that one has (`regnum brokers strays`) are listed, and go with its disk.
    """

    async def work() -> "tuple[Mapping[int, tuple[str, ...]], list[int], Figures]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import removable  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=CLIENT_ID) as admin:
            unknown = [one.id for one in await admin.describe_brokers(brokers) if not one.known]
            return await removable(admin, brokers), unknown, await admin.describe_figures()

    found, unknown, figures = run(work())
    strays = {id: getattr(figures.get(id), "strays", None) for id in found}
    rows = [
        {"broker": id, "safe": not reasons, "reasons": list(reasons), "strays": strays[id]}
        for id, reasons in found.items()
    ]
    emit_rows(_lines(found) if output is Output.TABLE else rows, output, columns=("broker", "safe", "reason"))
    for id, count in strays.items():
        if count and output is Output.TABLE:
            note(
                f"broker {id} has {count} logs of topics or partitions that do not exist, perhaps the only ones: they "
                f"go with its disk; see `regnum brokers strays --broker {id}`"
            )
    unsafe = [id for id, reasons in found.items() if reasons]
    if unsafe:
        said = "; ".join(f"broker {id}: {reason}" for id in unsafe for reason in found[id])
        if output is Output.TABLE:
            said = f"not to be taken away: {', '.join(map(str, unsafe))}; the reasons are in the table"
        code, status = ("BROKER_ID_NOT_REGISTERED", 3) if unknown else ("NOT_REMOVABLE", 5)
        raise CommandFailedError(Failure(code=code, message=said, exit_status=status, metadata={}))
    if output is Output.TABLE:
        note("no replica is on them and none will come; they can be taken away")


def _lines(found: "Mapping[int, tuple[str, ...]]") -> list[dict[str, Any]]:
    """For people: a line for each reason."""
    return [
        {"broker": id if place == 0 else "", "safe": not reasons if place == 0 else "", "reason": reason}
        for id, reasons in found.items()
        for place, reason in enumerate(reasons or ("",))
    ]
