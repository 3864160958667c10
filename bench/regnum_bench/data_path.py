"""``data_path``: what a batch costs brokers, by place and process, through both doors.

One broker leads all partitions and the others follow, so that each process has one part. Two topics, of one replica
and of as many as there are brokers, are written and read by gRPC (requests of one stream) and by Kafka's protocol
(requests of one partition, one after another on one connection), ``in_flight`` at once. Of each phase there are figures
of processor time for a batch, and what samples of py-spy say of where it went (``details``; ``regnum-bench places``).
What the processes take at rest is measured before, and taken off.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from regnum.broker.v1 import log_pb2_grpc
from regnum_client import NewTopic
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.security.channels import channels_to
from regnum_client.producer.streams import ProduceStreams
from regnum_client.tasks import Tasks
from regnum_local.plan import KAFKA, Role
from regnum_service.clock import SystemClock

from regnum_bench.figures import Round
from regnum_bench.kafka_frames import KafkaConnection
from regnum_bench.places import by_place, each_us
from regnum_bench.processor_time import of_threads
from regnum_bench.profiling import busy, profiled
from regnum_bench.stand import Measured, Run, Stand, create_some, stand
from regnum_bench.throughput import FETCH_BYTES, Place, Work, fetch_all, offset_after, sends, timed, work_of
from regnum_bench.waiting import MeasureError

LEADER: Final = 1
"""Leads everything."""
REST_S: Final = 5.0
"""For so long the cluster is looked at at rest."""
Calls = Iterable[Callable[[], Awaitable[object]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doors:
    """Both ways to the leader, of one topic."""

    places: list[Place]
    kafka: KafkaConnection
    topic: str

    def produce(self, work: Work) -> Mapping[str, Calls]:
        """Calls that write all batches, by door."""
        by_kafka = (
            partial(self.kafka.produce, self.topic, number % len(self.places), work.batch)
            for number in range(work.batches)
        )
        return {"grpc": sends(self.places, work, streamed=True), "kafka": by_kafka}

    def consume(self) -> Mapping[str, Calls]:
        """Calls that read everything, by door."""
        return {
            "grpc": [partial(fetch_all, place) for place in self.places],
            "kafka": [partial(self._read, place.partition) for place in self.places],
        }

    async def _read(self, partition: int) -> None:
        offset, end = 0, 1
        while offset < end:
            batches, end = await self.kafka.fetch(self.topic, partition, offset, FETCH_BYTES)
            if not batches:
                raise MeasureError(f"{self.topic}-{partition} gives nothing at {offset} of {end}")
            offset = offset_after(batches)


async def data_path(run: Run) -> Measured:
    """Figures of each repetition; the places are those of the last one."""
    rounds: list[Round] = []
    shape, work = run.shape, work_of(run.shape)
    places: dict[str, Any] = {}
    async with stand(run) as cluster:
        rest = await _at_rest(cluster)
        for number in range(shape.warm_up + shape.repetitions):
            figures: dict[str, float] = {}
            for factor in sorted({1, shape.replication_factor}):
                async with _doors(cluster, f"bench-rf{factor}-{number}", factor) as doors:
                    for what, calls in (("produce", doors.produce(work)), ("consume", doors.consume())):
                        for door, some in calls.items():
                            phase = f"{what}_{door}_rf{factor}"
                            run.progress.detail(phase)
                            async with _spent(cluster, phase, rest, work.batches) as spent:
                                wall_s, _ = await timed(shape, some)
                            figures |= {f"{phase}_{name}_us": sum(found.values()) for name, found in spent.items()}
                            figures[f"{phase}_mb_s"] = work.payload_bytes / 1e6 / wall_s
                            places[phase] = spent
            if number >= shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds), details={"places": places, "batch_bytes": len(work.batch)})


@asynccontextmanager
async def _doors(cluster: Stand, topic: str, factor: int) -> AsyncIterator[_Doors]:
    shape = cluster.run.shape
    replicas = (LEADER, *(broker for broker in cluster.brokers if broker != LEADER))[:factor]
    assignment = dict.fromkeys(range(shape.partitions), replicas)
    new = NewTopic(name=topic, partitions=0, assignment=assignment)
    await create_some(cluster.admin, [new], timeout_s=shape.deadline_s)
    await cluster.all_led([topic], cluster.run.deadline(f"a leader of {topic}"))
    leader = next(member for member in cluster.cluster.plan.of(Role.BROKER) if member.id == LEADER)
    async with AsyncExitStack() as ends:
        channels = channels_to(cluster.cluster.bootstrap, cluster.cluster.tls)
        ends.push_async_callback(channels.close)
        streams = ProduceStreams(Connections(channels), clock=SystemClock(), tasks=Tasks("benchmark"))
        ends.push_async_callback(streams.close)
        kafka = await KafkaConnection.open(leader.address(KAFKA))
        ends.push_async_callback(kafka.close)
        address = leader.address("client")
        stub: log_pb2_grpc.LogServiceAsyncStub = log_pb2_grpc.LogServiceStub(channels.get(address))
        places = [
            Place(topic=topic, partition=number, stub=stub, address=address, streams=streams)
            for number in range(shape.partitions)
        ]
        yield _Doors(places=places, kafka=kafka, topic=topic)


def _brokers(cluster: Stand) -> dict[str, int]:
    rows = cluster.cluster.status()
    return {row.name: row.pid for row in rows if row.role is Role.BROKER and row.pid is not None}


def _threads(processes: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    return {name: of_threads(pid) for name, pid in processes.items()}


async def _at_rest(cluster: Stand) -> dict[str, float]:
    """Processor time of each broker in a second without work."""
    await cluster.settle()
    processes = _brokers(cluster)
    before = _threads(processes)
    await cluster.run.clock.sleep(REST_S)
    return {name: (sum(now) - sum(before[name])) / REST_S for name, now in _threads(processes).items()}


@asynccontextmanager
async def _spent(
    cluster: Stand, phase: str, rest: Mapping[str, float], batches: int
) -> AsyncIterator[dict[str, dict[str, float]]]:
    """Of the block: microseconds of a batch by broker and place; filled in at its end."""
    found: dict[str, dict[str, float]] = {}
    processes, folder = _brokers(cluster), cluster.run.directory / "stacks"
    async with profiled(processes, folder, phase):
        before, begun_s = _threads(processes), time.monotonic()
        yield found
        after, wall_s = _threads(processes), time.monotonic() - begun_s
    for name in processes:
        stacks = await asyncio.to_thread(_stacks, folder / f"{phase}-{name}.stacks")
        python_s, outside_s = (now - then for now, then in zip(after[name], before[name], strict=True))
        found[name] = each_us(by_place(busy(stacks)), python_s=python_s, outside_s=outside_s, batches=batches)
        found[name]["(at rest, in all of these)"] = -rest[name] * wall_s / batches * 1e6


def _stacks(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def places_markdown(details: Mapping[str, Any]) -> str:
    """The places of a result as Markdown: one table for each way, one column for each broker."""
    lines: list[str] = []
    for phase, brokers in details["places"].items():
        names = list(brokers)
        lines += ["", f"**{phase.replace('_', ', ')}**, microseconds of a batch", ""]
        lines += ["| place | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        rows = dict.fromkeys(place for found in brokers.values() for place in found)
        for place in sorted(rows, key=lambda place: -max(found.get(place, 0.0) for found in brokers.values())):
            lines.append(f"| {place} | " + " | ".join(f"{brokers[name].get(place, 0.0):.0f}" for name in names) + " |")
        totals = " | ".join(f"{sum(brokers[name].values()):.0f}" for name in names)
        lines.append(f"| all, less what is there at rest | {totals} |")
    return "\n".join(lines[1:]) + "\n"
