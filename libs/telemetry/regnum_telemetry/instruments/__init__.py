"""Every metric that a process of ours has: one module for each service, one funnel for their names. Pure.

Names are OpenTelemetry's (dots, no unit); what Prometheus makes of them is ``Instrument.prometheus``. A process of a
service shows the instruments that name it in ``services``; ``docs/metrics.md`` is made from them, and a test compares.
Code takes the module of its service, ``from regnum_telemetry.instruments import broker as instruments``, and so cannot
record what another service shows.

Labels are of bounded size: kinds of things that the code knows; ids of brokers, of which only those that have something
to show are shown, and at most ``regnum_telemetry.metrics.SERIES_MAX``; names of topics that have a place, and users and
client ids of the buckets of quotas that were used last, as many of each as a setting says. Partitions are labels of log
ends and committed offsets alone, of which a query makes the lag, again as many as a setting says: whoever wants to know
*which* partition is in trouble asks `regnum status`. Every series says besides which cluster it is of
(``regnum_telemetry.exposition``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from regnum_telemetry.instruments import broker, election, groups, metadata, process, quota, topics
from regnum_telemetry.instruments.definition import ALL_SERVICES, Instrument, Kind

__all__ = ["ALL_SERVICES", "BY_MODULE", "INSTRUMENTS", "Instrument", "Kind"]

BY_MODULE: Final[Mapping[str, tuple[Instrument, ...]]] = MappingProxyType(
    {
        module.__name__.rpartition(".")[2]: tuple(module.DEFINED)
        for module in (process, election, metadata, quota, broker, topics, groups)
    }
)
"""What each module defines, in its order."""

INSTRUMENTS: Final[tuple[Instrument, ...]] = tuple(one for defined in BY_MODULE.values() for one in defined)
"""All of them."""
