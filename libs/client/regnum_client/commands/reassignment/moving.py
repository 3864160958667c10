"""`regnum partitions reassign` and `rebalance`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
    BootstrapOption,
    ClientIdOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    wrong_use,
)
from regnum_client.commands.reassignment.execution import Execution, Manner
from regnum_client.commands.reassignment.rendering import ids_of, names_of, place_of
from regnum_client.commands.reassignment.saved_plan import read_plan
from regnum_client.commands.reassignment.throttle import ThrottleOption
from regnum_client.commands.reassignment.waiting import WaitSOption

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.plan import PlannedMove


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum partitions`."""
    group.command("reassign")(reassign)
    group.command("rebalance")(rebalance)


ExecuteOption = Annotated[bool, typer.Option("--execute", help="Move them. Default: show the plan.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="With --execute: return when all have arrived.")]


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
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="A plan that `-o json` wrote; - for stdin.")
    ] = None,
    back: Annotated[
        bool, typer.Option("--back", help="With --plan: the way back, to the replicas that there were before.")
    ] = False,
    execute: ExecuteOption = False,
    wait: WaitOption = False,
    wait_s: WaitSOption = None,
    throttle: ThrottleOption = None,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show how topics could be spread evenly over brokers with the fewest moves; with --execute, do it.

    A plan that was written with -o json is carried out with --plan, and taken back with --plan and --back.
    """
    named, ids = names_of(topics), ids_of(brokers)
    explicit = _explicit(to or ())
    if (bool(explicit), bool(named and ids), plan is not None).count(True) != 1 or bool(named) != bool(ids):
        raise wrong_use(
            "give --brokers and --topics for an even plan, --to for single partitions, or --plan for a file"
        )
    if back and plan is None:
        raise wrong_use("--back is the way back of a plan; give --plan FILE as well")
    saved = None if plan is None else read_plan(plan, back=back)

    async def moves(admin: "Admin") -> "Sequence[PlannedMove]":
        from regnum_client.commands.reassignment.planning import (  # noqa: PLC0415 - gRPC is loaded by then
            explicit_moves,
            planned,
            saved_moves,
        )

        if saved is not None:
            return await saved_moves(admin, saved)
        return await (explicit_moves(admin, explicit) if explicit else planned(admin, named, ids))

    Execution(
        Manner(
            execute=execute,
            wait=wait,
            wait_s=wait_s,
            throttle=throttle,
            client_id=client_id,
            output=output,
            bootstrap=bootstrap,
            timeout=timeout,
        )
    ).run(moves)


def rebalance(
    *,
    execute: ExecuteOption = False,
    wait: WaitOption = False,
    wait_s: WaitSOption = None,
    throttle: ThrottleOption = None,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show how all topics could be spread evenly over all brokers that are not drained, with the fewest moves.

    After brokers were added, --execute gives them their share.
    """

    async def moves(admin: "Admin") -> "Sequence[PlannedMove]":
        from regnum_client.commands.reassignment.planning import evened  # noqa: PLC0415 - gRPC is loaded by then

        return await evened(admin)

    Execution(
        Manner(
            execute=execute,
            wait=wait,
            wait_s=wait_s,
            throttle=throttle,
            client_id=client_id,
            output=output,
            bootstrap=bootstrap,
            timeout=timeout,
        )
    ).run(moves)


def _explicit(texts: Sequence[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    targets: dict[tuple[str, int], tuple[int, ...]] = {}
    for text in texts:
        place, equals, ids = text.partition("=")
        if not equals or not ids:
            raise wrong_use(f"{text!r} is not TOPIC/PARTITION=IDS, such as orders/0=4,5")
        if place_of(place) in targets:
            raise wrong_use(f"--to names {place} twice; give each partition once")
        targets[place_of(place)] = tuple(ids_of(ids))
    return targets
