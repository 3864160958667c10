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
    """Say whether brokers may be taken away for good. Exit status 5: one may not, with the reasons."""

    async def work() -> "Mapping[int, tuple[str, ...]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import removable  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=CLIENT_ID) as admin:
            return await removable(admin, brokers)

    found = run(work())
    rows = [{"broker": id, "safe": not reasons, "reasons": list(reasons)} for id, reasons in found.items()]
    emit_rows(rows, output, columns=("broker", "safe", "reasons"))
    unsafe = [id for id, reasons in found.items() if reasons]
    if unsafe:
        said = "; ".join(f"broker {id}: {reason}" for id in unsafe for reason in found[id])
        raise CommandFailedError(Failure(code="NOT_REMOVABLE", message=said, exit_status=5, metadata={}))
    if output is Output.TABLE:
        note("nothing is on them and nothing will come; they can be taken away")
