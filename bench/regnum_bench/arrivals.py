"""What arrives at the target of a reassignment, how fast, and whether that is what was promised. Pure.

A throttle is a token bucket that is full at first: the bytes of BURST_S of its rate may go at once
(``regnum_broker.replication.throttle``), and what is overdrawn is paid for by waiting. So a move that takes ten seconds
is a tenth faster than its rate from the first to the last byte, one that takes an hour is not, and neither says whether
the rate is held. What is judged is what came beyond the burst, to what the rate allows in that time. How much came
within one second is a figure as well: a target that fetches from several leaders at once may overdraw its bucket.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_bench.figures import Round, quantile, spreads

THROTTLE_OFF_MAX: Final = 0.1
"""By which share of the throttle the rate of what arrives may differ from it."""
PEAK_S: Final = 1.0
"""The time within which most of it came is looked for in windows of this length, seconds."""
P99_RATIO_MAX: Final = 1.5
"""How many times as long as before the slowest hundredth of acknowledgements may take while partitions are moved."""
OTHERS_MAX: Final = 0.1
"""Share of all processors' time that other programs may have where a limit is judged."""
BENCH_LATE_S_MAX: Final = 0.05
"""By how much the loop of the bench itself may be late in quiet time: above it, latencies are those of the bench."""


class NothingArrivedError(ValueError):
    """There is no rate: nothing arrived, or all of it between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How much of what is moved the target had at a moment."""

    at_s: float
    """Monotonic, seconds."""
    arrived_bytes: int
    """On its disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """From the first to the last byte."""

    moved_bytes: int
    """All that arrived."""
    taken_s: float
    """From the last look that saw nothing to the first that saw everything, in seconds."""
    peak_bytes: int
    """Most that was seen to arrive within PEAK_S."""

    @property
    def bytes_per_s(self) -> float:
        """Of all."""
        return self.moved_bytes / self.taken_s

    def of_throttle(self, bytes_per_s: float, burst_bytes: float) -> float:
        """What came beyond the burst, to what a throttle allows in the time; 0 where all was burst."""
        return max(0.0, self.moved_bytes - burst_bytes) / (self.taken_s * bytes_per_s)


def arrival(looks: Sequence[Look]) -> Arrival:
    """Of looks in the order of time, the first of which is before the first byte. Raises NothingArrivedError."""
    total = max((look.arrived_bytes for look in looks), default=0)
    last = next((look for look in looks if look.arrived_bytes == total), None)
    before = [look for look in looks if not look.arrived_bytes]
    if last is None or not total or not before:
        raise NothingArrivedError(f"{len(looks)} looks saw {total:,} bytes arrive")
    return Arrival(moved_bytes=total, taken_s=last.at_s - before[-1].at_s, peak_bytes=_peak_bytes(looks))


def _peak_bytes(looks: Sequence[Look]) -> int:
    peak, first = 0, 0
    for look in looks:
        while look.at_s - looks[first].at_s > PEAK_S:
            first += 1
        peak = max(peak, look.arrived_bytes - looks[first].arrived_bytes)
    return peak


def by_seconds(looks: Sequence[Look]) -> list[float]:
    """Megabytes that had arrived after 0, 1, 2 ... seconds, and in the end; of looks in the order of time."""
    found: list[float] = []
    for look in looks:
        # A look that was late stands for all the seconds that went by.
        while look.at_s - looks[0].at_s >= len(found):
            found.append(round(look.arrived_bytes / 1e6, 2))
    return [*found, round(looks[-1].arrived_bytes / 1e6, 2)] if looks else found


def medians_by_seconds(timed_s: Sequence[tuple[float, float]], began_s: float) -> list[float | None]:
    """Milliseconds that half of the acknowledgements took, of records that were due in second 0, 1, 2 ...; None: none.

    Args:
        timed_s: when each record was due, and how long its acknowledgement took.
        began_s: second 0 begins here; no record was due before.
    """
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for due_s, taken_s in timed_s:
        seconds[int(due_s - began_s)].append(taken_s)
    return [
        round(1000 * quantile(seconds[number], 0.5), 1) if number in seconds else None
        for number in range(max(seconds, default=-1) + 1)
    ]


def move_figures(found: Arrival, *, throttle_bytes_s: float, burst_s: float) -> Round:
    """Figures of what arrived; 0 for no throttle. ``burst_s``: seconds of it that may go at once."""
    figures = {
        "moved_bytes": float(found.moved_bytes),
        "arrival_s": found.taken_s,
        "moved_mb_s": found.bytes_per_s / 1e6,
    }
    if throttle_bytes_s:
        figures["moved_of_throttle_ratio"] = found.bytes_per_s / throttle_bytes_s
        figures["peak_of_throttle_ratio"] = found.peak_bytes / (PEAK_S * throttle_bytes_s)
        figures["throttle_ratio"] = found.of_throttle(throttle_bytes_s, burst_s * throttle_bytes_s)
    return figures


def latency_figures(before_s: Sequence[float], during_s: Sequence[float]) -> Round:
    """Of acknowledgements in seconds, before and while partitions are moved. Raises ValueError without any."""
    figures = {
        f"{when}_{name}_ms": 1000 * quantile(values, share)
        for when, values in (("before", before_s), ("during", during_s))
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
    return {**figures, "p99_ratio": figures["during_p99_ms"] / figures["before_p99_ms"]}


def ratio_of_medians(rounds: Sequence[Round]) -> float:
    """The slowest hundredth of acknowledgements while partitions are moved, to that before; medians of all pairs."""
    found = spreads(rounds)
    return found["during_p99_ms"].median / found["before_p99_ms"].median


def judged(rounds: Sequence[Round], *, throttled: bool, others_ratio: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is wrong with what was measured, and what makes it void.

    Args:
        rounds: figures of each pair.
        throttled: whether there was a throttle; nothing is promised without one.
        others_ratio: share of all processors' time that other programs had.
    """
    void: list[str] = []
    late_s = max(one["bench_late_s"] for one in rounds)
    if late_s > BENCH_LATE_S_MAX:
        void.append(f"this process was late by {late_s * 1000:.0f} ms while nothing was moved")
    broken = _broken(rounds) if throttled else []
    if broken and others_ratio > OTHERS_MAX:
        void += [f"{one}, but other programs had {others_ratio:.0%} of the processors" for one in broken]
    return (() if void else tuple(broken)), tuple(void)


def _broken(rounds: Sequence[Round]) -> list[str]:
    found: list[str] = []
    ratios = [one["throttle_ratio"] for one in rounds]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1.0))
    if abs(worst - 1.0) > THROTTLE_OFF_MAX:
        found.append(f"partitions moved at {worst:.2f} times the throttle, and {THROTTLE_OFF_MAX:.0%} off is allowed")
    ratio = ratio_of_medians(rounds)
    if ratio > P99_RATIO_MAX:
        found.append(f"p99 of acknowledgements was {ratio:.2f} times that of before, and {P99_RATIO_MAX} is allowed")
    return found


def arrived_bytes(sizes: Mapping[int, int], wanted: Mapping[int, int]) -> int:
    """Of what was to be moved, what is there; records that came later are left out, for they are not throttled.

    Args:
        sizes: partition -> bytes at the target.
        wanted: partition -> bytes at the source when the move was asked for.
    """
    return sum(min(sizes.get(number, 0), size) for number, size in wanted.items())
