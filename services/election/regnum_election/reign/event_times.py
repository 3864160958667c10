"""How long the controller is busy with what it takes from its queue, by kind of event."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from regnum_service.clock import Clock
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Histogram, Metrics

from regnum_election.reign.events import Event


class EventTimes:
    """On the controller's loop."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._metrics: Final = metrics
        self._kinds: Final[dict[type[Event], Histogram]] = {}

    @contextmanager
    def of(self, event: Event) -> Iterator[None]:
        """Time the handling of an event; one that ends the reign counts too."""
        began_s = self._clock.monotonic()
        try:
            yield
        finally:
            kind = type(event)
            if kind not in self._kinds:
                self._kinds[kind] = self._metrics.histogram(instruments.EVENT_DURATION, kind.__name__)
            self._kinds[kind].record(self._clock.monotonic() - began_s)
