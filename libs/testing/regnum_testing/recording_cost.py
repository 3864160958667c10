"""What metrics cost a broker for each batch: the number of recordings times what one takes.

python -m regnum_testing.recording_cost    prints figures as JSON

Both sides are processor time of this process. The batch's own time is that of the produce handler and its log writer
without gRPC, which in a broker comes on top: so the share is smaller there than it is here.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import Acks, ProducePartition, ProduceRequest
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_testing.batches import batch_of
from regnum_testing.counted_recordings import CountedMetrics, CountedTraffic, Recordings
from regnum_testing.leading_replicas import LEADER, LeadingReplicas

ROUNDS: Final = 9
"""The least of so many counts: what else the machine does only adds."""

CALLS: Final = 100_000
"""Recordings of one round."""

BATCHES: Final = 500
"""Produce calls of one round."""

IN_A_SERVER: Final = 1
"""Values that a call's interceptor records besides, where it comes over gRPC."""


CLOCK_LOOKS: Final = 7
"""Looks at the clock that are there for the metrics only: two of the handler, three of the writer, two of a server."""


class Producing:
    """A produce handler over partitions that are led, counting or not."""

    def __init__(self, leading: LeadingReplicas, metrics: Metrics, traffic: TopicTraffic) -> None:
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self._handler: Final = ProduceHandler(
            replicas=leading.replicas,
            leaders=leaders,
            storage=leading.storage,
            clock=leading.clock,
            batch_bytes_max=1 << 20,
            supervisor=Supervisor("test"),
            metrics=metrics,
            traffic=traffic,
        )

    async def produce(self, batch: bytes, *, partitions: int = 1) -> None:
        """One call with a batch for each of so many partitions."""
        request = ProduceRequest(
            acks=Acks.LEADER,
            partitions=[
                ProducePartition(topic="t", partition=number, record_batch=batch) for number in range(partitions)
            ],
        )
        answer = await self._handler.produce(request)
        assert not any(result.error_code for result in answer.results)


async def recordings_of_a_call(root: Path, *, partitions: int) -> Recordings:
    """What one produce call with a batch for each of so many partitions records."""
    metrics = CountedMetrics()
    async with LeadingReplicas(root, partitions=partitions, metrics=metrics) as leading:
        for number in range(partitions):
            leading.lead(number, epoch=1, isr=(LEADER,))
        producing = Producing(leading, metrics, CountedTraffic(metrics, topics_max=100))
        before = Recordings(metrics.recordings.additions, metrics.recordings.values, metrics.recordings.topics)
        await producing.produce(batch_of(b"x"), partitions=partitions)
        # The writer's thread records a job that it has answered.
        await leading.storage.write(lambda: None)
        after = metrics.recordings
        return Recordings(
            after.additions - before.additions,
            # Less those of the last job, which are two.
            after.values - before.values - 2,
            after.topics - before.topics,
        )


async def batch_us(root: Path, batch: bytes) -> float:
    """Processor time of one produce call of one batch, microseconds; the least of some rounds."""
    metrics = Metrics()
    async with LeadingReplicas(root, partitions=1, metrics=metrics) as leading:
        leading.lead(0, epoch=1, isr=(LEADER,))
        producing = Producing(leading, metrics, TopicTraffic(topics_max=100, metrics=metrics))
        least = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            for _ in range(BATCHES):
                await producing.produce(batch)
            least = min(least, (time.process_time() - began) / BATCHES)
        return least * 1e6


def one_us(record: Callable[[], object]) -> float:
    """Processor time of one recording, microseconds; the loop around it is in it."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS):
            record()
        least = min(least, (time.process_time() - began) / CALLS)
    return least * 1e6


async def measured(root: Path) -> dict[str, float]:
    """All figures."""
    metrics = Metrics()
    counter, histogram = metrics.counter(instruments.BYTES_IN), metrics.histogram(instruments.PRODUCE_DURATION)
    traffic = TopicTraffic(topics_max=100, metrics=metrics)
    recordings = await recordings_of_a_call(root / "counted", partitions=1)
    figures = {
        "additions": recordings.additions,
        "values": recordings.values + IN_A_SERVER,
        "topics": recordings.topics,
        "addition_us": one_us(lambda: counter.add(1_000)),
        "value_us": one_us(lambda: histogram.record(0.003)),
        "topic_us": one_us(lambda: traffic.of("t").appended(100, 10_000)),
        "clock_us": one_us(time.monotonic),
        "batch_us": await batch_us(root / "timed", batch_of(*[b"x" * 100] * 100)),
    }
    cost_us = (
        CLOCK_LOOKS * figures["clock_us"]
        + figures["additions"] * figures["addition_us"]
        + figures["values"] * figures["value_us"]
        + figures["topics"] * figures["topic_us"]
    )
    return {**figures, "recording_us": cost_us, "share_percent": 100 * cost_us / figures["batch_us"]}


def main() -> int:
    """Print them."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measured(Path(folder)))
    sys.stdout.write(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
