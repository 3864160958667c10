"""What brings each way about in which nothing can be written or read, and takes it back: for the health sweep."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from grpc import aio
from regnum_client import Admin
from regnum_coordination import open_store
from regnum_local.certificates import renew
from regnum_local.cluster import ProcessState
from regnum_local.local_tls import CERTIFICATES
from regnum_local.plan import Role
from regnum_model import paths
from regnum_model.ids import BrokerId, Registration
from regnum_model.nodes import BrokerNode
from regnum_model.protocols import ProtocolRange, ReleaseInfo
from regnum_service.channel import aio_channel
from regnum_service.tls.files import WatchedFiles

from regnum_testing.etcd_process import EtcdProcess, etcd_binary
from regnum_testing.health_stage import Stage
from regnum_testing.health_ways import Way
from regnum_testing.ports import unused_ports
from regnum_testing.small_filesystem import fill
from regnum_testing.under_load import until

MIB: Final = 1024 * 1024
SLOW_S: Final = 0.6
"""Each way to a slow store: a write takes twice that."""
OLD: Final = ReleaseInfo(release="0.0.9", protocols=ProtocolRange(low=1, high=1))
"""A release that does not speak the protocol in force, and does not look whether it does."""
CLIENTS: Final = 20
"""Connections that are in use where there are too many."""
MAGIC_AT: Final = 16
"""Place of the version of its format in a batch."""
WATCH: Final = "/regnum.metadata.v1.MetadataService/WatchMetadata"
"""A call that goes on for as long as its client wants. (Calls of health are no use of a connection.)"""

Hand = AbstractAsyncContextManager[None]


class Store:
    """The store of the cluster: one etcd with little space, whose files a person may copy."""

    def __init__(self, folder: Path) -> None:
        """Only assigns."""
        port, peer = unused_ports(2)
        self._folder: Final = folder / "etcd"
        self.process: Final = EtcdProcess(
            [
                *("--data-dir", str(self._folder), "--log-level", "error", "--quota-backend-bytes", str(24 * MIB)),
                *("--listen-client-urls", f"http://127.0.0.1:{port}"),
                *("--advertise-client-urls", f"http://127.0.0.1:{port}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
            ],
            port=port,
            log=folder / "etcd.log",
        )

    async def start(self) -> None:
        """Start it and return when it serves."""
        self.process.launch()
        await asyncio.to_thread(self.process.wait_until_ready)

    async def copy(self, to: Path) -> None:
        """What a snapshot of its volume is."""
        self.process.kill()
        shutil.copytree(self._folder, to)
        await self.start()

    async def put_back(self, copy: Path) -> None:
        """What a restored snapshot is, for processes that run on."""
        self.process.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(copy, self._folder)
        await self.start()

    async def control(self, *arguments: str, data: bytes | None = None) -> str:
        """Run etcdctl."""
        ran = await asyncio.create_subprocess_exec(
            str(etcd_binary().with_name("etcdctl")),
            f"--endpoints=127.0.0.1:{self.process.port}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        out, _ = await ran.communicate(data)
        return out.decode() if ran.returncode == 0 else ""


class Hands:
    """Of one stage and its store."""

    def __init__(self, stage: Stage, store: Store) -> None:
        """Only assigns."""
        self._stage: Final = stage
        self._cluster: Final = stage.cluster
        self._store: Final = store

    def of(self, way: Way) -> Hand:
        """What brings a way about, and takes it back."""
        elections, metadata = self._stage.named(Role.ELECTION), self._stage.named(Role.METADATA)
        brokers = self._stage.named(Role.BROKER)
        hands: dict[str, Callable[[], Hand]] = {
            "full-leader": lambda: self._full(1),
            "full-followers": lambda: self._full(2, 3),
            "full-everywhere": lambda: self._full(1, 2, 3),
            "hanging-disk": lambda: self._in_place_of_a_checkpoint(os.mkfifo, 1),
            "failed-disks": lambda: self._in_place_of_a_checkpoint(Path.mkdir, 2, 3),
            "emptied-disk": lambda: self._disk_changed(_emptied),
            "damaged-log": lambda: self._disk_changed(_damaged),
            "under-min-isr": lambda: self._gone("broker-2", "broker-3"),
            "no-leader": lambda: self._gone("broker-3"),
            "paused-leader": lambda: self._gone("broker-3", how=signal.SIGSTOP),
            "no-brokers": lambda: self._gone(*brokers),
            "old-release": lambda: self._registered_as(lambda three, _one: replace(three, build=OLD)),
            "shared-address": lambda: self._registered_as(lambda three, one: replace(three, listeners=one.listeners)),
            "store-without-space": self._without_space,
            "store-refuses-its-user": self._refused_user,
            "store-went-back": self._went_back,
            "slow-store": self._slow_store,
            "store-away": self._store_away,
            "no-controller": lambda: self._gone(*elections),
            "paused-controllers": lambda: self._gone(*elections, how=signal.SIGSTOP),
            "no-metadata-process": lambda: self._gone(*metadata),
            "no-quota-process": lambda: self._gone("quota-1"),
            "damaged-topic-node": self._damaged_node,
            "wrong-clock": self._wrong_clock,
            "expired-certificate": self._expired,
            "crowded": self._crowded,
        }
        return hands[way.name]()

    @asynccontextmanager
    async def _full(self, *brokers: int) -> AsyncIterator[None]:
        ballast = [fill(self._stage.disks[id]) for id in brokers]
        try:
            yield
        finally:
            for one in ballast:
                one.unlink()

    @asynccontextmanager
    async def _gone(self, *names: str, how: int = signal.SIGKILL) -> AsyncIterator[None]:
        paused = how == signal.SIGSTOP
        for name in names:
            if paused:
                self._cluster.pause(name)
            else:
                await self._cluster.kill(name)
        try:
            yield
        finally:
            for name in names:
                if paused:
                    self._cluster.resume(name)
                else:
                    await self._cluster.restart(name)

    @asynccontextmanager
    async def _in_place_of_a_checkpoint(self, make: Callable[[Path], None], *brokers: int) -> AsyncIterator[None]:
        """Something that no checkpoint can be written to, once its file is gone: the broker ends, at once or later."""
        places = [self._stage.disks[id] / "high-watermarks.new" for id in brokers]
        for place in places:
            make(place)
            place.with_suffix("").unlink()
        writing = asyncio.create_task(self._stage.ask(Way(name="writes", what="", partition=1)))
        try:
            yield
        finally:
            await asyncio.gather(writing, return_exceptions=True)
            for id in brokers:
                await until(lambda id=id: self._ended(f"broker-{id}"), within_s=60.0)  # type: ignore[misc]
            for place in places:
                place.rmdir() if place.is_dir() else place.unlink()
            for id in brokers:
                await self._cluster.restart(f"broker-{id}")

    async def _ended(self, name: str) -> bool:
        (row,) = [one for one in self._cluster.status() if one.name == name]
        return row.state is ProcessState.EXITED

    @asynccontextmanager
    async def _disk_changed(self, change: Callable[[Path, str], None]) -> AsyncIterator[None]:
        """What happens to the disk with the only copy of a topic while its broker does not run."""
        async with Admin(self._cluster.bootstrap) as admin:
            id = (await admin.describe_topic("single")).topic_id
        await self._cluster.kill("broker-3")
        change(self._stage.disks[3], id)
        await self._cluster.restart("broker-3")
        # From then on it can say something.
        await self._cluster.wait_healthy("broker-3")
        try:
            yield
        finally:
            await self._stage.create_anew("single")

    @asynccontextmanager
    async def _registered_as(self, odd: Callable[[BrokerNode, BrokerNode], BrokerNode]) -> AsyncIterator[None]:
        """Broker 3 stops, and registers as a release does that does not look whether it may.

        Args:
            odd: makes its registration from that of before, and from broker 1's.
        """
        session = await open_store(self._cluster.coordination)
        try:
            three, one = [
                BrokerNode.decode((await session.get(paths.broker_id(BrokerId(id)), current=True)).data)
                for id in (3, 1)
            ]
            await self._cluster.kill("broker-3")
            gone = paths.broker_id(BrokerId(3))

            async def is_gone() -> bool:
                return await session.exists(gone) is None

            await until(is_gone)
            guard = await session.get(paths.broker_epoch(BrokerId(3)), current=True)
            node = replace(odd(three, one), incarnation="by hand", registration=Registration(guard.stat.version))
            await session.create(gone, node.encode(), ephemeral=True)
            yield
        finally:
            await session.close()
            await self._cluster.restart("broker-3")

    @asynccontextmanager
    async def _without_space(self) -> AsyncIterator[None]:
        number = 0
        while "NOSPACE" not in await self._store.control("alarm", "list"):
            await self._store.control("put", f"/junk/{number}", data=b"x" * MIB)
            number += 1
        try:
            yield
        finally:
            await self._store.control("del", "/junk/", "--prefix")
            answer = await self._store.control("endpoint", "status", "-w", "json")
            revision = json.loads(answer)[0]["Status"]["header"]["revision"]
            await self._store.control("compact", str(revision))
            await self._store.control("defrag")
            await self._store.control("alarm", "disarm")

    @asynccontextmanager
    async def _refused_user(self) -> AsyncIterator[None]:
        await self._store.control("user", "add", "root:root")
        await self._store.control("user", "grant-role", "root", "root")
        await self._store.control("auth", "enable")
        try:
            yield
        finally:
            await self._store.control("--user", "root:root", "auth", "disable")

    @asynccontextmanager
    async def _went_back(self) -> AsyncIterator[None]:
        """A copy of the store, a life of a broker that it does not know, and the copy again. Nothing takes it back."""
        copy = self._cluster.data_dir.parent / "copy-of-the-store"
        await self._store.copy(copy)
        await self._cluster.kill("broker-3")
        await self._cluster.restart("broker-3")
        way = Way(name="well", what="", topic="single")
        await until(lambda: self._stage.is_well(way), within_s=60.0)
        await self._store.put_back(copy)
        await self._cluster.kill("broker-3")
        await self._cluster.restart("broker-3")
        # From then on it can say something.
        await self._cluster.wait_healthy("broker-3")
        yield

    @asynccontextmanager
    async def _slow_store(self) -> AsyncIterator[None]:
        far = self._stage.far
        assert far is not None, "the stage has a way to its store"
        far.delay_s = SLOW_S
        try:
            yield
        finally:
            far.delay_s = 0.0

    @asynccontextmanager
    async def _store_away(self) -> AsyncIterator[None]:
        self._store.process.pause()
        try:
            yield
        finally:
            self._store.process.resume()

    @asynccontextmanager
    async def _damaged_node(self) -> AsyncIterator[None]:
        path = paths.topic("t")
        right = await self._store.control("get", path, "--print-value-only")
        await self._store.control("put", path, "{")
        try:
            yield
        finally:
            await self._store.control("put", path, right.strip())

    @asynccontextmanager
    async def _wrong_clock(self) -> AsyncIterator[None]:
        self._stage.odd.ahead.add("broker-2")
        await self._cluster.restart("broker-2")
        await self._cluster.wait_healthy("broker-2")
        try:
            yield
        finally:
            self._stage.odd.ahead.clear()
            await self._cluster.restart("broker-2")

    @asynccontextmanager
    async def _expired(self) -> AsyncIterator[None]:
        folder = self._cluster.data_dir / CERTIFICATES
        renew(folder, "broker-1", days=0)
        try:
            yield
        finally:
            renew(folder, "broker-1")

    @asynccontextmanager
    async def _crowded(self) -> AsyncIterator[None]:
        """Clients whose connections are all in use, and that come again when they are cut off."""
        tls, address = self._cluster.tls, self._stage.address("broker-1", "client")
        assert tls is not None, "the stage uses TLS"
        credentials = WatchedFiles(tls).pem.channel_credentials()

        async def come_again() -> None:
            # Else all channels of a process to one place are one connection.
            options = (("grpc.use_local_subchannel_pool", 1),)
            async with aio_channel(address, credentials=credentials, options=options) as channel:
                while True:
                    with suppress(aio.AioRpcError):
                        watching: Any = channel.stream_stream(WATCH)()
                        await watching.write(b"")
                        while await watching.read() is not aio.EOF:
                            pass

        clients = [asyncio.create_task(come_again(), name=f"client {number}") for number in range(CLIENTS)]
        try:
            yield
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


def _emptied(disk: Path, _topic_id: str) -> None:
    """Another disk in its place."""
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _damaged(disk: Path, topic_id: str) -> None:
    """A bit has changed in the head of a batch: a start in the same boot of the machine reads heads alone."""
    folder = disk / "replicas" / f"{topic_id}-0"
    segments: Sequence[Path] = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
    content = bytearray(segments[-1].read_bytes())
    content[MAGIC_AT] ^= 1
    segments[-1].write_bytes(content)


OWN_LIMIT: Final = """
import asyncio, os, resource, sys
from contextlib import suppress
from grpc import aio
from regnum_client import Producer, ProducerSettings
from regnum_service.errors import RegnumError, reason_of

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    # gRPC ends the process where it finds no files to begin with.
    async with aio.insecure_channel("127.0.0.1:9") as channel:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await channel.channel_ready()
        producer = Producer(sys.argv[1].split(","), settings=ProducerSettings(delivery_timeout_s=7.0))
        with suppress(OSError):
            while True:
                os.dup(0)
        try:
            async with producer:
                await (await producer.send("t", b"x"))
        except RegnumError as error:
            print(f"{reason_of(error.code)}: {error.message}")

asyncio.run(main())
"""
"""A client that has all the files open that it may, and writes."""


async def heard_at_its_own_limit(bootstrap: Sequence[str]) -> str:
    """What such a client hears."""
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWN_LIMIT, ",".join(bootstrap)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await ran.communicate()
    return out.decode()
