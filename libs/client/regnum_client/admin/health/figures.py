"""What brokers do and use: each is asked for itself, all at once, and nobody is waited for longer than told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import figures_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.wire_times import seconds_of
from regnum_service.errors import RegnumError

from regnum_client.admin.describing.quota_usage import ClientUsage, client_usages_from_wire
from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.security.channels import channels_to
from regnum_client.tasks import together


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFigures:
    """What a broker says of itself.

    >>> figures = admin.describe_figures()
    >>> {id: one.leading > 0 for id, one in figures.items() if isinstance(one, BrokerFigures)}
    {1: True}
    """

    broker: int
    uptime_s: float
    """Since it started."""
    metadata_epoch: int
    """Controller epoch of its newest metadata; 0: none yet."""
    metadata_version: int
    """Version of that within the epoch."""
    replicas: int
    """That it has and can use."""
    leading: int
    """Those that it leads."""
    under_replicated: int
    """Partitions that it leads whose in-sync set lacks a replica."""
    under_min_isr: int
    """Those whose in-sync set is smaller than min.insync.replicas."""
    offline: int
    """Replicas that it cannot use."""
    log_bytes: int
    log_segments: int
    rates_over_s: float
    """Time over which the following were measured."""
    produced_bytes_s: float
    """Bytes a second appended for producers."""
    produced_records_s: float
    fetched_bytes_s: float
    """Bytes a second sent to consumers."""
    fetched_records_s: float
    replicated_in_bytes_s: float
    """Bytes a second fetched from leaders."""
    replicated_out_bytes_s: float
    """Bytes a second sent to followers."""
    refused_batches_s: float
    """Batches a second that were not acknowledged."""
    produce_p99_s: float | None
    """99 of 100 produce calls took less, about; None: there were none."""
    loop_lag_max_s: float
    """How late its event loop was at worst in the last minute."""
    resident_bytes: int
    """Memory."""
    open_files: int
    open_files_max: int
    """That it may have open."""
    connections: int
    """Of clients."""
    lifeline_open: bool
    """Whether the controller hears it."""
    not_ready_because: str = ""
    """Why it is not ready, in words; empty: it is, or is of a release that does not say."""
    replicas_awaited: int = 0
    """Partitions whose in-sync set it has still to enter before it is ready for the first time."""
    strays: int | None = None
    """Logs that it has of topics or partitions that nobody knows; None: it has not looked yet, or does not say."""
    stray_bytes: int | None = None
    """Bytes of their segments."""
    disk_free_bytes: int | None = None
    """Free on the disk of its log directory; None: not known."""
    disk_size_bytes: int | None = None
    """Of that disk; None: not known."""
    refuses_writes_because: str = ""
    """Why it appends no records; empty: it does, or does not say."""
    store_trouble: str = ""
    """What is wrong with its session with the coordination store; empty: nothing, or it does not say."""


USAGE_S: Final = 2.0
"""So long a broker is waited for that is asked who uses its quotas: the others' answers are not to wait for it."""

Figures = dict[int, BrokerFigures | RegnumError]
"""Of each broker, by id: what it said, or why it did not."""


class FiguresAdmin(AdminSession):
    """What the brokers of a cluster do and use."""

    async def describe_figures(self) -> Figures:
        """Of each live broker: what it says of itself, or the error why it did not. Raises when none is known."""
        view = await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        addresses = {int(id): broker.address for id, broker in view.brokers.items()}
        return await _ask_all(self._connections, addresses, timeout_s=self._timeout_s, client_id=self._client_id)

    async def describe_client_usage(self) -> dict[int, tuple[ClientUsage, ...] | RegnumError]:
        """Of each live broker: who uses its quotas of bytes and of time, or the error why it does not say.

        Of each quota the 1,000 entities that used it last. Raises RegnumError when no broker is known.
        """
        view = await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        request = figures_pb2.DescribeClientUsageRequest(header=RequestHeader(client_id=self._client_id))

        async def ask(address: Address) -> tuple[ClientUsage, ...] | RegnumError:
            stub = self._connections.figures(address)
            try:
                return client_usages_from_wire(await call(stub.DescribeClientUsage, request, timeout_s=USAGE_S))
            except RegnumError as error:
                return error

        ids = sorted(view.brokers)
        said = await together("client-usage", *(ask(view.brokers[id].address) for id in ids))
        return dict(zip(map(int, ids), said, strict=True))


async def ask_brokers(addresses: Mapping[int, Address], *, timeout_s: float, client_id: str) -> Figures:
    """The same of brokers whose client listeners are known, whatever becomes of the rest of the cluster.

    Args:
        addresses: by broker id.
        timeout_s: of each call.
        client_id: name of the caller.
    """
    connections = Connections(channels_to([str(address) for address in addresses.values()]))
    try:
        return await _ask_all(connections, addresses, timeout_s=timeout_s, client_id=client_id)
    finally:
        await connections.close()


async def _ask_all(
    connections: Connections, addresses: Mapping[int, Address], *, timeout_s: float, client_id: str
) -> Figures:
    request = figures_pb2.DescribeFiguresRequest(header=RequestHeader(client_id=client_id))

    async def ask(address: Address) -> BrokerFigures | RegnumError:
        try:
            return figures_of(await call(connections.figures(address).DescribeFigures, request, timeout_s=timeout_s))
        except RegnumError as error:
            return error

    ids = sorted(addresses)
    return dict(zip(ids, await together("describe-figures", *(ask(addresses[id]) for id in ids)), strict=True))


def figures_of(answer: figures_pb2.DescribeFiguresResponse) -> BrokerFigures:
    """The values of an answer."""
    return BrokerFigures(
        broker=answer.broker_id,
        uptime_s=seconds_of(answer.uptime),
        metadata_epoch=answer.metadata_controller_epoch,
        metadata_version=answer.metadata_version,
        replicas=answer.replicas,
        leading=answer.leading,
        under_replicated=answer.under_replicated,
        under_min_isr=answer.under_min_isr,
        offline=answer.offline,
        log_bytes=answer.log_bytes,
        log_segments=answer.log_segments,
        rates_over_s=seconds_of(answer.rates_over),
        produced_bytes_s=answer.produced_bytes_per_second,
        produced_records_s=answer.produced_records_per_second,
        fetched_bytes_s=answer.fetched_bytes_per_second,
        fetched_records_s=answer.fetched_records_per_second,
        replicated_in_bytes_s=answer.replicated_in_bytes_per_second,
        replicated_out_bytes_s=answer.replicated_out_bytes_per_second,
        refused_batches_s=answer.refused_batches_per_second,
        produce_p99_s=seconds_of(answer.produce_p99) if answer.HasField("produce_p99") else None,
        loop_lag_max_s=seconds_of(answer.loop_lag_max),
        resident_bytes=answer.resident_bytes,
        open_files=answer.open_files,
        open_files_max=answer.open_files_max,
        connections=answer.connections,
        lifeline_open=answer.lifeline_open,
        not_ready_because=answer.not_ready_because,
        replicas_awaited=answer.replicas_awaited,
        strays=answer.strays if answer.HasField("strays") else None,
        stray_bytes=answer.stray_bytes if answer.HasField("stray_bytes") else None,
        disk_free_bytes=answer.disk_free_bytes if answer.HasField("disk_free_bytes") else None,
        disk_size_bytes=answer.disk_size_bytes if answer.HasField("disk_size_bytes") else None,
        refuses_writes_because=answer.refuses_writes_because,
        store_trouble=answer.store_trouble,
    )
