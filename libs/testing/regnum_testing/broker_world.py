"""Real brokers in one process over a coordination store in memory, and a controller that a test speaks for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum.types.v1 import types_pb2
from regnum_broker.broker import Broker
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.settings import BrokerSettings
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr, Membership, TopicIdNode
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.settings import load
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_telemetry.metrics import Metrics

from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S, eventually, within

TOPIC_ID = TopicId("T" * 22)
"""Topic id of sample topics, unless told otherwise."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningBroker:
    """One broker of the world."""

    id: BrokerId
    broker: Broker
    """Its parts."""
    supervisor: Supervisor
    """Owner of its tasks."""
    settings: BrokerSettings
    """What it was told."""
    metrics: Metrics
    """What it counts."""
    sessions: list[int] = field(default_factory=list)
    """Session ids, newest last."""

    def partition(self, number: int = 0, topic_id: TopicId = TOPIC_ID) -> Partition:
        """A replica of the broker; AssertionError if there is none."""
        found = self.broker.replicas.get(PartitionKey(topic_id, number))
        assert found is not None, f"broker {self.id} has no replica {topic_id}-{number}"
        return found

    def leads(self, number: int = 0) -> bool:
        """Whether it leads a partition."""
        found = self.broker.replicas.get(PartitionKey(TOPIC_ID, number))
        return found is not None and isinstance(found.role, Leadership)


