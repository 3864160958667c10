"""A cluster one of whose ports is taken between its choice and its start."""

import pytest
from regnum_bench.launching import LAUNCHES_MAX, launch
from regnum_bench.progress import Progress
from regnum_local.cluster import LaunchError
from regnum_testing.clock import FakeClock
from rich.console import Console


class _Cluster:
    """Fails to start for some times."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.starts = 0

    async def start(self, timeout_s: float) -> None:
        assert timeout_s > 0
        self.starts += 1
        if self.starts <= self._failures:
            raise LaunchError("cannot listen on 127.0.0.1:21808: another process has the port")


def _progress() -> Progress:
    return Progress(Console(quiet=True), FakeClock())


async def test_a_cluster_whose_port_was_taken_is_started_again() -> None:
    cluster = _Cluster(LAUNCHES_MAX - 1)
    await launch(cluster, _progress())
    assert cluster.starts == LAUNCHES_MAX


async def test_a_cluster_that_never_starts_fails_the_benchmark() -> None:
    cluster = _Cluster(LAUNCHES_MAX)
    with pytest.raises(LaunchError, match="another process has the port"):
        await launch(cluster, _progress())
    assert cluster.starts == LAUNCHES_MAX
