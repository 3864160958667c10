"""`regnum brokers`: list, describe, strays, taking one away, and what to do about one that never comes back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
)
from regnum_client.commands.looking.strays import add_to as add_strays_to
from regnum_client.commands.reassignment.drain import add_to as add_drain_to
from regnum_client.commands.reassignment.removal import add_to as add_removal_to
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.forgetting import ForgottenBroker
    from regnum_client.admin.leaders.brokers import BrokerDescription

group = typer.Typer(
    cls=Group, help="Brokers: list, describe, strays, drain, remove-check, forget.", no_args_is_help=True
)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    app.add_typer(group, name="brokers")
    app.add_typer(group, name="broker", hidden=True)


@group.command("list")
def list_brokers(
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """List brokers: the live ones, and those that partitions are assigned to."""

    async def work() -> "tuple[BrokerDescription, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.describe_brokers()

    columns = (
        "id",
        "live",
        "leaders",
        "preferred",
        "in_sync",
        "replicas",
        "offline_replicas",
        "disk_free",
        "draining",
        "rack",
        "client",
    )
    emit_rows([_document(one) for one in run(work())], output, columns=columns, empty="no broker is known")


@group.command("describe")
def describe(
    *,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the broker.")],
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show a broker as the controller knows it: registration, listeners, logs, and what it leads and keeps."""

    async def work() -> "BrokerDescription":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.describe_broker(broker)

    found = run(work())
    emit_one(_document(found), output)
    if output is Output.TABLE and found.offline_replicas:
        note(f"{found.offline_replicas} of its replicas cannot be used; see its log, and `regnum partitions list`")


def _document(one: "BrokerDescription") -> dict[str, Any]:
    return {
        "id": one.id,
        "live": one.live,
        "leaving": one.leaving,
        "draining": one.draining,
        "epoch": one.epoch,
        "registration": one.registration,
        "rack": one.rack or None,
        "client": None if one.client is None else str(one.client),
        "internal": None if one.internal is None else str(one.internal),
        "log_ids": list(one.log_ids),
        "leaders": one.leaders,
        "preferred": one.preferred,
        "in_sync": one.in_sync,
        "replicas": one.replicas,
        "offline_replicas": one.offline_replicas,
        "disk_free": None if one.disk_free_bytes is None else _free(one),
        "disk_free_bytes": one.disk_free_bytes,
        "disk_size_bytes": one.disk_size_bytes,
        "refuses_writes_because": one.refuses_writes_because or None,
    }


def _free(one: "BrokerDescription") -> str:
    """For people; programs have the bytes."""
    from regnum_client.commands.status.figures import size  # noqa: PLC0415 - gRPC is loaded when there is something to do

    free = f"{size(one.disk_free_bytes or 0)} of {size(one.disk_size_bytes or 0)}"
    return f"{free} (takes no records)" if one.refuses_writes_because else free


@group.command("forget")
def forget(
    *,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the broker.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Forget it; it must never come back with its disks. Default: report.")
    ] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show which deletions wait for a broker that is gone; with --yes, let them wait for it no more."""

    async def work() -> "ForgottenBroker":
        from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            try:
                return await admin.forget_broker(broker, validate_only=not yes)
            except RegnumError as error:
                raise await _why_not_forgotten(admin, broker, error) from error

    forgotten = run(work())
    emit_one(
        {
            "broker": broker,
            "forgotten": yes,
            "deletions": forgotten.deletions,
            "deletions_ended" if yes or output is not Output.TABLE else "would_end": forgotten.deletions_ended,
            "assigned_partitions": forgotten.assigned_partitions,
        },
        output,
    )
    if output is Output.TABLE:
        if not yes:
            note("nothing was changed; run it again with --yes if the broker never comes back with its disks")
        if forgotten.assigned_partitions:
            note(f"{forgotten.assigned_partitions} partitions are assigned to it still, and stay so")


async def _why_not_forgotten(admin: "Admin", broker: int, error: "RegnumError") -> Exception:
    """A refusal as its reader understands it: one code of the wire says both that a broker lives and that none is."""
    from regnum.types.v1 import errors_pb2  # noqa: PLC0415 - gRPC is loaded when there is something to do

    if error.code != errors_pb2.ERROR_CODE_INVALID_REQUEST:
        return error
    # Raises BROKER_ID_NOT_REGISTERED where nobody knows it.
    if not (await admin.describe_broker(broker)).live:
        return error
    return CommandFailedError(
        Failure(code="BROKER_REGISTERED", message=error.message, exit_status=4, metadata=error.metadata)
    )


add_strays_to(group)
add_drain_to(group)
add_removal_to(group)
