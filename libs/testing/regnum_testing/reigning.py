"""A controller over a memory store, with brokers that do what they are told: for tests of the election service."""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.leadership import Leadership
from regnum_coordination.recipes.membership import Membership
from regnum_election.admission.quota_process import QuotaChannel
from regnum_election.admission.stand_in import Account
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.history.events import Entry
from regnum_election.history.missing import AskLog, nothing_logged
from regnum_election.publication.subscriber import DeathDetector
from regnum_election.reign.events import CatchingUp
from regnum_election.reign.reign import DeposedError, Predecessor, Reign
from regnum_election.reign.witnesses import NO_WITNESSES, Earlier, Witnesses
from regnum_election.standby.picture import Followed
from regnum_model import paths
from regnum_model.bucket import Limit
from regnum_model.configs import (
    DEFAULT_REPLICATION_FACTOR,
    INTER_BROKER_PROTOCOL,
    MAX_BROKER_EPOCH,
    MIN_INSYNC_REPLICAS,
)
from regnum_model.ids import BrokerEpoch, BrokerId, DirectoryId, ElectionId, LogId, PartitionKey, Registration, TopicId
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr, TopicNode
from regnum_model.protocols import UNSAID, ReleaseInfo
from regnum_model.quotas import QuotaProcessNode
from regnum_service.addressee import ANSWERED_BY
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError
from regnum_telemetry import tracing
from regnum_telemetry.metrics import Metrics

from regnum_testing.fake_metadata import FakeMetadata
from regnum_testing.fake_quota_process import NoQuotaProcess
from regnum_testing.waiting import DEADLINE_S

ANYBODY = Account(user="ANONYMOUS", client_id="", strict=True)
"""On whose account most tests ask."""

NONE: Final = errors_pb2.ERROR_CODE_NONE

NOT_REGISTERED = BrokerEpoch(0)
NO_REGISTRATION = Registration(0)


@dataclass(slots=True, kw_only=True, eq=False)
class FakeBroker:
    """A broker: a registration, and what it has been told."""

    id: BrokerId
    log_id: LogId
    """What its log directory holds."""
    rack: str | None = None
    """Failure domain."""
    epoch: BrokerEpoch = NOT_REGISTERED
    """Broker epoch of the registration."""
    registration: Registration = NO_REGISTRATION
    store: MemoryStore | None = None
    """Its session."""
    states: dict[PartitionKey, control_pb2.LeaderAndIsrPartition] = field(default_factory=dict)
    """Newest state of each partition it was told of."""
    requests: list[control_pb2.LeaderAndIsrRequest] = field(default_factory=list)
    """Every LeaderAndIsr it took."""
    places: list[str] = field(default_factory=list)
    """Where in a trace each of them was called; empty: in none."""
    stops: list[control_pb2.StopReplicaPartition] = field(default_factory=list)
    """Every stop it took."""
    stop_requests: list[control_pb2.StopReplicaRequest] = field(default_factory=list)
    """Every StopReplica it took."""
    logs: dict[PartitionKey, control_pb2.ReplicaLogInfo] = field(default_factory=dict)
    """What its replicas hold; it has no others."""
    lists_logs: bool = True
    """Whether it understands when it is asked for all of them."""
    pages: str = "whole"
    """How it tells them: ``whole``, ``empty`` (there is more, and never anything) or ``again`` (always the first)."""
    mute: bool = False
    """Whether questions about its logs are never answered."""
    settings: list[control_pb2.BrokerSetting] = field(default_factory=list)
    """What it says that it runs with."""
    questions: int = 0
    """How often it was asked about its logs."""
    controller_epoch: int = 0
    """Highest controller epoch seen."""
    down: bool = False
    """Whether calls fail."""
    answers_as: str = ""
    """Which process stands at its address and refuses what is meant for it; empty: itself."""
    offline: set[PartitionKey] = field(default_factory=set)
    """Replicas that it cannot use, and refuses."""
    fenced: set[PartitionKey] = field(default_factory=set)
    """Replicas that it does not lead, for their logs know the leader epoch."""
    stop_errors: list[errors_pb2.ErrorCode.ValueType] = field(default_factory=list)
    """What the next stops answer for their first replica, one each, in place of having stopped it."""
    answers_max: int | None = None
    """Results that one answer holds, whatever was ordered; None: all of them."""
    reports: set[PartitionKey] = field(default_factory=set)
    """Partitions that it leads of which it says that the first acknowledgement to a producer follows."""
    held: asyncio.Event | None = None
    """While set and not fired, LeaderAndIsr does not return."""
    closing: asyncio.Event | None = None
    """While set and not fired, channels to it do not close."""
    closes: int = 0
    """How often one was told to."""

    def told_of(self, key: PartitionKey) -> int:
        """How often it was told of a partition."""
        named = (item for request in self.requests for item in request.partitions)
        return sum((item.topic_id, item.state.partition) == key for item in named)

    def leaders(self) -> dict[PartitionKey, int]:
        """Leaders as told."""
        return {key: state.state.leader for key, state in self.states.items()}


