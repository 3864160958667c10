"""`regnum partitions remove-damaged`: partitions whose record in the store cannot be read."""

from typing import TYPE_CHECKING, Annotated

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    CommandFailedError,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    completed,
    failure_of,
    note,
    run,
)
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.recovery import DamagedNumber


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum partitions`."""
    group.command("remove-damaged")(give_up)
    # Accepted for one release: its name before.
    group.command("give-up", hidden=True)(give_up)


def give_up(
    *,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Argument(metavar="[PARTITION...]", min=0, help="Partition numbers. Default: all that are damaged."),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Remove them for good, with all their records. Default: report."),
    ] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show partitions whose record in the store cannot be read; with --accept-loss, remove them for good.

    Try `regnum partitions recover` first where the partition still stands: it keeps what its brokers have.
    """

    async def work() -> "tuple[DamagedNumber, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await admin.give_up_partitions(topic, partitions or (), accept_loss=accept_loss)

    found = run(work())
    rows = [
        {
            "partition": one.partition,
            "given_up": one.given_up,
            "damaged_because": one.reason,
            "may_be_lost": one.may_be_lost,
            **({} if output is Output.TABLE else {"failure": None if one.failure is None else one.failure.message}),
        }
        for one in found
        if one.reason
    ]
    columns = ("partition", "given_up", "damaged_because", "may_be_lost")
    emit_rows(rows, output, columns=columns, empty=f"nothing of {topic} is damaged")
    if output is Output.TABLE and rows and not accept_loss:
        note("nothing was changed; run it again with --accept-loss if their records may be lost")
    failures = [failure_of(one.failure) for one in found if one.failure is not None]
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])
