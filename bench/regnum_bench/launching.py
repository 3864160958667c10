"""Starts clusters, again where another program was quicker to take one of their ports.

Ports are chosen before processes bind them; on a machine on which many programs come and go one of them may be gone by
then. A cluster that could not start has left nothing running, and its next start replaces ports that are taken.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from regnum_local.cluster import LaunchError, LocalCluster

from regnum_bench.progress import Progress

LAUNCHES_MAX: Final = 3
"""Starts that are tried."""
START_S: Final = 120.0
"""Time in which all processes must serve."""


class Startable(Protocol):
    """What a launch needs of a cluster."""

    async def start(self, timeout_s: float) -> None:
        """Start everything; raises LaunchError with nothing left running."""


async def launch(cluster: Startable, progress: Progress) -> None:
    """Start it; raises LaunchError when the last attempt fails."""
    for attempt in range(1, LAUNCHES_MAX + 1):
        try:
            await cluster.start(START_S)
        except LaunchError as error:
            if attempt == LAUNCHES_MAX:
                raise
            progress.detail(f"started again, since it did not start: {error}")
        else:
            return


@asynccontextmanager
async def launched(cluster: LocalCluster, progress: Progress) -> AsyncIterator[LocalCluster]:
    """The cluster, started; stopped in order at the end. Raises LaunchError."""
    await launch(cluster, progress)
    try:
        yield cluster
    finally:
        await cluster.stop()
