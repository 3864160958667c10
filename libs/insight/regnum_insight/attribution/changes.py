"""From the spans of one trace to one change of leadership: its partitions' chains, the worst first. Pure.

A change depends on the spans of its own trace alone, in any order. Its steps are those of the chain of its worst
partition, which is a path; how the others did stands beside it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import MS, Chain, Trace, chain_of_order, chain_of_outage
from regnum_insight.attribution.clocks import Offset, offsets
from regnum_insight.spans.otlp import Selection
from regnum_insight.spans.span import Kind, Span

UNKNOWN_KIND: Final = "unknown"
"""Kind of a change whose root was never written, or whose controller's file is lost."""
UNTRACED: Final = "untraced"
"""Kind of a client's outage that no change names as its own."""
SUCCESSION: Final = "succession"
"""Kind of a change of the controller."""
ROOTS: Final = {names.FAILOVER: "failover", names.SUCCESSION: SUCCESSION, names.RECOVERY: "recovery"}
"""Roots, and the kinds of what they begin."""
CLOCK_NOTE_MS: Final = 5.0
"""A clock about which less is known than this is mentioned."""

_PARTS: Final = (
    "regnum.failover.", "regnum.succession.", names.BECOME_LEADER, names.FIRST_APPEND,
)  # fmt: skip
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_CALLS: Final = frozenset({names.LEADER_AND_ISR, names.PUBLISH_CHANGES})
_NAMES: Final = frozenset(
    {*ROOTS, *_CALLS, names.OUTAGE, names.BECOME_LEADER, names.FIRST_APPEND, names.STORE_WRITE, names.TRUNCATION}
)


@lru_cache(maxsize=1024)
def is_wanted(name: str) -> bool:
    """Whether a span of this name can say something of a change."""
    return name in _NAMES or name.startswith(_PARTS)


ATTRIBUTES: Final = frozenset({
    names.CAUSE, names.EVIDENCE, names.VICTIM_KIND, names.VICTIM, names.PARTITIONS, names.CONTROLLER_ID, names.COMPLETE,
    names.LAST_HEARD_UNIX_NANO, names.DETECTED_UNIX_NANO, names.FENCED_UNIX_NANO, names.DECIDED_UNIX_NANO,
    names.WRITTEN_UNIX_NANO, names.DISPATCHED_UNIX_NANO, names.WON_UNIX_NANO, names.LOADED_UNIX_NANO,
    names.VERIFIED_UNIX_NANO, names.BROKER, names.TOPIC, names.PARTITION, names.OFFSET, names.LEADER_EPOCH,
    names.ERROR_TYPE, names.LEARNED_UNIX_NANO, names.SENT_UNIX_NANO, names.WAITING_SINCE_UNIX_NANO, names.RETRIED,
    names.FAILOVER_TRACE_ID, names.RPC_STATUS,
})  # fmt: skip
"""Attributes that say something of a change."""

SELECTION: Final = Selection(is_wanted, ATTRIBUTES)
"""What is read for changes."""


class Spread(NamedTuple):
    """How one step did over all partitions of a change, in milliseconds."""

    n: int
    """Partitions."""
    min_ms: float
    """The fastest."""
    median_ms: float
    """Half of them were as fast."""
    max_ms: float
    """The slowest."""


class ClockNote(NamedTuple):
    """What is known of one process' clock in a change."""

    process: str
    """Whose clock it is: ``broker 2``."""
    ahead_ms: float
    """By how much it was found ahead of the controller's, and its times corrected."""
    bound_ms: float | None
    """By how much that may be wrong; None: nobody can say."""
    consistent: bool
    """Whether its calls agree with one another: they do not when a clock was set meanwhile."""


