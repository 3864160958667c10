"""``publish``: a real controller, a real metadata process, and brokers that are played: peak memory of the two.

The store is filled as the controller writes (``load``); then an election process reigns over it. Some brokers hold all
replicas and are there from the beginning (holders, as many as replicas); what is measured is the arrival of 1, a
quarter and all of the shape's brokers beside them (receivers), which hold no replicas and are sent all metadata.

Brokers are played, registered in the store as real ones are (guard and ephemeral node, of a session of this program):
they take UpdateMetadata, acknowledge LeaderAndIsr and StopReplica, and have no lifelines, so that the controller runs
with ``--lifeline-detection false``. Their ids are chosen by the rule of ownership: holders belong to metadata-2 and
receivers to metadata-1, which therefore serves nobody when its baseline is taken.

When the store is filled no metadata process runs at first: the controller loads and gives all orders, and its memory
then is the baseline of its first publication, which goes to both metadata processes at once.

One phase: metadata-1 starts anew, so that the controller publishes everything to it. Then receivers register, in one
write, and claim to have all metadata: they are connected and sent nothing, and what both processes take then is the
baseline. Then they forget it, all at once; a topic is created, which finds that out, and all are sent everything. Then
more topics of one partition are created, one after another. Memory is the highest resident size above the baseline,
divided by the size of a full payload; of the controller that of its publication to metadata-1, too, above what it had
before. With what the connections take, which each broker costs whatever is sent to it, it is a figure of its own. After
the phases with shared payloads come those with a payload for each broker, all over the same reign.
"""

import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any, Final

import grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_coordination import open_store
from regnum_coordination.port import Create, Delete, Group, Operation, Set, Store, Written
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Launch, Member, Role, command
from regnum_metadata.ownership import owner
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, DirectoryId, LogId, MetadataId, Registration, encode_id
from regnum_model.nodes import Address, BrokerNode, Membership, TopicIdNode
from regnum_service.channel import aio_channel, open_channel

from regnum_bench.children import child, own_host
from regnum_bench.figures import Round, quantile
from regnum_bench.launching import launched
from regnum_bench.load import TIMEOUT_S, fill, nodes, topic_id
from regnum_bench.memory import Memory, Watched
from regnum_bench.receivers import CLAIM, FORGET, ORDERED, SEEN
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import MeasureError

CALL_S: Final = 120.0
LOOK_S: Final = 0.05
SESSION_S: Final = 60.0
"""Of the session that the played brokers register with."""
CONTROLLER: Final = "election-1"
MEASURED: Final = MetadataId(1)
BESIDE: Final = MetadataId(2)
"""The metadata process that serves the holders."""
PAYLOADS_MAX: Final = 3.0
"""Payloads that either process may take above its baseline, with shared ones."""
JUDGED_BYTES: Final = 1_000_000
"""Size of a payload from which on that is judged: below, the fixed cost of streams is more than a payload."""
RATIOS: Final = (
    "metadata_ratio",
    "controller_ratio",
    "metadata_with_connections_ratio",
    "controller_with_connections_ratio",
)
SHARED: Final = "shared"
EACH: Final = "each"

Lag = propagation_pb2.DescribeLagResponse


