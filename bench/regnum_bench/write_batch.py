"""``write_batch``: conditional writes of one batch beside the same writes by hand, on a real store.

Each round sets every node at the version it is at, once by each contender, in turns, so that a busy moment of the
machine hits them alike. The nodes look like the state of partitions: three levels deep, 150 bytes. Both check the fence
in every transaction. A last batch, not timed, has one node that somebody else has moved: exactly one outcome may
differ.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from kazoo.client import KazooClient
from regnum_coordination import open_store
from regnum_coordination.port import Check, Create, Group, Outcome, Set, Store, Written
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_service.channel import aio_channel
from regnum_service.collector import short_collections

from regnum_bench.by_hand_etcd import FlatLoop, NestedLoop
from regnum_bench.by_hand_zookeeper import MultiLoop
from regnum_bench.figures import Round, spreads
from regnum_bench.launching import launched
from regnum_bench.processor_time import ProcessorTime
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import MeasureError

LIMIT: Final = 1.3
"""How many times the plain loop ours may take."""
OTHERS_MAX: Final = 0.1
"""Share of all processors' time that other programs may have where the limit is judged."""
DATA: Final = b"." * 150
FENCE: Final = "/controller_epoch"
PREFIX: Final = "/bench"
PARTITIONS: Final = 100
"""Of one topic."""
TIMEOUT_S: Final = 30.0
"""Of one operation, also on a busy machine: a repeat would be measured as work."""


class ByHand(Protocol):
    """A yardstick."""

    @property
    def figure(self) -> str:
        """Name of its figure, without the unit."""

    @property
    def name(self) -> str:
        """What it does, in words."""

    async def write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        """Set every node at a version; the number of writes that happened."""


async def write_batch(run: Run) -> Measured:
    """Figures of each repetition: seconds of each contender, and ours to the first yardstick."""
    shape = run.shape
    run.progress.step(f"{shape.records:,} conditional writes on {shape.coordination}")
    # Garbage collections as every service has them.
    with short_collections():
        async with _store(run) as (server, pid):
            opened = _etcd(server) if shape.coordination == "etcd" else _zookeeper(server)
            async with opened as (session, yardsticks):
                return await _compare(run, session, yardsticks, pid)


async def _compare(run: Run, session: Store, yardsticks: Sequence[ByHand], pid: int) -> Measured:
    shape = run.shape
    paths = await _fill(session, shape.records)
    before = ProcessorTime.of([(shape.coordination, pid)])
    rounds: list[Round] = []
    version, total = 0, shape.warm_up + shape.repetitions
    for number in range(total):
        figures = {"write_batch_s": await _ours(session, paths, version)}
        for step, yardstick in enumerate(yardsticks, start=1):
            figures[f"{yardstick.figure}_s"] = await _by_hand(yardstick, paths, version + step)
        version += len(figures)
        if number >= shape.warm_up:
            rounds.append({**figures, "to_by_hand_ratio": figures["write_batch_s"] / figures["by_hand_s"]})
        run.progress.count(number + 1, total, "rounds")
    others_ratio = ProcessorTime.of([(shape.coordination, pid)]).others_ratio(before)
    conflicts = await _conflicts(session, paths, version)
    # Of the medians, as the table shows them: ratios of single rounds have outliers of their own.
    found = spreads(rounds)
    ratio = found["write_batch_s"].median / found["by_hand_s"].median
    wrong = [] if conflicts == 1 else [f"one node had been moved, and {conflicts} writes were refused"]
    complaints, void = judged(ratio, others_ratio)
    named = {f"{yardstick.figure}_s": yardstick.name for yardstick in yardsticks}
    return Measured(
        rounds=tuple(rounds),
        complaints=(*wrong, *complaints),
        void=void,
        details={
            "yardsticks": named,
            "ratio_of_medians": round(ratio, 3),
            "limit": LIMIT,
            "conflicts": conflicts,
            "others_ratio": round(others_ratio, 3),
        },
    )


