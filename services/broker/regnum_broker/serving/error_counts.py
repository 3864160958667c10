"""Errors in answers, counted by their code: a counter for each code that occurred, of a table that the wire fixes."""

from typing import Final

from regnum_service.errors import Code, reason_of
from regnum_telemetry.instruments.definition import Instrument
from regnum_telemetry.metrics import Counter, Metrics


class ErrorCounts:
    """Of one kind of request. Belongs to the event loop."""

    def __init__(self, metrics: Metrics, instrument: Instrument) -> None:
        """Only assigns; ``instrument`` has one label, the error."""
        self._metrics: Final = metrics
        self._instrument: Final = instrument
        self._known: Final[dict[Code, Counter]] = {}

    def add(self, code: Code) -> None:
        """A partition of a request was answered with this error."""
        counter = self._known.get(code)
        if counter is None:
            counter = self._known[code] = self._metrics.counter(self._instrument, reason_of(code))
        counter.add()
