"""`regnum partitions`: leaders, reassignment, recovery."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.damage.giving_up import add_to as add_giving_up_to
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
    completed,
    failure_of,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.reassignment.moving import add_to as add_moving_to
from regnum_client.commands.reassignment.partitions import add_to as add_reassignment_to
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.leaders.elections import ElectionResult, OfflinePartitions
    from regnum_client.admin.recovery import PartitionRecovery, RecoverableReplica

    Recoveries = list[tuple[str, PartitionRecovery]]
    """By name of the topic."""

group = typer.Typer(
    cls=Group, help="Partitions: list them, elect leaders, move them, recover them.", no_args_is_help=True
)

FAILURES_SHOWN: Final = 20
"""Partitions that could not be elected in, and are said each on its own, besides the last."""

COLUMNS: Final = ("topic", "partition", "offline_because", "chosen", "leader_epoch", "lost_from_offset", "may_be_lost")
TOPICS_AT_ONCE: Final = 8
"""Topics whose partitions are recovered at a time."""
TOPICS_PER_NOTE: Final = 200
"""Topics between two words of progress."""
RECOVERED_NAMED: Final = 20
"""Recovered partitions that a person is told by name."""
REPLICA_COLUMNS: Final = (
    "topic",
    "partition",
    "replica",
    "last_epoch",
    "log_start",
    "high_watermark",
    "log_end",
    "recorded_log",
    "chosen",
    "trouble",
)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    app.add_typer(group, name="partitions")
    app.add_typer(group, name="partition", hidden=True)


@group.command("list")
def list_partitions(
    *,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC...]", autocompletion=completed("topics"), help="Names of topics. Default: all."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Those without a leader, with the reason of each.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, show_default=False, metavar="N", help="So many at most. Default: 10,000.")
    ] = 10_000,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """List partitions without a leader, and why they have none."""
    if not offline:
        raise wrong_use("give --offline; all partitions of a topic are shown by `regnum topics describe TOPIC`")

    async def work() -> "OfflinePartitions":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.list_offline_partitions(topics or (), limit=limit)

    found = run(work())
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "reason": one.reason.value,
            "message": one.message,
            "replicas": list(one.replicas),
            "isr": list(one.isr),
            "elr": list(one.elr),
            "unclean_allowed": one.unclean_allowed,
        }
        for one in found.partitions
    ]
    columns = ("topic", "partition", "reason", "isr", "elr", "replicas", "message")
    emit_rows(rows, output, columns=columns, empty="every partition has a leader")
    if found.total > len(rows):
        note(f"{len(rows)} of {found.total}; name topics, or give a larger --limit")


@group.command("elect-leaders")
def elect_leaders(
    *,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", autocompletion=completed("topics"), help="Partitions of this topic."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Of the topic only this one; may stand more than once."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every partition of the cluster that needs it.")] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Without a replica that can lead without loss, the best one that answers."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --unclean: elect; what only others had is lost. Default: report.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only; change nothing.")] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Elect preferred leaders; with --unclean --yes, leaders by unclean election, which may lose records."""
    if (topic is None) is not every:
        raise wrong_use("which partitions? Give --topic NAME, with --partition N for some of it, or --all")
    if partitions and topic is None:
        raise wrong_use("--partition is of one topic; give --topic NAME as well")
    if yes and not unclean:
        raise wrong_use("--yes accepts what an unclean election loses; a preferred one loses nothing: leave it out")
    if yes and dry_run:
        raise wrong_use("--dry-run changes nothing, --yes does; give one of them")
    only_look = dry_run or (unclean and not yes)

    async def work() -> "tuple[ElectionResult, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.admin.leaders.elections import ElectionType  # noqa: PLC0415

        type_ = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        named = {} if topic is None else {topic: partitions or []}
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await admin.elect_leaders(type_, named, validate_only=only_look)

    results = run(work())
    # Who names no partition asks for those that need it: one that does not is no failure.
    told = [one for one in results if partitions or not _is_not_needed(one)]
    columns = ("topic", "partition", "leader", "leader_epoch", *(("unknown", "may_be_lost") if unclean else ()))
    emit_rows(
        [_election_row(one) for one in told if one.failure is None],
        output,
        columns=columns,
        empty="no partition needs it" if not told else "",
    )
    if only_look and any(one.failure is None for one in told):
        again = "with --yes to elect these leaders, and lose what is named" if unclean else "without --dry-run"
        note(f"nothing was changed; run it again {again}")
    failures = [failure_of(one.failure) for one in told if one.failure is not None]
    for failure in failures[:-1][:FAILURES_SHOWN]:
        emit_failure(failure, output)
    if len(failures) > FAILURES_SHOWN + 1:
        note(
            f"{len(failures) - FAILURES_SHOWN - 1} further partitions could not be elected in; name topics to see them"
        )
    if failures:
        raise CommandFailedError(failures[-1])


def _is_not_needed(one: "ElectionResult") -> bool:
    from regnum.types.v1 import errors_pb2  # noqa: PLC0415 - gRPC is loaded when there is something to do

    return one.failure is not None and one.failure.code == errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED


def _election_row(one: "ElectionResult") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "elected": one.leader_epoch is not None,
        "unknown": list(one.unknown),
        "may_be_lost": one.may_be_lost,
    }


