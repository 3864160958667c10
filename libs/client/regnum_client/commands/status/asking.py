"""Asks whoever can say how a cluster is: its processes on this machine, its brokers, its controller."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from regnum_client.commands.status.lags import NOT_ASKED, Lags, ask_lags
from regnum_client.commands.status.services import BUCKETS_ASKED, Services

if TYPE_CHECKING:
    from regnum_local.cluster import ProcessRow
    from regnum_local.plan import Role
    from regnum_model.nodes import Address
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.health.figures import Figures
    from regnum_client.admin.health.views import HealthView
    from regnum_client.cluster.view import ClusterView

T = TypeVar("T")

SHORT_S_MAX: Final = 2.0
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
    kafka: Sequence[str] = ()
    """``host:port`` of brokers that take clients of Kafka, as a broker names them."""
    lags: Lags = NOT_ASKED
    """How far groups are behind."""


class _Said(NamedTuple):
    health: "HealthView | RegnumError"
    figures: "Figures"
    services: Services
    kafka: Sequence[str] = ()


async def find(
    data_dir: Path | None, bootstrap: str | None, *, timeout_s: float, partitions_max: int, with_lags: bool = False
) -> Found:
    """Ask. Raises StartRefusedError when no cluster is known.

    Args:
        data_dir: folder of a cluster of this machine; None: that of the last `regnum up`, unless there is a bootstrap.
        bootstrap: brokers to begin with.
        timeout_s: how long the controller is waited for.
        partitions_max: unhealthy partitions to name.
        with_lags: whether every group is asked for.
    """
    from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

    processes: Sequence[ProcessRow] = ()
    if data_dir is not None or bootstrap is None:
        from regnum_local.lifecycle import read_status  # noqa: PLC0415

        processes = read_status(data_dir)
    said = await (
        _asked_here(processes, timeout_s, partitions_max)
        if processes
        else _asked_by(bootstrap, timeout_s, partitions_max)
    )
    lags = NOT_ASKED
    if with_lags:
        lags = await ask_lags(_brokers_here(processes) or bootstrap, timeout_s=timeout_s, client_id=CLIENT_ID)
    return Found(
        processes=processes,
        health=None if isinstance(said.health, RegnumError) else said.health,
        reason=_nobody(said.health) if isinstance(said.health, RegnumError) else "",
        figures=said.figures,
        services=said.services,
        kafka=said.kafka,
        lags=lags,
    )


def _brokers_here(processes: "Sequence[ProcessRow]") -> str:
    """Those of this machine that listen; empty: there is none."""
    if not processes:
        return ""
    from regnum_local.plan import Role  # noqa: PLC0415

    return _text(_listening(processes, Role.BROKER))


def _nobody(error: "RegnumError") -> str:
    """That no controller answers, and why."""
    from regnum_client.errors import NoControllerError  # noqa: PLC0415

    if isinstance(error, NoControllerError):
        return error.message
    return f"no controller answers: {error.message}; brokers and clients go on meanwhile"


async def _asked_by(bootstrap: str | None, timeout_s: float, partitions_max: int) -> _Said:
    """Of a cluster of which only brokers are known."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.admin.admin import Admin  # noqa: PLC0415

    try:
        async with Admin(bootstrap, timeout_s=timeout_s, client_id=CLIENT_ID) as admin:
            view, figures, health, services = await asyncio.gather(
                _or_error(admin.describe_cluster()),
                _or_error(admin.describe_figures()),
                _or_error(admin.describe_health(partitions_max=partitions_max)),
                _services(admin),
            )
            return _Said(
                health,
                {} if isinstance(figures, RegnumError) else figures,
                services,
                () if isinstance(view, RegnumError) else _kafka(view),
            )
    except RegnumError as error:
        return _Said(error, {}, Services())


async def _asked_here(processes: "Sequence[ProcessRow]", timeout_s: float, partitions_max: int) -> _Said:
    """Of the cluster of this machine: each process where it should be, whoever started it, and whom brokers name."""
    from regnum_local.plan import Role  # noqa: PLC0415
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.admin.health.figures import ask_brokers  # noqa: PLC0415
    from regnum_client.admin.health.health_admin import ask_elections  # noqa: PLC0415

    brokers = _listening(processes, Role.BROKER)
    elections = _listening(processes, Role.ELECTION).values()
    short_s = min(timeout_s, SHORT_S_MAX)
    figures, health, named = await asyncio.gather(
        ask_brokers(brokers, timeout_s=short_s, client_id=CLIENT_ID),
        # Straight from the election processes: the brokers may be what is wrong.
        _or_error(ask_elections(elections, timeout_s=timeout_s, client_id=CLIENT_ID, partitions_max=partitions_max)),
        _named_by(brokers, short_s),
    )
    if isinstance(health, RegnumError) and brokers:
        # Those that the brokers name may be others than these.
        health = (await _asked_by(_text(brokers), short_s, partitions_max)).health
    return _Said(health, {**named.figures, **figures}, named.services, named.kafka)


class _Named(NamedTuple):
    figures: "Figures"
    """Of brokers that are not where this cluster has them."""
    services: Services
    kafka: Sequence[str] = ()


async def _named_by(brokers: "Mapping[int, Address]", timeout_s: float) -> _Named:
    """What these brokers lead to: the controller, and brokers besides them. It is no trouble when that is nothing."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.admin.admin import Admin  # noqa: PLC0415
    from regnum_client.admin.health.figures import ask_brokers  # noqa: PLC0415

    if not brokers:
        return _Named({}, Services(unknown_because="no broker of this cluster listens, so none can be asked"))
    try:
        async with Admin(_text(brokers), timeout_s=timeout_s, client_id=CLIENT_ID) as admin:
            view, services = await asyncio.gather(admin.describe_cluster(), _services(admin))
    except RegnumError as error:
        return _Named({}, Services(unknown_because=error.message))
    others = {int(id): one.address for id, one in view.brokers.items() if id not in brokers}
    figures = await ask_brokers(others, timeout_s=timeout_s, client_id=CLIENT_ID) if others else {}
    return _Named(figures, services, _kafka(view))


def _kafka(view: "ClusterView") -> tuple[str, ...]:
    """Where its brokers take clients of Kafka."""
    return tuple(str(one.kafka_address) for _, one in sorted(view.brokers.items()) if one.kafka_address is not None)


def _listening(processes: "Sequence[ProcessRow]", role: "Role") -> "dict[int, Address]":
    """Client listeners of those that run, by id."""
    from regnum_local.cluster import ProcessState  # noqa: PLC0415

    running = (ProcessState.RUNNING, ProcessState.ELSEWHERE)
    return {one.id: one.addresses["client"] for one in processes if one.role is role and one.state in running}


def _text(brokers: "Mapping[int, Address]") -> str:
    return ",".join(map(str, brokers.values()))


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
        unknown_because=propagation.message
        if isinstance(propagation, RegnumError) and isinstance(quotas, RegnumError)
        else "",
    )
