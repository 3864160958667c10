"""`regnum cluster` and `regnum controller`."""

from typing import TYPE_CHECKING, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
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
    failure_of,
    note,
    run,
)
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.leaders.brokers import Resignation
    from regnum_client.cluster.view import ClusterView, ControllerView

SHOW_S: Final = 5.0
"""How long a controller is waited for unless told otherwise: who looks at a sick cluster wants to see it."""
NO_BROKER: Final = 0
"""Of which the controller is asked: whether there is a broker with that id does not matter."""

group = typer.Typer(cls=Group, help="The cluster as its brokers see it.", no_args_is_help=True)
office = typer.Typer(help="The controller: show (also without a command), resign.", invoke_without_command=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.add_typer(group, name="cluster")
    app.add_typer(office, name="controller")


@group.command("describe")
def describe(
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show the cluster's id, its controller and its live brokers."""
    view = run(_view(bootstrap, timeout))
    brokers: list[dict[str, Any]] = [
        {
            "id": broker.id,
            "epoch": broker.epoch,
            "rack": broker.rack or None,
            "client": str(broker.address),
            "internal": str(broker.internal_address),
            "kafka": None if broker.kafka_address is None else str(broker.kafka_address),
        }
        for _, broker in sorted(view.brokers.items())
    ]
    if output is Output.TABLE:
        known = view.controller
        who = "none known" if known is None else f"{known.id} (epoch {known.epoch}, {known.address})"
        emit_one({"cluster_id": view.cluster_id, "controller": who, "live_brokers": len(brokers)}, output)
        emit_rows(brokers, output, columns=("id", "epoch", "rack", "client", "internal", "kafka"))
        return
    emit_one(
        {
            "cluster_id": view.cluster_id,
            "controller": None if view.controller is None else _controller(view.controller),
            "brokers": brokers,
        },
        output,
    )


@office.callback()
def controller(
    context: typer.Context,
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """The controller: show (also without a command), resign."""
    if context.invoked_subcommand is None:
        _show(output, bootstrap, timeout)


@office.command("show")
def show(
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show the controller: its election id, epoch, address, and whether it answers. Exit status 5: it does not."""
    _show(output, bootstrap, timeout)


@office.command("resign")
def resign(
    *,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Have the controller resign, so that another election process takes over; shows how long that took."""

    async def work() -> "Resignation":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await admin.resign_controller()

    ended = run(work())
    emit_one(
        {
            "resigned": ended.controller_id,
            "resigned_epoch": ended.controller_epoch,
            "controller": ended.successor_id,
            "epoch": ended.successor_epoch,
            "without_controller_ms": round(ended.without_controller_s * 1000),
        },
        output,
    )
    if output is Output.TABLE and ended.successor_id == ended.controller_id:
        note("the same process reigns again: no other took over within two seconds; see `regnum status`")


def _show(output: Output, bootstrap: str | None, timeout: float | None) -> None:
    async def work() -> "tuple[ControllerView | None, RegnumError | None]":
        from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.errors import NoControllerError  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or SHOW_S) as admin:
            failure: RegnumError | None = None
            try:
                # The least that only the controller answers; whoever may not ask is answered too.
                await admin.describe_brokers([NO_BROKER])
            except NoControllerError as error:
                failure = error
            except RegnumError as error:
                if not error.traits.outcome_known:
                    raise
            return (await admin.describe_cluster()).controller, failure

    known, failure = run(work())
    if known is not None:
        emit_one({**_controller(known), "answers": failure is None}, output)
    if failure is not None:
        raise CommandFailedError(failure_of(failure))


async def _view(bootstrap: str | None, timeout_s: float | None) -> "ClusterView":
    from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

    async with Admin(bootstrap, timeout_s=timeout_s or TIMEOUT_S) as admin:
        return await admin.describe_cluster()


def _controller(view: "ControllerView") -> dict[str, Any]:
    return {"id": view.id, "epoch": view.epoch, "address": str(view.address)}
