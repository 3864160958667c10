"""Log lines: JSON on stderr, or coloured text when stderr is a terminal.

An event is a short constant name and facts by keyword: ``logger.info("broker fenced", broker_id=3)``. What ends a
thread is a line as well.
"""

import logging
import sys
import threading
from pathlib import Path
from typing import Final, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from regnum_service.log_stream import unfailing
from regnum_service.native_stderr import take_over

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[dict[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(service: str, level: Level = "info", run_dir: Path | None = None) -> None:
    """Set logging up for the process; lines of other libraries come out the same way, from warning on.

    Sets ``threading.excepthook``: an error that a thread ends with is told here. What libraries in C write on stderr
    is read where it is asked for (``native_stderr``); ``run_dir``: the folder of the process for that. ``sys.stderr``
    becomes a stream that fails nobody (``log_stream``), a process about to end least of all.
    """
    take_over(service, run_dir)
    sys.stderr = unfailing(sys.stderr)

    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    shared: list[Processor] = [
        add_service,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers: list[Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if sys.stderr.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))
    threading.excepthook = _thread_ended


def _thread_ended(told: threading.ExceptHookArgs) -> None:
    # A thread that exits by itself has not failed; the hook of the standard library says nothing either.
    if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
        name = "" if told.thread is None else told.thread.name
        structlog.get_logger("threads").error("a thread ended with an error", thread=name, exc_info=told.exc_value)
