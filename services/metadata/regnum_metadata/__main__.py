"""Composition root of the metadata service."""

import random
import sys
from contextlib import AsyncExitStack

from regnum_service.clock import SystemClock
from regnum_service.logs import configure
from regnum_service.process import run
from regnum_service.settings import load
from regnum_service.supervisor import Supervisor
from regnum_service.traces import start_traces

from regnum_metadata.service import MetadataService
from regnum_metadata.settings import MetadataSettings


async def main(settings: MetadataSettings) -> int:
    """Run until told to stop."""
    supervisor = Supervisor("metadata")
    service = MetadataService(settings, supervisor=supervisor, clock=SystemClock(), chance=random.SystemRandom())
    async with AsyncExitStack() as undo:
        undo.push_async_callback(supervisor.unwind)
        await service.start()
        undo.pop_all()
    return await supervisor.run_until_stopped()


if __name__ == "__main__":
    chosen = load(MetadataSettings)
    configure("metadata", chosen.log_level)
    start_traces("regnum-metadata", chosen.metadata_id, chosen)
    sys.exit(run(lambda: main(chosen)))
