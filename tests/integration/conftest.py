"""A real cluster for each module: etcd, three election processes, three brokers."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum_local.cluster import LocalCluster


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster below a temporary folder, shared by the tests of a module; stopped afterwards, whatever happened."""
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    started = LocalCluster(data_dir, brokers=3, elections=3, report=lambda _text: None)
    await started.start()
    try:
        yield started
    finally:
        await started.stop()
