"""A console over a cluster that is made of values: what its pages say of it, without brokers and sockets."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, Self

from regnum.types.v1 import errors_pb2
from regnum_client.admin.describing.event_admin import ANY
from regnum_client.admin.describing.events import (
    ClusterEvent,
    EventCause,
    EventFilter,
    EventKind,
    EventPage,
    EventPosition,
    EventState,
)
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.describing.quota_usage import ClientUsage, QuotaUsage, QuotaUsages
from regnum_client.admin.describing.replica_admin import ReplicaSize
from regnum_client.admin.describing.topics import ALL, TopicSummary
from regnum_client.admin.groups.views import CommittedOffset, GroupDescription, GroupListing, GroupState
from regnum_client.admin.health.figures import Figures
from regnum_client.admin.health.views import BrokerHealth, HealthView
from regnum_client.admin.quotas import ClientQuota
from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.cluster.view import BrokerView, ClusterView, PartitionView, TopicView
from regnum_client.consumer.positions import EARLIEST, LATEST, Start
from regnum_client.records import ConsumedRecord, RecordMetadata, TopicPartition
from regnum_console.app import application
from regnum_console.context import Context
from regnum_console.guard import Guard, Hosts
from regnum_console.live.feed import ChangeFeed, Source
from regnum_console.live.streams import Streams
from regnum_console.port import Ports
from regnum_console.records.masking import Masks, mask_of
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, LeaderEpoch, TopicId
from regnum_model.nodes import Address
from regnum_model.topic_filter import TopicFilter
from regnum_service.errors import RegnumError

from regnum_testing.clock import FakeClock

TOKEN: Final = "the-token-of-the-page"  # noqa: S105 - of a test
HOSTS: Final = Hosts(scheme="http", names=("127.0.0.1", "localhost"), port=8090)
WHEN_MS: Final = 1_700_000_000_000
"""Time of records, commits and events, milliseconds since 1970."""


def topic_of(name: str, isrs: Sequence[Sequence[int]], *, min_insync: int = 2) -> TopicView:
    """A topic by the in-sync replicas of its partitions, of replicas 1 to 3; the first of each leads."""
    return TopicView(
        name=name,
        topic_id=TopicId(f"id-of-{name}"),
        partitions={
            number: PartitionView(
                number=number,
                leader=BrokerId(isr[0] if isr else -1),
                leader_epoch=LeaderEpoch(4),
                replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
                isr=tuple(map(BrokerId, isr)),
                elr=(),
                min_insync_replicas=min_insync,
            )
            for number, isr in enumerate(isrs)
        },
    )


def health_of(**changed: object) -> HealthView:
    """A cluster that is well, apart from what is said."""
    brokers = tuple(
        BrokerHealth(
            id=id,
            registered=True,
            stopping=False,
            draining=False,
            replicas=5,
            offline_replicas=0,
            orders_outstanding=0,
            oldest_order_age_s=0.0,
        )
        for id in (1, 2, 3)
    )
    known: dict[str, object] = {
        "controller": 2, "controller_epoch": 7, "metadata_version": 40, "complete": True, "topics": 1, "partitions": 2,
        "brokers": brokers, "metadata_behind": {1: 0}, "troubles": {}, "troubled_partitions": (), "overdue_orders": (),
        "damaged": (), "damaged_count": 0, "order_overdue_s": 5.0, "trouble_overdue_s": 30.0,
    }  # fmt: skip
    return HealthView(**{**known, **changed})  # type: ignore[arg-type]


def event_of(number: int, kind: EventKind = EventKind.LEADER_ELECTED, **changed: object) -> ClusterEvent:
    """An event of partition 0 of ``orders`` in the seventh reign."""
    event = ClusterEvent(
        position=EventPosition(ControllerEpoch(7), number),
        time_unix_ms=WHEN_MS + number,
        controller=ElectionId(2),
        kind=kind,
        cause=EventCause.LIFELINE_BROKEN,
        evidence="port refused twice",
        trace_id="ab" * 16,
        topic="orders",
        topic_id=TopicId("id-of-orders"),
        partition=0,
        broker=None,
        broker_epoch=BrokerEpoch(0),
        before=None,
        after=EventState(leader=BrokerId(1), leader_epoch=LeaderEpoch(4), isr=(BrokerId(1),), elr=(), version=3),
        count=0,
        detail="",
        who="",
        replicas_before=(),
        replicas_after=(),
    )
    return replace(event, **changed)  # type: ignore[arg-type]


@dataclass(slots=True)
class FakeConsoleCluster:
    """What a cluster says; ``refusal`` in place of everything."""

    topics: dict[str, TopicView] = field(default_factory=dict)
    health: HealthView = field(default_factory=health_of)
    controller: bool = True
    """Whether there is one."""
    figures: Figures = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    ends: dict[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    events: list[ClusterEvent] = field(default_factory=list)
    moves: tuple[OngoingReassignment, ...] = ()
    clients: tuple[ClientUsage, ...] = ()
    mutations: tuple[QuotaUsage, ...] = ()
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    refusal: RegnumError | None = None
    groups_refusal: RegnumError | None = None
    """In place of the list of groups."""
    calls: int = 0
    waited_s: float = 0.0

    def _asked(self) -> None:
        self.calls += 1
        if self.refusal is not None:
            raise self.refusal

    async def describe_cluster(self) -> ClusterView:
        """See Admin."""
        self._asked()
        brokers = {
            BrokerId(one.id): BrokerView(
                id=BrokerId(one.id),
                epoch=BrokerEpoch(1),
                rack="r1",
                address=Address(host="127.0.0.1", port=9_000 + one.id),
                internal_address=Address(host="127.0.0.1", port=9_100 + one.id),
            )
            for one in self.health.brokers
        }
        return ClusterView(topics=self.topics, brokers=brokers)

    async def describe_health(self, *, partitions_max: int = 20) -> HealthView:
        """See Admin."""
        self._asked()
        if not self.controller:
            raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "no election process is controller")
        return replace(self.health, troubled_partitions=self.health.troubled_partitions[:partitions_max])

    async def describe_figures(self) -> Figures:
        """See Admin."""
        self._asked()
        return self.figures

    def _chosen(self, names: Sequence[str], chosen: TopicFilter) -> list[TopicView]:
        self._asked()
        fits = chosen.matcher()
        return [self.topics[name] for name in sorted(self.topics) if fits(name) and (not names or name in names)]

    async def summarize_topics(
        self, names: Sequence[str] = (), *, chosen: TopicFilter = ALL, limit: int = 0, first: str = ""
    ) -> AsyncGenerator[tuple[TopicSummary, ...], None]:
        """See Admin."""
        found = [one for one in self._chosen(names, chosen) if one.name >= first]
        for begin in range(0, len(found), limit or 2_000):
            yield tuple(
                TopicSummary(one.name, one.topic_id, len(one.partitions), 3, 0, 0, 0)
                for one in found[begin : begin + (limit or 2_000)]
            )

    async def describe_topics(
        self,
        names: Sequence[str] = (),
        *,
        chosen: TopicFilter = ALL,
        limit: int = 0,  # noqa: ARG002 - all on one page
    ) -> AsyncGenerator[TopicView, None]:
        """See Admin."""
        for one in self._chosen(names, chosen):
            yield one

    async def describe_topic(self, name: str) -> TopicView:
        """See Admin."""
        self._asked()
        if name not in self.topics:
            raise RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, f"no broker knows a topic {name!r}")
        return self.topics[name]

    async def describe_replicas(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ReplicaSize, ...]]:
        """See Admin."""
        self._asked()
        return {
            one: (
                ReplicaSize(BrokerId(1), True, self.sizes.get(one, 1_000), 0, 100, 0, ""),  # noqa: FBT003 - a NamedTuple
                ReplicaSize(BrokerId(2), False, 900, 0, 90, 10, ""),  # noqa: FBT003 - a NamedTuple
            )
            for one in partitions
        }

    async def list_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets | RegnumError]:
        """See Admin."""
        self._asked()
        return {one: self.ends.get(one, PartitionOffsets(0, 100)) for one in partitions}

    async def list_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See Admin."""
        self._asked()
        return dict.fromkeys(timestamps_ms, 40)

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """See Admin."""
        self._asked()
        if self.groups_refusal is not None:
            raise self.groups_refusal
        return tuple(GroupListing(name, "consumer", GroupState.STABLE, 1) for name in sorted(self.groups))

    async def describe_group(self, group_id: str) -> GroupDescription:
        """See Admin."""
        self._asked()
        if group_id not in self.groups:
            raise RegnumError(errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return GroupDescription(
            group_id=group_id,
            state=GroupState.EMPTY,
            protocol_type="consumer",
            protocol="range",
            generation=3,
            leader="",
            members=(),
            coordinator=1,
        )

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """See Admin."""
        self._asked()
        return self.groups.get(group_id, {})

    async def describe_events(
        self,
        chosen: EventFilter = ANY,
        *,
        before: EventPosition | None = None,
        after: EventPosition | None = None,
        limit: int = 0,
        wait_s: float = 0.0,
    ) -> EventPage:
        """See Admin."""
        self._asked()
        self.waited_s += wait_s
        fitting = [
            one
            for one in self.events
            if (not chosen.topic or one.topic == chosen.topic) and (not chosen.kinds or one.kind in chosen.kinds)
        ]
        newest_first = sorted(fitting, key=lambda one: one.position, reverse=True)
        if after is not None:
            found = [one for one in reversed(newest_first) if one.position > after]
        else:
            found = [one for one in newest_first if before is None or one.position < before]
        shown = tuple(found[: limit or 500])
        more = len(found) > len(shown)
        return EventPage(events=shown, next=shown[-1].position if shown else None, more=more, dropped=0, on_disk=True)

    async def last_events(self, chosen: EventFilter = ANY, *, limit: int) -> tuple[ClusterEvent, ...]:
        """See Admin."""
        return (await self.describe_events(chosen, limit=limit)).events

    async def list_partition_reassignments(self, topics: Sequence[str] = ()) -> tuple[OngoingReassignment, ...]:
        """See Admin."""
        self._asked()
        return tuple(one for one in self.moves if not topics or one.topic in topics)

    async def describe_client_quotas(self) -> tuple[ClientQuota, ...]:
        """See Admin."""
        self._asked()
        return ()

    async def describe_quota_usage(self, limit: int = 100) -> QuotaUsages:
        """See Admin."""
        self._asked()
        return QuotaUsages(quota_id=1, usages=self.mutations[:limit], buckets=0, muted_connections=0, held_calls=0)

    async def describe_client_usage(self) -> dict[int, tuple[ClientUsage, ...] | RegnumError]:
        """See Admin."""
        self._asked()
        return {1: self.clients}


@dataclass(slots=True)
class FakeLog:
    """Records of one partition, and who reads and writes it."""

    records: list[ConsumedRecord] = field(default_factory=list)
    sent: list[tuple[object, ...]] = field(default_factory=list)
    open_readers: int = 0
    assigned: list[int] | None = None
    waited_s: float = 0.0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Readers wait for it before each read."""

    def add(
        self, value: bytes | None, *, key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()
    ) -> None:
        """One more."""
        offset = len(self.records)
        self.records.append(ConsumedRecord("orders", 0, offset, WHEN_MS + offset, key, value, headers))


class FakeReader:
    """Reads the one partition of a FakeLog."""

    def __init__(self, log: FakeLog) -> None:
        self._log: Final = log
        self._at = 0

    async def __aenter__(self) -> Self:
        self._log.open_readers += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._log.open_readers -= 1

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = EARLIEST
    ) -> tuple[TopicPartition, ...]:
        """See Consumer."""
        self._log.assigned = None if partitions is None else list(partitions)
        self._at = start if isinstance(start, int) else len(self._log.records) if start == LATEST else 0
        return (TopicPartition(topic, 0),)

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """See Consumer."""
        self._log.waited_s += timeout_s
        await self._log.gate.wait()
        found = self._log.records[self._at : self._at + records_max]
        self._at += len(found)
        if not found:
            await asyncio.sleep(0)
        return found

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See Consumer."""
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See Consumer."""
        return dict.fromkeys(partitions, len(self._log.records))

    def position(self, _partition: TopicPartition) -> int:
        """See Consumer."""
        return self._at


class FakeWriter:
    """Keeps what is sent."""

    def __init__(self, log: FakeLog) -> None:
        self._log: Final = log

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """See Producer."""
        self._log.sent.append((topic, key, value, partition, tuple(headers)))
        delivery = asyncio.get_running_loop().create_future()
        delivery.set_result(RecordMetadata(topic, partition or 0, 17, WHEN_MS))
        return delivery


class FakeConsole:
    """The console of such a cluster, as an ASGI application with its guard."""

    def __init__(
        self, *, writes: bool = False, source: Source | None = None, hosts: Hosts = HOSTS, masks: Sequence[str] = ()
    ) -> None:
        self.cluster: Final = FakeConsoleCluster(topics={"orders": topic_of("orders", [[1, 2, 3], [2, 3]])})
        self.log: Final = FakeLog()
        self.log.gate.set()
        self.clock: Final = FakeClock()
        self.streams: Final = Streams(self.clock)

        def write() -> AbstractAsyncContextManager[FakeWriter]:
            return nullcontext(FakeWriter(self.log))

        put_on = Masks([mask_of(one) for one in masks])
        ports = Ports(
            cluster=self.cluster,
            connect=lambda: nullcontext(self.cluster),
            read=lambda: put_on.reader(FakeReader(self.log)),
            write=write if writes else None,
            masked=put_on.words,
        )
        context = Context(
            ports=ports, clock=self.clock, feed=ChangeFeed(source, self.clock), streams=self.streams, token=TOKEN
        )
        self.app: Final = Guard(application(context), lambda: hosts)
