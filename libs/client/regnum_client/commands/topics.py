"""`regnum topics`: create, delete, add and remove partitions; for list and describe see ``looking``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.configs import add_to_topics as add_config_to
from regnum_client.commands.damage import deleting_records
from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Group,
    Output,
    OutputOption,
    TimeoutOption,
    config_values,
    failure_of,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.looking import topics as looking
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.carrying.topic_mutation import Waiting
    from regnum_client.admin.topics import TopicPartitions

QuotaWaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.1,
        help="Wait for a quota for so long, besides --timeout. Default: not at all (exit status 6).",
    ),
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Name of the caller, to which quotas may apply.")
]
NOTE_EVERY_MS: Final = 2_000
"""Waiting that goes by between two notes of it."""

NamesArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]

group = typer.Typer(
    cls=Group,
    help="Topics: create, list, describe, delete; partitions and records of them.",
    no_args_is_help=True,
)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    app.add_typer(group, name="topics")
    app.add_typer(group, name="topic", hidden=True)


@group.command("create")
def create(
    *,
    topics: NamesArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Number of partitions of each. Default: 1.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas of each partition. Default: the cluster's, see `regnum configs describe --cluster`.",
        ),
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            "--assignment",
            metavar="1,2,3;2,3,1",
            help="Broker ids of each partition, partitions separated by semicolons, the preferred leader first.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A setting of its own; may stand more than once."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that exists is no failure.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; create nothing.")] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Create topics. Done when every partition has a leader."""
    replicas = None if assignment is None else _assignment(assignment)
    if replicas is not None and (partitions, replication_factor) != (None, None):
        raise wrong_use(
            "--assignment says how many partitions and replicas there are; leave out --partitions and "
            "--replication-factor"
        )
    settings = config_values(config or [], option="--config")
    partition_count = (1 if partitions is None else partitions) if replicas is None else 0

    async def work() -> Mapping[str, Any]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.topics import NewTopic  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            return await admin.create_topics(
                [
                    NewTopic(
                        name=name,
                        partitions=partition_count,
                        replication_factor=replication_factor,
                        assignment=replicas,
                        configs=settings,
                    )
                    for name in dict.fromkeys(topics)
                ],
                validate_only=dry_run,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )

    answers = run(work())
    tolerated = "TOPIC_ALREADY_EXISTS" if if_not_exists else ""
    columns = ("name", "partitions", "replication_factor", "topic_id")
    rows = [
        {column: getattr(answer, column) for column in columns}
        for answer in answers.values()
        if not isinstance(answer, Exception)
    ]
    emit_rows(rows, output, columns=columns)
    _raise_failures(answers, output, tolerated=tolerated)


@group.command("delete")
def delete(
    *,
    topics: NamesArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no failure.")] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Delete topics and all their records. Done when the names are free again."""

    async def work() -> Mapping[str, Any]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            return await admin.delete_topics(
                topics,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )

    answers = run(work())
    tolerated = "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else ""
    rows = [
        {"name": answer.name, "topic_id": answer.topic_id, "deleted": True}
        for answer in answers.values()
        if not isinstance(answer, Exception)
    ]
    emit_rows(rows, output, columns=("name", "topic_id", "deleted"))
    _raise_failures(answers, output, tolerated=tolerated)


@group.command("add-partitions")
def add_partitions(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="How many to add.")] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            "--assignment",
            metavar="1,2,3;2,3,1",
            help="Broker ids of each new partition, partitions separated by semicolons, the preferred leader first.",
        ),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", "--dry-run", help="Check only; add nothing.")
    ] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Add partitions to a topic. Done when each has a leader. Keys go to other partitions from then on."""
    replicas = None if assignment is None else _assignment(assignment)
    if (count is None) == (replicas is None):
        raise wrong_use("give the number of new partitions with --count, or the replicas of each with --assignment")
    added = count or len(replicas or {})

    async def work() -> "tuple[int, TopicPartitions | RegnumError]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.topics import NewPartitions  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            before = len((await admin.describe_topic(topic)).partitions)
            chosen = None if replicas is None else {before + place: ids for place, ids in replicas.items()}
            answers = await admin.create_partitions_of_topics(
                [NewPartitions(topic=topic, total=before + added, assignment=chosen)],
                validate_only=validate_only,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )
            return before, answers[topic]

    before, answer = run(work())
    _raise_failures({topic: answer}, output, tolerated="")
    row = {"name": topic, "partitions": before + added, "added": list(range(before, before + added))}
    emit_rows([{**row, "validated_only": validate_only}], output, columns=("name", "partitions", "added"))
    if validate_only:
        note("nothing was changed; run it again without --validate-only")


@group.command("remove-partitions")
def remove_partitions(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to remove: the highest ones.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove them with all their records. Default: only show which.")
    ] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show which partitions of a topic would be removed; with --yes, remove them and all records in them."""

    async def work() -> "tuple[list[int], TopicPartitions | RegnumError]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            numbers = sorted((await admin.describe_topic(topic)).partitions)
            answers = await admin.delete_partitions_of_topics(
                {topic: numbers[-count:]},
                validate_only=not yes,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )
            return numbers, answers[topic]

    numbers, answer = run(work())
    _raise_failures({topic: answer}, output, tolerated="")
    row = {"name": topic, "partitions": len(numbers) - count, "removed" if yes else "to_remove": numbers[-count:]}
    emit_rows([row], output, columns=tuple(row))
    if not yes:
        note("nothing was changed; run it again with --yes if the records of these partitions may be lost")


class WaitNotes:
    """Says now and then that topics wait for a quota."""

    def __init__(self) -> None:
        self._silent_ms = NOTE_EVERY_MS

    def note(self, waiting: "Waiting") -> None:
        """A wait begins."""
        if self._silent_ms >= NOTE_EVERY_MS:
            note(f"{waiting.done} done, {waiting.waiting} wait for the quota of changes")
            self._silent_ms = 0
        self._silent_ms += waiting.wait_ms


def _raise_failures(answers: Mapping[str, object], output: Output, *, tolerated: str) -> None:
    """Show all failures but the last, and end with that one."""
    failures = [failure_of(answer) for answer in answers.values() if isinstance(answer, BaseException)]
    counted = [failure for failure in failures if failure.code != tolerated]
    for failure in counted[:-1]:
        emit_failure(failure, output)
    if counted:
        raise CommandFailedError(counted[-1])


def _assignment(text: str) -> dict[int, list[int]]:
    try:
        return {
            number: [int(broker) for broker in replicas.split(",")] for number, replicas in enumerate(text.split(";"))
        }
    except ValueError:
        raise wrong_use(
            f"--assignment {text!r} is not a list of broker ids; give one list for each partition, such as 1,2,3;2,3,1"
        ) from None


looking.add_to(group)
deleting_records.add_to(group)
add_config_to(group)
