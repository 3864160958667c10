"""What every process of ours shows of itself. Pure."""

from typing import Final

from regnum_telemetry import conventions
from regnum_telemetry.instruments.definition import Definitions

DEFINED: Final = Definitions()
"""In the order of this file."""

LOOP_LAG: Final = DEFINED.histogram(
    "regnum.loop.lag",
    "s",
    "How late an event loop runs, measured 20 to 50 times a second; more than 50 ms is a defect (safety rule S22)",
    labels=("loop",),
    bounds=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)

STORE_CALLS: Final = DEFINED.histogram(
    "regnum.store.call.duration",
    "s",
    "Calls of the coordination store; outcome is ok or the name of the error",
    labels=("operation", "outcome"),
)

SPANS_DROPPED: Final = DEFINED.counter(
    conventions.SPANS_DROPPED,
    "{spans}",
    "Spans that found the queue full, or whose export failed",
)
