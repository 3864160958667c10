"""`regnum partitions`: moving them, and what to do where nobody may lead."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Group,
    Output,
    OutputOption,
    TimeoutOption,
    failure_of,
    note,
    run,
)
from regnum_client.commands.reassignment.partitions import add_to as add_reassignment_to
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.recovery import PartitionRecovery, RecoverableReplica

group = typer.Typer(cls=Group, help="Partitions: move them, recover them.", no_args_is_help=True)

CLIENT_ID: Final = "regnum-admin"
COLUMNS: Final = ("partition", "offline_because", "chosen", "leader_epoch", "lost_from_offset", "may_be_lost")
REPLICA_COLUMNS: Final = (
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
    add_reassignment_to(group)
    app.add_typer(group, name="partitions")
    app.add_typer(group, name="partition", hidden=True)


@group.command("recover")
def recover(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partitions: Annotated[
        list[int] | None,
        typer.Argument(metavar="[PARTITION...]", min=0, help="Partition numbers. Default: all without a leader."),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Elect the chosen replicas; what only others had is lost. Default: report."),
    ] = False,
    client_id: Annotated[
        str, typer.Option("--client-id", metavar="ID", help="Name of the caller, for the controller's log.")
    ] = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show what is left of partitions that nobody may lead; with --accept-loss, elect the best replica of each."""

    async def work() -> "tuple[PartitionRecovery, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await admin.recover_partitions(topic, partitions or (), accept_loss=accept_loss)

    recoveries = run(work())
    found = [one for one in recoveries if one.reason]
    if output is Output.TABLE:
        emit_rows([_row(one) for one in found], output, columns=COLUMNS)
        emit_rows(
            [_replica_row(one, replica) for one in found for replica in one.replicas], output, columns=REPLICA_COLUMNS
        )
        _conclude(topic, recoveries, accept_loss=accept_loss)
    else:
        emit_rows([_document(one) for one in found], output, columns=())
    _raise_failures(recoveries, output)


def _conclude(topic: str, recoveries: "Sequence[PartitionRecovery]", *, accept_loss: bool) -> None:
    if not recoveries:
        note(f"every partition of {topic} has a leader, or gets one without loss")
    elif not accept_loss and any(one.failure is None for one in recoveries):
        note("nothing was changed; run it again with --accept-loss to elect the chosen replicas")


def _raise_failures(recoveries: "Sequence[PartitionRecovery]", output: Output) -> None:
    """Show all failures but the last, and end with that one."""
    failures = [failure_of(one.failure) for one in recoveries if one.failure is not None]
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])


def _row(one: "PartitionRecovery") -> dict[str, Any]:
    return {
        "partition": one.partition,
        "offline_because": one.reason,
        "chosen": "none" if one.chosen is None else one.chosen,
        "leader_epoch": one.leader_epoch,
        "lost_from_offset": one.lost_from_offset,
        "may_be_lost": one.may_be_lost,
    }


def _replica_row(one: "PartitionRecovery", replica: "RecoverableReplica") -> dict[str, Any]:
    answered = bool(replica.log_id)
    return {
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


def _document(one: "PartitionRecovery") -> dict[str, Any]:
    from regnum_service.errors import reason_of  # noqa: PLC0415

    return {
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
