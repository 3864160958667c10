"""`regnum cluster` and `regnum controller`."""

from typing import TYPE_CHECKING, Any

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Group,
    Output,
    OutputOption,
    TimeoutOption,
    run,
)
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_client.cluster.view import ClusterView, ControllerView

group = typer.Typer(cls=Group, help="The cluster as its brokers see it.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.add_typer(group, name="cluster")
    app.command("controller")(controller)


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
        }
        for _, broker in sorted(view.brokers.items())
    ]
    if output is Output.TABLE:
        known = view.controller
        who = "none known" if known is None else f"{known.id} (epoch {known.epoch}, {known.address})"
        emit_one({"cluster_id": view.cluster_id, "controller": who, "live_brokers": len(brokers)}, output)
        emit_rows(brokers, output, columns=("id", "epoch", "rack", "client", "internal"))
        return
    emit_one(
        {
            "cluster_id": view.cluster_id,
            "controller": None if view.controller is None else _controller(view.controller),
            "brokers": brokers,
        },
        output,
    )


def controller(
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show the active controller: its election id, epoch and address."""
    view = run(_view(bootstrap, timeout))
    if view.controller is None:
        raise CommandFailedError(
            Failure(
                code="NOT_CONTROLLER",
                message="no controller is known to the brokers; see `regnum status`, and try again in a moment",
                exit_status=5,
                metadata={},
            )
        )
    emit_one(_controller(view.controller), output)


async def _view(bootstrap: str | None, timeout_s: float | None) -> "ClusterView":
    from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

    async with Admin(bootstrap, timeout_s=timeout_s or TIMEOUT_S) as admin:
        return await admin.describe_cluster()


def _controller(view: "ControllerView") -> dict[str, Any]:
    return {"id": view.id, "epoch": view.epoch, "address": str(view.address)}