def sizes_of(shape: Shape) -> tuple[int, ...]:
    """Numbers of receivers: 1, a quarter, all."""
    return tuple(sorted({1, max(1, shape.brokers // 4), shape.brokers}))


def ids_of(process: MetadataId) -> Iterator[BrokerId]:
    """Brokers that belong to one of the two metadata processes, ascending."""
    return (id for id in map(BrokerId, count(1)) if owner(id, (MEASURED, BESIDE)) == process)


async def publish(run: Run) -> Measured:
    """Figures of each repetition, over one reign."""
    rounds: list[Round] = []
    async with _reign(run) as reign:
        for number in range(run.shape.warm_up + run.shape.repetitions):
            figures = await _sweep(reign)
            if number >= run.shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds), notes=_notes(run.shape), complaints=too_much(rounds))


async def _sweep(reign: "Reigning") -> Round:
    sizes = sizes_of(reign.run.shape)
    found = {(SHARED, size): await reign.phase(size, shared=True) for size in sizes}
    # To build one for each of all of them takes minutes, and says what a quarter says.
    found |= {(EACH, size): await reign.phase(size, shared=False) for size in sizes[:-1]}
    figures: dict[str, float] = {}
    for mode in (SHARED, EACH):
        prefix = "" if mode == SHARED else "each_"
        for name in RATIOS:
            figures[f"{prefix}{name}"] = max(one[name] for (of, _), one in found.items() if of == mode)
    payload = min(one["payload_bytes"] for one in found.values())
    figures["first_publication_ratio"] = reign.first_publication_bytes / payload
    figures["controller_ratio"] = max(figures["controller_ratio"], figures["first_publication_ratio"])
    for (mode, size), one in found.items():
        figures |= {f"{mode}_{size}_{name}": value for name, value in one.items()}
    return figures


BASELINE: Final = (
    "baseline: the same brokers are connected and idle; with what their connections take: ..._with_connections_ratio"
)


def _notes(shape: Shape) -> tuple[str, ...]:
    factor = shape.replication_factor
    played = (
        f"brokers are played: {factor} hold all replicas and belong to another metadata process, the receivers hold "
        "none; no lifelines (--lifeline-detection false); orders are acknowledged and not carried out"
    )
    read = min(shape.applying, shape.brokers)
    return played, BASELINE, f"{read} receivers read every byte, the others, in the same process, only heads"


def too_much(rounds: Sequence[Round]) -> tuple[str, ...]:
    """What either process took above its baseline, with shared payloads, beyond the limit."""
    return tuple(
        f"{name} is {one[name]:.2f} payloads, more than {PAYLOADS_MAX:g}"
        for one in rounds
        for name in ("metadata_ratio", "controller_ratio")
        if one[name] > PAYLOADS_MAX and min(v for k, v in one.items() if k.endswith("_payload_bytes")) >= JUDGED_BYTES
    )


@asynccontextmanager
async def _reign(run: Run) -> AsyncIterator["Reigning"]:
    """A reign over a store that is filled; it has published everything, and all orders are acknowledged."""
    shape = run.shape
    flags: dict[str, tuple[str, ...]] = {}
    run.progress.step(f"an election process and two metadata processes on {shape.coordination}")

    def with_flags(member: Member, launch: Launch) -> list[str]:
        return [*command(member, launch), *flags.get(member.name, ())]

    unstarted = LocalCluster(
        run.directory,
        brokers=0,
        elections=1,
        metadata=2,
        coordination=shape.coordination,
        report=run.progress.detail,
        extra={
            **run.extra,
            Role.ELECTION: (
                *run.extra.get(Role.ELECTION, ()),
                *("--default-replication-factor", "1", "--lifeline-detection", "false"),
            ),
        },
        make_command=with_flags,
    )
    async with (
        launched(unstarted, run.progress) as cluster,
        child("regnum_bench.receivers", "0", str(shape.replication_factor)) as holder_port,
        child("regnum_bench.receivers", str(shape.applying), str(shape.brokers)) as port,
        aio_channel(f"127.0.0.1:{holder_port}") as holders,
        aio_channel(f"127.0.0.1:{port}") as receivers,
        open_channel(_address(cluster, CONTROLLER, "client")) as admin,
        open_channel(_address(cluster, f"metadata-{MEASURED}", "internal")) as measured,
        open_channel(_address(cluster, f"metadata-{BESIDE}", "internal")) as beside,
    ):
        store = await open_store(cluster.coordination, session_timeout_s=SESSION_S, operation_timeout_s=TIMEOUT_S)
        try:
            reigning = Reigning(
                run=run,
                cluster=cluster,
                store=store,
                flags=flags,
                holders=holders,
                receivers=receivers,
                port=port,
                admin=admin_pb2_grpc.AdminServiceStub(admin),
                lags={
                    MEASURED: propagation_pb2_grpc.PropagationServiceStub(measured),
                    BESIDE: propagation_pb2_grpc.PropagationServiceStub(beside),
                },
            )
            await reigning.begin(holder_port)
            yield reigning
        finally:
            await store.close()


def _address(cluster: LocalCluster, name: str, listener: str) -> Address:
    member = cluster.plan.get(name)
    if member is None:
        raise MeasureError(f"{name} is not in the plan of the cluster")
    return member.address(listener)


@dataclass(slots=True, kw_only=True)
class Reigning:
    """A controller, two metadata processes, and brokers that are played."""

    run: Run
    """What to measure."""
    cluster: LocalCluster
    """The processes."""
    store: Store
    """With whose session the played brokers are registered."""
    flags: dict[str, tuple[str, ...]]
    """Further flags of a process, from its next start on."""
    holders: grpc.aio.Channel
    """Whoever plays the holders."""
    receivers: grpc.aio.Channel
    """Whoever plays the receivers."""
    port: int
    """Where those are."""
    admin: "admin_pb2_grpc.AdminServiceAsyncStub"
    """The controller, for callers."""
    lags: "dict[MetadataId, propagation_pb2_grpc.PropagationServiceAsyncStub]"
    """The metadata processes."""
    created: int = field(default=0, init=False)
    """Topics created so far."""
    first_publication_bytes: int = field(default=0, init=False)
    """What the controller's first publication took above what it had when it had loaded."""

    @property
    def holder_ids(self) -> list[BrokerId]:
        """Brokers that hold all replicas."""
        return list(islice(ids_of(BESIDE), self.run.shape.replication_factor))

    async def begin(self, holder_port: int) -> None:
        """Fill the store, and wait until a controller reigns over what is in it. Raises MeasureError."""
        run, shape = self.run, self.run.shape
        epochs = await self._register(self.holder_ids, holder_port)
        await self._holders_have_all()
        run.progress.step(f"{shape.partitions_total:,} partitions of {shape.topics:,} topics into the store")
        # Nobody reigns while the store is filled.
        before = await self._lag(BESIDE)
        await self.cluster.kill(CONTROLLER)
        members = [(id, Membership(broker_epoch=epoch, log_id=_log_id(id))) for id, epoch in epochs.items()]
        guards: Iterator[Group] = (
            (Create(paths.topic_id(topic_id(number)), TopicIdNode(topic=name).encode()),)
            for number, name in enumerate(shape.names)
        )
        total = 2 * shape.topics + shape.partitions_total
        await fill(run, self.store, chain(guards, nodes(shape, members)), total=total)
        processes = [f"metadata-{process}" for process in (MEASURED, BESIDE)]
        for name in processes:
            await self.cluster.kill(name)
        run.progress.step("an election process begins to reign over them")
        begun_s = run.clock.monotonic()
        await self.cluster.restart(CONTROLLER)
        await self.cluster.wait_healthy(CONTROLLER, shape.deadline_s)
        await self._all_ordered()
        run.progress.detail(f"that took {run.clock.monotonic() - begun_s:.1f} s")
        await run.clock.sleep(run.shape.settle_s)
        controller = self._memory(CONTROLLER)
        loaded = controller.resident_bytes()
        controller.forget_peak()
        run.progress.step("its first publication, to two metadata processes")
        for name in processes:
            await self.cluster.restart(name)
        for name in processes:
            await self.cluster.wait_healthy(name, shape.deadline_s)
        await self._holders_have_all(before.controller_epoch)
        await self._level()
        self.first_publication_bytes = max(0, controller.peak_bytes() - loaded)

    async def _holders_have_all(self, after_epoch: int = 0) -> None:
        """Wait until the holders have all that a controller of a later epoch has published."""
        deadline = self.run.deadline("everything published to the holders")
        while True:
            lag = await self._lag(BESIDE)
            if lag.controller_epoch > after_epoch and _all_have(lag, len(self.holder_ids)):
                return
            deadline.check(f"version {lag.version} of epoch {lag.controller_epoch}")
            await self.run.clock.sleep(LOOK_S)

    async def _all_ordered(self) -> None:
        """Wait until the holders have acknowledged the full set."""
        wanted = self.run.shape.partitions_total * self.run.shape.replication_factor
        deadline = self.run.deadline("all orders acknowledged")
        while (ordered := json.loads(await self._ask(self.holders, ORDERED))) < wanted:
            deadline.check(f"{ordered:,} of {wanted:,}")
            await self.run.clock.sleep(LOOK_S)

    async def phase(self, receivers: int, *, shared: bool) -> Round:
        """So many receivers arrive, and topics are created. Raises MeasureError, NotInTimeError."""
        run = self.run
        mode = "shared payloads" if shared else "a payload for each"
        run.progress.step(f"{receivers} receivers, {mode}")
        await run.clock.sleep(run.shape.settle_s)
        controller = Watched(self._memory(CONTROLLER))
        name = f"metadata-{MEASURED}"
        self.flags[name] = () if shared else ("--shared-payloads", "false")
        await self.cluster.restart(name)
        await self.cluster.wait_healthy(name, run.shape.deadline_s)
        await self._level()
        publication = controller.above_bytes()
        await run.clock.sleep(run.shape.settle_s)
        metadata = Watched(self._memory(name))
        ids = list(islice(ids_of(MEASURED), receivers))
        idle = await self._arrived(ids)
        await run.clock.sleep(run.shape.settle_s)
        for process in (metadata, controller):
            process.has_connections()
        await self._ask(self.receivers, FORGET)
        full, payload, pushed_s = await self._pushed(idle.version + 1, receivers)
        changes_s = await self._changes(full.version, receivers)
        after = await self._lag(MEASURED)
        await run.clock.sleep(run.shape.settle_s)
        # One for each change and, of the payloads that are made for one broker each, for each receiver.
        changes = (full.version - idle.version) * (1 if shared else receivers)
        controller_above = max(publication, controller.above_bytes())
        figures: Round = {
            "metadata_ratio": metadata.above_bytes() / payload,
            "controller_ratio": controller_above / payload,
            "metadata_with_connections_ratio": metadata.in_all_bytes() / payload,
            "controller_with_connections_ratio": controller.in_all_bytes() / payload,
            "payload_bytes": float(payload),
            "metadata_above_bytes": float(metadata.above_bytes()),
            "metadata_settled_bytes": float(metadata.left_bytes()),
            "metadata_connections_bytes": float(metadata.connections_bytes()),
            "controller_above_bytes": float(controller_above),
            "controller_publication_bytes": float(publication),
            "controller_connections_bytes": float(controller.connections_bytes()),
            "metadata_baseline_bytes": float(metadata.baseline_bytes),
            "controller_baseline_bytes": float(controller.baseline_bytes),
            "full_push_s": pushed_s,
            "full_payloads_count": float(full.payload_serialisations - idle.payload_serialisations - changes),
            "full_versions_count": float(full.version - idle.version),
            "change_p50_ms": quantile(changes_s, 0.5) * 1000,
            "versions_per_change": (after.version - full.version) / len(changes_s),
            "payloads_per_change": (after.payload_serialisations - full.payload_serialisations) / len(changes_s),
        }
        run.progress.detail(
            f"above the baseline: metadata process {figures['metadata_ratio']:.2f} payloads of {payload:,} bytes, "
            f"controller {figures['controller_ratio']:.2f}; with connections "
            f"{figures['metadata_with_connections_ratio']:.2f} and "
            f"{figures['controller_with_connections_ratio']:.2f}; full push {pushed_s:.2f} s"
        )
        await self._unregister(ids)
        return figures

    async def _arrived(self, ids: Sequence[BrokerId]) -> Lag:
        """Receivers come that claim to have everything: they are connected, and nothing more."""
        before = await self._lag(MEASURED)
        if before.brokers:
            raise MeasureError(f"{len(before.brokers)} brokers belong to metadata-{MEASURED} before any has come")
        await self._ask(self.receivers, CLAIM)
        await self._register(ids, self.port)
        lag = await self._reached(before.version + 1, len(ids))
        await self._noted()
        return lag

    async def _pushed(self, version: int, receivers: int) -> tuple[Lag, int, float]:
        """Receivers that have nothing are sent everything; what that is in bytes, and how long it took."""
        begun_s = self.run.clock.monotonic()
        await self._create_topic()
        lag = await self._reached(version, receivers)
        noted = await self._noted()
        if len(noted) != receivers:
            raise MeasureError(f"{len(noted)} of {receivers} receivers were sent the full image")
        payload = max(size for one in noted for _, _, size in one)
        return lag, payload, max(at_s for one in noted for _, at_s, _ in one) - begun_s

    async def _changes(self, version: int, receivers: int) -> list[float]:
        """Seconds of each change until the last receiver has it."""
        taken_s: list[float] = []
        for _ in range(self.run.shape.changes):
            begun_s = self.run.clock.monotonic()
            await self._create_topic()
            lag = await self._reached(version + 1, receivers)
            version = lag.version
            taken_s.append(max(at_s for one in await self._noted() for _, at_s, _ in one) - begun_s)
        return taken_s

    async def _create_topic(self) -> None:
        self.created += 1
        replicas = [admin_pb2.ReplicaAssignment(partition=0, replicas=self.holder_ids)]
        request = admin_pb2.CreateTopicsRequest(
            header=types_pb2.RequestHeader(client_id="regnum-bench"),
            topics=[admin_pb2.NewTopic(name=f"change-{self.created:05d}", assignment=replicas)],
        )
        (result,) = (await self.admin.CreateTopics(request, timeout=CALL_S)).results
        if result.error_code != errors_pb2.ERROR_CODE_NONE:
            raise MeasureError(f"topic {result.name} was not created: {result.error_message}")

    async def _register(self, ids: Sequence[BrokerId], port: int) -> dict[BrokerId, BrokerEpoch]:
        """Brokers come, all in one write; their broker epochs."""
        guards = await self.store.get_many([paths.broker_epoch(id) for id in ids], current=True)
        groups: list[Group] = []
        for number, (id, guard) in enumerate(zip(ids, guards, strict=True)):
            path = paths.broker_epoch(id)
            guarded: Operation = Create(path, b"") if guard is None else Set(path, b"", guard.stat.version)
            internal = Address(host=own_host(number), port=port)
            node = _node(id, 0 if guard is None else guard.stat.version + 1, internal)
            groups.append((guarded, Create(paths.broker_id(id), node.encode(), ephemeral=True)))
        await self._written(groups)
        found = await self.store.get_many([paths.broker_id(id) for id in ids], current=True)
        epochs = {id: BrokerEpoch(node.stat.creation_id) for id, node in zip(ids, found, strict=True) if node}
        if len(epochs) != len(ids):
            raise MeasureError(f"{len(ids) - len(epochs)} of {len(ids)} registrations went at once")
        return epochs

    async def _unregister(self, ids: Sequence[BrokerId]) -> None:
        await self._written([(Delete(paths.broker_id(id), None),) for id in ids])
        deadline = self.run.deadline("receivers gone")
        while left := (await self._lag(MEASURED)).brokers:
            deadline.check(f"{len(left)} are there")
            await self.run.clock.sleep(LOOK_S)

    async def _written(self, groups: Sequence[Group]) -> None:
        outcomes = await self.store.write_batch(groups)
        if others := [outcome for outcome in outcomes if not isinstance(outcome, Written)]:
            raise MeasureError(f"{len(others)} of {len(groups)} registrations could not be written: {others[0]}")

    async def _level(self) -> None:
        """Wait until the metadata process that is measured is as far as the other one."""
        deadline = self.run.deadline("the whole picture at a metadata process that starts")
        while True:
            beside, lag = await self._lag(BESIDE), await self._lag(MEASURED)
            if (lag.controller_epoch, lag.version) == (beside.controller_epoch, beside.version):
                return
            deadline.check(f"version {lag.version} of epoch {lag.controller_epoch}")
            await self.run.clock.sleep(LOOK_S)

    async def _reached(self, version: int, receivers: int) -> Lag:
        """Wait until all receivers have all that there is, and that is this version at least."""
        deadline = self.run.deadline(f"version {version} acknowledged by {receivers} receivers")
        while True:
            lag = await self._lag(MEASURED)
            if lag.version >= version and _all_have(lag, receivers):
                return lag
            have = sum(one.acknowledged_version >= version for one in lag.brokers)
            deadline.check(f"version {lag.version}, {have} have {version}")
            await self.run.clock.sleep(LOOK_S)

    async def _lag(self, process: MetadataId) -> Lag:
        return await self.lags[process].DescribeLag(propagation_pb2.DescribeLagRequest(), timeout=CALL_S)

    async def _noted(self) -> list[list[tuple[int, float, int]]]:
        """(version, moment, bytes) of every receiver since the last call; of those that were told something."""
        noted: Any = json.loads(await self._ask(self.receivers, SEEN))
        return [[(int(version), float(at_s), int(size)) for version, at_s, size in one] for one in noted if one]

    async def _ask(self, channel: grpc.aio.Channel, method: str) -> bytes:
        asked = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        answer: bytes = await asked(b"", timeout=CALL_S)
        return answer

    def _memory(self, name: str) -> Memory:
        (row,) = [row for row in self.cluster.status() if row.name == name]
        if row.pid is None:
            raise MeasureError(f"{name} does not run")
        return Memory(row.pid)


def _all_have(lag: Lag, brokers: int) -> bool:
    """Whether so many brokers are there, and all of them have all that there is."""
    return len(lag.brokers) == brokers and all(one.acknowledged_version == lag.version for one in lag.brokers)


def _log_id(id: BrokerId) -> LogId:
    return LogId(encode_id(uuid.UUID(int=id)))


def _node(id: BrokerId, registration: int, internal: Address) -> BrokerNode:
    return BrokerNode(
        incarnation=f"bench-{id}-{registration}",
        registration=Registration(registration),
        rack=None,
        directories={DirectoryId(encode_id(uuid.UUID(int=2**32 + id))): _log_id(id)},
        listeners={
            "client": Address(host="127.0.0.1", port=10_000 + id),
            "internal": internal,
        },
    )
