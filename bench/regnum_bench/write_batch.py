"""10,000 conditional writes by ``write_batch`` beside the same writes by hand, on a real store.

Each round sets every node at the version it is at, once by each contender, in turns. The nodes look like the state of
partitions: three levels deep, 150 bytes. Both check the fence in every transaction. A last batch, not timed, has one
node that somebody else has moved: exactly one outcome may differ.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import grpc
from kazoo.client import KazooClient
from regnum_coordination import open_store
from regnum_coordination.port import Check, Create, Group, Outcome, Set, Store, Written
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.zookeeper_server import ZooKeeperServer

from regnum_bench.by_hand_etcd import FlatLoop, NestedLoop
from regnum_bench.by_hand_zookeeper import MultiLoop
from regnum_bench.rounds import Comparison, Series

LIMIT: Final = 1.3
"""How many times the plain loop ours may take."""
DATA: Final = b"." * 150
FENCE: Final = "/controller_epoch"
PREFIX: Final = "/bench"
PARTITIONS: Final = 100
"""Of one topic."""
TIMEOUT_S: Final = 30.0
"""Of one operation, also on a busy machine: a repeat would be measured as work."""
STORES: Final = ("etcd", "zookeeper")


class ByHand(Protocol):
    """A yardstick."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    async def write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        """Set every node at a version; the number of writes that happened."""


async def compare(directory: Path, *, store: str, writes: int, rounds: int) -> Comparison:
    """Measure on a store of the given kind, whose server lives as long as the call."""
    opened = _etcd(directory) if store == "etcd" else _zookeeper(directory)
    async with opened as (session, yardsticks):
        paths = await _fill(session, writes)
        version = 0
        taken: dict[str, list[float]] = {name: [] for name in ("write_batch", *(one.name for one in yardsticks))}
        for warm in (True, *[False] * rounds):
            figures = [("write_batch", await _ours(session, paths, version))]
            for number, yardstick in enumerate(yardsticks, start=1):
                figures.append((yardstick.name, await _by_hand(yardstick, paths, version + number)))
            version += len(figures)
            for name, seconds in () if warm else figures:
                taken[name].append(seconds)
        conflicts = await _conflicts(session, paths, version)
    series = [Series(contender=name, seconds=tuple(seconds)) for name, seconds in taken.items()]
    return Comparison(
        store=store, writes=writes, ours=series[0], yardsticks=tuple(series[1:]), limit=LIMIT, conflicts=conflicts
    )


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
        raise AssertionError(f"{what}: not everything was written: {dict(others)}")


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
        raise AssertionError(f"{yardstick.name}: {written} of {len(paths)} written")
    return taken_s


async def _conflicts(store: Store, paths: Sequence[str], version: int) -> int:
    """Outcomes of a batch that were no writes, though a single node was moved before."""
    moved = paths[len(paths) // 2]
    await store.set(moved, b"moved", version=version)
    outcomes = await store.write_batch([(Set(path, DATA, version),) for path in paths], fence=Check(FENCE, 0))
    refused = [path for path, outcome in zip(paths, outcomes, strict=True) if not isinstance(outcome, Written)]
    if refused[:1] != [moved]:
        raise AssertionError(f"{moved} was moved and {refused[:3]} were refused")
    return len(refused)


@asynccontextmanager
async def _etcd(directory: Path) -> AsyncIterator[tuple[Store, tuple[ByHand, ...]]]:
    server = EtcdServer(directory)
    await asyncio.to_thread(server.start)
    try:
        address = f"127.0.0.1:{server.port}"
        store = await open_store(f"etcd://{address}{PREFIX}", session_timeout_s=30.0, operation_timeout_s=TIMEOUT_S)
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                yield store, (FlatLoop(channel, PREFIX, FENCE), NestedLoop(channel, PREFIX, FENCE))
        finally:
            await store.close()
    finally:
        server.kill()


@asynccontextmanager
async def _zookeeper(directory: Path) -> AsyncIterator[tuple[Store, tuple[ByHand, ...]]]:
    server = ZooKeeperServer(directory)
    await asyncio.to_thread(server.start)
    client = KazooClient(hosts=server.endpoint, timeout=30.0)
    try:
        store = await open_store(
            f"zookeeper://{server.endpoint}{PREFIX}", session_timeout_s=30.0, operation_timeout_s=TIMEOUT_S
        )
        try:
            await asyncio.to_thread(client.start)
            yield store, (MultiLoop(client, PREFIX, FENCE),)
        finally:
            await asyncio.to_thread(client.stop)
            await store.close()
    finally:
        server.kill()
