"""Traces of an SDK process: set up when its environment asks for them, and OpenTelemetry imported only then."""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from regnum_telemetry import tracing

TRACES_DIR: Final = "REGNUM_TRACES_DIR"
"""Variable that names a folder for OTLP/JSON lines."""

ASKS: Final = (TRACES_DIR, "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables one of which must be set."""


def start_traces(service: str, environ: Mapping[str, str]) -> None:
    """Set the tracer of this process up, unless it has one or nobody asks; takes a tenth of a second then."""
    if tracing.tracer().recording or not any(environ.get(name) for name in ASKS):
        return
    # OpenTelemetry takes its time to import: only whoever asked for traces waits for it.
    from regnum_telemetry import setup  # noqa: PLC0415

    folder = environ.get(TRACES_DIR)
    try:
        setup.start(service, str(os.getpid()), traces_dir=Path(folder) if folder else None, environ=environ)
    except setup.UnknownVariableError as error:
        # An application does not end for the sake of its spans.
        logging.getLogger("regnum_client").warning("no spans are recorded: %s", error)


async def ensure_traces(client_id: str) -> None:
    """``start_traces`` with the environment of this process, off the event loop."""
    if not tracing.tracer().recording and any(os.environ.get(name) for name in ASKS):
        await asyncio.to_thread(start_traces, client_id, os.environ)
