"""``told``: kill -9 of a leader; a producer that brokers tell of its successor beside one that asks, in the same kill.

Each writes to partitions of its own that the victim leads, a record each few milliseconds. What the machine and the
controller take is the same for both, kill by kill: the difference is how each of them hears of the new leader. What
counts is the median of the differences, and it is said between which bounds it lies; a run in which these have zero
between them has shown nothing and is void: it needs more kills, or a quieter machine.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from regnum_client import Producer, ProducerSettings, RecordMetadata
from regnum_client.admin.topics import NewTopic

from regnum_bench.failover import VICTIM, moved
from regnum_bench.figures import Round, median_between
from regnum_bench.stand import Measured, Run, Stand, in_place, stand

TOPICS: Final = {"told": "bench-told", "asked": "bench-asked"}
"""By the way in which its producer hears of leaders."""
EVERY_S: Final = 0.005
"""Between two records of one partition, seconds."""
PARTITIONS: Final = 4
"""Partitions of each topic, all led by the victim."""


class Writer:
    """Writes to one partition, one record after another's interval, and remembers when each was acknowledged."""

    def __init__(self, run: Run, producer: Producer, topic: str, partition: int) -> None:
        self._run = run
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self.acknowledged_s: list[float] = []
        """Monotonic moments."""
        self.failures = 0

    async def write(self) -> None:
        """Until cancelled."""
        while True:
            delivery = await self._producer.send(self._topic, b"x" * 64, partition=self._partition)
            delivery.add_done_callback(self._done)
            await self._run.clock.sleep(EVERY_S)

    def _done(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        if delivery.cancelled() or delivery.exception() is not None:
            self.failures += 1
        else:
            self.acknowledged_s.append(self._run.clock.monotonic())

    def gap_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement since then."""
        moments = [since_s, *(at_s for at_s in self.acknowledged_s if at_s >= since_s)]
        return max((after - before for before, after in pairwise(moments)), default=0.0)


async def told(run: Run) -> Measured:
    """Figures of each kill."""
    rounds: list[Round] = []
    async with stand(run) as cluster:
        await cluster.fill()
        others = [broker for broker in cluster.brokers if broker != VICTIM]
        assignment = dict.fromkeys(range(PARTITIONS), (VICTIM, *others))
        topics = [NewTopic(name=name, partitions=0, assignment=assignment) for name in TOPICS.values()]
        await cluster.create(topics, run.deadline("the topics that are written to"))
        bootstrap = cluster.cluster.bootstrap
        async with (
            Producer(bootstrap, settings=ProducerSettings(linger_ms=1)) as hears,
            Producer(bootstrap, settings=ProducerSettings(linger_ms=1, metadata_watch=False)) as asks,
        ):
            producers = {"told": hears, "asked": asks}
            writers = {
                way: [Writer(run, producers[way], topic, number) for number in range(PARTITIONS)]
                for way, topic in TOPICS.items()
            }
            tasks = [asyncio.ensure_future(one.write()) for some in writers.values() for one in some]
            try:
                for number in range(run.shape.warm_up + run.shape.repetitions):
                    figures = await _kill(cluster, writers)
                    if number >= run.shape.warm_up:
                        rounds.append(figures)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        failures = sum(one.failures for some in writers.values() for one in some)
    complaints = (f"{failures} records were not acknowledged",) if failures else ()
    note, void = judged([one["asked_minus_told_ms"] for one in rounds])
    return Measured(rounds=tuple(rounds), complaints=complaints, notes=(note,), void=void)


def judged(differences_ms: Sequence[float]) -> tuple[str, tuple[str, ...]]:
    """What the differences of all kills say in words, and why they say nothing. Pure."""
    between = median_between(differences_ms)
    middle = statistics.median(differences_ms)
    if between is None:
        return (
            f"who is told waits {middle:.0f} ms less in the median of {len(differences_ms)} kills",
            (f"{len(differences_ms)} kills are too few to say how firm that is; make six or more",),
        )
    note = (
        f"who is told waits {middle:.0f} ms less in the median of {len(differences_ms)} kills, and with 95 % confidence"
        f" between {between[0]:.0f} and {between[1]:.0f} ms"
    )
    if between[0] <= 0.0 <= between[1]:
        return note, ("these bounds have zero between them: more kills, or a quieter machine",)
    return note, ()


async def _kill(cluster: Stand, writers: Mapping[str, Sequence[Writer]]) -> Round:
    run = cluster.run
    await cluster.settle()
    before_s = run.clock.monotonic() - run.shape.settle_s
    usual_s = max(one.gap_s(before_s) for some in writers.values() for one in some)
    run.progress.step(f"kill -9 of broker {VICTIM}")
    kill = await cluster.kill(f"broker-{VICTIM}")
    deadline = run.deadline("new leaders known to every broker")
    await cluster.look.until_right(cluster.brokers, list(TOPICS.values()), moved, deadline)
    # Both go on with their new leaders before the victim is back.
    await cluster.settle()
    gaps_s = {way: max(one.gap_s(kill.at_s) for one in some) for way, some in writers.items()}
    run.progress.detail(f"told {gaps_s['told'] * 1000:.0f} ms, asked {gaps_s['asked'] * 1000:.0f} ms")
    await cluster.mend(f"broker-{VICTIM}", holds=in_place)
    return {
        "told_gap_s": gaps_s["told"],
        "asked_gap_s": gaps_s["asked"],
        "asked_minus_told_ms": (gaps_s["asked"] - gaps_s["told"]) * 1000,
        "usual_gap_s": usual_s,
    }
