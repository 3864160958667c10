"""Composition root of the quota service."""

import random
import sys
from contextlib import AsyncExitStack

from regnum_service.clock import SystemClock
from regnum_service.logs import configure
from regnum_service.process import run
from regnum_service.settings import load
from regnum_service.supervisor import Supervisor
from regnum_service.traces import start_traces

from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings


async def main(settings: QuotaSettings) -> int:
    """Run until told to stop."""
    supervisor = Supervisor("quota")
    service = QuotaService(settings, supervisor=supervisor, clock=SystemClock(), chance=random.SystemRandom())
    async with AsyncExitStack() as undo:
        undo.push_async_callback(supervisor.unwind)
        await service.start()
        undo.pop_all()
    return await supervisor.run_until_stopped()


if __name__ == "__main__":
    chosen = load(QuotaSettings)
    configure("quota", chosen.log_level)
    start_traces("regnum-quota", chosen.quota_id, chosen)
    sys.exit(run(lambda: main(chosen)))
