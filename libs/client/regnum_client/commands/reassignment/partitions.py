"""`regnum partitions reassign`, `reassignments` and `cancel`."""

from typing import TYPE_CHECKING, Annotated

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.reassignment.rendering import (
    emit_ongoing,
    emit_plan,
    ids_of,
    names_of,
    place_of,
    raise_failures,
)
from regnum_client.commands.reassignment.waiting import wait_arrived

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.plan import PlannedMove
    from regnum_client.admin.reassignment.values import OngoingReassignment


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum partitions`."""
    group.command("reassign")(reassign)
    group.command("rebalance")(rebalance)
    group.command("reassignments")(reassignments)
    group.command("cancel")(cancel)


def reassign(
    *,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="IDS", help="Brokers that are to share the topics, such as 4,5.")
    ] = None,
    topics: Annotated[str | None, typer.Option("--topics", metavar="NAMES", help="Topics, such as a,b.")] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="TOPIC/N=IDS", help="One partition and its brokers, such as a/0=4,5; repeatable."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Move them. Default: show the plan.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --execute: return when all have arrived.")] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show how topics could be spread evenly over brokers with the fewest moves; with --execute, do it."""
    named, ids = names_of(topics), ids_of(brokers)
    explicit = dict(_explicit(text) for text in to or ())
    if bool(explicit) == bool(named and ids):
        raise wrong_use("give --brokers and --topics for an even plan, or --to for single partitions")

    async def work() -> "tuple[tuple[PlannedMove, ...], dict[tuple[str, int], RegnumError | None]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            from regnum_client.commands.reassignment.planning import explicit_moves, planned  # noqa: PLC0415

            moves = await (explicit_moves(admin, explicit) if explicit else planned(admin, named, ids))
            return await _carried_out(admin, moves, execute=execute, wait=wait, output=output)

    moves, outcomes = run(work())
    _show(moves, outcomes, execute=execute, wait=wait, output=output)


def rebalance(
    *,
    execute: Annotated[bool, typer.Option("--execute", help="Move them. Default: show the plan.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --execute: return when all have arrived.")] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show how all topics could be spread evenly over all brokers that are not drained, with the fewest moves.

    After brokers were added, --execute gives them their share.
    """

    async def work() -> "tuple[tuple[PlannedMove, ...], dict[tuple[str, int], RegnumError | None]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import evened  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            return await _carried_out(admin, await evened(admin), execute=execute, wait=wait, output=output)

    moves, outcomes = run(work())
    _show(moves, outcomes, execute=execute, wait=wait, output=output)


async def _carried_out(
    admin: "Admin", moves: "tuple[PlannedMove, ...]", *, execute: bool, wait: bool, output: Output
) -> "tuple[tuple[PlannedMove, ...], dict[tuple[str, int], RegnumError | None]]":
    targets = {(move.topic, move.partition): move.after for move in moves}
    outcomes = await admin.alter_partition_reassignments(targets, validate_only=not execute)
    if execute and wait:
        begun = [place for place, error in outcomes.items() if error is None]
        await wait_arrived(admin, begun, what="reassigning", quiet=output is not Output.TABLE)
    return moves, outcomes


def _show(
    moves: "tuple[PlannedMove, ...]",
    outcomes: "dict[tuple[str, int], RegnumError | None]",
    *,
    execute: bool,
    wait: bool,
    output: Output,
) -> None:
    emit_plan(moves, output)
    raise_failures(outcomes, output)
    if output is Output.TABLE and moves:
        count = sum(len(move.added) for move in moves)
        if not execute:
            note(f"{count} replicas would move; nothing was changed. Run it again with --execute to do it")
        elif not wait:
            note(f"{count} replicas move; see regnum partitions reassignments")


def _explicit(text: str) -> tuple[tuple[str, int], tuple[int, ...]]:
    place, equals, ids = text.partition("=")
    if not equals or not ids:
        raise wrong_use(f"{text!r} is not TOPIC/PARTITION=IDS, such as orders/0=4,5")
    return place_of(place), tuple(ids_of(ids))


def reassignments(
    *,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="NAMES", help="Topics, such as a,b. Default: all.")
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show partitions that are being reassigned, how far they are, and what they wait for."""

    async def work() -> "tuple[OngoingReassignment, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=CLIENT_ID) as admin:
            return await admin.list_partition_reassignments(names_of(topics))

    emit_ongoing(run(work()), output)


def cancel(
    *,
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC/PARTITION...]", help="Partitions, such as orders/0.")
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="NAMES", help="All that move of these topics.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that move.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all are back.")] = False,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Call reassignments back: the old replicas stay, the new ones go. What has arrived stays where it is."""
    places, named = [place_of(text) for text in partitions or ()], names_of(topics)
    if (bool(places), bool(named), everything).count(True) != 1:
        raise wrong_use("give partitions, --topics, or --all; one of the three")

    async def work() -> "dict[tuple[str, int], RegnumError | None]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            found = places or [(one.topic, one.partition) for one in await admin.list_partition_reassignments(named)]
            outcomes = await admin.alter_partition_reassignments(dict.fromkeys(found))
            if wait:
                begun = [place for place, error in outcomes.items() if error is None]
                await wait_arrived(admin, begun, what="cancelling", quiet=output is not Output.TABLE)
            return outcomes

    outcomes = run(work())
    rows = [
        {"topic": topic, "partition": partition, "cancelled": error is None}
        for (topic, partition), error in sorted(outcomes.items(), key=lambda item: item[0])
    ]
    from regnum_client.commands.rendering import emit_rows  # noqa: PLC0415

    emit_rows(rows, output, columns=("topic", "partition", "cancelled"), empty="no partition is being reassigned")
    raise_failures(outcomes, output)
