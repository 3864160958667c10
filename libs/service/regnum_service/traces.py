"""The spans of a service process: where they go."""

from regnum_telemetry import setup

from regnum_service.settings import ServiceSettings


def start_traces(service: str, instance: int, told: ServiceSettings) -> setup.Telemetry:
    """Set the tracer of this process up; call it once, before the event loop runs. Ends with the process by itself.

    Args:
        service: ``regnum-broker`` and the like.
        instance: id of the process within its service.
        told: the settings.
    """
    return setup.start(service, str(instance), traces_dir=told.traces_dir, traces_max_bytes=told.traces_max_bytes)
