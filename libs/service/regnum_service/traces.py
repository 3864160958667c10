"""The spans of a service process: where they go."""

import sys

from regnum_telemetry import setup

from regnum_service.errors import ExitStatus
from regnum_service.settings import ServiceSettings


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
