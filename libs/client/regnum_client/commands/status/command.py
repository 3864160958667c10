"""`regnum status`: the processes of this machine's cluster, and what the controller says is wrong."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from regnum_client.commands.invocation import (
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    run,
)
from regnum_client.commands.local import DataDirOption, process_rows
from regnum_client.commands.status.services import BUCKETS_ASKED, Services
from regnum_client.commands.status.shown import show

if TYPE_CHECKING:
    from pathlib import Path

    from regnum_local.cluster import ProcessRow
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.health.figures import Figures
    from regnum_client.admin.health.views import HealthView

T = TypeVar("T")

TIMEOUT_S: Final = 5.0
"""How long the controller is waited for unless told otherwise: who looks at a sick cluster wants to see it."""

FIGURES_S_MAX: Final = 2.0
"""How long a broker of this machine is waited for: one that is stuck must not hide what is wrong."""

CLIENT_ID: Final = "regnum-status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is to show."""

    processes: "Sequence[ProcessRow]"
    """Of the cluster of this machine; none for a cluster that runs elsewhere."""
    health: "HealthView | None"
    """What the controller says; None when nobody answered as controller."""
    reason: str
    """That nobody did, and why; empty when somebody did."""
    figures: "Figures"
    """What each broker that could be asked says of itself."""
    services: Services
    """What the controller knows of metadata processes and quotas."""


def add_to(app: typer.Typer) -> None:
    """Hang the command into the command line."""
    app.command("status")(status)


def status(
    *,
    data_dir: DataDirOption = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=1000, help="How many partitions in trouble to name.")
    ] = 20,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for the controller.")
    ] = TIMEOUT_S,
    _debug: DebugOption = False,
) -> None:
    """Show processes, what brokers do, partitions in trouble, overdue orders. Exit status 5 unless all is well."""
    found = run(_find(data_dir, bootstrap, timeout_s=timeout, partitions_max=partitions))
    rows = process_rows(found.processes)
    resting = [row["name"] for row in rows if row["state"] != "running"]
    problems = [
        *([f"not running: {', '.join(resting)}"] if resting else []),
        *([found.reason] if found.health is None else found.health.problems),
    ]
    show(rows, found.health, found.figures, found.services, problems, output)
    if resting:
        back = "`regnum up` with the same folder brings the cluster back"
        if len(resting) < len(rows):
            back = "`regnum down`, then `regnum up` with the same folder, brings the whole cluster back"
        raise _failed("NOT_RUNNING", f"not running: {', '.join(resting)}; {back}")
    if found.health is None:
        raise _failed("NOT_CONTROLLER", found.reason)
    if problems:
        raise _failed("UNHEALTHY", f"the cluster is not healthy: {'; '.join(problems)}")


def _failed(code: str, message: str) -> CommandFailedError:
    return CommandFailedError(Failure(code=code, message=message, exit_status=5, metadata={}))


async def _find(data_dir: "Path | None", bootstrap: str | None, *, timeout_s: float, partitions_max: int) -> Found:
    from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

    processes: Sequence[ProcessRow] = ()
    if data_dir is not None or bootstrap is None:
        from regnum_local.lifecycle import read_status  # noqa: PLC0415

        processes = read_status(data_dir)
    figures: Figures = {}
    services = Services()
    health, reason = None, ""
    if processes:
        figures, said, services = await asyncio.gather(
            _figures_here(processes, timeout_s),
            _or_error(_ask_here(processes, timeout_s, partitions_max)),
            _services_here(processes, timeout_s),
        )
    else:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        try:
            async with Admin(bootstrap, timeout_s=timeout_s, client_id=CLIENT_ID) as admin:
                told, said, services = await asyncio.gather(
                    _or_error(admin.describe_figures()),
                    _or_error(admin.describe_health(partitions_max=partitions_max)),
                    _services(admin),
                )
                figures = {} if isinstance(told, RegnumError) else told
        except RegnumError as error:
            said = error
    if isinstance(said, RegnumError):
        reason = _nobody(said)
    else:
        health = said
    return Found(processes=processes, health=health, reason=reason, figures=figures, services=services)


def _nobody(error: "RegnumError") -> str:
    """That no controller answers, and why."""
    from regnum_client.errors import NoControllerError  # noqa: PLC0415

    if isinstance(error, NoControllerError):
        return error.message
    return f"no controller answers: {error.message}; brokers and clients go on meanwhile"


async def _or_error(call: Awaitable[T]) -> "T | RegnumError":
    """What a call answers, or why it does not: one that fails is no reason to give the other up."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    try:
        return await call
    except RegnumError as error:
        return error


async def _services(admin: "Admin") -> Services:
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    propagation, quotas = await asyncio.gather(
        _or_error(admin.describe_propagation()), _or_error(admin.describe_quota_usage(BUCKETS_ASKED))
    )
    return Services(
        propagation=None if isinstance(propagation, RegnumError) else propagation,
        quotas=None if isinstance(quotas, RegnumError) else quotas,
    )


async def _services_here(processes: "Sequence[ProcessRow]", timeout_s: float) -> Services:
    """By the brokers that run: nothing, and no trouble, where they do not lead to a controller in time."""
    from regnum_local.cluster import ProcessState  # noqa: PLC0415
    from regnum_local.plan import Role  # noqa: PLC0415
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.admin.admin import Admin  # noqa: PLC0415

    brokers = [
        str(process.addresses["client"])
        for process in processes
        if process.role is Role.BROKER and process.state is ProcessState.RUNNING
    ]
    if not brokers:
        return Services()
    try:
        async with Admin(",".join(brokers), timeout_s=min(timeout_s, FIGURES_S_MAX), client_id=CLIENT_ID) as admin:
            return await _services(admin)
    except RegnumError:
        return Services()


async def _figures_here(processes: "Sequence[ProcessRow]", timeout_s: float) -> "Figures":
    from regnum_local.cluster import ProcessState  # noqa: PLC0415
    from regnum_local.plan import Role  # noqa: PLC0415

    from regnum_client.admin.health.figures import ask_brokers  # noqa: PLC0415

    brokers = {
        process.id: process.addresses["client"]
        for process in processes
        if process.role is Role.BROKER and process.state is ProcessState.RUNNING
    }
    return await ask_brokers(brokers, timeout_s=min(timeout_s, FIGURES_S_MAX), client_id=CLIENT_ID)


async def _ask_here(processes: "Sequence[ProcessRow]", timeout_s: float, partitions_max: int) -> "HealthView":
    """Straight from the election processes that run: the brokers may be what is wrong."""
    from regnum_local.cluster import ProcessState  # noqa: PLC0415
    from regnum_local.plan import Role  # noqa: PLC0415

    from regnum_client.admin.health.health_admin import ask_elections  # noqa: PLC0415

    elections = [
        process.addresses["client"]
        for process in processes
        if process.role is Role.ELECTION and process.state is ProcessState.RUNNING
    ]
    return await ask_elections(elections, timeout_s=timeout_s, client_id=CLIENT_ID, partitions_max=partitions_max)