@group.command("recover")
def recover(
    *,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", autocompletion=completed("topics"), help="Name of the topic.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Argument(metavar="[PARTITION...]", min=0, help="Partition numbers. Default: all without a leader."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all", help="Every partition of the cluster without a leader, in place of one topic's.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Elect the chosen replicas; what only others had is lost. Default: report."),
    ] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show what is left of partitions without an eligible leader; with --accept-loss, elect the best replica."""
    if (topic is None) != all_topics:
        raise wrong_use("name a topic, or give --all and no topic")

    async def work() -> "Recoveries":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            if topic is not None:
                found = await admin.recover_partitions(topic, partitions or (), accept_loss=accept_loss)
                return [(topic, one) for one in found]
            return await _recover_all(admin, accept_loss=accept_loss)

    recoveries = run(work())
    found = [(name, one) for name, one in recoveries if one.reason]
    if output is Output.TABLE:
        emit_rows([_row(name, one) for name, one in found], output, columns=COLUMNS)
        emit_rows(
            [_replica_row(name, one, replica) for name, one in found for replica in one.replicas],
            output,
            columns=REPLICA_COLUMNS,
        )
        _conclude(topic, recoveries, accept_loss=accept_loss)
    else:
        emit_rows([_document(name, one) for name, one in found], output, columns=())
    _raise_failures(recoveries, output)


async def _recover_all(admin: "Admin", *, accept_loss: bool) -> "Recoveries":
    """The same for each topic that has partitions without a leader, so many at a time that the controller goes on."""
    names = sorted({one.topic for one in (await admin.list_offline_partitions()).partitions})
    recoveries: Recoveries = []
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = names[start : start + TOPICS_AT_ONCE]
        answers = await asyncio.gather(*(admin.recover_partitions(name, (), accept_loss=accept_loss) for name in some))
        recoveries += [(name, one) for name, answer in zip(some, answers, strict=True) for one in answer]
        if start and start % TOPICS_PER_NOTE == 0:
            note(f"{start} of {len(names)} topics")
    return recoveries


def _conclude(topic: str | None, recoveries: "Recoveries", *, accept_loss: bool) -> None:
    if not recoveries:
        note(f"every partition{f' of {topic}' if topic else ''} has a leader, or gets one without loss")
    elif not accept_loss and any(one.failure is None for _, one in recoveries):
        note("nothing was changed; run it again with --accept-loss to elect the chosen replicas")
    elif elected := [f"{name}/{one.partition}" for name, one in recoveries if one.recovered]:
        more = len(elected) - RECOVERED_NAMED
        which = ", ".join(elected[:RECOVERED_NAMED]) + (f" and {more} more" if more > 0 else "")
        note(
            f"recovered, with the loss that is shown: {which}. Producers and consumers go on by themselves; "
            f"`regnum topics describe {topic or 'TOPIC'}` shows the leaders, and replicas that return are made equal "
            "to theirs"
        )


def _raise_failures(recoveries: "Recoveries", output: Output) -> None:
    """Show all failures but the last, and end with that one."""
    failures = [failure_of(one.failure) for _, one in recoveries if one.failure is not None]
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])


def _row(topic: str, one: "PartitionRecovery") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": one.partition,
        "offline_because": one.reason,
        "chosen": "none" if one.chosen is None else one.chosen,
        "leader_epoch": one.leader_epoch,
        "lost_from_offset": one.lost_from_offset,
        "may_be_lost": one.may_be_lost,
    }


def _replica_row(topic: str, one: "PartitionRecovery", replica: "RecoverableReplica") -> dict[str, Any]:
    answered = bool(replica.log_id)
    return {
        "topic": topic,
        "partition": one.partition,
        "replica": replica.broker,
        "last_epoch": replica.last_written_leader_epoch if answered else None,
        "log_start": replica.log_start_offset if answered else None,
        "high_watermark": replica.high_watermark if answered else None,
        "log_end": replica.log_end_offset if answered else None,
        "recorded_log": replica.recorded_log if answered else None,
        "chosen": replica.broker == one.chosen,
        "trouble": replica.error or None,
    }


def _document(topic: str, one: "PartitionRecovery") -> dict[str, Any]:
    from regnum_service.errors import reason_of  # noqa: PLC0415

    return {
        "topic": topic,
        "partition": one.partition,
        "offline_because": one.reason,
        "chosen": one.chosen,
        "recovered": one.recovered,
        "leader_epoch": one.leader_epoch,
        "may_be_lost": one.may_be_lost,
        "lost_from_offset": one.lost_from_offset,
        "known_end_offset": one.known_end_offset,
        "unknown": list(one.unknown),
        "failure": None if one.failure is None else one.failure.message,
        "replicas": [
            {
                "broker": replica.broker,
                "error": None if not replica.code else reason_of(replica.code),
                "message": replica.error or None,
                "last_written_leader_epoch": replica.last_written_leader_epoch,
                "current_leader_epoch": replica.current_leader_epoch,
                "log_start_offset": replica.log_start_offset,
                "high_watermark": replica.high_watermark,
                "log_end_offset": replica.log_end_offset,
                "recorded_log": replica.recorded_log,
                "leading": replica.leading,
                "log_id": replica.log_id or None,
            }
            for replica in one.replicas
        ],
    }


add_moving_to(group)
add_reassignment_to(group)
add_giving_up_to(group)
