"""`regnum brokers drain`: everything off a broker, so that it can be taken away."""

from typing import Annotated

import typer

from regnum_client.admin.reassignment.wording import counted
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
    broken_off,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.reassignment.emptying import Drain, Emptying, under_way_words
from regnum_client.commands.reassignment.rendering import emit_plan
from regnum_client.commands.reassignment.throttle import Throttled, ThrottleOption
from regnum_client.commands.reassignment.waiting import WaitSOption
from regnum_client.commands.rendering import emit_one


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
    wait_s: WaitSOption = None,
    throttle: ThrottleOption = None,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Move every replica off a broker and wait until it has none; nothing else is moved.

    Nothing new is placed on it, also after restarts, until --undo or `regnum brokers unregister`. May be run
    again at any time. It is refused, and marks nothing, where too few other brokers are live for some partition, where
    one has no leader to copy from, and where one would stand on fewer racks. Exit status 5: it still has something; 4:
    another caller ended the drain or cancelled its moves meanwhile.
    """
    if not wait and wait_s is not None:
        raise wrong_use("--wait-s is how long to wait, and --no-wait does not; give one of them")
    if undo:
        if throttle is not None or wait_s is not None:
            raise wrong_use("--undo moves nothing; leave --throttle and --wait-s out")
        _undo(broker, dry_run=dry_run, client_id=client_id, output=output, bootstrap=bootstrap, timeout=timeout)
        return
    asked = Drain(broker=broker, dry_run=dry_run, fewer_racks=fewer_racks, wait=wait, wait_s=wait_s, output=output)
    throttled = Throttled(throttle, quiet=output is not Output.TABLE)
    emptying = Emptying(asked, throttled)

    async def work() -> None:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            await emptying.run(admin)

    try:
        run(work())
    except KeyboardInterrupt:
        if not emptying.marked:
            raise
        interrupted = broken_off(f"broker {broker} is still being drained; {asked.how_to_go_on}")
        raise throttled.with_how_back(interrupted) from None
    except CommandFailedError as error:
        if emptying.moves and output is not Output.TABLE:
            emit_plan(emptying.moves, output)
        raise throttled.with_how_back(error) from error
    if output is not Output.TABLE:
        emit_plan(emptying.moves, output)
        return
    _conclude(asked, len(emptying.moves))
    throttled.say_how_back()


def _conclude(drain: Drain, moves: int) -> None:
    """Tell people what is so now."""
    if drain.dry_run:
        note(f"{counted(moves, 'partition')} would leave broker {drain.broker}; nothing was changed")
    elif drain.wait:
        note(f"broker {drain.broker} has no replicas; it can be stopped")
    else:
        leave = "leaves" if moves == 1 else "leave"
        note(f"{counted(moves, 'partition')} {leave} broker {drain.broker}; {drain.how_to_go_on}")


def _undo(
    broker: int, *, dry_run: bool, client_id: str, output: Output, bootstrap: str | None, timeout: float | None
) -> None:
    async def work() -> tuple[bool, int]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do
        from regnum_client.commands.reassignment.planning import leaving_of  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            # Raises BROKER_ID_NOT_REGISTERED where nobody knows it.
            await admin.describe_broker(broker)
            changed = await admin.drain_broker(broker, undo=True, validate_only=dry_run)
            return changed, len(await leaving_of(admin, broker))

    changed, leaving = run(work())
    document = {"draining": changed and dry_run, "changed": changed and not dry_run, "partitions_leaving": leaving}
    emit_one({"broker": broker, **document}, output)
    if output is not Output.TABLE:
        return
    what = "would be" if dry_run else "is"
    note(f"broker {broker} {what} given new replicas again" if changed else f"broker {broker} is not being drained")
    if leaving:
        note(under_way_words(leaving))