class Change(NamedTuple):
    """One change of leadership."""

    trace_id: str
    """Trace that all of it is in, as 32 hexadecimal digits."""
    kind: str
    """``failover``, ``succession``, ``recovery``, ``unknown`` or ``untraced``."""
    cause: str
    """What began it; empty where nobody recorded it."""
    evidence: str
    """What proved it."""
    victim: str
    """``broker 2``; empty where there is none, or none recorded."""
    controller: str
    """``3``: election id of the controller that did it; empty where nobody recorded it."""
    partitions: int
    """Partitions that needed a leader."""
    start_ns: int
    """Begin of the root; without one the first thing that anybody recorded."""
    complete: bool
    """Whether every new leader had acknowledged when the root ended."""
    chains: tuple[Chain, ...]
    """A chain for each partition whose client waited, the worst first."""
    worst: Chain
    """The chain of the worst partition; without a client that waited that of the slowest order."""
    clocks: tuple[ClockNote, ...]
    """Clocks that differ, or of which little is known."""
    before_ms: float
    """How much of the worst outage lies before the root's begin: nobody had noticed yet."""
    processes: tuple[str, ...] = ()
    """Who left spans."""
    links: tuple[str, ...] = ()
    """Trace ids of changes that the root is linked to."""

    @property
    def outage_ms(self) -> float | None:
        """The longest that a client waited; None where none did."""
        return self.chains[0].outage_ms if self.chains else None

    @property
    def total_ms(self) -> float:
        """Length of the worst chain."""
        return self.worst.outage_ms

    @property
    def steps_ms(self) -> dict[str, float]:
        """Steps of the worst chain, in order; they add up to ``total_ms``."""
        found: dict[str, float] = {}
        for segment in self.worst.segments:
            found[segment.step] = found.get(segment.step, 0.0) + segment.ms
        return found


def trace_of(span: Span) -> str:
    """The trace of the change that a span belongs to: a client that learned of it late names it from its own."""
    if span.name == names.OUTAGE:
        named = span.attributes.get(names.FAILOVER_TRACE_ID, "")
        if _TRACE_ID.fullmatch(named):
            return named
    return span.trace_id


def spread_of(chains: Sequence[Chain]) -> dict[str, Spread]:
    """How each step did over some chains, in the order of steps."""
    lengths: dict[str, list[float]] = defaultdict(list)
    for chain in chains:
        for segment in chain.segments:
            lengths[segment.step].append(segment.ms)
    return {
        step: Spread(n=len(of), min_ms=min(of), median_ms=median(of), max_ms=max(of))
        for step in (*steps.STEPS, steps.UNEXPLAINED)
        if (of := lengths.get(step))
    }


def change_of(spans: Sequence[Span]) -> Change | None:
    """The change that the spans of one trace tell of; None where they tell of none."""
    by_id = {span.span_id: span for span in spans}
    roots = [span for span in spans if span.name in ROOTS]
    root = min(roots, key=lambda span: (span.start_ns, span.span_id)) if roots else None
    parts = any(span.name.startswith(_PARTS) for span in spans)
    waits = [span for span in spans if span.name == names.OUTAGE]
    if root is None and not parts and not waits:
        return None
    kind = ROOTS[root.name] if root is not None else UNKNOWN_KIND if parts else UNTRACED
    trace = _trace(kind, root, spans, by_id)
    outages = [span for span in waits if _waited(span, root)]
    chains = [chain_of_outage(span, trace) for span in outages]
    chains.sort(key=lambda chain: (-chain.outage_ms, chain.topic, chain.partition, chain.leader_epoch, chain.client))
    if chains:
        worst = chains[0]
    elif root is not None or trace.leaderships:
        worst = _slowest_order(trace)
    else:
        return None
    about: Mapping[str, str] = {} if root is None else root.attributes
    victim = f"{about.get(names.VICTIM_KIND, '')} {about.get(names.VICTIM, '')}".strip()
    return Change(
        trace_id=spans[0].trace_id,
        kind=kind,
        cause=about.get(names.CAUSE, ""),
        evidence=about.get(names.EVIDENCE, ""),
        victim=victim,
        controller=about.get(names.CONTROLLER_ID, ""),
        partitions=(root.number(names.PARTITIONS) or 0) if root is not None else len(chains),
        start_ns=root.start_ns if root is not None else min(span.start_ns for span in spans),
        complete=about.get(names.COMPLETE) == "true",
        chains=tuple(chains),
        worst=worst,
        clocks=_clock_notes(trace.offsets),
        before_ms=sum(segment.ms for segment in worst.segments if segment.until in {steps.FAILED, steps.NOTICED}),
        processes=tuple(sorted({span.process for span in spans})),
        links=tuple(sorted({trace_id for trace_id, _ in root.links if trace_id != spans[0].trace_id})) if root else (),
    )