class FakeChannel:
    """ControlChannel to a FakeBroker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def _check(self, controller_epoch: int, broker_epoch: int | None) -> None:
        broker = self._broker
        if broker.down:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "down")
        if broker.answers_as:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED, "not here", metadata={ANSWERED_BY: broker.answers_as}
            )
        if controller_epoch < broker.controller_epoch:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
                "stale",
                metadata={"controller_epoch": str(broker.controller_epoch)},
            )
        if broker_epoch is not None and broker_epoch < broker.epoch:
            raise RegnumError(errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, "stale")
        broker.controller_epoch = controller_epoch

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """Take it."""
        return await self._lead_and_follow(control_pb2.LeaderAndIsrRequest.FromString(request))

    async def _lead_and_follow(self, request: control_pb2.LeaderAndIsrRequest) -> control_pb2.LeaderAndIsrResponse:
        await asyncio.sleep(0)
        if self._broker.held is not None:
            await self._broker.held.wait()
        self._check(request.controller_epoch, request.broker_epoch)
        self._broker.requests.append(request)
        self._broker.places.append(tracing.current())
        results = []
        for item in request.partitions:
            key = PartitionKey(TopicId(item.topic_id), item.state.partition)
            error = NONE
            if key in self._broker.offline:
                error = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
            elif key in self._broker.fenced and item.state.leader == self._broker.id:
                error = errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
            else:
                self._broker.states[key] = item
            results.append(
                control_pb2.ReplicaResult(
                    topic_id=item.topic_id,
                    partition=item.state.partition,
                    error_code=error,
                    acknowledgement_follows=key in self._broker.reports and item.state.leader == self._broker.id,
                )
            )
        return control_pb2.LeaderAndIsrResponse(results=results[: self._broker.answers_max])

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """Take it."""
        await asyncio.sleep(0)
        self._check(request.controller_epoch, request.broker_epoch)
        self._broker.stops.extend(request.partitions)
        self._broker.stop_requests.append(request)
        response = control_pb2.StopReplicaResponse(
            results=[
                control_pb2.ReplicaResult(topic_id=item.topic_id, partition=item.partition)
                for item in request.partitions[: self._broker.answers_max]
            ]
        )
        if self._broker.stop_errors:
            response.results[0].error_code = self._broker.stop_errors.pop(0)
        return response

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """What its replicas hold."""
        self._broker.questions += 1
        await asyncio.sleep(0)
        if self._broker.mute:
            await asyncio.sleep(timeout_s)
            raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "mute")
        self._check(request.controller_epoch, request.broker_epoch)
        if request.all:
            after = PartitionKey(TopicId(request.after.topic_id), request.after.partition)
            first = not request.HasField("after") or self._broker.pages == "again"
            keys = sorted(key for key in self._broker.logs if first or key > after)
            keys = [] if self._broker.pages == "empty" else keys
            some = [control_pb2.ReplicaLogQuery(topic_id=key.topic_id, partition=key.partition) for key in keys[:2]]
            return control_pb2.GetReplicaLogInfoResponse(
                broker_epoch=self._broker.epoch,
                replicas=[self._log(query) for query in some],
                listed=self._broker.lists_logs,
                more=len(keys) > len(some) or self._broker.pages != "whole",
            )
        return control_pb2.GetReplicaLogInfoResponse(
            broker_epoch=self._broker.epoch, replicas=[self._log(query) for query in request.queries]
        )

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """What a test says that it runs with."""
        await asyncio.sleep(0)
        if self._broker.mute:
            await asyncio.sleep(timeout_s)
            raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "mute")
        self._check(request.controller_epoch, request.broker_epoch)
        return control_pb2.DescribeBrokerSettingsResponse(settings=self._broker.settings)

    def _log(self, query: control_pb2.ReplicaLogQuery) -> control_pb2.ReplicaLogInfo:
        info = self._broker.logs.get(PartitionKey(TopicId(query.topic_id), query.partition))
        answer = control_pb2.ReplicaLogInfo(
            error_code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
            last_written_leader_epoch=-1,
            current_leader_epoch=-1,
        )
        if info is not None:
            answer.CopyFrom(info)
        answer.topic_id, answer.partition, answer.log_id = query.topic_id, query.partition, self._broker.log_id
        return answer

    async def close(self) -> None:
        """Hang up."""
        self._broker.closes += 1
        if self._broker.closing is not None:
            await self._broker.closing.wait()


class FakeCluster:
    """A memory store with fake brokers and one controller at a time."""

    def __init__(self, clock: Clock | None = None, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()
        self.clock: Clock = clock or SystemClock()
        self.chance = random.Random(7)
        """Of every controller: ids of topics differ from reign to reign."""
        self.brokers: dict[BrokerId, FakeBroker] = {}
        self.outside: Store = MemoryStore(self.server)
        self.metadata = FakeMetadata(self.server, self.clock)
        self.tasks: set[asyncio.Task[None]] = set()
        self.pictures: list[Cluster] = []
        self.told_in_sync: list[CatchingUp] = []
        """What brokers were told of how far they are from being in sync."""
        self.told_misdirected: list[frozenset[BrokerId]] = []
        """Which brokers were told that their orders go astray, one set after another."""
        self.recorded: list[Entry] = []
        """What reigns wrote into the event log."""
        self.earlier: tuple[Earlier, ...] = ()
        """Changes of leadership that reigns before the next may not have ended."""
        self.witnesses: Witnesses = NO_WITNESSES
        """What others saw of those that fail."""
        self.open_store: Callable[[MemoryServer], MemoryStore] = MemoryStore
        """Opens the next controller's session."""
        self.controller_store: MemoryStore | None = None
        self.leadership: Leadership | None = None
        self.running: asyncio.Task[None] | None = None
        self.controller: Controller | None = None

    async def begin(self, *ids: int) -> None:
        """Make folders and register brokers."""
        await ensure_folders(self.outside, paths.PERSISTENT_FOLDERS, self.clock)
        await self.metadata.register()
        for id in ids:
            await self.register(id)

    async def register(
        self, id: int, *, log_id: str | None = None, build: ReleaseInfo = UNSAID, at: int | None = None
    ) -> FakeBroker:
        """Register a broker (anew): a new session takes the old node over.

        It does not look whether another one has its address, as brokers of earlier releases do not.

        Args:
            id: broker id.
            log_id: of its log; None: as before.
            build: its release.
            at: the broker whose internal address it advertises; None: it has one of its own.
        """
        known = self.brokers.get(BrokerId(id))
        broker = FakeBroker(
            id=BrokerId(id), log_id=LogId(log_id or (known.log_id if known is not None else f"log-{id}"))
        )
        self.brokers[broker.id] = broker
        broker.store = MemoryStore(self.server)
        membership = Membership(
            broker.store,
            self.clock,
            path=paths.broker_id(broker.id),
            guard=paths.broker_epoch(broker.id),
            encode=lambda registration: BrokerNode(
                incarnation=f"{id}",
                registration=Registration(registration),
                rack=broker.rack,
                directories={DirectoryId(f"dir-{id}"): broker.log_id},
                listeners={
                    "client": Address(host="127.0.0.1", port=10_000 + id % 10_000),
                    "internal": Address(host="127.0.0.1", port=20_000 + (id if at is None else at) % 10_000),
                },
                build=build,
            ).encode(),
            is_predecessor=lambda _: True,
            patience_s=0.0,
        )
        joined = await membership.join()
        broker.epoch = BrokerEpoch(joined.creation_id)
        broker.registration = Registration(joined.registration or 0)
        return broker

    def kill(self, id: int) -> None:
        """End a broker: calls to it fail and its session is over."""
        broker = self.brokers[BrokerId(id)]
        broker.down = True
        if broker.store is not None:
            self.server.expire(broker.store.session_id)

    def spawn(self, name: str, coroutine: "asyncio.Future[None] | object") -> asyncio.Task[None]:
        """Tasks of the controller; a failure is kept and raised by ``close``."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)  # type: ignore[arg-type]
        self.tasks.add(task)
        return task

    async def reign(
        self,
        id: int = 1,
        *,
        wait: bool = True,
        min_insync: int = 2,
        default_factor: int = 3,
        protocol: int = MAX_BROKER_EPOCH,
        balance_interval_s: float = 300.0,
        first_balance_s: float | None = None,
        corrections_interval_s: float = 300.0,
        metadata_detector: DeathDetector | None = None,
        open_quota: Callable[[QuotaProcessNode], QuotaChannel] = NoQuotaProcess,
        quota_stand_in: Limit | None = None,
        followed: Followed | None = None,
        metrics: Metrics | None = None,
        logged_leaders: AskLog = nothing_logged,
        went_back: str = "",
        access_warnings: tuple[str, ...] = (),
        store_warnings: tuple[str, ...] = (),
        predecessor: Predecessor | None = None,
        watches_store: bool = False,
    ) -> Controller:
        """Win an election and begin to reign, with a predecessor's picture or without one.

        Where ``watches_store``, a write that cannot happen is among those of the store every two seconds.
        """
        store = self.open_store(self.server)
        self.controller_store = store
        self.leadership = Leadership(store, self.clock, id=ElectionId(id))
        win = await self.leadership.campaign()
        reign = Reign(
            controller_id=ElectionId(id),
            epoch=win.epoch,
            epoch_version=win.epoch_version,
            went_back=went_back,
            access_warnings=access_warnings,
            store_warnings=store_warnings,
            tell_misdirected=self.told_misdirected.append,
            predecessor=predecessor,
            witnesses=self.witnesses,
            earlier=self.earlier,
        )
        controller = Controller(
            reign=reign,
            store=store,
            watches_store=watches_store,
            cluster_id="cluster",
            client_listener=Address(host="127.0.0.1", port=9000),
            open_channel=self._open,
            open_metadata=lambda _address: self.metadata,
            metadata_detector=metadata_detector,
            open_quota=open_quota,
            quota_stand_in=quota_stand_in,
            picture_changed=self.pictures.append,
            tell_in_sync=self.told_in_sync.append,
            clock=self.clock,
            chance=self.chance,
            spawn=self.spawn,
            config_seeds={
                MIN_INSYNC_REPLICAS: min_insync,
                DEFAULT_REPLICATION_FACTOR: default_factor,
                INTER_BROKER_PROTOCOL: protocol,
            },
            balance_interval_s=balance_interval_s,
            first_balance_s=balance_interval_s if first_balance_s is None else first_balance_s,
            corrections_interval_s=corrections_interval_s,
            followed=followed,
            record=self.recorded.append,
            logged_leaders=logged_leaders,
            metrics=metrics,
        )
        self.controller = controller
        self.running = asyncio.get_running_loop().create_task(controller.run(), name="controller")
        if wait:
            ready = asyncio.ensure_future(controller.wait_ready())
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.wait({ready, self.running}, return_when=asyncio.FIRST_COMPLETED)
            if self.running.done():
                ready.cancel()
                self.running.result()
        return controller

    def _open(self, broker: Broker) -> FakeChannel:
        return FakeChannel(self.brokers[broker.id])

    async def end_reign(self) -> None:
        """Kill the controller: its task ends and so does its session."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait({self.running})
            self.running = None
        if self.controller_store is not None:
            self.server.expire(self.controller_store.session_id)

    async def close(self) -> None:
        """End everything; raise what failed."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait({self.running})
            if not self.running.cancelled():
                error = self.running.exception()
                if error is not None and not isinstance(error, DeposedError):
                    raise error
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        for task in self.tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """State as the store holds it."""
        return LeaderAndIsr.decode((await self.outside.get(paths.leader_and_isr(topic, partition))).data)

    async def topic(self, name: str) -> TopicNode:
        """Topic node as the store holds it."""
        return TopicNode.decode((await self.outside.get(paths.topic(name))).data)

    def told(self, id: int) -> dict[PartitionKey, control_pb2.LeaderAndIsrPartition]:
        """What a broker was told last."""
        return self.brokers[BrokerId(id)].states

    def all_told(self, ids: Iterable[int], key: PartitionKey, leader: int) -> bool:
        """Whether brokers have been told that this is the leader."""
        return all(key in self.told(id) and self.told(id)[key].state.leader == leader for id in ids)
