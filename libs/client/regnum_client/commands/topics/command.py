"""`regnum topics`: create, add partitions; for what removes see ``removal``, for list and describe ``looking``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regnum_client.commands.configs import add_to_topics as add_config_to
from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    completed,
    config_values,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.looking import topics as looking
from regnum_client.commands.rendering import emit_rows
from regnum_client.commands.topics import (
    ClientIdOption,
    NamesArgument,
    QuotaWaitOption,
    WaitNotes,
    deleting_records,
    raise_failures,
    removal,
)

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.topics import TopicPartitions

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
    fields = ("name", "partitions", "replication_factor", "topic_id")
    rows = [
        {**{field: getattr(answer, field) for field in fields}, "validated_only": dry_run}
        for answer in answers.values()
        if not isinstance(answer, Exception)
    ]
    # What was only checked has no topic id.
    emit_rows(rows, output, columns=fields[:-1] if dry_run else fields)
    raise_failures(answers, output, tolerated=tolerated)
    if dry_run:
        note("nothing was changed; run it again without --dry-run")


@group.command("add-partitions")
def add_partitions(
    *,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
    ],
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
    raise_failures({topic: answer}, output, tolerated="")
    row = {"name": topic, "partitions": before + added, "added": list(range(before, before + added))}
    emit_rows([{**row, "validated_only": validate_only}], output, columns=("name", "partitions", "added"))
    if validate_only:
        note("nothing was changed; run it again without --validate-only")


def _assignment(text: str) -> dict[int, list[int]]:
    try:
        return {
            number: [int(broker) for broker in replicas.split(",")] for number, replicas in enumerate(text.split(";"))
        }
    except ValueError:
        raise wrong_use(
            f"--assignment {text!r} is not a list of broker ids; give one list for each partition, such as 1,2,3;2,3,1"
        ) from None


removal.add_to(group)
looking.add_to(group)
deleting_records.add_to(group)
add_config_to(group)
