"""``propagate``: a real metadata process, and a process that plays as many brokers as are wanted.

First the process gets an image that names no brokers, so that its memory is that of the image alone: the baseline. Then
the brokers are named: each is sent everything (full push). Then single partitions change, one after another.

Memory is the highest resident size since the baseline, above the baseline, divided by the size of the full payload:
what serving the brokers costs, in payloads. A repetition is a new full push to all, by a controller of a later epoch.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum.types.v1 import types_pb2
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_service.channel import aio_channel, open_channel

from regnum_bench.children import child
from regnum_bench.figures import Round, quantile
from regnum_bench.launching import launched
from regnum_bench.memory import Memory
from regnum_bench.receivers import SEEN
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import Deadline, MeasureError

PART_PARTITIONS: Final = 5_000
"""Partitions of one part of what is published."""
CALL_S: Final = 120.0
LAG_WAIT_MS: Final = 10_000
LOOK_S: Final = 0.02
SETTLE_S: Final = 1.0
"""Quiet before the baseline is taken."""


async def propagate(run: Run) -> Measured:
    """Figures of each repetition."""
    shape = run.shape
    rounds: list[Round] = []
    async with (
        _metadata_process(run) as (pid, address, epoch),
        child("regnum_bench.receivers", str(shape.applying)) as port,
        child("regnum_bench.receivers", "-1") as silent_port,
        open_channel(address) as channel,
        aio_channel(f"127.0.0.1:{port}") as receivers,
    ):
        process = Process(run, pid, propagation_pb2_grpc.PropagationServiceStub(channel), receivers, port, silent_port)
        for number in range(shape.warm_up + shape.repetitions):
            figures = await process.measure(epoch + 1 + number)
            pushed_s, change_ms = figures["full_push_s"], figures["change_p50_ms"]
            run.progress.detail(f"full push {pushed_s:.2f} s, a change {change_ms:.1f} ms")
            if number >= shape.warm_up:
                rounds.append(figures)
    read = min(shape.applying, shape.brokers)
    note = f"{read} of {shape.brokers} receivers read every byte; the others, in the same process, only the heads"
    return Measured(rounds=tuple(rounds), notes=(note,))


class Process:
    """The metadata process that is measured."""

    def __init__(
        self,
        run: Run,
        pid: int,
        stub: "propagation_pb2_grpc.PropagationServiceAsyncStub",
        receivers: grpc.aio.Channel,
        port: int,
        silent_port: int,
    ) -> None:
        self._run = run
        self._memory = Memory(pid)
        self._stub = stub
        self._seen = receivers.unary_unary(SEEN, request_serializer=bytes, response_deserializer=bytes)
        silent = run.shape.silent
        self._brokers = [
            _broker(number, silent_port if number <= silent else port) for number in range(1, run.shape.brokers + 1)
        ]
        self._heard = run.shape.brokers - silent
        """Receivers that answer."""

    async def measure(self, epoch: int) -> Round:
        """One repetition, as a controller of that epoch."""
        run, shape = self._run, self._run.shape
        run.progress.step(f"an image of {shape.partitions_total:,} partitions, no brokers (epoch {epoch})")
        await self._publish(epoch, 0, 1, brokers=(), topics=topics(shape))
        await run.clock.sleep(SETTLE_S)
        await self._noted()
        baseline = self._memory.resident_bytes()
        self._memory.forget_peak()
        before = await self._made()
        run.progress.step(f"a full push to {shape.brokers} brokers")
        begun_s = run.clock.monotonic()
        await self._publish(epoch, 1, 2, brokers=self._brokers, topics=())
        await self._all_have(epoch, 2)
        pushed = await self._noted()
        if len(pushed) != self._heard:
            raise MeasureError(f"{len(pushed)} of {self._heard} receivers were sent the full image")
        full = await self._made()
        full_bytes = max(size for one in pushed for _, _, size in one)
        pushed_s = max(at_s for one in pushed for _, at_s, _ in one) - begun_s
        peak = self._memory.peak_bytes()
        run.progress.step(f"{shape.changes} changes of one partition")
        changes_s, sizes = await self._changes(epoch)
        after = await self._made()
        above = max(0, max(peak, self._memory.peak_bytes()) - baseline)
        return {
            "full_push_s": pushed_s,
            "payload_bytes": float(full_bytes),
            "change_p50_ms": quantile(changes_s, 0.5) * 1000,
            "change_p99_ms": quantile(changes_s, 0.99) * 1000,
            "change_bytes": quantile(sizes, 0.5),
            "image_bytes": float(baseline),
            "memory_above_bytes": float(above),
            "payloads_per_change": (after[0] - full[0]) / shape.changes,
            "serialised_bytes_per_change": (after[1] - full[1]) / shape.changes,
            "sent_bytes_per_change": (after[2] - full[2]) / shape.changes,
            "full_payloads_count": full[0] - before[0],
            "full_serialised_bytes": full[1] - before[1],
            "full_sent_bytes": full[2] - before[2],
            "memory_per_payload_ratio": above / full_bytes,
        }

    async def _made(self) -> tuple[float, float, float]:
        """Payloads, bytes serialised and bytes sent since the process started."""
        lag = await self._stub.DescribeLag(propagation_pb2.DescribeLagRequest(), timeout=CALL_S)
        return float(lag.payload_serialisations), float(lag.bytes_serialised), float(lag.bytes_sent)

    async def _changes(self, epoch: int) -> tuple[list[float], list[float]]:
        """Seconds of each change until the last receiver has it, and its bytes."""
        taken_s: list[float] = []
        sizes: list[float] = []
        for version in range(3, 3 + self._run.shape.changes):
            topic = next(topics(self._run.shape, count=1, leader_epoch=version))
            del topic.partitions[1:]
            begun_s = self._run.clock.monotonic()
            await self._publish(epoch, version - 1, version, brokers=None, topics=(topic,))
            await self._all_have(epoch, version)
            noted = [one for one in await self._noted() if one]
            taken_s.append(max(at_s for one in noted for _, at_s, _ in one) - begun_s)
            sizes.append(float(max(size for one in noted for _, _, size in one)))
        return taken_s, sizes

    async def _publish(
        self,
        epoch: int,
        from_version: int,
        to_version: int,
        *,
        brokers: Sequence[types_pb2.Broker] | None,
        topics: Iterator[types_pb2.TopicState] | Sequence[types_pb2.TopicState],
    ) -> None:
        """One change; ``brokers`` are all that there are, None: they are as they were."""
        parts = _parts(list(topics))

        def messages() -> Iterator[propagation_pb2.PublishChangesRequest]:
            for number, part in enumerate(parts):
                yield propagation_pb2.PublishChangesRequest(
                    controller_id=1,
                    controller_epoch=epoch,
                    from_version=from_version,
                    to_version=to_version,
                    part=number,
                    last=number == len(parts) - 1,
                    max_broker_epoch=max((broker.epoch for broker in self._brokers), default=0) if from_version else 0,
                    cluster_id="bench",
                    controller=types_pb2.Controller(id=1, epoch=epoch),
                    brokers=(brokers or ()) if number == 0 else (),
                    all_brokers=number == 0 and brokers is not None,
                    topics=part,
                )

        answer = await self._stub.PublishChanges(messages(), timeout=CALL_S)
        if (answer.controller_epoch, answer.version) != (epoch, to_version):
            raise MeasureError(
                f"the metadata process has version {answer.version} of epoch {answer.controller_epoch}, "
                f"not {to_version} of {epoch}"
            )

    async def _all_have(self, epoch: int, version: int) -> None:
        # A wait would end when the silent ones have it, too.
        wait_ms = 0 if self._run.shape.silent else LAG_WAIT_MS
        deadline: Deadline = self._run.deadline(f"version {version} acknowledged by {self._heard} brokers")
        while True:
            request = propagation_pb2.DescribeLagRequest(controller_epoch=epoch, version=version, wait_ms=wait_ms)
            lag = await self._stub.DescribeLag(request, timeout=CALL_S)
            have = sum(broker.acknowledged_version >= version for broker in lag.brokers)
            if have >= self._heard:
                return
            deadline.check(f"{have} have it")
            if not wait_ms:
                await self._run.clock.sleep(LOOK_S)

    async def _noted(self) -> list[list[tuple[int, float, int]]]:
        """(version, moment, bytes) of every receiver since the last call."""
        noted: Any = json.loads(await self._seen(b"", timeout=CALL_S))
        return [[(int(version), float(at_s), int(size)) for version, at_s, size in one] for one in noted]


def topics(shape: Shape, *, count: int | None = None, leader_epoch: int = 1) -> Iterator[types_pb2.TopicState]:
    """Topics of the shape as a controller publishes them; the first ``count`` of them."""
    for number, name in enumerate(shape.names[:count]):
        states = []
        for partition in range(shape.partitions):
            first = number * shape.partitions + partition
            replicas = [(first + step) % shape.brokers + 1 for step in range(shape.replication_factor)]
            states.append(
                types_pb2.PartitionState(
                    partition=partition,
                    leader=replicas[0],
                    leader_epoch=leader_epoch,
                    isr=replicas,
                    replicas=replicas,
                    version=leader_epoch,
                )
            )
        yield types_pb2.TopicState(name=name, topic_id=f"bench{number:017d}", partitions=states)


def _parts(states: list[types_pb2.TopicState]) -> list[list[types_pb2.TopicState]]:
    parts: list[list[types_pb2.TopicState]] = [[]]
    size = 0
    for state in states:
        if size and size + len(state.partitions) > PART_PARTITIONS:
            parts.append([])
            size = 0
        parts[-1].append(state)
        size += len(state.partitions)
    return parts


def _broker(number: int, port: int) -> types_pb2.Broker:
    internal = types_pb2.Endpoint(host="127.0.0.1", port=port)
    client = types_pb2.Endpoint(host="127.0.0.1", port=10_000 + number)
    return types_pb2.Broker(id=number, epoch=number, client=client, internal=internal)


@asynccontextmanager
async def _metadata_process(run: Run) -> AsyncIterator[tuple[int, Any, int]]:
    """A metadata process that a controller has left behind: its pid, its internal address, the controller's epoch."""
    shape = run.shape
    run.progress.step(f"starting a metadata process on {shape.coordination}")
    metadata = run.extra.get(Role.METADATA, ())
    unstarted = LocalCluster(
        run.directory,
        brokers=0,
        elections=1,
        metadata=1,
        coordination=shape.coordination,
        report=run.progress.detail,
        # The default of a cluster without brokers would be no replicas at all, which is refused.
        extra={
            **run.extra,
            Role.ELECTION: (*run.extra.get(Role.ELECTION, ()), "--default-replication-factor", "1"),
            Role.METADATA: metadata if shape.shared else (*metadata, "--shared-payloads", "false"),
        },
    )
    async with launched(unstarted, run.progress) as cluster:
        # It serves once a controller has shown it an image; from then on the benchmark is the controller.
        (member,) = cluster.plan.of(Role.METADATA)
        (row,) = [row for row in cluster.status() if row.name == member.name]
        if row.pid is None:
            raise MeasureError(f"{member.name} does not run")
        async with open_channel(member.address("internal")) as channel:
            stub = propagation_pb2_grpc.PropagationServiceStub(channel)
            lag = await stub.DescribeLag(propagation_pb2.DescribeLagRequest(), timeout=CALL_S)
        await cluster.kill("election-1")
        yield row.pid, member.address("internal"), lag.controller_epoch