def judged(ratio: float, others_ratio: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is wrong with a ratio to the first yardstick, and what makes it void. Pure."""
    if ratio <= LIMIT:
        return (), ()
    said = f"{ratio:.2f} times the first yardstick, and {LIMIT} is allowed"
    if others_ratio <= OTHERS_MAX:
        return (said,), ()
    return (), (f"{said}, but other programs had {others_ratio:.0%} of the processors",)


async def _fill(store: Store, writes: int) -> list[str]:
    """The nodes, all at version 0."""
    topics = range(-(-writes // PARTITIONS))
    folders = [f"/t{topic}" for topic in topics]
    paths = [f"/t{number // PARTITIONS}/{number % PARTITIONS}" for number in range(writes)]
    groups: list[Group] = [(Create(path, DATA),) for path in (FENCE, *folders, *paths)]
    _all_written(await store.write_batch(groups), "filling the store")
    return paths


def _all_written(outcomes: Sequence[Outcome], what: str) -> None:
    if others := Counter(type(outcome).__name__ for outcome in outcomes if not isinstance(outcome, Written)):
        raise MeasureError(f"{what}: not everything was written: {dict(others)}")


async def _ours(store: Store, paths: Sequence[str], version: int) -> float:
    groups: list[Group] = [(Set(path, DATA, version),) for path in paths]
    gc.collect()
    started_s = time.perf_counter()
    outcomes = await store.write_batch(groups, fence=Check(FENCE, 0))
    taken_s = time.perf_counter() - started_s
    _all_written(outcomes, "write_batch")
    return taken_s


async def _by_hand(yardstick: ByHand, paths: Sequence[str], version: int) -> float:
    gc.collect()
    started_s = time.perf_counter()
    written = await yardstick.write(paths, DATA, version)
    taken_s = time.perf_counter() - started_s
    if written != len(paths):
        raise MeasureError(f"{yardstick.name}: {written} of {len(paths)} written")
    return taken_s


async def _conflicts(store: Store, paths: Sequence[str], version: int) -> int:
    """Outcomes of a batch that were no writes, though a single node was moved before."""
    moved = paths[len(paths) // 2]
    await store.set(moved, b"moved", version=version)
    outcomes = await store.write_batch([(Set(path, DATA, version),) for path in paths], fence=Check(FENCE, 0))
    refused = [path for path, outcome in zip(paths, outcomes, strict=True) if not isinstance(outcome, Written)]
    if refused[:1] != [moved]:
        raise MeasureError(f"{moved} was moved and {refused[:3]} were refused")
    return len(refused)


@asynccontextmanager
async def _store(run: Run) -> AsyncIterator[tuple[Address, int]]:
    """A server of the store and nothing else; where clients reach it, and its process id."""
    store = run.shape.coordination
    unstarted = LocalCluster(
        run.directory, brokers=0, elections=0, metadata=0, coordination=store, report=run.progress.detail
    )
    async with launched(unstarted, run.progress) as cluster:
        member = cluster.plan.store
        pids = [row.pid for row in cluster.status() if row.pid is not None]
        if member is None or not pids:
            raise MeasureError(f"no server of {store} was started")
        yield member.address("client"), pids[0]


@asynccontextmanager
async def _etcd(server: Address) -> AsyncIterator[tuple[Store, tuple[ByHand, ...]]]:
    # Without max_txn_ops: transactions of the size that every etcd takes, as the yardsticks send them.
    url = f"etcd://{server}{PREFIX}"
    store = await open_store(url, session_timeout_s=30.0, operation_timeout_s=TIMEOUT_S)
    try:
        async with aio_channel(str(server)) as channel:
            yield store, (FlatLoop(channel, PREFIX, FENCE), NestedLoop(channel, PREFIX, FENCE))
    finally:
        await store.close()


@asynccontextmanager
async def _zookeeper(server: Address) -> AsyncIterator[tuple[Store, tuple[ByHand, ...]]]:
    client = KazooClient(hosts=str(server), timeout=30.0)
    url = f"zookeeper://{server}{PREFIX}"
    store = await open_store(url, session_timeout_s=30.0, operation_timeout_s=TIMEOUT_S)
    try:
        await asyncio.to_thread(client.start)
        yield store, (MultiLoop(client, PREFIX, FENCE),)
    finally:
        await asyncio.to_thread(client.stop)
        await store.close()
