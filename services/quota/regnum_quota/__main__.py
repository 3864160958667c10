"""Composition root of the quota service."""

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

from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings


async def _main(settings: QuotaSettings, telemetry: Telemetry) -> int:
    supervisor, metrics = Supervisor("quota"), Metrics()
    clock = SystemClock()
    async with AsyncExitStack() as undo:
        undo.push_async_callback(supervisor.unwind)
        await serve_probes(settings, supervisor=supervisor)
        audit = open_audit_log(
            settings, f"quota-{settings.quota_id}", supervisor=supervisor, clock=clock, metrics=metrics
        )
        service = QuotaService(
            settings,
            supervisor=supervisor,
            clock=clock,
            metrics=metrics,
            audit=audit,
        )
        serve_metrics("regnum-quota", settings.quota_id, settings, metrics, supervisor=supervisor, telemetry=telemetry)
        await service.start()
        undo.pop_all()
    return await supervisor.run_until_stopped()


def main() -> int:
    """Run a quota process until it is told to stop."""
    settings = load(QuotaSettings)
    name = f"quota-{settings.quota_id}"
    configure(name, settings.log_level, settings.run_dir)
    telemetry = start_traces("regnum-quota", settings.quota_id, settings)
    return run(lambda: _main(settings, telemetry), name=name)


if __name__ == "__main__":
    sys.exit(main())
