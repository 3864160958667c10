"""A real cluster for each module: etcd, three election processes, three brokers.

With REGNUM_TEST_TLS=1 every connection of it uses TLS, and the SDK is told so by its environment.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum_client.cluster.security.channels import CA, CERTIFICATE, KEY
from regnum_local.cluster import LocalCluster
from regnum_local.plan import STORES, Role

SESSION_S = 20
"""Outlasts a process that gets no processor for some seconds. Who is killed is found by its broken connections."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster below a temporary folder, shared by the tests of a module; stopped afterwards, whatever happened."""
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    tls = os.environ.get("REGNUM_TEST_TLS") == "1"
    extra = {role: ("--session-timeout-s", str(SESSION_S)) for role in Role if role not in STORES}
    started = LocalCluster(data_dir, brokers=3, elections=3, report=lambda _text: None, tls=tls, extra=extra)
    await started.start()
    with pytest.MonkeyPatch.context() as environment:
        files = started.tls
        if files is not None:
            for variable, path in zip((CA, CERTIFICATE, KEY), files.paths, strict=True):
                environment.setenv(variable, str(path))
        try:
            yield started
        finally:
            await started.stop()
