"""Ways in which nothing can be written or read that need a cluster of their own: what says so, and by when."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client.cluster.security.channels import CA, CERTIFICATE, KEY
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_testing.health_hands import CLIENTS, Hands, Store
from regnum_testing.health_stage import Stage, assert_said
from regnum_testing.health_ways import GOES_ON, OF_THE_CLUSTER

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(240)]

WAYS = {way.name: way for way in (*OF_THE_CLUSTER, *GOES_ON)}
CONNECTIONS = CLIENTS - 5


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path)
    await store.start()
    yield store
    store.process.kill()


async def test_a_store_that_was_put_back_is_said(tmp_path: Path, store: Store) -> None:
    coordination = f"etcd://127.0.0.1:{store.process.port}"
    async with LocalCluster(
        tmp_path / "data", brokers=3, elections=2, metadata=1, coordination=coordination
    ) as cluster:
        stage, way = Stage(cluster), WAYS["store-went-back"]
        await stage.create(way.topic)
        await assert_said(stage, way, Hands(stage, store).of(way))
        await cluster.kill_all()


@pytest.mark.parametrize("name", ["crowded", "expired-certificate"])
async def test_what_turns_clients_away_is_said(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One broker with TLS, which keeps few connections."""
    limits = {Role.BROKER: ("--client-max-connections", str(CONNECTIONS))}
    coordination = f"etcd://127.0.0.1:{store.process.port}"
    async with LocalCluster(
        tmp_path / "data", brokers=1, elections=1, metadata=1, coordination=coordination, tls=True, extra=limits
    ) as cluster:
        assert cluster.tls is not None
        for variable, path in zip((CA, CERTIFICATE, KEY), cluster.tls.paths, strict=True):
            monkeypatch.setenv(variable, str(path))
        stage = Stage(cluster)
        await stage.create("alone")
        await assert_said(stage, WAYS[name], Hands(stage, store).of(WAYS[name]))
