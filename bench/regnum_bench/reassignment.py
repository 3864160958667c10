"""``reassignment``: every partition from one broker to another under a throttle, forth and back, under load.

A repetition is a pair: quiet time, and then a move of all partitions, with the same records a second to all of them
throughout. What arrives is seen on the disk of the target; what has come to a partition since its move was asked for
is not counted there, because it is not throttled once the new replica is in sync. In the end everything is read: each
acknowledged record is there, once.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum.types.v1 import types_pb2
from regnum_broker.replication.throttle import BURST_S
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, NewTopic, Producer, ProducerSettings, TopicPartition
from regnum_local.demo.verdict import Verdict, judge
from regnum_local.demo.workload import read_everything
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_service.collector import short_collections

from regnum_bench.arrivals import (
    Arrival,
    Look,
    NothingArrivedError,
    arrival,
    arrived_bytes,
    by_seconds,
    judged,
    latency_figures,
    medians_by_seconds,
    move_figures,
    ratio_of_medians,
)
from regnum_bench.figures import Round
from regnum_bench.outage import collected_before, complaints
from regnum_bench.paced import PacedLoad
from regnum_bench.shape import Shape, ShapeError
from regnum_bench.stand import Measured, Run, Stand, create_some, stand
from regnum_bench.waiting import MeasureError

NEVER_S: Final = 1e6
"""Leaders move with their partitions and not besides."""
QUIET_S: Final = 5.0
"""Time before each move in which acknowledgements are timed, seconds."""
LOOK_S: Final = 0.25
"""Between two looks at the disk of the target, seconds."""
ASK_S: Final = 0.5
"""Between two questions whether everything is done, seconds; as often as ``regnum partitions`` asks."""
RECORD_BYTES: Final = 100
"""Of a record of the load: what it adds to the moved partitions must be little beside what is moved."""
PARTITIONS_PER_CALL: Final = 1_000
LOG: Final = ".log"
"""Ending of the files that hold records."""


async def reassignment(run: Run) -> Measured:
    """Figures of each pair."""
    if run.shape.replication_factor >= run.shape.brokers:
        raise ShapeError("a reassignment needs a broker without a replica: more brokers than replicas")
    if not run.shape.rate:
        raise ShapeError("a reassignment is measured under load: give --rate, records in a second")
    with short_collections():
        return await _reassignment(run)


async def _reassignment(run: Run) -> Measured:
    shape = run.shape
    async with stand(run, balance_s=NEVER_S) as cluster:
        source, *_, target = cluster.brokers
        await _create(cluster, source, target)
        keys = [TopicPartition(name, number) for name in shape.names for number in range(shape.partitions)]
        bootstrap = cluster.cluster.bootstrap
        settings = ProducerSettings(linger_ms=2, delivery_timeout_s=shape.deadline_s)
        rounds: list[Round] = []
        async with Producer(bootstrap, settings=settings) as producer, Admin(bootstrap) as admin:
            load = PacedLoad(producer=producer, partitions=keys, per_s=shape.rate, size=RECORD_BYTES, clock=run.clock)
            moves = _Moves(cluster, admin, load)
            try:
                await moves.prepare()
                await load.start()
                before = cluster.processor_time()
                for number in range(shape.warm_up + shape.repetitions):
                    figures = await moves.pair(source, target)
                    source, target = target, source
                    if number >= shape.warm_up:
                        rounds.append(figures)
                others_ratio = cluster.processor_time().others_ratio(before)
                await load.finish()
            finally:
                await load.abandon()
        run.progress.step("reading everything")
        logs = await read_everything(bootstrap, keys)
    verdict, failures = Verdict(), 0
    for partition, history in load.histories.items():
        verdict += judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
        failures += len(history.failures)
    broken, void = judged(rounds, throttled=shape.throttle_mb_s > 0, others_ratio=others_ratio)
    given_up = (f"{failures} records were given up by the producer",) if failures else ()
    return Measured(
        rounds=tuple(rounds),
        complaints=(*complaints(verdict), *given_up, *broken),
        void=void,
        details={
            "acknowledged": verdict.acknowledged,
            "lost": len(verdict.lost),
            "ratio_of_medians": round(ratio_of_medians(rounds), 3),
            "others_ratio": round(others_ratio, 3),
            "arrived_mb": moves.arrived_mb,
            "during_p50_ms": moves.medians_ms,
        },
    )


async def _create(cluster: Stand, source: int, target: int) -> None:
    shape = cluster.run.shape
    placed = placed_on(shape, [broker for broker in cluster.brokers if broker != target], source)
    topics = [NewTopic(name=name, partitions=0, assignment=placed[name]) for name in shape.names]
    deadline = cluster.run.deadline(f"creating {shape.partitions_total:,} partitions")
    cluster.run.progress.step(f"creating {shape.partitions_total:,} partitions with a replica at broker {source}")
    for start in range(0, len(topics), shape.batch):
        await create_some(cluster.admin, topics[start : start + shape.batch], timeout_s=deadline.left_s + 1.0)
    await cluster.all_led(shape.names, deadline)


class _Moves:
    """Moves everything, and looks meanwhile."""

    def __init__(self, cluster: Stand, admin: Admin, load: PacedLoad) -> None:
        self._cluster: Final = cluster
        self._run: Final = cluster.run
        self._admin: Final = admin
        self._load: Final = load
        self._folders: tuple[str, ...] = ()
        """Names of the folders of all partitions, as every broker has them."""
        self.arrived_mb: Final[list[list[float]]] = []
        """Of each move: megabytes at the target after 0, 1, 2 ... seconds."""
        self.medians_ms: Final[list[list[float | None]]] = []
        """Of each move: milliseconds to half of the acknowledgements, by seconds."""

    async def prepare(self) -> None:
        """Fill the partitions, and set the throttle."""
        shape = self._run.shape
        total = max(1, round(shape.size_mb * 1e6 / (shape.partitions_total * shape.size)))
        self._run.progress.step(f"writing {shape.size_mb:g} MB into {shape.partitions_total:,} partitions")
        everything = total * shape.partitions_total
        await self._load.fill(total, shape.size, lambda sent: self._run.progress.count(sent, everything, "records"))
        if shape.throttle_mb_s:
            rates = dict.fromkeys((LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE), str(self._throttle_bytes_s))
            await self._admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set=rates))
        views = [await self._admin.describe_topic(name) for name in shape.names]
        self._folders = tuple(f"{view.topic_id}-{number}" for view in views for number in range(shape.partitions))

    async def pair(self, source: int, target: int) -> Round:
        """Quiet time and a move; the figures of both."""
        clock, load = self._run.clock, self._load
        # What the move before left to do has to be over, or it would be timed as quiet.
        await self._cluster.settle()
        with collected_before():
            load.late_s, began_s = 0.0, clock.monotonic()
            spent = self._cluster.processor_time()
            await self._quiet(source)
            quiet_s, late_s = clock.monotonic(), load.late_s
            quiet_cpu = self._cluster.processor_time().since(spent, "quiet")
            async with self._cluster.watched("move") as cpu:
                found, asked_s, done_s = await self._move(source, target)
        before, during = load.timed(began_s, quiet_s), load.timed(asked_s, done_s)
        self.medians_ms.append(medians_by_seconds(during, asked_s))
        figures = {
            **latency_figures([taken_s for _, taken_s in before], [taken_s for _, taken_s in during]),
            **move_figures(found, throttle_bytes_s=self._throttle_bytes_s, burst_s=BURST_S),
            "done_s": done_s - asked_s,
            "bench_late_s": late_s,
            **quiet_cpu,
            **cpu,
        }
        self._run.progress.detail(
            f"{found.moved_bytes / 1e6:.1f} MB in {found.taken_s:.1f} s; p99 {figures['before_p99_ms']:.1f} ms before, "
            f"{figures['during_p99_ms']:.1f} ms meanwhile"
        )
        await self._settled(source, target)
        return figures

    async def _quiet(self, source: int) -> None:
        """Look and ask as often as during a move: what that takes of the processors is no part of what is compared."""
        clock, wanted = self._run.clock, await self._sizes(source)
        until_s = clock.monotonic() + QUIET_S
        watching = asyncio.create_task(self._watch(source, wanted, []), name="what is there")
        try:
            while (left_s := until_s - clock.monotonic()) > 0:
                await self._admin.list_partition_reassignments()
                await clock.sleep(min(ASK_S, left_s))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    @property
    def _throttle_bytes_s(self) -> int:
        return round(self._run.shape.throttle_mb_s * 1e6)

    async def _move(self, source: int, target: int) -> tuple[Arrival, float, float]:
        run = self._run
        wanted = await self._sizes(source)
        run.progress.step(f"moving {sum(wanted.values()) / 1e6:.1f} MB from broker {source} to broker {target}")
        targets = {
            (name, number): swapped(replicas, source, target)
            for name in run.shape.names
            for number, replicas in (await self._replicas(name)).items()
        }
        looks = [Look(at_s=run.clock.monotonic(), arrived_bytes=arrived_bytes(await self._sizes(target), wanted))]
        asked_s = run.clock.monotonic()
        watching = asyncio.create_task(self._watch(target, wanted, looks), name="what arrives")
        try:
            outcomes = await self._admin.alter_partition_reassignments(targets)
            if refused := [outcome for outcome in outcomes.values() if outcome is not None]:
                raise MeasureError(f"{len(refused)} partitions are not moved: {refused[0]}")
            deadline = run.deadline(f"{len(targets):,} partitions moved")
            left = len(targets)

            async def done() -> bool:
                nonlocal left
                left = len(await self._admin.list_partition_reassignments())
                return not left

            await deadline.wait(done, every_s=ASK_S, so_far=lambda: f"{left:,} are on their way")
            done_s = run.clock.monotonic()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        looks.append(Look(at_s=done_s, arrived_bytes=arrived_bytes(await self._sizes(target), wanted)))
        self.arrived_mb.append(by_seconds(looks))
        try:
            found = arrival(looks)
        except NothingArrivedError as error:
            raise MeasureError(str(error)) from error
        if found.moved_bytes != sum(wanted.values()):
            raise MeasureError(f"{found.moved_bytes:,} of {sum(wanted.values()):,} bytes are at broker {target}")
        return found, asked_s, done_s

    async def _watch(self, target: int, wanted: Mapping[int, int], looks: list[Look]) -> None:
        while True:
            await self._run.clock.sleep(LOOK_S)
            sizes = await self._sizes(target)
            looks.append(Look(at_s=self._run.clock.monotonic(), arrived_bytes=arrived_bytes(sizes, wanted)))

    async def _replicas(self, name: str) -> Mapping[int, Sequence[int]]:
        view = await self._admin.describe_topic(name)
        return {number: state.replicas for number, state in view.partitions.items()}

    async def _settled(self, source: int, target: int) -> None:
        """Wait until every broker knows, and the source has nothing left."""

        def moved(topic: types_pb2.TopicState) -> bool:
            return all(
                target in state.replicas and source not in state.replicas and len(state.isr) == len(state.replicas)
                for state in topic.partitions
            )

        deadline = self._run.deadline(f"broker {source} has deleted what was moved")
        await self._cluster.look.until_right(self._cluster.brokers, self._run.shape.names, moved, deadline)
        left: Mapping[int, int] = {}

        async def gone() -> bool:
            nonlocal left
            left = await self._sizes(source)
            return not left

        await deadline.wait(gone, every_s=ASK_S, so_far=lambda: f"{len(left):,} replicas are left")

    async def _sizes(self, broker: int) -> dict[int, int]:
        """Place of a partition among all of them -> bytes of its records on the disk of a broker that has it."""
        folder = self._cluster.cluster.data_dir / f"broker-{broker}" / "replicas"
        return await asyncio.to_thread(log_sizes, folder, self._folders)


def log_sizes(replicas: Path, folders: Sequence[str]) -> dict[int, int]:
    """Place of a folder -> bytes of its log files, of those folders that are there."""
    found: dict[int, int] = {}
    for place, name in enumerate(folders):
        try:
            with os.scandir(replicas / name) as entries:
                found[place] = sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG))
        except FileNotFoundError:
            # Not there yet, or just deleted.
            continue
    return found


def placed_on(shape: Shape, brokers: Sequence[int], source: int) -> dict[str, dict[int, tuple[int, ...]]]:
    """Replicas by hand: topic -> partition -> brokers. The source has one of each, and leads its share."""
    others = [broker for broker in sorted(brokers) if broker != source]
    factor = shape.replication_factor
    assignment: dict[str, dict[int, tuple[int, ...]]] = {}
    for number in range(shape.partitions_total):
        turned = [others[(number + step) % len(others)] for step in range(len(others))]
        members = (source, *turned)[:factor]
        first = number % factor
        topic = shape.names[number // shape.partitions]
        assignment.setdefault(topic, {})[number % shape.partitions] = (*members[first:], *members[:first])
    return assignment


def swapped(replicas: Sequence[int], source: int, target: int) -> tuple[int, ...]:
    """The replicas with the target in the place of the source."""
    return tuple(target if broker == source else broker for broker in replicas)
