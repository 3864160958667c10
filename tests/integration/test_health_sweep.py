"""Each way in which nothing can be written, brought about on one cluster: what says so, and by when."""

import asyncio
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_client import Admin, Producer, ProducerSettings
from regnum_client.commands.status.asking import find
from regnum_client.commands.status.command import problems_in
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.plan import Role
from regnum_service.errors import RegnumError, reason_of
from regnum_testing.etcd_process import EtcdProcess
from regnum_testing.health_ways import OF_THE_CLUSTER, SAID_WITHIN_S, Way
from regnum_testing.instant_alerts import Sample, expressions, is_true, scrape
from regnum_testing.ports import unused_ports
from regnum_testing.small_filesystem import fill, small_filesystem
from regnum_testing.under_load import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

LOG = logging.getLogger("sweep")
MIB = 1024 * 1024
WELL_AGAIN_S = 90.0
WRITES_S = 3.0
SETTINGS = ProducerSettings(delivery_timeout_s=7.0, request_timeout_s=5.0)


class Store:
    """The store of the cluster: one etcd with little space."""

    def __init__(self, folder: Path) -> None:
        port, peer = unused_ports(2)
        self.process = EtcdProcess(
            [
                *("--data-dir", str(folder / "etcd"), "--log-level", "error", "--quota-backend-bytes", str(24 * MIB)),
                *("--listen-client-urls", f"http://127.0.0.1:{port}"),
                *("--advertise-client-urls", f"http://127.0.0.1:{port}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
            ],
            port=port,
            log=folder / "etcd.log",
        )

    async def control(self, *arguments: str, data: bytes | None = None) -> str:
        """Run etcdctl."""
        program = Path(sys.executable).with_name("etcdctl")
        ran = await asyncio.create_subprocess_exec(
            str(program),
            f"--endpoints=127.0.0.1:{self.process.port}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        out, _ = await ran.communicate(data)
        return out.decode() if ran.returncode == 0 else ""


class Stage:
    """The cluster, and hands that hurt it."""

    def __init__(self, cluster: LocalCluster, store: Store, disks: dict[int, Path]) -> None:
        self.cluster = cluster
        self.store = store
        self.disks = disks
        self.since_ms = 0
        """Events before that are of another way."""

    def named(self, role: Role) -> list[str]:
        return [row.name for row in self.cluster.status() if row.role is role]

    async def status(self) -> tuple[str, ...]:
        found = await find(self.cluster.data_dir, None, timeout_s=1.5, partitions_max=20)
        return problems_in(found)

    def samples(self) -> list[Sample]:
        running = [one for one in self.cluster.status() if one.state is ProcessState.RUNNING]
        return [sample for one in running if "metrics" in one.addresses for sample in scrape(one.addresses["metrics"])]

    async def events(self) -> list[str]:
        async with Admin(self.cluster.bootstrap, timeout_s=3.0) as admin:
            events = await admin.last_events(limit=30)
        return [f"{one.kind.value}: {one.detail}" for one in events if one.time_unix_ms >= self.since_ms]

    async def write(self, topic: str, partition: int) -> str:
        """Write for WRITES_S, until one fails; returns what was heard, empty: all went well."""
        began_s = time.monotonic()
        try:
            async with Producer(self.cluster.bootstrap, settings=SETTINGS) as producer:
                while time.monotonic() - began_s < WRITES_S:
                    await (await producer.send(topic, bytes(30_000), partition=partition))
        except RegnumError as error:
            return f"{reason_of(error.code)}: {error.message}"
        return ""

    # Hands.

    @asynccontextmanager
    async def full(self, *brokers: int) -> AsyncIterator[None]:
        ballast = [fill(self.disks[id]) for id in brokers]
        try:
            yield
        finally:
            for one in ballast:
                one.unlink()

    @asynccontextmanager
    async def gone(self, *names: str, how: int = signal.SIGKILL) -> AsyncIterator[None]:
        paused = how == signal.SIGSTOP
        for name in names:
            if paused:
                self.cluster.pause(name)
            else:
                await self.cluster.kill(name)
        try:
            yield
        finally:
            for name in names:
                if paused:
                    self.cluster.resume(name)
                else:
                    await self.cluster.restart(name)

    @asynccontextmanager
    async def in_place_of_a_checkpoint(self, make: Callable[[Path], None], *brokers: int) -> AsyncIterator[None]:
        """Something that no checkpoint can be written to, once its file is gone: the broker ends, at once or later."""
        places = [self.disks[id] / "high-watermarks.new" for id in brokers]
        for place in places:
            make(place)
            place.with_suffix("").unlink()
        writing = asyncio.create_task(self.write("t", 1))
        try:
            yield
        finally:
            await asyncio.gather(writing, return_exceptions=True)
            for id in brokers:
                await until(lambda id=id: self._ended(f"broker-{id}"), within_s=60.0)  # type: ignore[misc]
            for place in places:
                place.rmdir() if place.is_dir() else place.unlink()
            for id in brokers:
                await self.cluster.restart(f"broker-{id}")

    async def _ended(self, name: str) -> bool:
        (row,) = [one for one in self.cluster.status() if one.name == name]
        return row.state is ProcessState.EXITED

    @asynccontextmanager
    async def without_space(self) -> AsyncIterator[None]:
        number = 0
        while "NOSPACE" not in await self.store.control("alarm", "list"):
            await self.store.control("put", f"/junk/{number}", data=b"x" * MIB)
            number += 1
        try:
            yield
        finally:
            await self.store.control("del", "/junk/", "--prefix")
            answer = await self.store.control("endpoint", "status", "-w", "json")
            revision = json.loads(answer)[0]["Status"]["header"]["revision"]
            await self.store.control("compact", str(revision))
            await self.store.control("defrag")
            await self.store.control("alarm", "disarm")

    @asynccontextmanager
    async def user_refused(self) -> AsyncIterator[None]:
        await self.store.control("user", "add", "root:root")
        await self.store.control("user", "grant-role", "root", "root")
        await self.store.control("auth", "enable")
        try:
            yield
        finally:
            await self.store.control("--user", "root:root", "auth", "disable")

    @asynccontextmanager
    async def slow_store(self) -> AsyncIterator[None]:
        async def slow() -> None:
            while True:
                self.store.process.pause()
                # An answer comes with its resuming, and the next write that it is tried by 2 s later: it waits 1.7 s.
                await asyncio.sleep(1.8)
                self.store.process.resume()
                await asyncio.sleep(0.1)

        slowing = asyncio.create_task(slow())
        try:
            yield
        finally:
            slowing.cancel()
            await asyncio.gather(slowing, return_exceptions=True)
            self.store.process.resume()

    @asynccontextmanager
    async def store_away(self) -> AsyncIterator[None]:
        self.store.process.pause()
        try:
            yield
        finally:
            self.store.process.resume()

    @asynccontextmanager
    async def damaged_node(self) -> AsyncIterator[None]:
        path = "/brokers/topics/t"
        right = await self.store.control("get", path, "--print-value-only")
        await self.store.control("put", path, "{")
        try:
            yield
        finally:
            await self.store.control("put", path, right.strip())


def hand(stage: Stage, name: str) -> AbstractAsyncContextManager[None]:
    """What brings a way about, and takes it back."""
    elections, metadata = stage.named(Role.ELECTION), stage.named(Role.METADATA)
    hands: dict[str, Callable[[], AbstractAsyncContextManager[None]]] = {
        "full-leader": lambda: stage.full(1),
        "full-followers": lambda: stage.full(2, 3),
        "full-everywhere": lambda: stage.full(1, 2, 3),
        "hanging-disk": lambda: stage.in_place_of_a_checkpoint(os.mkfifo, 1),
        "failed-disks": lambda: stage.in_place_of_a_checkpoint(Path.mkdir, 2, 3),
        "under-min-isr": lambda: stage.gone("broker-2", "broker-3"),
        "no-leader": lambda: stage.gone("broker-3"),
        "paused-leader": lambda: stage.gone("broker-3", how=signal.SIGSTOP),
        "store-without-space": stage.without_space,
        "store-refuses-its-user": stage.user_refused,
        "slow-store": stage.slow_store,
        "store-away": stage.store_away,
        "no-controller": lambda: stage.gone(*elections),
        "paused-controllers": lambda: stage.gone(*elections, how=signal.SIGSTOP),
        "no-metadata-process": lambda: stage.gone(*metadata),
        "damaged-topic-node": stage.damaged_node,
    }
    return hands[name]()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Three brokers on small disks, two election processes, an etcd with little space."""
    folder = tmp_path_factory.mktemp("sweep")
    place = folder / "cluster"
    place.mkdir()
    store = Store(folder)
    store.process.launch()
    await asyncio.to_thread(store.process.wait_until_ready)
    mounted = []
    disks = {}
    for id in (1, 2, 3):
        (folder / f"disk-{id}").mkdir()
        mounted.append(small_filesystem(folder / f"disk-{id}", size_bytes=64 * MIB))
        disks[id] = mounted[-1].__enter__()
        (place / f"broker-{id}").symlink_to(disks[id])
    try:
        coordination = f"etcd://127.0.0.1:{store.process.port}"
        async with LocalCluster(place, brokers=3, elections=2, metadata=1, coordination=coordination) as cluster:
            async with Admin(cluster.bootstrap) as admin:
                small = {"retention.bytes": "1000000", "segment.bytes": "1048576"}
                await admin.create_topic("t", partitions=0, assignment={0: [1, 2, 3], 1: [2, 3, 1]}, configs=small)
                await admin.create_topic("single", partitions=0, assignment={0: [3]}, configs=small)
            yield Stage(cluster, store, disks)
    finally:
        for one in reversed(mounted):
            one.__exit__(None, None, None)
        store.process.resume()
        store.process.kill()


def said(wanted: str, lines: Sequence[str]) -> bool:
    """Whether one of the alternatives is in one of the lines."""
    return any(piece in line for piece in wanted.split("|") for line in lines)


async def first(holds: Callable[[], Awaitable[bool]], began_s: float) -> float | None:
    """Seconds from then until it holds; None: not in time."""
    while time.monotonic() - began_s < SAID_WITHIN_S + 5.0:
        if await holds():
            return time.monotonic() - began_s
        await asyncio.sleep(0.25)
    return None


@pytest.mark.parametrize("way", OF_THE_CLUSTER, ids=lambda way: way.name)
async def test_a_way_is_said_by_status_events_metrics_and_the_error_of_the_client(stage: Stage, way: Way) -> None:
    async def is_well() -> bool:
        return not await stage.status() and not await stage.write(way.topic, way.partition)

    await until(is_well, within_s=WELL_AGAIN_S)
    stage.since_ms = int(time.time() * 1000)
    async with hand(stage, way.name):
        began_s = time.monotonic()
        status: tuple[str, ...] = ()
        events: list[str] = []

        async def status_says() -> bool:
            nonlocal status
            status = await stage.status()
            return said(way.status, status)

        async def event_says() -> bool:
            nonlocal events
            events = await stage.events()
            return said(way.event, events)

        async def alert_is_true() -> bool:
            return is_true(expressions()[way.alert], await asyncio.to_thread(stage.samples))

        async def always() -> bool:
            return True

        # What stops the store stops changes; what is led goes on.
        of_the_store = way.client and way.name.startswith("store-")
        writing = asyncio.create_task(created(stage) if of_the_store else stage.write(way.topic, way.partition))
        took = dict(
            zip(
                ("status", "event", "alert"),
                await asyncio.gather(
                    first(status_says, began_s),
                    first(event_says if way.event else always, began_s),
                    first(alert_is_true if way.alert else always, began_s),
                ),
                strict=True,
            )
        )
        heard = await writing
        LOG.info("%s: seconds %s; status: %s; events: %s; heard: %s", way.name, took, status, events, heard)
        assert all(value is not None and value <= SAID_WITHIN_S for value in took.values()), (took, status, events)
        assert re.search(re.escape(way.client), heard) if way.client else not heard, heard


async def created(stage: Stage) -> str:
    """What a caller hears that creates a topic, however long it takes."""
    try:
        async with Admin(stage.cluster.bootstrap, timeout_s=20.0) as admin:
            await admin.create_topic("during", partitions=1, replication_factor=1)
    except RegnumError as error:
        return f"{reason_of(error.code)}: {error.message}"
    return ""
