"""`regnum groups`: list, describe with lag, delete; ``resetting`` has the rest."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.groups import resetting
from regnum_client.commands.habits.grammar import Group
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
)
from regnum_client.commands.rendering import emit_failure, emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.describing.offset_admin import PartitionOffsets
    from regnum_client.admin.groups.views import CommittedOffset, GroupDescription, GroupListing
    from regnum_client.records import TopicPartition

LIST_COLUMNS: Final = ("group", "state", "protocol_type", "coordinator")
LAG_COLUMNS: Final = (*LIST_COLUMNS, "lag", "partitions", "unknown_partitions")
OFFSET_COLUMNS: Final = ("topic", "partition", "committed", "log_end", "lag", "metadata")
DELETED_COLUMNS: Final = ("topic", "partition", "committed", "deleted")
MEMBER_COLUMNS: Final = ("member", "instance", "client_id", "host", "leader", "assigned")

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=completed("groups"), help="Name of the group.")
]

group = typer.Typer(cls=Group, help="Consumer groups: members, offsets, lag.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    resetting.add_to(group)
    app.add_typer(group, name="groups")
    app.add_typer(group, name="group", hidden=True)


@group.command("list")
def list_groups(
    *,
    lag: Annotated[
        bool, typer.Option("--lag", help="How far each is behind, those furthest behind first: a call for each group.")
    ] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """List all groups, with their states."""

    async def work() -> "tuple[tuple[GroupListing, ...], dict[str, dict[str, int]]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.groups.lags import lag_of, lag_row, read_lags  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            groups = await admin.list_groups()
            if not lag:
                return groups, {}
            committed, ends = await read_lags(admin, [one.group_id for one in groups])
            return groups, {name: lag_row(lag_of(offsets, ends)) for name, offsets in committed.items()}

    groups, rows_of_lags = run(work())
    rows: list[dict[str, Any]] = [
        {
            "group": one.group_id,
            "state": one.state.value,
            "protocol_type": one.protocol_type,
            "coordinator": one.coordinator,
            **rows_of_lags.get(one.group_id, {}),
        }
        for one in groups
    ]
    rows.sort(key=lambda row: -row.get("lag", 0))
    emit_rows(
        rows,
        output,
        columns=LAG_COLUMNS if lag else LIST_COLUMNS,
        empty="no groups; one begins with its first member or commit",
    )


@group.command("describe")
def describe(
    *,
    name: GroupArgument,
    members: Annotated[bool, typer.Option("--members", help="Its members, in place of its offsets.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show a group's committed offsets and its lag by partition; or its members."""

    async def work() -> "tuple[GroupDescription, dict[TopicPartition, CommittedOffset], dict[TopicPartition, Any]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.commands.groups.named import group_named  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            described = await group_named(admin, name)
            if members:
                return described, {}, {}
            committed = await admin.list_group_offsets(name)
            return described, committed, dict(await admin.list_offsets(committed))

    described, committed, ends = run(work())
    if output is Output.TABLE:
        note(
            f"group {name}: {described.state.value}, generation {described.generation}, "
            f"{len(described.members)} members, coordinator broker {described.coordinator}"
        )
    if members:
        rows = [
            {
                "member": one.member_id,
                "instance": one.instance_id or None,
                "client_id": one.client_id,
                "host": one.client_host,
                "leader": one.member_id == described.leader,
                "assigned": _assigned(one.assignment, described.protocol_type),
                "assignment_bytes": len(one.assignment),
            }
            for one in described.members
        ]
        emit_rows(rows, output, columns=MEMBER_COLUMNS, empty="no members")
        return
    rows = [_offset_row(where, offset, ends.get(where)) for where, offset in sorted(committed.items())]
    emit_rows(rows, output, columns=OFFSET_COLUMNS, empty="no committed offsets")


@group.command("delete")
def delete(
    *,
    name: GroupArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; its offsets are lost. Default: show what there is.")
    ] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Delete a group without members, with its offsets; a later one of that name is new."""

    async def work() -> tuple[int, str]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.commands.groups.named import group_named  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            state = (await group_named(admin, name)).state.value
            offsets = len(await admin.list_group_offsets(name))
            if yes:
                await admin.delete_group(name)
            return offsets, state

    offsets, state = run(work())
    emit_one({"group": name, "state": state, "offsets": offsets, "deleted": yes}, output)
    if not yes:
        note("nothing was deleted; give --yes to lose these offsets")


@group.command("delete-offsets")
def delete_offsets(
    *,
    name: GroupArgument,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic", metavar="TOPIC", autocompletion=completed("topics"), help="Topic; may stand more than once."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Default: show what there is.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Delete a group's committed offsets of topics that no member of it reads."""

    async def work() -> "tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, RegnumError | None]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            committed = {
                where: offset
                for where, offset in sorted((await admin.list_group_offsets(name)).items())
                if where.topic in topics
            }
            return committed, await admin.delete_group_offsets(name, list(committed)) if yes and committed else {}

    committed, outcomes = run(work())
    rows = [
        {
            "topic": where.topic,
            "partition": where.partition,
            "committed": offset.offset,
            "deleted": yes and outcomes[where] is None,
        }
        for where, offset in committed.items()
    ]
    emit_rows(rows, output, columns=DELETED_COLUMNS, empty="no committed offsets")
    failures = [error for error in outcomes.values() if error is not None]
    for failure in failures[:-1]:
        emit_failure(failure_of(failure), output)
    if failures:
        raise CommandFailedError(failure_of(failures[-1]))
    if rows and not yes:
        note("nothing was deleted; give --yes to lose these offsets")


def _assigned(assignment: bytes, protocol_type: str) -> list[str]:
    """Partitions, as a consumer's assignor wrote them; of other kinds of members nobody knows."""
    from regnum_client.consumer.groups.consumer_protocol import PROTOCOL_TYPE, assignment_of  # noqa: PLC0415

    if protocol_type != PROTOCOL_TYPE:
        return []
    return [f"{topic}-{number}" for topic, number in sorted(assignment_of(assignment))]


def _offset_row(
    where: "TopicPartition", offset: "CommittedOffset", ends: "PartitionOffsets | Exception | None"
) -> dict[str, Any]:
    """``log_end`` and ``lag`` are None where the partition's leader does not say."""
    end = getattr(ends, "high_watermark", None)
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": offset.offset,
        "log_end": end,
        # A commit may be ahead of what this leader knows to be committed, or of a topic that was made anew.
        "lag": None if end is None else max(0, end - offset.offset),
        "leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "committed_ms": offset.committed_ms,
    }
