"""A real cluster under load, judged at the end."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from regnum_client import Admin, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.report import Narrator
from regnum_local.demo.scenes import Stage
from regnum_local.demo.verdict import Verdict
from regnum_local.demo.workload import Load, read_everything
from regnum_service.clock import SystemClock
from rich.console import Console

from regnum_testing.suite.harm import unharmed
from regnum_testing.waiting import DEADLINE_S

CLOCK: Final = SystemClock()
ACKNOWLEDGED_MIN: Final = 100
"""Records without which a verdict says nothing."""


async def until(holds: Callable[[], Awaitable[bool]], *, within_s: float = DEADLINE_S) -> None:
    """Wait for a condition with a deadline."""
    deadline = CLOCK.monotonic() + within_s
    while not await holds():
        assert CLOCK.monotonic() < deadline, f"not within {within_s} s"
        await CLOCK.sleep(0.05)


def kept(load: Load, logs: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> Verdict:
    """Judge every partition of a load that is over. Raises HarmedError.

    ``logs``: (offset, number) of every record.
    """
    verdict, reader = load.judged(logs)
    unharmed(verdict.clean, verdict)
    unharmed(reader.clean, f"the reader: {reader}")
    return verdict


@dataclass(slots=True, kw_only=True)
class LoadedCluster:
    """A cluster whose partitions are written to and read."""

    cluster: LocalCluster
    """The processes."""
    stage: Stage
    """Means to look at it and to hurt it."""
    load: Load
    """Writers and reader."""
    partitions: list[TopicPartition]
    """What is written to."""

    async def judged(self) -> Verdict:
        """Let the load go on until it says something, stop it and judge every partition.

        Raises HarmedError: the log, or what the reader beside the load was given, is not what it has to be.
        """
        await until(self._enough)
        await self.load.finish()
        logs = await read_everything(self.cluster.bootstrap, self.partitions, tls=self.cluster.tls)
        assert not [failure for history in self.load.histories.values() for failure in history.failures]
        return kept(self.load, logs)

    async def _enough(self) -> bool:
        return sum(len(history.acknowledged) for history in self.load.histories.values()) > ACKNOWLEDGED_MIN


@asynccontextmanager
async def under_load(
    cluster: LocalCluster, topic: str, *, partitions: int = 3, interval_s: float = 0.02
) -> AsyncIterator[LoadedCluster]:
    """Create a topic, write to all its partitions and read along; yields when acknowledgements flow."""
    keys = [TopicPartition(topic, number) for number in range(partitions)]
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_topic(topic, partitions=partitions, replication_factor=3)
        settings = ProducerSettings(linger_ms=2)
        async with (
            Producer(cluster.bootstrap, settings=settings, tls=cluster.tls) as producer,
            Consumer(cluster.bootstrap, tls=cluster.tls) as reader,
        ):
            load = Load(producer=producer, consumer=reader, partitions=keys, interval_s=interval_s, clock=CLOCK)
            narrator = Narrator(Console(stderr=True, quiet=True))
            stage = Stage(cluster=cluster, admin=admin, load=load, topics=[topic], clock=CLOCK, narrator=narrator)
            await load.start()

            async def flowing() -> bool:
                return all(len(history.acknowledged) > 20 for history in load.histories.values())

            try:
                await until(flowing)
                yield LoadedCluster(cluster=cluster, stage=stage, load=load, partitions=keys)
            finally:
                await load.abandon()
