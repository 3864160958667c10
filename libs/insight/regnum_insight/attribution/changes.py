"""From the spans of one trace to one change of leadership: its partitions' chains, the worst first. Pure.

A change depends on the spans of its own trace alone, in any order. Its steps are those of the chain of its worst
partition, which is a path; how the others did stands beside it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import (
    MS,
    Chain,
    Trace,
    batch_of,
    chain_of_append,
    chain_of_order,
    chain_of_outage,
    leader_stayed,
)
from regnum_insight.attribution.clocks import UNKNOWN, Offset, offsets
from regnum_insight.spans.otlp import Selection
from regnum_insight.spans.span import Kind, Span

UNKNOWN_KIND: Final = "unknown"
"""Kind of a change of which neither a root nor an opening record was written, or whose controller's file is lost."""
UNTRACED: Final = "untraced"
"""Kind of a client's outage that no change names as its own."""
SUCCESSION: Final = names.KIND_SUCCESSION
"""Kind of a change of the controller."""
ROOTS_BEFORE: Final = {
    names.FAILOVER: names.KIND_BROKER_FAILURE,
    names.SUCCESSION: names.KIND_SUCCESSION,
    names.RECOVERY: names.KIND_RECOVERY,
}
"""Roots of before there was one for all, and the kinds of what they begin."""
CLOCK_NOTE_MS: Final = 5.0
"""A clock about which less is known than this is mentioned."""
NAMED_MAX: Final = 10
"""Partitions that one span names: no leader writes more, and each becomes a chain."""

UNFINISHED_NS: Final = 5_000_000_000
"""For so long after a leadership its first append counts where no root says when the change was over: a root waits as
long for it."""

_NEW: Final = "regnum.leadership_change"
_PARTS: Final = (
    "regnum.failover.", "regnum.succession.", _NEW, names.BECOME_LEADER, names.FIRST_APPEND,
)  # fmt: skip
_SEND: Final = names.SEND_TO_TOPIC.partition("{")[0]
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_OUTAGES: Final = frozenset({names.OUTAGE, names.CONSUMER_OUTAGE})
NAMES: Final = frozenset({
    *ROOTS_BEFORE, names.LEADER_AND_ISR, *_OUTAGES, names.STORE_WRITE, names.TRUNCATION, names.MIN_ISR_WAIT,
    names.HIGH_WATERMARK_WAIT, names.LEARN, names.BACKOFF, names.PROBE_MISSED, names.FIRST_ANSWER,
})  # fmt: skip
"""Names of spans that say something of a change, and"""
PREFIXES: Final = (*_PARTS, _SEND)
"""what the names of others begin with."""
_ENDS: Final = frozenset({names.DETECTION, names.FENCE, names.CAMPAIGN, names.LOAD, names.VERIFY})
_BELOW: Final = frozenset({
    names.LEADER_JOURNAL, names.LEADER_EPOCHS, names.LEADER_ROLES, names.LEADER_FETCHERS, names.LEARN, names.BACKOFF,
    names.HIGH_WATERMARK_WAIT,
})  # fmt: skip


@lru_cache(maxsize=1024)
def is_wanted(name: str) -> bool:
    """Whether a span of this name can say something of a change."""
    return name in NAMES or name.startswith(_PARTS) or (name.startswith(_SEND) and "/" not in name)


