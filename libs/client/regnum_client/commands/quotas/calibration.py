"""What a calibration tries, when it stops, and what it proposes. Pure.

Goals: find the rate of created and deleted partitions that this cluster bears while its controller stays quick; never
push it further than one step beyond that.

Algorithm: rates that grow by half from step to step. A step is borne when 99 of 100 events wait in the controller's
queue no longer than the limit, and at least four fifths of what was offered was done. The first that is not ends it.
Proposed is seven tenths of the largest rate that was done in a step that was borne, so that somebody else has room;
and as burst eleven seconds of that, Kafka's windows, but no more than was done in that step altogether: that much was
seen to be borne.

Example: borne up to 60 a second, of which 58 were done, in steps of 5 s; 90 was not. Proposed: 40 a second, burst 290.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GROWTH: Final = 1.5
"""From one step's rate to the next."""
DONE_SHARE: Final = 0.8
"""Of what was offered; below, the cluster is behind."""
HEADROOM: Final = 0.7
"""Of the largest rate that was borne."""
BURST_S: Final = 11.0
"""Kafka's windows."""
WIDTH: Final = 40
"""Characters of the longest bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate, and what came of it."""

    offered_rate: float
    """Partitions a second that were to be created and deleted."""
    done_rate: float
    """Partitions a second that were."""
    seconds: float
    """How long it took."""
    wait_p99_ms: float
    """Within this 99 of 100 events were taken from the controller's queue; inf: longer than its histogram knows."""

    def is_borne(self, wait_max_ms: float) -> bool:
        """Whether the cluster kept up, and its controller stayed quick."""
        return self.wait_p99_ms <= wait_max_ms and self.done_rate >= DONE_SHARE * self.offered_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A quota for all clients together."""

    rate: float
    """Partitions a second."""
    burst: float
    """Partitions at once."""


def next_rate(steps: Sequence[Step], *, first: float, most: float, wait_max_ms: float) -> float | None:
    """The rate to try next; None: that was all."""
    if not steps:
        return first
    last = steps[-1]
    following = last.offered_rate * GROWTH
    return following if last.is_borne(wait_max_ms) and following <= most else None


def propose(steps: Sequence[Step], wait_max_ms: float) -> Proposal | None:
    """A quota that this cluster bears; None: not even the first step was borne."""
    borne = [step for step in steps if step.is_borne(wait_max_ms)]
    if not borne:
        return None
    best = max(borne, key=lambda step: step.done_rate)
    rate = _two_digits(best.done_rate * HEADROOM)
    return Proposal(rate=rate, burst=max(rate, _two_digits(min(rate * BURST_S, best.done_rate * best.seconds))))


def _two_digits(value: float) -> float:
    """Rounded down: more digits would say more than was measured."""
    if value <= 0.0:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.6g}")


def plot(steps: Sequence[Step], wait_max_ms: float) -> tuple[str, ...]:
    """Queue time against rate, a bar for each step."""
    finite = [step.wait_p99_ms for step in steps if math.isfinite(step.wait_p99_ms)]
    longest_ms = max((*finite, wait_max_ms))
    lines = ["partitions a second    99 of 100 events wait in the controller's queue at most"]
    for step in steps:
        share = min(1.0, step.wait_p99_ms / longest_ms)
        bar = "█" * max(1, round(share * WIDTH))
        wait = f"{step.wait_p99_ms:g} ms" if math.isfinite(step.wait_p99_ms) else "more than can be told"
        mark = "" if step.is_borne(wait_max_ms) else "  too much"
        lines.append(f"{step.done_rate:8.1f} of {step.offered_rate:8.1f}  {bar} {wait}{mark}")
    return tuple(lines)
