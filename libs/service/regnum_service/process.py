"""The outermost frame of a service process."""

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from regnum_service.collector import short_collections
from regnum_service.errors import ExitStatus, StartRefusedError


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a service to its end and return its exit status. SIGUSR1 writes all stacks to stderr."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        with short_collections():
            return asyncio.run(main())
    except StartRefusedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        # Before the supervisor took the signal over.
        return ExitStatus.FAILED
