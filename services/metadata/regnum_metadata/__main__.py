"""Composition root of the metadata service."""

import sys
from contextlib import AsyncExitStack

from regnum_service.access.auditing.opening import open_audit_log
from regnum_service.clock import SystemClock
from regnum_service.logs import configure
from regnum_service.metrics import serve_metrics
from regnum_service.probes import serve_probes
from regnum_service.process import run
from regnum_service.settings import load
from regnum_service.supervisor import Supervisor
from regnum_service.traces import start_traces
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.setup import Telemetry

from regnum_metadata.service import MetadataService
from regnum_metadata.settings import MetadataSettings


async def _main(settings: MetadataSettings, telemetry: Telemetry) -> int:
    supervisor, metrics = Supervisor("metadata"), Metrics()
    clock = SystemClock()
    async with AsyncExitStack() as undo:
        undo.push_async_callback(supervisor.unwind)
        await serve_probes(settings, supervisor=supervisor)
        audit = open_audit_log(
            settings, f"metadata-{settings.metadata_id}", supervisor=supervisor, clock=clock, metrics=metrics
        )
        service = MetadataService(
            settings,
            supervisor=supervisor,
            clock=clock,
            metrics=metrics,
            audit=audit,
        )
        serve_metrics(
            "regnum-metadata", settings.metadata_id, settings, metrics, supervisor=supervisor, telemetry=telemetry
        )
        await service.start()
        undo.pop_all()
    return await supervisor.run_until_stopped()


def main() -> int:
    """Run a metadata process until it is told to stop."""
    settings = load(MetadataSettings)
    name = f"metadata-{settings.metadata_id}"
    configure(name, settings.log_level, settings.run_dir)
    telemetry = start_traces("regnum-metadata", settings.metadata_id, settings)
    return run(lambda: _main(settings, telemetry), name=name)


if __name__ == "__main__":
    sys.exit(main())
