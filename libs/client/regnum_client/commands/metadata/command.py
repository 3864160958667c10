"""`regnum metadata`: check whether all processes hold the same of the cluster, and how far each of them is."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    TimeoutOption,
    run,
)
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum.admin.v1.admin_pb2 import DescribePropagationResponse

    from regnum_client.admin.metadata.metadata_admin import MetadataComparison

group = typer.Typer(cls=Group, help="Metadata as the processes hold it: check, lag.", no_args_is_help=True)

VERSION_BITS = 32
"""In a version the controller epoch stands above so many bits for the number."""


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.add_typer(group, name="metadata")


@group.command("check")
def check(
    *,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0.0, help="How long processes may take to catch up.")
    ] = 5.0,
    deep: Annotated[
        bool, typer.Option("--deep", help="Let every process go through all it holds: seconds in a large cluster.")
    ] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Compare what controller, metadata processes and brokers hold, and name what differs. Exit status 5 if it does."""

    async def work() -> "MetadataComparison":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.compare_metadata(wait_s=wait, recompute=deep)

    found = run(work())
    rows: list[dict[str, Any]] = [
        {
            "process": one.process,
            "address": str(one.address),
            "version": _version(one.version),
            "digest": one.digest,
            "equal": one.equal,
            "problem": one.problem,
        }
        for one in found.processes
    ]
    differences = [
        {
            "process": one.process,
            "topic": one.topic,
            "partition": one.partition,
            "field": one.field,
            "held": one.held,
            "published": one.published,
        }
        for one in found.differences
    ]
    if output is Output.TABLE:
        emit_rows(rows, output, columns=("process", "version", "digest", "equal", "problem"), empty="no process")
        if differences:
            emit_rows(differences, output, columns=tuple(differences[0]), empty="")
    else:
        emit_one({"version": _version(found.version), "processes": rows, "differences": differences}, output)
    if not found.equal:
        names = ", ".join(one.process for one in found.processes if not one.equal)
        raise CommandFailedError(
            Failure(
                code="METADATA_DIFFERS",
                message=f"not as the controller published it: {names}",
                exit_status=5,
                metadata={},
            )
        )


@group.command("lag")
def lag(
    *,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show how many versions each metadata process and each broker is behind the controller, and what was sent."""

    async def work() -> "DescribePropagationResponse":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.describe_propagation()

    found = run(work())
    rows: list[dict[str, Any]] = []
    for process in found.metadata_processes:
        rows.append(
            {
                "process": f"metadata {process.metadata_id}",
                "served_by": None,
                "versions_behind": None if process.versions_behind < 0 else process.versions_behind,
                "behind_ms": None,
                "answered": process.answered,
                "payloads": process.payload_serialisations,
                "bytes_serialised": process.bytes_serialised,
                "bytes_sent": process.bytes_sent,
                "stale_refusals": process.stale_refusals,
            }
        )
        rows.extend(
            {
                "process": f"broker {broker.broker_id}",
                "served_by": f"metadata {process.metadata_id}",
                "versions_behind": None if broker.versions_behind < 0 else broker.versions_behind,
                "behind_ms": broker.behind_ms,
                "answered": True,
                "payloads": None,
                "bytes_serialised": None,
                "bytes_sent": None,
                "stale_refusals": None,
            }
            for broker in process.brokers
        )
    columns = ("process", "served_by", "versions_behind", "behind_ms", "payloads", "bytes_serialised", "bytes_sent")
    emit_rows(rows, output, columns=columns, empty="no metadata process is known")


def _version(version: int) -> str:
    """As people say it: controller epoch and number."""
    epoch, number = divmod(version, 1 << VERSION_BITS)
    return f"{epoch}.{number}"
