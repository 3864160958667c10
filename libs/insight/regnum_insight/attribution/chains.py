"""The chain of one partition's outage: from the last acknowledgement before it to the first one after. Pure.

Goals: the segments add up to the outage, whatever is missing; each boundary comes from the process that stands for it
and from this partition's own leader, so that the chain is a path and no collection of maxima.

Algorithm: the outage names the order that made its leader (its parent, or that of the leader's first append); the
order's call leads to the controller, the root to what came before. Boundaries are brought to the controller's clock
(``clocks``), put in the order of ``steps``, and each counts as at least the one before it: what was done before its
turn cost nothing here. Both ends are the client's, so that the length of the whole depends on its clock alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.clocks import UNKNOWN, Offset
from regnum_insight.spans.span import Kind, Span

MS: Final = 1e6

_ROOT_BOUNDARIES: Final = (
    (steps.DETECTED, names.DETECTED_UNIX_NANO),
    (steps.FENCED, names.FENCED_UNIX_NANO),
    (steps.WON, names.WON_UNIX_NANO),
    (steps.LOADED, names.LOADED_UNIX_NANO),
    (steps.VERIFIED, names.VERIFIED_UNIX_NANO),
)


class Boundary(NamedTuple):
    """A moment that somebody recorded."""

    step: str
    """The step that ends with it."""
    ns: int
    """By the clock of its process."""
    process: str
    """Who recorded it."""


class Segment(NamedTuple):
    """One step of a chain."""

    step: str
    """Its name: one of ``steps``."""
    ms: float
    """Its length, clocks corrected."""
    raw_ms: float
    """Its length by the clocks as they were."""
    bound_ms: float | None
    """By how much ``ms`` may be wrong for the clocks; 0 within one process; None: nobody can say."""
    until: str
    """The boundary at which it ends; the step itself but for ``unexplained``."""
    process: str
    """Who recorded its end."""

    @property
    def uncertain(self) -> bool:
        """Whether its length is within what the clocks leave open."""
        return self.bound_ms is None or self.bound_ms >= self.ms > 0


class Chain(NamedTuple):
    """One partition's outage, or, without a client, the way of one order."""

    topic: str
    """Topic; empty where no client waited."""
    partition: str
    """Partition, as text; empty where no client waited."""
    leader: str
    """Broker id of the leader that it ends with; empty where nobody recorded it."""
    leader_epoch: str
    """Leader epoch of that leadership."""
    client: str
    """Who waited; empty: nobody who left spans."""
    start_ns: int
    """The last acknowledgement before, by the client's clock; without a client the begin of the root."""
    end_ns: int
    """The first acknowledgement after, by the same clock; without a client the end of what is told."""
    segments: tuple[Segment, ...]
    """The steps; their lengths add up to the outage."""
    retried: bool = False
    """Whether a send failed."""
    error: str = ""
    """What the client was told last before it succeeded."""

    @property
    def outage_ms(self) -> float:
        """Length of the whole."""
        return (self.end_ns - self.start_ns) / MS

    @property
    def unexplained_ms(self) -> float:
        """How much of it has no name."""
        return sum(segment.ms for segment in self.segments if segment.step == steps.UNEXPLAINED)

    @property
    def name(self) -> str:
        """``orders/0``, or the broker."""
        return f"{self.topic}/{self.partition}" if self.topic else f"broker {self.leader}" if self.leader else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The spans of one change, by what they are needed for."""

    kind: str
    """Kind of the change: a key of ``steps.EXPECTED``."""
    root: Span | None
    """The root; None: it was never written, or its file is lost."""
    by_id: Mapping[str, Span]
    """All spans."""
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    """Clocks, against the controller's where it left a span: see ``clocks``."""
    decisions: Sequence[Span] = ()
    """Decisions, by their ends."""
    writes: Sequence[Span] = ()
    """Writes of new states to the store, by their ends."""
    leaderships: Mapping[str, Span] = field(default_factory=dict)
    """Become-leader spans, by the id of the order that they are below."""
    appends: Mapping[tuple[str, str, str], Span] = field(default_factory=dict)
    """First appends, by topic, partition and leader epoch."""


def chain_of_outage(outage: Span, trace: Trace) -> Chain:
    """The chain of what one client saw."""
    about = outage.attributes
    key = (about.get(names.TOPIC, ""), about.get(names.PARTITION, ""), about.get(names.LEADER_EPOCH, ""))
    append = trace.appends.get(key)
    order = trace.by_id.get(append.parent_id if append is not None else outage.parent_id)
    boundaries = [*_of_root_and_order(trace, order), *_of_client(outage)]
    if append is not None:
        boundaries.append(Boundary(steps.APPENDED, append.end_ns, append.process))
    boundaries.append(Boundary(steps.ACKNOWLEDGED, outage.end_ns, outage.process))
    return Chain(
        topic=key[0],
        partition=key[1],
        leader=about.get(names.BROKER, ""),
        leader_epoch=key[2],
        client=outage.process,
        start_ns=outage.start_ns,
        end_ns=outage.end_ns,
        segments=_segments(boundaries, outage.start_ns, outage.end_ns, outage.process, trace),
        retried=about.get(names.RETRIED) == "true",
        error=about.get(names.ERROR_TYPE, ""),
    )


