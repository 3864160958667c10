"""The spans of a service process: where they go, and which cluster they are of."""

import sys
from typing import Final

from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_model import paths
from regnum_telemetry import setup, tracing

from regnum_service.clock import Clock
from regnum_service.errors import ExitStatus
from regnum_service.settings import ServiceSettings

CLUSTER_ID_INTERVAL_S: Final = 1.0
"""Pause before a cluster's id is looked for again: the first controller makes it."""


def start_traces(service: str, instance: int, told: ServiceSettings) -> setup.Telemetry:
    """Set the tracer of this process up; call it once, before the event loop runs. Ends with the process by itself.

    A variable that says nothing known ends the process with status 2, as other settings do.

    Args:
        service: ``regnum-broker`` and the like.
        instance: id of the process within its service.
        told: the settings.
    """
    try:
        return setup.start(service, str(instance), traces_dir=told.traces_dir, traces_max_bytes=told.traces_max_bytes)
    except setup.UnknownVariableError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(ExitStatus.WRONG_USE)


async def name_cluster(store: Store, clock: Clock) -> None:
    """Have spans say which cluster they are of, once the store knows: for processes that need its id for nothing else.

    Returns also when the session is over: the next one goes on.
    """
    while True:
        try:
            node = await store.get(paths.CLUSTER_ID)
        except (NoNode, ConnectionLoss):
            await clock.sleep(CLUSTER_ID_INTERVAL_S)
        except SessionExpired:
            return
        else:
            tracing.in_cluster(node.data.decode("utf-8", errors="replace"))
            return