ATTRIBUTES: Final = frozenset({
    names.CAUSE, names.EVIDENCE, names.VICTIM_KIND, names.VICTIM, names.PARTITIONS, names.CONTROLLER_ID, names.COMPLETE,
    names.LAST_HEARD_UNIX_NANO, names.DETECTED_UNIX_NANO, names.FENCED_UNIX_NANO, names.DECIDED_UNIX_NANO,
    names.WRITTEN_UNIX_NANO, names.DISPATCHED_UNIX_NANO, names.WON_UNIX_NANO, names.LOADED_UNIX_NANO,
    names.VERIFIED_UNIX_NANO, names.BROKER, names.TOPIC, names.PARTITION, names.OFFSET, names.LEADER_EPOCH,
    names.ERROR_TYPE, names.LEARNED_UNIX_NANO, names.SENT_UNIX_NANO, names.WAITING_SINCE_UNIX_NANO, names.RETRIED,
    names.FAILOVER_TRACE_ID, names.RPC_STATUS, names.CHANGE_KIND, names.FAILED_UNIX_NANO, names.FAILED_SEEN_BY,
    names.NOTICED_UNIX_NANO, names.ACKNOWLEDGED_UNIX_NANO, names.FIRST,
    names.LAST_ACK_LEADER_EPOCH, names.WRITES, names.WRITES_REFUSED,
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
    """One of the ``KIND_`` values of the conventions, ``unknown`` or ``untraced``."""
    cause: str
    """What began it; empty where no process recorded it."""
    evidence: str
    """What proved it."""
    victim: str
    """``broker 2``; empty where there is none, or none recorded."""
    controller: str
    """``3``: election id of the controller that did it; empty where no process recorded it."""
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
    readers: tuple[Chain, ...] = ()
    """A chain for each partition whose consumer waited, the worst first."""
    unseen: tuple[Chain, ...] = ()
    """A chain for each partition to which a client appended that left no spans, as the leader saw it."""
    unfinished: bool = False
    """Whether there is an opening record and no root: the controller died, or is not done."""
    unsaid: tuple[str, ...] = ()
    """Steps that traces of this form do not tell: they lie in others."""
    orders: tuple[Chain, ...] = ()
    """For partitions that nobody waited for, of those that their new leaders name (the first): the way of the order."""
    version: str = ""
    """Version of the product that the controller runs, or what recorded the change first; empty: it says none."""
    cluster: str = ""
    """Id of the cluster; empty where no span of it says one."""
    untold: tuple[str, ...] = ()
    """Partitions to which a client came back that records spans, and whose span of that is not there (yet)."""

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
        """Steps of the worst chain, in order; they add up to ``total_ms``. To the nanosecond."""
        found: dict[str, float] = {}
        for step, ms, _, _, _, _ in self.worst.segments:
            found[step] = round(found[step] + ms, 6) if step in found else ms
        return found


def trace_of(span: Span) -> str:
    """The trace of the change that a span belongs to: a client that learned of it late names it from its own."""
    if span.name in _OUTAGES:
        named = span.attributes.get(names.FAILOVER_TRACE_ID, "")
        if _TRACE_ID.fullmatch(named):
            return named
    return span.trace_id


def spread_of(chains: Sequence[Chain]) -> dict[str, Spread]:
    """How each step did over some chains, in the order of steps."""
    lengths: dict[str, list[float]] = defaultdict(list)
    for chain in chains:
        for step, ms, _, _, _, _ in chain.segments:
            lengths[step].append(ms)
    return {step: _spread(sorted(lengths[step])) for step in steps.ALL_STEPS if step in lengths}


def _spread(ordered: Sequence[float]) -> Spread:
    """Of lengths in order: the general functions would look for it three times, for each step of each change."""
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return Spread(len(ordered), ordered[0], middle, ordered[-1])


def change_of(spans: Sequence[Span]) -> Change | None:
    """The change that the spans of one trace tell of; None where they tell of none."""
    sorted_out = _Sorted(spans)
    root = sorted_out.root
    if root is None and not sorted_out.has_parts and not sorted_out.waits:
        return None
    trace = _trace(sorted_out)
    waited = [span for span in sorted_out.waits if _waited(span, trace)]
    producers = [span for span in waited if span.name == names.OUTAGE]
    chains = _ranked(chain_of_outage(span, trace) for span in producers)
    readers = _ranked(chain_of_outage(span, trace) for span in waited if span.name != names.OUTAGE)
    unseen = _ranked(chain_of_append(span, trace) for span in _of_no_client(trace, sorted_out.waits))
    if chains or readers or unseen:
        worst = (chains or readers or unseen)[0]
    elif root is not None or trace.leaderships:
        worst = _slowest_order(trace)
    else:
        return None
    about: Mapping[str, str] = {} if root is None else root.attributes
    victim = f"{about.get(names.VICTIM_KIND, '')} {about.get(names.VICTIM, '')}".strip()
    begins = {steps.FAILED} if names.FAILED_UNIX_NANO in about else {steps.FAILED, steps.NOTICED}
    trace_id = spans[0].trace_id
    return Change(
        trace_id=trace_id,
        kind=trace.kind,
        cause=trace.cause,
        evidence=about.get(names.EVIDENCE, ""),
        victim=victim,
        controller=about.get(names.CONTROLLER_ID, ""),
        partitions=(root.number(names.PARTITIONS) or 0) if root is not None else len(chains),
        start_ns=root.start_ns if root is not None else min(span.start_ns for span in spans),
        complete=about.get(names.COMPLETE) == "true",
        chains=chains,
        worst=worst,
        clocks=_clock_notes(trace.offsets),
        before_ms=sum((segment.ms for segment in worst.segments if segment.until in begins), 0.0),
        processes=tuple(sorted({span.process for span in spans})),
        links=tuple(sorted({other for other, _ in root.links if other != trace_id})) if root is not None else (),
        readers=readers,
        unseen=unseen,
        unfinished=sorted_out.unfinished,
        unsaid=steps.UNSAID_BEFORE if sorted_out.of_before else (),
        orders=_of_orders(trace, (*chains, *readers, *unseen)),
        version=_told_first(root, spans, attrgetter("version")),
        cluster=_told_first(root, spans, attrgetter("cluster")),
        untold=_untold(trace, sorted_out.of.get(names.FIRST_ANSWER, ())),
    )


def _told_first(root: Span | None, spans: Sequence[Span], of: Callable[[Span], str]) -> str:
    """What the root says, or the first span that says anything."""
    told = "" if root is None else of(root)
    if told or not any(map(of, spans)):
        return told
    return min((span.start_ns, of(span)) for span in spans if of(span))[1]


def changes_of(traces: Iterable[Sequence[Span]]) -> list[Change]:
    """All changes of some traces, the oldest first."""
    found = [change for spans in traces if (change := change_of(spans)) is not None]
    return sorted(found, key=lambda change: (change.start_ns, change.trace_id))


class _Trait(NamedTuple):
    """What the name of a span says."""

    of_a_change: bool
    """Only a change leaves it."""
    new: bool
    """Only what writes one root for any change writes it."""
    below: bool
    """It is looked for by what it is below."""
    root: bool
    """It is a root."""


@lru_cache(maxsize=1024)
def _trait(name: str) -> _Trait:
    below = name in _BELOW or name.startswith(_SEND)
    root = name == names.LEADERSHIP_CHANGE or name in ROOTS_BEFORE
    return _Trait(name.startswith(_PARTS), name.startswith(_NEW) or name in _BELOW, below, root)


class _Sorted:
    """The spans of one trace, by what they are needed for."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.by_id = {span.span_id: span for span in spans}
        self.spans = [self.by_id[span_id] for span_id in sorted(self.by_id)]
        """Each once, and in the same order however they came."""
        self.of: dict[str, list[Span]] = defaultdict(list)
        """By name."""
        for span in self.spans:
            self.of[span.name].append(span)
        self.waits = [*self.of.get(names.OUTAGE, ()), *self.of.get(names.CONSUMER_OUTAGE, ())]
        self.has_parts = new = False
        """Whether anything is there that only a change leaves."""
        self.below: dict[str, list[Span]] = defaultdict(list)
        roots: list[Span] = []
        for name, of_it in self.of.items():
            of_a_change, is_new, is_below, is_root = _trait(name)
            self.has_parts |= of_a_change
            new |= is_new
            if is_root:
                roots += of_it
            if is_below:
                for span in of_it:
                    self.below[span.parent_id].append(span)
        opened = self.of.get(names.CHANGE_OPENED, [])
        found = roots or opened
        self.root = min(found, key=lambda span: (span.start_ns, span.span_id)) if found else None
        self.unfinished = not roots and bool(opened)
        self.of_before = (self.root is not None or self.has_parts) and not new

    @property
    def kind(self) -> str:
        """Kind of the change."""
        if self.root is None:
            return UNKNOWN_KIND if self.has_parts else UNTRACED
        return ROOTS_BEFORE.get(self.root.name) or self.root.attributes.get(names.CHANGE_KIND, "") or UNKNOWN_KIND


def _ranked(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    return tuple(
        sorted(
            chains, key=lambda chain: (-chain.outage_ms, chain.topic, chain.partition, chain.leader_epoch, chain.client)
        )
    )


def _waited(outage: Span, trace: Trace) -> bool:
    """Whether a client waited in an outage: an idle one has a silence of its own, however long."""
    if outage.attributes.get(names.RETRIED) == "true" or leader_stayed(outage):
        return True
    waiting = outage.number(names.WAITING_SINCE_UNIX_NANO)
    learned = outage.number(names.LEARNED_UNIX_NANO)
    if waiting is None or learned is None or waiting > learned:
        return False
    # Its records came while the leadership moved: not before any of it, and not after all was over. That the client
    # knew the new leader only afterwards says nothing: an idle one asks when it has something to send.
    root, ahead_ns = trace.root, trace.offsets.get(outage.process, UNKNOWN).correction_ns
    if root is not None and outage.start_ns - ahead_ns < root.start_ns - MS * 1000:
        return False
    return waiting - ahead_ns <= max(_ends_ns(outage, trace), default=waiting - ahead_ns)


def _ends_ns(outage: Span, trace: Trace) -> Iterator[int]:
    """When a change was over, as far as that was recorded; also when its leader led that ended an outage."""
    if trace.root is not None and trace.root.name != names.CHANGE_OPENED:
        yield _over_ns(trace.root)
    for order in (outage.parent_id, *(span_id for _, span_id in outage.links)):
        if (led := trace.leaderships.get(order)) is not None:
            yield led.end_ns - trace.offsets.get(led.process, UNKNOWN).correction_ns


def _over_ns(root: Span) -> int:
    return max(root.end_ns, root.number(names.ACKNOWLEDGED_UNIX_NANO) or 0)


def _of_no_client(trace: Trace, waits: Iterable[Span]) -> list[Span]:
    """First appends whose client left no spans, and that came while the change was under way: none waits for others."""
    root = trace.root
    if root is None or root.name not in {names.LEADERSHIP_CHANGE, names.CHANGE_OPENED}:
        return []
    known = {batch_of(span) for span in waits if span.name == names.OUTAGE}
    return [
        span for batch, span in trace.appends.items() if batch not in known and span.end_ns <= _until_ns(span, trace)
    ]


def _until_ns(append: Span, trace: Trace) -> int:
    """Until when an append is of the change, by the clock of its leader."""
    root = trace.root
    if root is not None and root.name == names.LEADERSHIP_CHANGE:
        return _over_ns(root) + trace.offsets.get(append.process, UNKNOWN).correction_ns
    led = trace.leaderships.get(append.parent_id)
    return 0 if led is None else led.end_ns + UNFINISHED_NS


def _untold(trace: Trace, answers: Iterable[Span]) -> tuple[str, ...]:
    """Partitions with a new leader that answered a client below a span of that client which is not there."""
    led = {(topic, partition) for topic, partition, _ in trace.appends}
    about = ((batch_of(span), span.parent_id) for span in answers)
    untold = {batch[:2] for batch, above in about if batch[:2] in led and above not in trace.by_id}
    return tuple(sorted(f"{topic}/{partition}" for topic, partition in untold))


def _trace(found: _Sorted) -> Trace:
    fences = {span.span_id for span in found.of[names.FENCE]}
    offset_of = offsets(found.spans, found.by_id, _reference(found.root, found.spans))
    counts = _counted(found, offset_of)
    return Trace(
        kind=found.kind,
        cause="" if found.root is None else found.root.attributes.get(names.CAUSE, ""),
        root=found.root,
        by_id=found.by_id,
        offsets=offset_of,
        ends={name: max(of_it, key=lambda span: span.end_ns) for name in _ENDS if (of_it := found.of.get(name))},
        decisions=found.of[names.DECISION],
        writes=[span for span in found.of[names.STORE_WRITE] if span.parent_id not in fences],
        leaderships={span.parent_id: span for span in found.of[names.BECOME_LEADER] if counts(span)},
        appends={batch_of(span): span for span in found.of[names.FIRST_APPEND] if counts(span)},
        in_sync={batch_of(span): span for span in found.of[names.MIN_ISR_WAIT]},
        replicated={batch_of(span): span for span in found.of[names.HIGH_WATERMARK_WAIT]},
        below=found.below,
    )


def _counted(found: _Sorted, offset_of: Mapping[str, Offset]) -> Callable[[Span], bool]:
    """Says of a broker's span whether it counts: what a victim does after its fence is no part of the change."""
    root = found.root
    fenced_ns = None if root is None else root.number(names.FENCED_UNIX_NANO)
    if root is None or fenced_ns is None or root.attributes.get(names.VICTIM_KIND) != "broker":
        return lambda _: True
    victim = f"broker {root.attributes.get(names.VICTIM, '')}"
    ahead_ns = offset_of.get(victim, UNKNOWN).correction_ns
    return lambda span: span.process != victim or span.end_ns - ahead_ns <= fenced_ns


def _reference(root: Span | None, spans: Sequence[Span]) -> str:
    """The controller's clock, or that of its callers of brokers, or that of whoever recorded anything first."""
    if root is not None:
        return root.process
    callers = sorted(span.process for span in spans if span.kind == Kind.CLIENT and span.name == names.LEADER_AND_ISR)
    return callers[0] if callers else min(spans, key=lambda span: (span.start_ns, span.span_id)).process


def _of_orders(trace: Trace, waited: Iterable[Chain]) -> tuple[Chain, ...]:
    """For each partition that a new leader names and nobody waited for: the way of its order, of two the later one."""
    known = {chain.name for chain in waited}
    found: dict[str, Span] = {}
    for leadership in sorted(trace.leaderships.values(), key=lambda span: (span.end_ns, span.span_id)):
        named = leadership.attributes.get(names.FIRST, "")
        found.update(
            (name, leadership) for name in named.split(",", NAMED_MAX)[:NAMED_MAX] if name and name not in known
        )
    chains = []
    for name, leadership in sorted(found.items()):
        topic, _, partition = name.rpartition("/")
        chains.append(chain_of_order(leadership, trace)._replace(topic=topic, partition=partition))
    return tuple(chains)


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