def chain_of_order(leadership: Span | None, trace: Trace) -> Chain:
    """Without a client that waited: from the root to a leadership, or to the last thing that the root tells.

    Raises ValueError without a root and a leadership.
    """
    order = None if leadership is None else trace.by_id.get(leadership.parent_id)
    boundaries = _of_root_and_order(trace, order)
    if leadership is not None and not any(one.step == steps.LEADS for one in boundaries):
        boundaries.append(Boundary(steps.LEADS, leadership.end_ns, leadership.process))
    dispatched = None if trace.root is None else trace.root.number(names.DISPATCHED_UNIX_NANO)
    if trace.root is not None and dispatched is not None and leadership is None:
        boundaries.append(Boundary(steps.DISPATCHED, dispatched, trace.root.process))
    if not boundaries:
        raise ValueError("neither a root nor a leadership")
    at = {one.step: one.ns - trace.offsets.get(one.process, UNKNOWN).correction_ns for one in boundaries}
    first = trace.root.process if trace.root is not None else min(boundaries, key=lambda one: at[one.step]).process
    ahead_ns = trace.offsets.get(first, UNKNOWN).correction_ns
    start_ns = trace.root.start_ns if trace.root is not None else min(at.values()) + ahead_ns
    end_ns = max(start_ns, max(at.values()) + ahead_ns)
    return Chain(
        topic="",
        partition="",
        leader="" if leadership is None else leadership.attributes.get(names.BROKER, ""),
        leader_epoch="",
        client="",
        start_ns=start_ns,
        end_ns=end_ns,
        segments=_segments(boundaries, start_ns, end_ns, first, trace),
    )


def _of_root_and_order(trace: Trace, order: Span | None) -> list[Boundary]:
    """What the controller and the new leader recorded on the way to one leadership."""
    call = None if order is None else trace.by_id.get(order.parent_id)
    if call is not None and call.kind != Kind.CLIENT:
        call = None
    found = [] if trace.root is None else _of_root(trace.root, trace, call)
    if call is not None:
        found.append(Boundary(steps.ORDER_SENT, call.start_ns, call.process))
    if order is not None and order.kind == Kind.SERVER:
        found.append(Boundary(steps.RECEIVED, order.start_ns, order.process))
        leadership = trace.leaderships.get(order.span_id)
        if leadership is not None:
            found.append(Boundary(steps.LEADS, leadership.end_ns, leadership.process))
    return found


def _of_root(root: Span, trace: Trace, call: Span | None) -> list[Boundary]:
    """What the controller recorded until the order went out."""
    of = root.process
    found = [Boundary(steps.NOTICED, root.start_ns, of)]
    heard = root.number(names.LAST_HEARD_UNIX_NANO)
    if heard is not None and heard <= root.start_ns and root.attributes.get(names.CAUSE) == names.CAUSE_SILENCE:
        found.append(Boundary(steps.FAILED, heard, of))
    boundaries = [(step, root.number(attribute)) for step, attribute in _ROOT_BOUNDARIES]
    # Large changes go to the store in parts: what counts is the part before this order.
    boundaries += [
        (steps.DECIDED, _last_before(trace.decisions, call) or root.number(names.DECIDED_UNIX_NANO)),
        (steps.WRITTEN, _last_before(trace.writes, call) or root.number(names.WRITTEN_UNIX_NANO)),
    ]
    return [*found, *(Boundary(step, ns, of) for step, ns in boundaries if ns is not None)]


def _of_client(outage: Span) -> list[Boundary]:
    learned, sent = outage.number(names.LEARNED_UNIX_NANO), outage.number(names.SENT_UNIX_NANO)
    found = [] if learned is None else [Boundary(steps.LEARNED, learned, outage.process)]
    return found if sent is None else [*found, Boundary(steps.SENT, sent, outage.process)]


def _last_before(spans: Iterable[Span], call: Span | None) -> int | None:
    """The latest end before a call begins, both at the controller."""
    if call is None:
        return None
    return max((span.end_ns for span in spans if span.end_ns <= call.start_ns), default=None)


_ORDER: Final = {step: position for position, step in enumerate(steps.STEPS)}


def _segments(boundaries: list[Boundary], start_ns: int, end_ns: int, first: str, trace: Trace) -> tuple[Segment, ...]:
    """The steps between two moments of one process, ``first``."""
    boundaries.sort(key=lambda one: _ORDER[one.step])
    there = {one.step for one in boundaries}
    expected = steps.EXPECTED[trace.kind]
    if trace.root is not None and trace.root.attributes.get(names.CAUSE) == names.CAUSE_NODE:
        expected -= steps.WITHOUT_DETECTION
    absent = [_ORDER[step] for step in expected if step not in there]
    made = []
    position = -1
    offset = before = trace.offsets.get(first, UNKNOWN)
    of = first
    at, end, raw_at = start_ns - offset.correction_ns, end_ns - offset.correction_ns, start_ns
    for step, ns, process in boundaries:
        offset = trace.offsets.get(process, UNKNOWN)
        reached = min(max(at, ns - offset.correction_ns), end)
        raw_reached = min(max(raw_at, ns), end_ns)
        gap = bool(absent) and reached > at and any(position < other < _ORDER[step] for other in absent)
        bound = 0.0 if process == of else _sum(before.bound_ns, offset.bound_ns)
        named = steps.UNEXPLAINED if gap else step
        made.append(Segment(named, (reached - at) / MS, (raw_reached - raw_at) / MS, bound, step, process))
        raw_at = raw_reached
        if reached > at:
            # What was done before its turn is not where the next step begins.
            at, of, before, position = reached, process, offset, _ORDER[step]
    return tuple(made)


def _sum(one: int | None, other: int | None) -> float | None:
    return None if one is None or other is None else (one + other) / MS
