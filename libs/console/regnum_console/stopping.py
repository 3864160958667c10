"""How a process of a command ends: by SIGINT or SIGTERM."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_HANDLED: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set when one of them comes, until the context ends. On the running event loop, of the main thread."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in _HANDLED:
        loop.add_signal_handler(signum, stop.set)
    try:
        yield stop
    finally:
        for signum in _HANDLED:
            loop.remove_signal_handler(signum)