def changes_of(traces: Iterable[Sequence[Span]]) -> list[Change]:
    """All changes of some traces, the oldest first."""
    found = [change for spans in traces if (change := change_of(spans)) is not None]
    return sorted(found, key=lambda change: (change.start_ns, change.trace_id))


def _waited(outage: Span, root: Span | None) -> bool:
    """Whether a client waited in an outage: an idle one has a silence of its own, however long."""
    if outage.attributes.get(names.RETRIED) == "true":
        return True
    waiting = outage.number(names.WAITING_SINCE_UNIX_NANO)
    learned = outage.number(names.LEARNED_UNIX_NANO)
    if waiting is None or learned is None:
        return False
    # Its records came while the leadership moved: not before any of it, and not after the new leader was known.
    return waiting <= learned if root is None else root.start_ns - MS * 1000 <= outage.start_ns and waiting <= learned


def _trace(kind: str, root: Span | None, spans: Sequence[Span], by_id: Mapping[str, Span]) -> Trace:
    decisions, writes = [], []
    leaderships, appends = {}, {}
    fences = {span.span_id for span in spans if span.name == names.FENCE}
    for span in spans:
        if span.name == names.DECISION:
            decisions.append(span)
        elif span.name == names.STORE_WRITE and span.parent_id not in fences:
            writes.append(span)
        elif span.name == names.BECOME_LEADER:
            leaderships[span.parent_id] = span
        elif span.name == names.FIRST_APPEND:
            about = span.attributes
            key = (about.get(names.TOPIC, ""), about.get(names.PARTITION, ""), about.get(names.LEADER_EPOCH, ""))
            appends[key] = span
    return Trace(
        kind=kind,
        root=root,
        by_id=by_id,
        offsets=offsets(spans, by_id, _reference(root, spans)),
        decisions=decisions,
        writes=writes,
        leaderships=leaderships,
        appends=appends,
    )


def _reference(root: Span | None, spans: Sequence[Span]) -> str:
    """The controller's clock, or that of its callers of brokers, or that of whoever recorded anything first."""
    if root is not None:
        return root.process
    callers = sorted(span.process for span in spans if span.kind == Kind.CLIENT and span.name in _CALLS)
    return callers[0] if callers else min(spans, key=lambda span: (span.start_ns, span.span_id)).process


def _slowest_order(trace: Trace) -> Chain:
    chains = [chain_of_order(leadership, trace) for leadership in trace.leaderships.values()]
    if not chains:
        return chain_of_order(None, trace)
    return max(chains, key=lambda chain: (chain.outage_ms, chain.leader))


def _clock_notes(known: Mapping[str, Offset]) -> tuple[ClockNote, ...]:
    notes = []
    for process, offset in sorted(known.items()):
        bound_ms = None if offset.bound_ns is None else offset.bound_ns / MS
        if offset.correction_ns or bound_ms is None or bound_ms > CLOCK_NOTE_MS or not offset.consistent:
            notes.append(
                ClockNote(
                    process=process,
                    ahead_ms=offset.correction_ns / MS,
                    bound_ms=bound_ms,
                    consistent=offset.consistent,
                )
            )
    return tuple(notes)
