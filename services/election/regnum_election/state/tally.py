"""What a controller counts: leaders elected, and from where; changes of leadership, and what they took."""

from typing import Final

from regnum_model.ids import NO_LEADER
from regnum_model.nodes import LeaderAndIsr
from regnum_telemetry import conventions
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics

from regnum_election.traces.measured import USUAL, Measured

FIRST: Final = "first"
"""A partition's first leader."""
ISR: Final = "isr"
"""A member of the in-sync set: nothing can be lost."""
ELR: Final = "elr"
"""An eligible replica, which has everything too (KIP-966)."""
UNCLEAN: Final = "unclean"
"""Any other replica: acknowledged records may be lost."""
NOBODY: Final = "none"
"""Nobody may lead."""

COMPLETE: Final = ("true", "false")
"""Whether every new leader has acknowledged, as a label."""


class Tally:
    """Counts of all reigns of a process. On the controller's loop."""

    def __init__(self, metrics: Metrics) -> None:
        """Only assigns, and makes what is counted."""
        self._metrics: Final = metrics
        self._elections: Final = {
            kind: metrics.counter(instruments.ELECTIONS, kind) for kind in (FIRST, ISR, ELR, UNCLEAN, NOBODY)
        }
        self._failovers: Final = {
            conventions.FAILOVER: metrics.histogram(instruments.FAILOVER_DURATION, "broker"),
            conventions.SUCCESSION: metrics.histogram(instruments.FAILOVER_DURATION, "controller"),
        }
        # What is rare is seen to grow only where it was 0 before.
        for kind, stages in USUAL.items():
            metrics.counter(instruments.CHANGES, kind)
            metrics.counter(instruments.CLIENT_OUTAGES_UNHEARD, kind)
            metrics.histogram(instruments.CLIENT_OUTAGE, kind)
            for complete in COMPLETE:
                metrics.counter(instruments.CHANGES_ENDED, kind, complete)
            for stage in stages:
                metrics.histogram(instruments.CHANGE_STAGE, kind, stage)

    def led(self, before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
        """A state was written that begins a leader epoch, or ends one without a leader."""
        self._elections[source_of(before, after)].add()

    def recovered(self, partitions: int) -> None:
        """So many partitions that nobody could lead got a leader because a person accepts what is lost."""
        self._elections[UNCLEAN].add(partitions)

    def change_ended(self, name: str, seconds: float) -> None:
        """A change is over: every new leader, or broker, has acknowledged, or was waited for in vain.

        Args:
            name: conventions.FAILOVER or conventions.SUCCESSION, which are counted; others are not.
            seconds: since it was noticed.
        """
        failovers = self._failovers.get(name)
        if failovers is not None:
            failovers.record(seconds)

    def change_opened(self, kind: str) -> None:
        """A change of that kind is one for certain."""
        self._metrics.counter(instruments.CHANGES, kind).add()

    def change_measured(self, measured: Measured) -> None:
        """Nothing more of a change is waited for."""
        kind, trace_id, unix_s = measured.kind, measured.trace_id, measured.unix_s
        self._metrics.counter(instruments.CHANGES_ENDED, kind, COMPLETE[not measured.is_complete]).add()
        for stage, seconds in measured.stages_s:
            self._metrics.histogram(instruments.CHANGE_STAGE, kind, stage).record_traced(seconds, trace_id, unix_s)
        outages = self._metrics.histogram(instruments.CLIENT_OUTAGE, kind)
        for seconds in measured.outages_s:
            outages.record_traced(seconds, trace_id, unix_s)
        self._metrics.counter(instruments.CLIENT_OUTAGES_UNHEARD, kind).add(measured.unheard)


def source_of(before: LeaderAndIsr | None, after: LeaderAndIsr) -> str:
    """Where a leader comes from, as the state before has it."""
    if after.leader == NO_LEADER:
        return NOBODY
    if before is None:
        return FIRST
    if after.leader in before.isr:
        return ISR
    return ELR if after.leader in before.elr else UNCLEAN
