"""`regnum brokers drain`: everything off a broker, so that it can be taken away."""

from typing import TYPE_CHECKING, Annotated

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
)
from regnum_client.commands.reassignment.rendering import emit_plan, raise_failures
from regnum_client.commands.reassignment.waiting import wait_arrived
from regnum_client.commands.rendering import emit_one

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.reassignment.plan import PlannedMove

ROUNDS_MAX = 5
"""How often it is looked again whether the broker got something meanwhile."""


def add_to(group: typer.Typer) -> None:
    """Hang the command into `regnum brokers`."""
    group.command("drain")(drain)


def drain(
    *,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the broker.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move; change nothing.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let new replicas be placed on it again; what moved away stays away.")
    ] = False,
    fewer_racks: Annotated[
        bool, typer.Option("--fewer-racks", help="Also where partitions would stand on fewer racks.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when the broker has nothing any more.")] = True,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Move every replica off a broker and wait until it has none; nothing else is moved.

    From now on nothing new is placed on it, also after restarts, until --undo or `regnum brokers forget`. It may be run
    again at any time. It is refused, and marks nothing, where too few other brokers are live for some partition, where
    one has no leader to copy from, and where one would stand on fewer racks. Exit status 5: it still has something.
    """
    if undo:
        _undo(broker, dry_run=dry_run, client_id=client_id, output=output, bootstrap=bootstrap, timeout=timeout)
        return

    async def work() -> "tuple[list[PlannedMove], dict[tuple[str, int], RegnumError | None], bool]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import check_drain, drained  # noqa: PLC0415

        shown: list[PlannedMove] = []
        outcomes: dict[tuple[str, int], RegnumError | None] = {}
        empty = False
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            # First: where its replicas cannot go anywhere it is refused before it is marked.
            await check_drain(admin, broker, fewer_racks=fewer_racks)
            await admin.drain_broker(broker, validate_only=dry_run)
            for _ in range(ROUNDS_MAX):
                moves = await drained(admin, broker)
                shown += moves
                asked = await admin.alter_partition_reassignments(
                    {(move.topic, move.partition): move.after for move in moves}, validate_only=dry_run
                )
                outcomes.update(asked)
                if dry_run or not wait or any(error is not None for error in asked.values()):
                    break
                leaving = [
                    (one.topic, one.partition)
                    for one in await admin.list_partition_reassignments()
                    if broker in one.replicas
                ]
                if not moves and not leaving:
                    empty = True
                    break
                places = {(move.topic, move.partition) for move in moves} | set(leaving)
                await wait_arrived(admin, places, what=f"draining broker {broker}", quiet=output is not Output.TABLE)
        return shown, outcomes, empty

    moves, outcomes, empty = run(work())
    emit_plan(moves, output)
    raise_failures(outcomes, output)
    _end(broker, len(moves), empty=empty, dry_run=dry_run, wait=wait, output=output)


def _end(broker: int, moves: int, *, empty: bool, dry_run: bool, wait: bool, output: Output) -> None:
    """Say what is so now. Raises CommandFailedError where the broker still has something."""
    if wait and not dry_run and not empty:
        message = (
            f"something had come to broker {broker} each of the {ROUNDS_MAX} times that it was looked at; run it "
            "again, and see who asks for that (`regnum events --broker`)"
        )
        raise CommandFailedError(Failure(code="NOT_EMPTY", message=message, exit_status=5, metadata={}))
    if output is not Output.TABLE:
        return
    if dry_run and moves:
        note(f"{moves} partitions would leave broker {broker}; nothing was changed")
    elif wait and not dry_run:
        note(f"broker {broker} has no replicas; it can be stopped")
    elif moves:
        note(f"{moves} partitions leave broker {broker}; see regnum partitions reassignments")


def _undo(
    broker: int, *, dry_run: bool, client_id: str, output: Output, bootstrap: str | None, timeout: float | None
) -> None:
    async def work() -> bool:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await admin.drain_broker(broker, undo=True, validate_only=dry_run)

    changed = run(work())
    emit_one({"broker": broker, "draining": changed and dry_run, "changed": changed and not dry_run}, output)
    if output is Output.TABLE:
        what = "would be" if dry_run else "is"
        note(f"broker {broker} {what} given new replicas again" if changed else f"broker {broker} is not being drained")
