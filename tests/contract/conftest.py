"""The same cases over every driver: ``world`` is a store of each kind, empty."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from regnum_coordination.port import Store
from regnum_testing.coordination_worlds import EtcdWorld, MemoryWorld, World
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.zookeeper_server import ZooKeeperServer
from regnum_testing.zookeeper_world import ZooKeeperWorld

_PREFIXES = itertools.count(1)


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture(params=["memory", "etcd", "zookeeper"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    elif request.param == "zookeeper":
        made = ZooKeeperWorld(request.getfixturevalue("zookeeper_server"), f"/world{next(_PREFIXES)}")
    else:
        made = EtcdWorld(request.getfixturevalue("etcd_server"), f"/world{next(_PREFIXES)}")
    yield made
    await made.close()


@pytest_asyncio.fixture
async def store(world: World) -> Store:
    return await world.open()
