"""Ways in which nothing can be written or read, brought about on one cluster: what says so, and by when."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_local.cluster import LocalCluster
from regnum_testing.far_away import FarAway
from regnum_testing.health_hands import MIB, Hands, Store
from regnum_testing.health_stage import Odd, Stage, assert_said
from regnum_testing.health_ways import GOES_ON, OF_THE_CLUSTER, Way
from regnum_testing.small_filesystem import small_filesystem

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

APART = {"store-went-back", "expired-certificate", "crowded"}
"""Of other clusters: see test_health_sweep_apart.py."""
WAYS = [way for way in (*OF_THE_CLUSTER, *GOES_ON) if way.name not in APART]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hands(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Stage, Hands]]:
    """Three brokers on small disks, two election processes, an etcd with little space that may be far away."""
    folder = tmp_path_factory.mktemp("sweep")
    place = folder / "cluster"
    place.mkdir()
    store = Store(folder)
    async with AsyncExitStack() as stack:
        stack.callback(store.process.kill)
        await store.start()
        disks: dict[int, Path] = {}
        for id in (1, 2, 3):
            (folder / f"disk-{id}").mkdir()
            disks[id] = stack.enter_context(small_filesystem(folder / f"disk-{id}", size_bytes=64 * MIB))
            (place / f"broker-{id}").symlink_to(disks[id])
        far = await stack.enter_async_context(FarAway(upstream_port=store.process.port, delay_s=0.0))
        odd = Odd()
        cluster = LocalCluster(
            place,
            brokers=3,
            elections=2,
            metadata=1,
            quotas=1,
            coordination=f"etcd://127.0.0.1:{far.port}",
            make_command=odd.command,
        )
        await stack.enter_async_context(cluster)
        stage = Stage(cluster, disks=disks, far=far, odd=odd)
        for name in ("t", "single"):
            await stage.create(name)
        yield stage, Hands(stage, store)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
async def test_a_way_is_said_by_status_events_metrics_and_the_error_of_the_client(
    hands: tuple[Stage, Hands], way: Way
) -> None:
    stage, made = hands
    await assert_said(stage, way, made.of(way))
