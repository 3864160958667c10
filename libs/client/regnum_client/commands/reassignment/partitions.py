"""`regnum partitions reassignments` and `cancel`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.admin.reassignment.wording import counted, named
from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    broken_off,
    conflict,
    run,
    wrong_use,
)
from regnum_client.commands.reassignment.rendering import (
    emit_ongoing,
    names_of,
    place_of,
    raise_failures,
)
from regnum_client.commands.reassignment.waiting import OverruledError, Patience, WaitSOption, wait_arrived
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.values import OngoingReassignment


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum partitions`."""
    group.command("reassignments")(reassignments)
    group.command("cancel")(cancel)


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
    wait_s: WaitSOption = None,
    client_id: ClientIdOption = CLIENT_ID,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Cancel reassignments: the old replicas stay, the new ones are removed. Completed moves stay."""
    places, topic_names = [place_of(text) for text in partitions or ()], names_of(topics)
    if (bool(places), bool(topic_names), everything).count(True) != 1:
        raise wrong_use("give partitions, --topics, or --all; one of the three")

    begun: list[tuple[str, int]] = []

    async def work() -> None:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id) as admin:
            found = places or [
                (one.topic, one.partition) for one in await admin.list_partition_reassignments(topic_names)
            ]
            outcomes = await admin.alter_partition_reassignments(dict.fromkeys(found))
            begun.extend(place for place, error in outcomes.items() if error is None)
            _emit_cancelled(outcomes, output)
            if begun and (wait or wait_s is not None):
                await _wait_cancelled(admin, begun, wait_s=wait_s, quiet=output is not Output.TABLE)
            raise_failures(outcomes, output)

    try:
        run(work())
    except KeyboardInterrupt:
        if not begun:
            raise
        raise broken_off(f"{counted(len(begun), 'partition')} may be on the way back still; {SEE}") from None


SEE: Final = "`regnum partitions reassignments` shows what waits for what"


def _emit_cancelled(outcomes: "Mapping[tuple[str, int], RegnumError | None]", output: Output) -> None:
    rows = [
        {"topic": topic, "partition": partition, "cancelled": error is None}
        for (topic, partition), error in sorted(outcomes.items(), key=lambda item: item[0])
    ]
    emit_rows(rows, output, columns=("topic", "partition", "cancelled"), empty="no partition is being reassigned")


async def _wait_cancelled(
    admin: "Admin", begun: "Sequence[tuple[str, int]]", *, wait_s: float | None, quiet: bool
) -> None:
    patience = Patience.of(wait_s, what="cancelling", quiet=quiet, then=f"They go back by themselves: {SEE}")
    try:
        await wait_arrived(admin, begun, patience, overruled=lambda one: one.target != one.origin)
    except OverruledError as error:
        message = f"another caller has asked for {named(error.places)} to move; {SEE}, `regnum events` that caller"
        raise conflict("ASKED_AGAIN", message) from None
