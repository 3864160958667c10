"""`regnum topics delete-records`: the beginning of partitions goes, for good."""

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
    wrong_use,
)
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.records.deletion import DeletedRecords
    from regnum_client.records import TopicPartition


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum topics`."""
    group.command("delete-records")(delete_records)


def delete_records(
    *,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may stand more than once. Default: all."),
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="The first offset that stays.")
    ] = None,
    all_committed: Annotated[
        bool, typer.Option("--all", help="All records below the high watermark when the command is carried out.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them for good. Default: only show what would go.")] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show which records at the beginning of partitions would be deleted; with --yes, delete them on all replicas."""
    if (before_offset is None) == (not all_committed):
        raise wrong_use("say up to where: --before-offset OFFSET, or --all for everything that is committed")

    async def work() -> "dict[TopicPartition, DeletedRecords | RegnumError]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.records import TopicPartition  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            numbers = partitions or sorted((await admin.describe_topic(topic)).partitions)
            until = {TopicPartition(topic, number): before_offset for number in numbers}
            return await admin.delete_records(until, validate_only=not yes)

    answers = run(work())
    rows = [
        {
            "partition": partition.partition,
            "log_start": answer.log_start_offset,
            "deleted" if yes else "to_delete": answer.new_log_start_offset - answer.log_start_offset,
            "new_log_start": answer.new_log_start_offset,
            "low_watermark": answer.low_watermark,
        }
        for partition, answer in answers.items()
        if not isinstance(answer, Exception)
    ]
    columns = ("partition", "log_start", "deleted" if yes else "to_delete", "new_log_start", "low_watermark")
    emit_rows(rows, output, columns=columns)
    failures = [failure_of(answer) for answer in answers.values() if isinstance(answer, Exception)]
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])
    if not yes:
        note("nothing was changed; run it again with --yes if these records may be lost")
