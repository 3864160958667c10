"""FiguresService: what this broker says of itself in figures."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from regnum.broker.v1 import figures_pb2, figures_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.quotas import CLIENT_RATES
from regnum_model.wire_times import duration_of
from regnum_service import own_process
from regnum_service.clock import Clock
from regnum_service.connections import open_at
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller
from regnum_service.loop_lag import LoopLag
from regnum_service.slices import slices
from regnum_service.store_contact import StoreContact
from regnum_telemetry.instruments import broker as instruments

from regnum_broker.cluster.readiness import Readiness
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.disk_room import DiskRooms
from regnum_broker.figures.gauges import is_under_replicated
from regnum_broker.figures.log_sizes import LogSizing
from regnum_broker.figures.recent_rates import Rates, RecentRates
from regnum_broker.limits.client_quotas import ClientQuotas, Usage
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.storage import Storage

FRESH_S: Final = 0.5
"""For so long an answer serves whoever asks."""

LAG_WINDOW_S: Final = 60.0
"""How far back the worst lag of the loop is looked for."""

STRAYS_MAX: Final = 1_000
"""Strays of one page."""

USAGES_MAX: Final = 1_000
"""Entities of one quota in one answer."""

STRAYS_PER_TURN: Final = 200
"""Strays described between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class FiguresServicer(figures_pb2_grpc.FiguresServiceServicer):
    """Answers from what is in memory; what takes longer with what the broker hosts is added up on a thread.

    Belongs to the event loop.
    """

    def __init__(
        self,
        broker: BrokerId,
        *,
        rates: RecentRates,
        sizing: LogSizing,
        replicas: Replicas,
        storage: Storage,
        cache: MetadataCache,
        loop_lag: LoopLag,
        readiness: Readiness,
        strays: StrayLogs,
        disk: DiskRooms,
        contact: StoreContact,
        lifeline_open: Callable[[], bool],
        client_port: Callable[[], int],
        clock: Clock,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """Only assigns; ``quotas``: what clients do against them, None: there are none."""
        self._quotas: Final = quotas or ClientQuotas()
        self._broker: Final = broker
        self._rates: Final = rates
        self._sizing: Final = sizing
        self._replicas: Final = replicas
        self._storage: Final = storage
        self._cache: Final = cache
        self._loop_lag: Final = loop_lag
        self._readiness: Final = readiness
        self._strays: Final = strays
        self._disk: Final = disk
        self._contact: Final = contact
        self._lifeline_open: Final = lifeline_open
        self._client_port: Final = client_port
        self._clock: Final = clock
        self._began_s: Final = clock.monotonic()
        self._describing: Final = asyncio.Lock()
        self._kept: tuple[float, figures_pb2.DescribeFiguresResponse] | None = None

    async def DescribeFigures(  # noqa: N802 - gRPC's name
        self,
        request: figures_pb2.DescribeFiguresRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> figures_pb2.DescribeFiguresResponse:
        """As of now, or of a moment ago: a thousand callers cost as much as one."""
        async with self._describing:
            if self._kept is None or self._clock.monotonic() - self._kept[0] >= FRESH_S:
                answer = await for_caller(partial(self._described, self._rates.rates()))
                self._kept = self._clock.monotonic(), answer
            return self._kept[1]

    async def DescribeStrays(  # noqa: N802 - gRPC's name
        self,
        request: figures_pb2.DescribeStraysRequest,
        context: Context,  # noqa: ARG002
    ) -> figures_pb2.DescribeStraysResponse:
        """The next page of logs that nobody knows, by the last look."""
        if self._strays.found is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                f"broker {self._broker} has not looked for strays yet: it does once it has been registered, with "
                "metadata, for stray.grace.s; wait",
            )
        after = None
        if request.HasField("after"):
            after = PartitionKey(TopicId(request.after.topic_id), request.after.partition)
        count = request.limit if 0 < request.limit < STRAYS_MAX else STRAYS_MAX
        found, end = await self._strays.page(after, count)
        answer = figures_pb2.DescribeStraysResponse(broker_id=self._broker)
        async for some in slices(found, STRAYS_PER_TURN):
            answer.strays.extend(map(_stray, some))
        if end is not None:
            answer.next.topic_id, answer.next.partition = end
        return answer

    async def DescribeClientUsage(  # noqa: N802 - gRPC's name
        self,
        request: figures_pb2.DescribeClientUsageRequest,
        context: Context,  # noqa: ARG002
    ) -> figures_pb2.DescribeClientUsageResponse:
        """Who uses quotas of bytes and of time here, and who has to wait."""
        count = request.limit if 0 < request.limit < USAGES_MAX else USAGES_MAX
        answer = figures_pb2.DescribeClientUsageResponse(
            broker_id=self._broker, accounts=sum(map(self._quotas.accounts, CLIENT_RATES))
        )
        for rate in CLIENT_RATES:
            async for some in slices(self._quotas.usages(rate, count, self._clock.monotonic()), STRAYS_PER_TURN):
                answer.usages.extend(map(_usage, some))
        return answer

    def _described(self, rates: Rates) -> figures_pb2.DescribeFiguresResponse:
        """On a thread, as those who read metrics."""
        sizes, process = self._sizing.sizes(), own_process.look()
        incomplete = self._replicas.incomplete()
        position, disk = self._cache.position, self._disk.now
        answer = figures_pb2.DescribeFiguresResponse(
            broker_id=self._broker,
            uptime=duration_of(self._clock.monotonic() - self._began_s),
            metadata_controller_epoch=position.epoch,
            metadata_version=position.number,
            replicas=len(self._replicas),
            leading=self._replicas.leading_count,
            under_replicated=sum(map(is_under_replicated, incomplete)),
            under_min_isr=sum(len(one.state.isr) < one.min_insync for one in incomplete),
            offline=len(self._storage.directory.offline),
            log_bytes=sizes.size_bytes,
            log_segments=sizes.segments,
            rates_over=duration_of(rates.over_s),
            produced_bytes_per_second=rates.of(instruments.BYTES_IN),
            produced_records_per_second=rates.of(instruments.RECORDS_IN),
            fetched_bytes_per_second=rates.of(instruments.BYTES_OUT),
            fetched_records_per_second=rates.of(instruments.RECORDS_OUT),
            replicated_in_bytes_per_second=rates.of(instruments.REPLICATION_BYTES_IN),
            replicated_out_bytes_per_second=rates.of(instruments.REPLICATION_BYTES_OUT),
            refused_batches_per_second=rates.of(instruments.BATCHES_REFUSED),
            loop_lag_max=duration_of(self._loop_lag.worst_s(LAG_WINDOW_S)),
            resident_bytes=process.resident_bytes,
            open_files=process.open_files,
            open_files_max=min(process.open_files_max, 2**31 - 1),
            connections=open_at(self._client_port()) or 0,
            lifeline_open=self._lifeline_open(),
            not_ready_because=self._readiness.why_not,
            replicas_awaited=self._readiness.awaited,
            disk_free_bytes=disk.free_bytes,
            disk_size_bytes=disk.size_bytes,
            refuses_writes_because=disk.refuses_because,
            store_trouble=self._contact.trouble,
        )
        if (strays := self._strays.found) is not None:
            answer.strays, answer.stray_bytes = len(strays.keys), strays.size_bytes
        if rates.produce_p99_s is not None:
            answer.produce_p99.CopyFrom(duration_of(rates.produce_p99_s))
        return answer


def _usage(one: Usage) -> figures_pb2.ClientUsage:
    return figures_pb2.ClientUsage(
        quota=one.rate,
        user=one.key.user,
        client_id=one.key.client_id,
        rate=one.measured,
        limit=one.bound,
        wait=duration_of(one.wait_s),
        idle=duration_of(one.idle_s),
    )


def _stray(partition: Partition) -> figures_pb2.StrayReplica:
    log = partition.log
    return figures_pb2.StrayReplica(
        topic_id=partition.key.topic_id,
        partition=partition.key.partition,
        topic=partition.topic,
        size_bytes=log.size_bytes,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_written_leader_epoch=log.last_record_epoch,
    )
