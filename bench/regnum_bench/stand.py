"""The cluster that is measured: real processes, filled with topics, hurt and mended."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from regnum.types.v1 import types_pb2
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, NewTopic
from regnum_client.cluster.security.channels import channels_to
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.plan import TRACES, Role
from regnum_model.configs import LEADER_IMBALANCE_PER_BROKER_PERCENTAGE
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_bench.figures import Round
from regnum_bench.launching import launch
from regnum_bench.looking import POLL_S, Known, Look
from regnum_bench.processor_time import ProcessorTime
from regnum_bench.profiling import profiled
from regnum_bench.progress import Progress
from regnum_bench.shape import Shape, placed
from regnum_bench.stages import Traces
from regnum_bench.waiting import Deadline, MeasureError

BALANCE_INTERVAL_S: Final = 15.0
"""How often leaders go back to preferred replicas: between two repetitions, instead of every five minutes."""
MEND_POLL_S: Final = 0.5
"""Between two looks at a cluster that comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Profiles that are wanted."""

    roles: tuple[Role, ...]
    """Of the processes of these roles."""
    folder: Path
    """Where they go."""
    prefix: str
    """What the names of their files begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a benchmark is given."""

    shape: Shape
    """What to measure."""
    directory: Path
    """A new folder for everything."""
    progress: Progress
    """Where to say how far it is."""
    clock: Clock
    """The machine's."""
    extra: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    """Further flags for the processes of a role."""
    profiles: Profiles | None = None
    """What is to be profiled; None: nothing."""

    def deadline(self, what: str) -> Deadline:
        """A deadline of the shape's length that begins now."""
        return Deadline(self.clock, self.shape.deadline_s, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a benchmark found in one pass."""

    rounds: tuple[Round, ...]
    """Figures of each repetition that counts."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""
    complaints: tuple[str, ...] = ()
    """What is wrong: a limit that is not kept, a record that was lost."""
    void: tuple[str, ...] = ()
    """Why the figures say nothing, though nothing is wrong: the machine was too busy for them."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What there is besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A kill -9."""

    at_s: float
    """The moment before it, on the clock."""
    at_ns: int
    """The same, nanoseconds since 1970, as traces have it."""


class Stand:
    """A running cluster and what a benchmark does with it."""

    def __init__(self, run: Run, cluster: LocalCluster, admin: Admin, look: Look) -> None:
        self.run = run
        self.cluster = cluster
        self.admin = admin
        self.look = look
        self.traces = Traces(cluster.data_dir / TRACES)

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that run."""
        rows = self.cluster.status()
        return tuple(row.id for row in rows if row.role is Role.BROKER and row.state is ProcessState.RUNNING)

    async def create(self, topics: Sequence[NewTopic], deadline: Deadline) -> None:
        """Create topics, ``batch`` in a call, the next call when the last is answered. Raises MeasureError."""
        batch, done = self.run.shape.batch, 0
        for start in range(0, len(topics), batch):
            deadline.check(f"{done:,} of {len(topics):,} topics created")
            await create_some(self.admin, topics[start : start + batch], timeout_s=deadline.left_s + 1.0)
            done = min(start + batch, len(topics))
            self.run.progress.count(done, len(topics), "topics created")

    async def fill(self, *, victim: int | None = None) -> float:
        """Create all topics of the shape and wait until every broker knows all leaders; the seconds it took.

        With ``affected`` in the shape, ``victim`` leads so many partitions.
        """
        shape = self.run.shape
        self.run.progress.step(
            f"creating {shape.topics:,} topics of {shape.partitions} partitions, {shape.replication_factor} replicas"
        )
        begun_s = self.run.clock.monotonic()
        deadline = self.run.deadline(f"creating {shape.partitions_total:,} partitions")
        await self.create(new_topics(shape, self.brokers, victim), deadline)
        known = await self.all_led(shape.names, deadline)
        return known.at_s - begun_s

    async def all_led(self, names: Sequence[str], deadline: Deadline) -> Known:
        """Wait until every broker knows a leader of every partition."""
        return await self.look.until_right(self.brokers, names, led, deadline)

    async def kill(self, *names: str) -> Kill:
        """Kill -9 processes, all at one moment."""
        at_ns, at_s = time.time_ns(), self.run.clock.monotonic()
        await asyncio.gather(*(self.cluster.kill(name) for name in names))
        return Kill(at_s=at_s, at_ns=at_ns)

    async def controller(self) -> tuple[int, int]:
        """Election id and epoch of the controller that a broker names; raises MeasureError without one."""
        head = await self.look.head(self.brokers[-1])
        if head is None or head.controller.id < 0:
            raise MeasureError("no broker names a controller: there is none to kill")
        return head.controller.id, head.controller.epoch

    async def next_controller(self, epoch: int, deadline: Deadline) -> float:
        """Wait until every broker names a controller of a later epoch; the moment. Raises NotInTimeError."""

        async def named_by(broker: int) -> float:
            while True:
                head = await self.look.head(broker)
                if head is not None and head.controller.epoch > epoch and head.controller.id >= 0:
                    return self.run.clock.monotonic()
                now = "nothing" if head is None else f"controller {head.controller.id}, epoch {head.controller.epoch}"
                deadline.check(f"broker {broker} says {now}")
                await self.run.clock.sleep(POLL_S)

        return max(await asyncio.gather(*(named_by(broker) for broker in self.brokers)))

    async def mend(self, *names: str, holds: Callable[[types_pb2.TopicState], bool] | None = None) -> None:
        """Start processes again; wait until they serve and every topic is as it should be."""
        for name in names:
            self.run.progress.detail(f"{name} is started again")
            await self.cluster.restart(name)
        for name in names:
            await self.cluster.wait_healthy(name, self.run.shape.deadline_s)
        if holds is not None:
            what = f"every replica in sync and every leader in its place after {', '.join(names)} returned"
            await self.look.until_right(self.brokers[:1], self.run.shape.names, holds, self.run.deadline(what))

    @asynccontextmanager
    async def watched(self, phase: str) -> AsyncIterator[dict[str, float]]:
        """Profile the block, where that is wanted: of several repetitions the last one stays.

        After the block there are figures of processor time in what is yielded (``processor_time``).
        """
        figures: dict[str, float] = {}
        async with self._profiled(phase):
            before = self.processor_time()
            yield figures
            figures.update(self.processor_time().since(before, phase))

    def processor_time(self) -> ProcessorTime:
        """Of every process of the cluster, as of now."""
        rows = self.cluster.status()
        return ProcessorTime.of([(row.role.value, row.pid) for row in rows if row.pid is not None])

    @asynccontextmanager
    async def _profiled(self, phase: str) -> AsyncIterator[None]:
        wanted = self.run.profiles
        if wanted is None:
            yield
            return
        rows = [row for row in self.cluster.status() if row.role in wanted.roles and row.pid is not None]
        processes = {row.name: row.pid for row in rows if row.pid is not None}
        async with profiled(processes, wanted.folder, f"{wanted.prefix}-{phase}"):
            yield

    async def settle(self) -> None:
        """Quiet before a repetition."""
        await self.run.clock.sleep(self.run.shape.settle_s)


@asynccontextmanager
async def stand(
    run: Run, *, balance_s: float = BALANCE_INTERVAL_S, quotas: int = 0, tls: bool = False
) -> AsyncIterator[Stand]:
    """Start a cluster of the shape; ends it without care, since nothing of it is kept.

    Args:
        run: what to measure, and where.
        balance_s: how often leaders go back to preferred replicas.
        quotas: quota processes.
        tls: whether all of its connections use TLS.
    """
    shape = run.shape
    run.progress.step(f"starting {shape.brokers} brokers on {shape.coordination}")
    extra = {
        **run.extra,
        Role.ELECTION: (
            *run.extra.get(Role.ELECTION, ()),
            "--leader-balance-interval-s",
            str(balance_s),
        ),
    }
    cluster = LocalCluster(
        run.directory,
        brokers=shape.brokers,
        elections=shape.elections,
        metadata=shape.metadata,
        quotas=quotas,
        coordination=shape.coordination,
        report=run.progress.detail,
        extra=extra,
        tls=tls,
    )
    await launch(cluster, run.progress)
    addresses = {member.id: member.address("client") for member in cluster.plan.of(Role.BROKER)}
    look = Look(addresses, run.clock, channels_to(cluster.bootstrap, cluster.tls))
    try:
        async with Admin(
            cluster.bootstrap, timeout_s=shape.deadline_s, client_id="regnum-bench", tls=cluster.tls
        ) as admin:
            # All of them go back: a tenth that stays with others would be another failover the next time.
            await admin.alter_config(
                ConfigAlteration(resource=CLUSTER_CONFIG, set={LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: "0"})
            )
            yield Stand(run, cluster, admin, look)
    finally:
        await look.close()
        await cluster.kill_all()


def new_topics(shape: Shape, brokers: Sequence[int], victim: int | None = None) -> list[NewTopic]:
    """The topics of a shape, placed by the controller or, where the victim leads a given number, by hand."""
    if not shape.affected or victim is None:
        factor = shape.replication_factor
        return [NewTopic(name=name, partitions=shape.partitions, replication_factor=factor) for name in shape.names]
    by_hand = placed(shape, brokers, victim)
    return [NewTopic(name=name, partitions=0, assignment=by_hand[name]) for name in shape.names]


async def create_some(admin: Admin, topics: Sequence[NewTopic], *, timeout_s: float) -> None:
    """One call; raises MeasureError when one of them was not created."""
    for name, answer in (await admin.create_topics(topics, timeout_s=timeout_s)).items():
        if isinstance(answer, RegnumError):
            raise MeasureError(f"topic {name} was not created: {answer}")


def led(topic: types_pb2.TopicState) -> bool:
    """Whether every partition has a leader."""
    return all(state.leader >= 0 for state in topic.partitions)


def in_place(topic: types_pb2.TopicState) -> bool:
    """Whether every replica is in sync and every preferred replica leads."""
    return all(
        len(state.isr) == len(state.replicas) and state.leader == state.replicas[0] for state in topic.partitions
    )