class BrokerWorld:
    """Brokers, the store, and the controller's side of orders. Close it with ``close``."""

    def __init__(
        self,
        root: Path,
        *,
        lag_s: float = 10.0,
        disk_timeout_s: float = 20.0,
        stray_grace_s: float = 60.0,
        more: Mapping[str, object] | None = None,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        """Only assigns; ``more``: other settings of every broker, by flag; ``racks``: where brokers stand, by id."""
        self.server = MemoryServer()
        self.store = MemoryStore(self.server)
        self.brokers: dict[BrokerId, RunningBroker] = {}
        self.controller_epoch = 1
        self.disks: dict[int, Disk] = {}
        """System calls of brokers by id; of the others those of the system."""
        self.store_away = False
        """Whether brokers that ask for a new session get none."""
        self.ways: dict[tuple[int, int], Address] = {}
        """Where a broker, the first of the two, finds the other's internal listener; else where it is."""
        self.root = root
        """Where the brokers' directories are."""
        self._lag_s = lag_s
        self._disk_timeout_s = disk_timeout_s
        self._stray_grace_s = stray_grace_s
        self._more = dict(more or {})
        self._racks = dict(racks or {})
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def begin(self) -> None:
        """Write what an election process writes first."""
        await ensure_folders(self.store, paths.PERSISTENT_FOLDERS, SystemClock())
        await self.store.create(paths.CLUSTER_ID, b"cluster", make_parents=True)

    async def renew_session(self) -> None:
        """Open another session of the test's own, where the store has ended all of them."""
        await self.store.close()
        self.store = MemoryStore(self.server)

    async def start(self, *ids: int) -> None:
        """Start brokers and wait until they are registered."""
        for id in ids:
            flags = {
                "coordination": "memory://unused",
                "broker-id": id,
                "client-listen": f"127.0.0.1:{unused_port()}",
                "internal-listen": f"127.0.0.1:{unused_port()}",
                "data-dir": self.root / f"broker-{id}",
                "replica-lag-s": self._lag_s,
                "disk-timeout-s": self._disk_timeout_s,
                "stray-grace-s": self._stray_grace_s,
                "termination-grace-s": 0,
                **self._more,
                **({"rack": self._racks[id]} if id in self._racks else {}),
            }
            settings = load(
                BrokerSettings, [part for flag, value in flags.items() for part in (f"--{flag}", str(value))]
            )
            supervisor = Supervisor(f"broker-{id}")
            sessions: list[int] = []

            async def open_session(sessions: list[int] = sessions) -> Store:
                if self.store_away:
                    raise ConnectionLoss("the test took the store away")
                store = MemoryStore(self.server)
                sessions.append(store.session_id)
                return store

            metrics = Metrics()
            broker = Broker(
                settings,
                supervisor=supervisor,
                open_session=open_session,
                clock=SystemClock(),
                metrics=metrics,
                disk=self.disks.get(id),
            )
            self.brokers[BrokerId(id)] = RunningBroker(
                id=BrokerId(id),
                broker=broker,
                supervisor=supervisor,
                settings=settings,
                metrics=metrics,
                sessions=sessions,
            )
            await broker.start()
            await within(broker.registered.wait())

    async def stop(self, id: int) -> None:
        """Stop a broker in order, though without a controller to hand its leadership to."""
        running = self.brokers.pop(BrokerId(id))
        running.broker.fence.begin_registration()
        await running.supervisor.unwind()

    async def close(self) -> None:
        """Stop everything."""
        for channel in self._channels.values():
            await channel.close()
        for id in tuple(self.brokers):
            await self.stop(id)
        await self.store.close()

    def channel(self, address: str) -> grpc.aio.Channel:
        """A channel to a listener."""
        if address not in self._channels:
            self._channels[address] = open_channel(Address.parse(address))
        return self._channels[address]

    def control(self, id: int) -> "control_pb2_grpc.ReplicaControlServiceAsyncStub":
        """The controller's stub for a broker."""
        address = self.brokers[BrokerId(id)].settings.internal_listen
        return control_pb2_grpc.ReplicaControlServiceStub(self.channel(address))

    def log(self, id: int) -> "log_pb2_grpc.LogServiceAsyncStub":
        """A client's stub for a broker."""
        return log_pb2_grpc.LogServiceStub(self.channel(self.brokers[BrokerId(id)].settings.client_listen))

    async def registration(self, id: int) -> tuple[BrokerEpoch, BrokerNode]:
        """Broker epoch and node of a registered broker."""
        node = await self.store.get(paths.broker_id(BrokerId(id)))
        return BrokerEpoch(node.stat.creation_id), BrokerNode.decode(node.data)

    async def membership(self, id: int) -> Membership:
        """What leaderAndISR records of a live broker."""
        epoch, node = await self.registration(id)
        (log_id,) = node.directories.values()
        return Membership(broker_epoch=epoch, log_id=log_id)

    async def elect(
        self,
        leader: int,
        isr: Sequence[int],
        *,
        replicas: Sequence[int] | None = None,
        epoch: int = 0,
        topic: str = "t",
        topic_id: TopicId = TOPIC_ID,
        partition: int = 0,
        tell: Sequence[int] | None = None,
        min_insync: int = 1,
        began: int | None = None,
        is_new: bool = False,
    ) -> LeaderAndIsr:
        """Write a partition's state to the store and tell the brokers that host it (``tell``: only those).

        ``began`` and ``is_new`` as orders carry them: without a beginning, as those of a controller of release 0.1.0.
        """
        assigned = tuple(replicas if replicas is not None else isr)
        state = LeaderAndIsr(
            topic_id=topic_id,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(epoch),
            isr=tuple(BrokerId(id) for id in isr),
            elr=(),
            members={BrokerId(id): await self.membership(id) for id in isr},
            controller_epoch=ControllerEpoch(self.controller_epoch),
        )
        await ensure_folders(self.store, [paths.topic(topic), paths.partition(topic, partition)], SystemClock())
        if await self.store.exists(paths.topic_id(topic_id)) is None:
            await self.store.create(paths.topic_id(topic_id), TopicIdNode(topic=topic).encode())
        path = paths.leader_and_isr(topic, partition)
        stat = await self.store.exists(path)
        if stat is None:
            await self.store.create(path, state.encode())
            version = 0
        else:
            version = (await self.store.set(path, state.encode(), version=stat.version)).version
        item = self.order(
            state,
            version,
            topic=topic,
            partition=partition,
            replicas=assigned,
            min_insync=min_insync,
            began=began,
            is_new=is_new,
        )
        for id in assigned if tell is None else tell:
            response = await self.send(id, [item])
            assert [result.error_code for result in response.results] == [0], f"broker {id}: {response}"
        return state

    def order(
        self,
        state: LeaderAndIsr,
        version: int,
        *,
        topic: str = "t",
        partition: int = 0,
        replicas: Sequence[int] | None = None,
        min_insync: int = 1,
        began: int | None = None,
        is_new: bool = False,
    ) -> control_pb2.LeaderAndIsrPartition:
        """A state as LeaderAndIsr carries it."""
        return control_pb2.LeaderAndIsrPartition(
            topic=topic,
            topic_id=state.topic_id,
            state=types_pb2.PartitionState(
                partition=partition,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                replicas=replicas if replicas is not None else state.isr,
                elr=state.elr,
                version=version,
            ),
            members=[
                control_pb2.Member(broker_id=id, broker_epoch=member.broker_epoch, log_id=member.log_id)
                for id, member in state.members.items()
            ],
            recorded_controller_epoch=state.controller_epoch,
            min_insync_replicas=min_insync,
            is_new=is_new,
            began_leader_epoch=began,
        )

    async def send(
        self,
        id: int,
        items: Sequence[control_pb2.LeaderAndIsrPartition],
        *,
        broker_epoch: int | None = None,
        controller_epoch: int | None = None,
    ) -> control_pb2.LeaderAndIsrResponse:
        """Send a LeaderAndIsr. Raises RegnumError when it is refused as a whole."""
        if broker_epoch is None:
            broker_epoch, _ = await self.registration(id)
        request = control_pb2.LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=self.controller_epoch if controller_epoch is None else controller_epoch,
            broker_epoch=broker_epoch,
            parts=1,
            partitions=items,
            live_leaders=[await self.live(other, seen_by=id) for other in self.brokers],
        )
        try:
            return await self.control(id).LeaderAndIsr(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def live(self, id: int, *, seen_by: int = -1) -> types_pb2.Broker:
        """A broker as other processes see it, or one other broker does."""
        running = self.brokers[BrokerId(id)]
        internal, client = (
            Address.parse(listen) for listen in (running.settings.internal_listen, running.settings.client_listen)
        )
        internal = self.ways.get((seen_by, id), internal)
        return types_pb2.Broker(
            id=id,
            rack=self._racks.get(id, ""),
            internal=types_pb2.Endpoint(host=internal.host, port=internal.port),
            client=types_pb2.Endpoint(host=client.host, port=client.port),
        )

    async def show(self, id: int, *topics: types_pb2.TopicState, version: int = 1) -> None:
        """Give a broker a full picture of the metadata."""
        brokers = [await self.live(other, seen_by=id) for other in self.brokers]
        picture = control_pb2.UpdateMetadataRequest(
            controller_epoch=self.controller_epoch,
            to_version=version,
            parts=1,
            max_broker_epoch=(await self.registration(id))[0],
            cluster_id="cluster",
            brokers=brokers,
            all_brokers=True,
            topics=topics,
        )
        call: Any = self.control(id).UpdateMetadata(iter([picture]))
        answers = [answer async for answer in call]
        assert [answer.error_code for answer in answers] == [0], f"broker {id}: {answers}"

    async def produce(
        self,
        id: int,
        batch: bytes,
        *,
        acks: log_pb2.Acks.ValueType = log_pb2.ACKS_ALL,
        topic: str = "t",
        partition: int = 0,
        timeout_ms: int = 10_000,
    ) -> log_pb2.ProduceResult:
        """Produce one batch; the result of its partition."""
        request = log_pb2.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            partitions=[log_pb2.ProducePartition(topic=topic, partition=partition, record_batch=batch)],
        )
        (result,) = (await self.call(id, request)).results
        return result

    async def call(self, id: int, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        """Produce. Raises RegnumError when the request is refused as a whole."""
        try:
            return await self.log(id).Produce(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def state(self, topic: str = "t", partition: int = 0) -> LeaderAndIsr:
        """What the store says of a partition."""
        return LeaderAndIsr.decode((await self.store.get(paths.leader_and_isr(topic, partition))).data)

    async def isr_is(self, *ids: int) -> None:
        """Wait until the store's ISR has these members."""

        async def has_them() -> bool:
            return set((await self.state()).isr) == set(ids)

        await eventually(has_them, what=f"ISR {ids}")

    async def log_ends_at(self, id: int, offset: int, *, number: int = 0) -> None:
        """Wait until a replica's log ends there."""
        running = self.brokers[BrokerId(id)]

        async def ends() -> bool:
            return running.partition(number).log.log_end_offset == offset

        await eventually(ends, what=f"log end {offset} on broker {id}")


async def refusal(awaitable: "asyncio.Future[object] | object") -> RegnumError:
    """The RegnumError that a call ends with; AssertionError when it ends otherwise."""
    try:
        result = await awaitable  # type: ignore[misc]
    except RegnumError as error:
        return error
    raise AssertionError(f"not refused: {result}")
