"""`regnum groups reset-offsets`: a group goes on elsewhere."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
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
from regnum_client.commands.moments import moment_ms
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.commands.groups.resets import Reset
    from regnum_client.records import TopicPartition

COLUMNS: Final = ("topic", "partition", "committed", "new_offset", "log_start", "log_end", "lag", "remark")


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum groups`."""
    group.command("reset-offsets")(reset_offsets)


def reset_offsets(
    *,
    name: Annotated[
        str, typer.Argument(metavar="GROUP", autocompletion=completed("groups"), help="Name of the group.")
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            autocompletion=completed("topics"),
            help="Only this topic; may stand more than once.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics of which the group has committed something.")
    ] = False,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may stand more than once. Default: all."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the log end offset.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To an age (-1h) or a time (2026-01-31T12:00:00Z)."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many records: forward, or back where it is negative.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Default: only show what would become of it.")
    ] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show the offsets that a group would be reset to; with --execute, commit them.

    A group with members refuses: stop them first. Offsets beyond a log become its nearest end.
    """
    if bool(topics) == all_topics:
        raise wrong_use("say of what: --topic TOPIC (more than once, if you like), or --all-topics")
    if partitions and (all_topics or len(topics or ()) > 1):
        raise wrong_use("--partition is for one --topic")
    ways = [to_earliest or None, to_latest or None, to_datetime, to_offset, shift_by]
    if sum(way is not None for way in ways) != 1:
        raise wrong_use("say where to: one of --to-earliest, --to-latest, --to-datetime, --to-offset and --shift-by")
    at_ms = None if to_datetime is None else _moment_ms(to_datetime)

    async def work() -> "tuple[list[Reset], list[RegnumError]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.groups.resets import Goal, resets  # noqa: PLC0415

        goals = (Goal.EARLIEST, Goal.LATEST, Goal.TIME, Goal.OFFSET, Goal.SHIFT)
        goal = next(goal for goal, way in zip(goals, ways, strict=True) if way is not None)
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            if execute:
                await admin.check_group_is_empty(name)
            committed = {one: found.offset for one, found in (await admin.list_group_offsets(name)).items()}
            wanted = await _wanted(admin, topics, partitions, committed)
            told = await admin.list_offsets(wanted)
            logs = {one: found for one, found in told.items() if not isinstance(found, Exception)}
            at_time = {} if at_ms is None else await admin.list_offsets_at(dict.fromkeys(logs, at_ms))
            planned = resets(
                goal,
                to_offset or shift_by or 0,
                partitions=wanted,
                committed=committed,
                logs=logs,
                at_time=at_time,
            )
            failures = [found for found in told.values() if isinstance(found, Exception)]
            if execute and not failures:
                await admin.alter_group_offsets(
                    name, {one.partition: one.offset for one in planned if one.offset is not None}
                )
            return planned, failures

    planned, failures = run(work())
    emit_rows([_row(one) for one in planned], output, columns=COLUMNS, empty="no partitions")
    for failure in failures[:-1]:
        emit_failure(failure_of(failure), output)
    if failures:
        # All or nothing: half of a group would be elsewhere.
        raise CommandFailedError(failure_of(failures[-1]))
    if not execute:
        note("nothing was changed; give --execute to let the group go on there")


def _moment_ms(text: str) -> int:
    at_ms = moment_ms(text, time.time_ns() // 1_000_000)
    if at_ms is None:
        raise wrong_use(f"--to-datetime {text!r} is no moment; give for example -1h or 2026-01-31T12:00:00Z")
    return at_ms


async def _wanted(
    admin: "Admin",
    topics: list[str] | None,
    numbers: list[int] | None,
    committed: "dict[TopicPartition, int]",
) -> "list[TopicPartition]":
    from regnum_client.records import TopicPartition  # noqa: PLC0415

    if not topics:
        return sorted(committed)
    return [
        TopicPartition(topic, number)
        for topic in dict.fromkeys(topics)
        for number in numbers or sorted((await admin.describe_topic(topic)).partitions)
    ]


def _row(one: "Reset") -> dict[str, Any]:
    offset = one.committed if one.offset is None else one.offset
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "committed": one.committed,
        "new_offset": one.offset,
        "log_start": one.log_start,
        "log_end": one.log_end,
        "lag": None if offset is None else max(0, one.log_end - offset),
        "remark": one.remark or None,
    }
