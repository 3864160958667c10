"""A store that takes the rights of its user away while a cluster runs, and gives them back: nothing ends meanwhile."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from regnum_client import Admin, Producer
from regnum_client.admin.describing.events import EventKind
from regnum_client.commands.status.asking import find
from regnum_client.commands.status.command import problems_in
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_service.errors import RegnumError
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.under_load import until
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]


class Rights(ABC):
    """A store, and a person who is at work on its users."""

    words = ""
    """Of its refusals."""

    @abstractmethod
    def start(self) -> str:
        """Start the store; returns its URL."""

    @abstractmethod
    def take(self, *paths: str) -> None:
        """Take the cluster's rights away: of everything, or of some nodes."""

    @abstractmethod
    def give(self) -> None:
        """Give them back."""

    @abstractmethod
    def stop(self) -> None:
        """End the store."""


class EtcdRights(Rights):
    """Users are asked for, or not."""

    words = "etcd asks for a user"

    def __init__(self, folder: Path) -> None:
        self._server = EtcdServer(folder)

    def start(self) -> str:
        self._server.start()
        self._server.control("user", "add", "root:root")
        self._server.control("user", "grant-role", "root", "root")
        return f"etcd://127.0.0.1:{self._server.port}"

    def take(self, *paths: str) -> None:
        assert not paths, "etcd's rights are a user's and not a node's"
        self._server.control("auth", "enable")

    def give(self) -> None:
        self._server.control("--user", "root:root", "auth", "disable")

    def stop(self) -> None:
        self._server.kill()


class ZooKeeperRights(Rights):
    """Access lists of every node."""

    words = "NoAuth"

    def __init__(self, folder: Path) -> None:
        self._server = ZooKeeperServer(folder)

    def start(self) -> str:
        self._server.start()
        return f"zookeeper://127.0.0.1:{self._server.port}"

    def take(self, *paths: str) -> None:
        closed = [make_digest_acl("admin", "admin", all=True)]
        self._as_admin(lambda admin: self._set(admin, closed, paths or self._all(admin, "/")))

    def give(self) -> None:
        self._as_admin(lambda admin: self._set(admin, OPEN_ACL_UNSAFE, self._all(admin, "/")))

    def stop(self) -> None:
        self._server.kill()

    def _as_admin(self, work: Callable[[Any], None]) -> None:
        admin = KazooClient(hosts=f"127.0.0.1:{self._server.port}", auth_data=[("digest", "admin:admin")])
        admin.start()
        try:
            work(admin)
        finally:
            admin.stop()
            admin.close()

    def _all(self, admin: Any, path: str) -> list[str]:
        found = [path]
        for name in admin.get_children(path):
            if (below := f"{path.rstrip('/')}/{name}") != "/zookeeper":
                found += self._all(admin, below)
        return found

    def _set(self, admin: Any, access: Any, paths: "list[str] | tuple[str, ...]") -> None:
        for path in paths:
            try:
                admin.set_acls(path, access)
            except NoNodeError:
                continue


STORES: dict[str, Callable[[Path], Rights]] = {"etcd": EtcdRights, "zookeeper": ZooKeeperRights}


