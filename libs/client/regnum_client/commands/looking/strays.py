"""`regnum brokers strays`: logs of topics or partitions that do not exist, page by page."""

import contextlib
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
    failure_of,
    note,
    run,
)
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.rendering import emit_failure

if TYPE_CHECKING:
    from regnum_client.admin.describing.stray_admin import StrayReplica

COLUMNS: Final = ("topic_id", "partition", "broker", "topic", "size_bytes", "newest_offset")

NEXT: Final = (
    "these logs are neither served nor deleted. Look first whether their topics are among what is damaged in",
    "`regnum status`, or in a later backup. `regnum logs inspect --records DIR/replicas/TOPIC_ID-PARTITION` shows what",
    "one holds; how to have a topic back, or to be rid of its files: docs/operations/recovery.md, Strays",
)
"""What to do about them."""


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum brokers`."""
    group.command("strays")(strays)


def strays(
    *,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            "--broker", metavar="ID", min=0, max=2**31 - 1, help="Ask only this broker. May repeat. Default: all live."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """List logs on brokers' disks of topics or partitions that do not exist. They are kept, and never deleted.

    Exit status 5 where a broker does not say.
    """
    stream = RowStream(output, columns=COLUMNS, empty="no strays")
    failures: list[Failure] = []

    async def work() -> None:
        from regnum.types.v1 import errors_pb2  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_service.errors import RegnumError  # noqa: PLC0415

        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with (
            Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin,
            contextlib.aclosing(admin.describe_strays(broker or ())) as pages,
        ):
            async for id, page in pages:
                if isinstance(page, RegnumError):
                    if page.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE:
                        # Raises BROKER_ID_NOT_REGISTERED where nobody knows it.
                        await admin.describe_broker(id)
                    failures.append(_failure(id, page))
                else:
                    stream.add([_row(one) for one in page])

    run(work())
    if not (failures and stream.is_empty):
        stream.close()
    if output is Output.TABLE and not stream.is_empty:
        for line in NEXT:
            note(line)
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])


def _failure(broker: int, error: Exception) -> Failure:
    found = failure_of(error)
    return Failure(
        code=found.code,
        message=f"broker {broker} does not say which strays it has: {found.message}",
        exit_status=found.exit_status,
        metadata={**found.metadata, "broker_id": str(broker)},
    )


def _row(one: "StrayReplica") -> dict[str, Any]:
    return {
        "topic_id": one.topic_id,
        "partition": one.partition,
        "broker": one.broker,
        "topic": one.topic,
        "size_bytes": one.size_bytes,
        "newest_offset": one.newest_offset,
        "log_start": one.log_start,
        "last_epoch": None if one.last_epoch < 0 else one.last_epoch,
    }