class Stage:
    """A cluster, and the store that it is on."""

    def __init__(self, cluster: LocalCluster, rights: Rights) -> None:
        self.cluster = cluster
        self.rights = rights

    async def problems(self) -> tuple[str, ...]:
        return problems_in(await find(self.cluster.data_dir, None, timeout_s=3.0, partitions_max=20))

    async def all_run(self) -> bool:
        return all(one.state is ProcessState.RUNNING for one in self.cluster.status() if one.name != "broker-1")

    async def leader(self, topic: str) -> int | None:
        async with Admin(self.cluster.bootstrap) as admin:
            return (await admin.describe_topic(topic)).partitions[0].leader

    async def create(self, topic: str, brokers: Sequence[int] = (2, 3)) -> str:
        """Why it cannot be created; empty: it was."""
        try:
            async with Admin(self.cluster.bootstrap, timeout_s=10.0) as admin:
                await admin.create_topic(topic, partitions=0, assignment={0: [*brokers]})
        except RegnumError as error:
            return error.message
        return ""

    async def well(self) -> bool:
        return not await self.problems()


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=STORES)
async def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Three brokers, two election processes, on each store."""
    folder = tmp_path_factory.mktemp("rights")
    rights = STORES[request.param](folder)
    url = await asyncio.to_thread(rights.start)
    try:
        async with LocalCluster(folder / "cluster", brokers=3, elections=2, metadata=1, coordination=url) as cluster:
            async with Admin(cluster.bootstrap) as admin:
                for topic in ("t", "u"):
                    await admin.create_topic(topic, partitions=0, assignment={0: [1, 2, 3]})
            yield Stage(cluster, rights)
    finally:
        await asyncio.to_thread(rights.stop)


async def test_a_cluster_outlives_the_loss_of_its_rights(stage: Stage) -> None:
    await until(stage.well, within_s=180.0)
    # One that has its id: a new one may have to wait for it.
    async with Producer(stage.cluster.bootstrap) as producer:
        await _lose_and_get_back(stage, producer)


async def _lose_and_get_back(stage: Stage, producer: Producer) -> None:
    async def write() -> None:
        await (await producer.send("t", b"x", partition=0))

    await write()
    await asyncio.to_thread(stage.rights.take)
    try:

        async def told() -> bool:
            return any(stage.rights.words in one for one in await stage.problems())

        await until(told)
        assert stage.rights.words in await stage.create("during")
        await write()
        await stage.cluster.kill("broker-1")
        # Longer than two sessions: whatever asks the store for something has asked by then.
        until_s = time.monotonic() + 15.0
        while time.monotonic() < until_s:
            assert await stage.all_run()
            await asyncio.sleep(0.5)
        assert await told()
    finally:
        await asyncio.to_thread(stage.rights.give)

    async def leads_on(*topics: str) -> bool:
        return all([await stage.leader(topic) not in {None, -1, 1} for topic in topics])

    await until(lambda: leads_on("t", "u"), within_s=30.0)
    await until(_free(stage, "after"), within_s=30.0)
    await write()
    await stage.cluster.restart("broker-1")
    await until(stage.well, within_s=180.0)
    async with Admin(stage.cluster.bootstrap) as admin:
        kinds = [one.kind for one in await admin.last_events(limit=100)]
    assert {EventKind.STORE_WRITES_REFUSED, EventKind.STORE_WRITES_TAKEN} <= set(kinds)


async def test_a_closed_node_holds_up_no_other(stage: Stage) -> None:
    if isinstance(stage.rights, EtcdRights):
        pytest.skip("etcd's rights are a user's and not a node's")
    await until(stage.well, within_s=180.0)
    leader = await stage.leader("t")
    await asyncio.to_thread(stage.rights.take, "/brokers/topics/t/0/leaderAndISR")
    try:
        await stage.cluster.kill(f"broker-{leader}")
        await until(lambda: _another(stage, "u", leader), within_s=30.0)

        async def told() -> bool:
            return any("refuses the controller a part of the tree" in one for one in await stage.problems())

        await until(told)
        assert await stage.create("beside", [id for id in (1, 2, 3) if id != leader]) == ""
    finally:
        await asyncio.to_thread(stage.rights.give)
    await until(lambda: _another(stage, "t", leader), within_s=30.0)
    await stage.cluster.restart(f"broker-{leader}")
    await until(stage.well, within_s=180.0)


def _free(stage: Stage, topic: str) -> Callable[[], Awaitable[bool]]:
    async def created() -> bool:
        return await stage.create(topic) == ""

    return created


async def _another(stage: Stage, topic: str, leader: int | None) -> bool:
    return await stage.leader(topic) not in {None, -1, leader}
