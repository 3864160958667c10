"""The chain of one partition's outage: from the last acknowledgement before it to the first one after. Pure.

Goals: the segments add up to the outage, whatever is missing; each boundary comes from the process that stands for it
and from this partition's own leader, so that the chain is a path and no collection of maxima.

Algorithm: the outage names the order that made its leader (its link, or the parent of the leader's first append); the
order's call leads to the controller, the root to what came before. Boundaries are brought to the controller's clock
(``clocks``), put in the order of ``steps``, and each counts as at least the one before it: what was done before its
turn cost nothing here. Both ends are the client's, so that the length of the whole depends on its clock alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.clocks import UNKNOWN, Offset
from regnum_insight.spans.span import Kind, Span

MS: Final = 1e6

PRODUCER: Final = "producer"
"""A producer waited, and left its spans."""
CONSUMER: Final = "consumer"
"""A consumer waited, and left its spans."""
BROKER: Final = "broker"
"""Somebody appended who left no spans: the leader saw it."""
ORDER: Final = "order"
"""No client is known to have waited."""

_ROOT_BOUNDARIES: Final = (
    (steps.DETECTED, names.DETECTED_UNIX_NANO, names.DETECTION),
    (steps.FENCED, names.FENCED_UNIX_NANO, names.FENCE),
    (steps.WON, names.WON_UNIX_NANO, names.CAMPAIGN),
    (steps.LOADED, names.LOADED_UNIX_NANO, names.LOAD),
    (steps.VERIFIED, names.VERIFIED_UNIX_NANO, names.VERIFY),
)
"""Boundaries of a root, and the spans that end with them: where the root was not written, they tell."""

_SEEN_BY: Final = {"follower": "broker", "standby": "election"}
"""By the first word of what saw a failure: the service of the process that did."""

INSIDE: Final = {
    names.LEADER_JOURNAL: "journal",
    names.LEADER_EPOCHS: "epochs",
    names.LEADER_ROLES: "roles",
    names.LEADER_FETCHERS: "fetchers",
}
"""What becoming a leader consists of."""

Batch = tuple[str, str, str]
"""Topic, partition and leader epoch."""


Boundary = tuple[int, int, str]
"""A moment that somebody recorded: position of the step that ends with it, nanoseconds, and by whose clock."""


def is_uncertain(ms: float, bound_ms: float | None) -> bool:
    """Whether a length is within what the clocks leave open."""
    return bound_ms is None or bound_ms >= ms > 0


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
        return is_uncertain(self.ms, self.bound_ms)


segment_of: Final = cast("Callable[[tuple[Any, ...]], Segment]", partial(tuple.__new__, Segment))
"""A segment of all its fields in order: see ``span_of``."""


class Chain(NamedTuple):
    """One partition's outage, or, without a client, the way of one order."""

    topic: str
    """Topic; empty where no client waited."""
    partition: str
    """Partition, as text; empty where no client waited."""
    leader: str
    """Broker id of the leader that it ends with; empty where no process recorded it."""
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
    seen_by: str = ORDER
    """PRODUCER, CONSUMER, BROKER or ORDER."""
    inside: tuple[tuple[str, float], ...] = ()
    """What ``leads`` consists of: names, and milliseconds."""
    path: str = ""
    """Ids of the spans that its boundaries come from, with blanks between them: as objects they were half of it."""

    @property
    def outage_ms(self) -> float:
        """Length of the whole."""
        return (self.end_ns - self.start_ns) / MS

    @property
    def unexplained_ms(self) -> float:
        """How much of it has no name."""
        return sum((segment.ms for segment in self.segments if segment.step == steps.UNEXPLAINED), 0.0)

    @property
    def name(self) -> str:
        """``orders/0``, or the broker."""
        return f"{self.topic}/{self.partition}" if self.topic else f"broker {self.leader}" if self.leader else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The spans of one change, by what they are needed for."""

    kind: str
    """Kind of the change."""
    cause: str
    """Its cause; empty where there is none, or none recorded."""
    root: Span | None
    """The root, or what the controller wrote when it noticed; None: neither was written, or their file is lost."""
    by_id: Mapping[str, Span]
    """All spans."""
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    """Clocks, against the controller's where it left a span: see ``clocks``."""
    ends: Mapping[str, Span] = field(default_factory=dict)
    """Of spans of the controller that there is one of in a change: by name."""
    decisions: Sequence[Span] = ()
    """Spans in which next states of partitions were worked out."""
    writes: Sequence[Span] = ()
    """Writes of new states to the store."""
    leaderships: Mapping[str, Span] = field(default_factory=dict)
    """Become-leader spans, by the id of the order that they are below."""
    appends: Mapping[Batch, Span] = field(default_factory=dict)
    """First appends."""
    in_sync: Mapping[Batch, Span] = field(default_factory=dict)
    """Waits for enough replicas in sync."""
    replicated: Mapping[Batch, Span] = field(default_factory=dict)
    """Waits for the high watermark."""
    below: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Parts of a leadership, and of a client's outage, by the id of what they are below."""
    ways: "dict[tuple[str, bool], _Found]" = field(default_factory=dict)
    """What was found on the way to an order: several partitions have the same, and a producer and a consumer of one."""


def batch_of(span: Span) -> Batch:
    """What a span is about."""
    about = span.attributes
    return about.get(names.TOPIC, ""), about.get(names.PARTITION, ""), about.get(names.LEADER_EPOCH, "")


def leader_stayed(outage: Span) -> bool:
    """Whether a producer waited for a replica that was gone, under a leader that stayed, until a change freed it."""
    about = outage.attributes
    epoch = about.get(names.LAST_ACK_LEADER_EPOCH)
    return bool(outage.parent_id) and epoch is not None and epoch == about.get(names.LEADER_EPOCH)


def chain_of_outage(outage: Span, trace: Trace) -> Chain:
    """The chain of what one client saw: a producer, or a consumer."""
    about = outage.attributes
    batch = batch_of(outage)
    of_producer, stayed = outage.name == names.OUTAGE, leader_stayed(outage)
    append = None if stayed else trace.appends.get(batch)
    order = trace.by_id.get(append.parent_id) if append is not None else _order_of(outage, trace)
    found = _of_root_and_order(trace, order, leads=not stayed)
    _of_client(found, outage, trace)
    if stayed and order is not None and batch not in trace.replicated:
        _of_others(found, order, trace)
    if of_producer:
        _of_append(found, batch, append, trace)
        found.add(steps.ACKNOWLEDGED, outage.end_ns, outage)
        tail = steps.OF_A_WAIT if stayed else steps.OF_A_PRODUCER
    else:
        found.add(steps.ANSWERED, outage.end_ns, outage)
        tail = steps.OF_A_CONSUMER
    return Chain(
        topic=batch[0],
        partition=batch[1],
        leader=about.get(names.BROKER, ""),
        leader_epoch=batch[2],
        client=outage.process,
        start_ns=outage.start_ns,
        end_ns=outage.end_ns,
        segments=_segments(found.boundaries, outage.start_ns, outage.end_ns, outage.process, trace, tail),
        retried=about.get(names.RETRIED) == "true",
        error=about.get(names.ERROR_TYPE, ""),
        seen_by=PRODUCER if of_producer else CONSUMER,
        inside=found.inside,
        path=" ".join(found.path),
    )


def _order_of(outage: Span, trace: Trace) -> Span | None:
    """What made the leadership that an outage ended with: it is linked to that, which once was its parent as well."""
    linked = (trace.by_id.get(span_id) for _, span_id in outage.links)
    return next((span for span in linked if span is not None), None) or trace.by_id.get(outage.parent_id)


def chain_of_append(append: Span, trace: Trace) -> Chain:
    """The chain of a leader's first append that no client left spans of: from the root to its replication."""
    batch = batch_of(append)
    found = _of_root_and_order(trace, trace.by_id.get(append.parent_id))
    _of_append(found, batch, append, trace)
    return _without_client(
        found,
        trace,
        topic=batch[0],
        partition=batch[1],
        leader=append.attributes.get(names.BROKER, ""),
        leader_epoch=batch[2],
        seen_by=BROKER,
        tail=steps.OF_NO_CLIENT,
    )


def chain_of_order(leadership: Span | None, trace: Trace) -> Chain:
    """Without a client that waited: from the root to a leadership, or to the last thing that the root tells.

    Raises ValueError without a root and a leadership.
    """
    order = None if leadership is None else trace.by_id.get(leadership.parent_id)
    found = _of_root_and_order(trace, order)
    if leadership is not None and not any(position == _LEADS for position, _, _ in found.boundaries):
        found.add(steps.LEADS, leadership.end_ns, leadership)
    dispatched = None if trace.root is None else trace.root.number(names.DISPATCHED_UNIX_NANO)
    if trace.root is not None and dispatched is not None and leadership is None:
        found.add(steps.DISPATCHED, dispatched, trace.root)
    if not found.boundaries:
        raise ValueError("neither a root nor a leadership")
    return _without_client(
        found,
        trace,
        leader="" if leadership is None else leadership.attributes.get(names.BROKER, ""),
        tail=steps.OF_AN_ORDER,
    )


def _without_client(
    found: "_Found",
    trace: Trace,
    *,
    topic: str = "",
    partition: str = "",
    leader: str,
    leader_epoch: str = "",
    seen_by: str = ORDER,
    tail: frozenset[str],
) -> Chain:
    """A chain that begins with the root, or with the first thing that is told, and ends with the last."""
    at = [ns - trace.offsets.get(process, UNKNOWN).correction_ns for _, ns, process in found.boundaries]
    if trace.root is not None:
        first, start_ns = trace.root.process, trace.root.start_ns
    else:
        _, start_ns, first = found.boundaries[at.index(min(at))]
    end_ns = max(start_ns, max(at) + trace.offsets.get(first, UNKNOWN).correction_ns)
    return Chain(
        topic=topic,
        partition=partition,
        leader=leader,
        leader_epoch=leader_epoch,
        client="",
        start_ns=start_ns,
        end_ns=end_ns,
        segments=_segments(found.boundaries, start_ns, end_ns, first, trace, tail),
        seen_by=seen_by,
        inside=found.inside,
        path=" ".join(found.path),
    )


class _Found:
    """Boundaries of one chain, and where they were found."""

    __slots__ = ("boundaries", "inside", "path")

    def __init__(self) -> None:
        self.boundaries: list[Boundary] = []
        self.path: list[str] = []
        self.inside: tuple[tuple[str, float], ...] = ()

    def add(self, step: str, ns: int, span: Span, *, process: str = "") -> None:
        """A boundary of a span."""
        self.boundaries.append((steps.ORDER[step], ns, process or span.process))
        self.path.append(span.span_id)

    def copy(self) -> "_Found":
        """The same, to be added to."""
        made = _Found()
        made.boundaries, made.path, made.inside = self.boundaries.copy(), self.path.copy(), self.inside
        return made


def _of_root_and_order(trace: Trace, order: Span | None, *, leads: bool = True) -> _Found:
    """What the controller and a leader recorded on the way to one leadership, or, without ``leads``, to a new ISR."""
    key = ("" if order is None else order.span_id, leads)
    way = trace.ways.get(key)
    if way is None:
        way = trace.ways[key] = _way_to(order, trace, leads=leads)
    return way.copy()


def _way_to(order: Span | None, trace: Trace, *, leads: bool) -> _Found:
    found = _Found()
    call = None if order is None else trace.by_id.get(order.parent_id)
    if call is not None and call.kind != Kind.CLIENT:
        call = None
    _of_controller(found, trace, call)
    if call is not None:
        found.add(steps.ORDER_SENT, call.start_ns, call)
    if order is not None and order.kind == Kind.SERVER:
        found.add(steps.RECEIVED, order.start_ns, order)
        leadership = trace.leaderships.get(order.span_id)
        if leadership is not None and leads:
            found.add(steps.LEADS, leadership.end_ns, leadership)
            lengths: dict[str, int] = {}
            for one in trace.below.get(leadership.span_id, ()):
                lengths[one.name] = lengths.get(one.name, 0) + one.end_ns - one.start_ns
            found.inside = tuple((part, lengths[name] / MS) for name, part in INSIDE.items() if name in lengths)
    return found


def _of_controller(found: _Found, trace: Trace, call: Span | None) -> None:
    """What the controller recorded until the order went out."""
    root = trace.root
    if root is not None:
        _of_beginning(found, root, trace.cause)
    elif (detection := trace.ends.get(names.DETECTION)) is not None:
        found.add(steps.NOTICED, detection.start_ns, detection)
    for step, attribute, name in _ROOT_BOUNDARIES:
        at = trace.ends.get(name)
        ns = None if root is None else root.number(attribute)
        if ns is not None and root is not None:
            found.add(step, ns, root)
            if at is not None:
                found.path.append(at.span_id)
        elif at is not None:
            found.add(step, at.end_ns, at)
    # Large changes go to the store in parts: what counts is the part before this order.
    for step, attribute, spans in (
        (steps.DECIDED, names.DECIDED_UNIX_NANO, trace.decisions),
        (steps.WRITTEN, names.WRITTEN_UNIX_NANO, trace.writes),
    ):
        part = _last_before(spans, call)
        if part is not None:
            found.add(step, part.end_ns, part)
        elif root is not None and (ns := root.number(attribute)) is not None:
            found.add(step, ns, root)


def _of_beginning(found: _Found, root: Span, cause: str) -> None:
    """When it failed, and when the controller noticed that; of a planned change when it was asked for."""
    failed = root.number(names.FAILED_UNIX_NANO)
    noticed = root.number(names.NOTICED_UNIX_NANO) or root.start_ns
    if failed is not None:
        # The moment is that of the process which saw it, by its clock.
        words = root.attributes.get(names.FAILED_SEEN_BY, "").split()
        service = _SEEN_BY.get(words[0]) if words else None
        found.add(steps.FAILED, failed, root, process=f"{service} {words[-1]}" if service else "")
    else:
        heard = root.number(names.LAST_HEARD_UNIX_NANO)
        if heard is not None and heard <= noticed and cause == names.CAUSE_SILENCE:
            found.add(steps.FAILED, heard, root)
    found.add(steps.NOTICED, noticed, root)


def _of_client(found: _Found, outage: Span, trace: Trace) -> None:
    """What the client recorded: when it knew the leader, until when it paused, and when its call began."""
    learned, sent = outage.number(names.LEARNED_UNIX_NANO), outage.number(names.SENT_UNIX_NANO)
    parts = trace.below.get(outage.span_id, ())
    for part in parts:
        if part.name == names.LEARN:
            learned = part.end_ns if learned is None else learned
            found.path.append(part.span_id)
        elif part.kind == Kind.CLIENT:
            sent = part.start_ns if sent is None else sent
            found.path.append(part.span_id)
    if learned is not None:
        found.add(steps.LEARNED, learned, outage)
    pauses = [part for part in parts if part.name == names.BACKOFF and (sent is None or part.end_ns <= sent)]
    if pauses:
        last = max(pauses, key=lambda part: part.end_ns)
        found.add(steps.BACKOFF, last.end_ns, last)
    if sent is not None:
        found.add(steps.SENT, sent, outage)


def _of_append(found: _Found, batch: Batch, append: Span | None, trace: Trace) -> None:
    """What the new leader recorded of the first batch."""
    waited, covered = trace.in_sync.get(batch), trace.replicated.get(batch)
    if waited is not None:
        found.add(steps.IN_SYNC, waited.end_ns, waited)
    if append is not None:
        found.add(steps.APPENDED, append.end_ns, append)
    if covered is not None:
        found.add(steps.REPLICATED, covered.end_ns, covered)


def _of_others(found: _Found, order: Span, trace: Trace) -> None:
    """What an order freed first: the call of a partition that lacked nobody is answered when all of the call is."""
    freed = [part for part in trace.below.get(order.span_id, ()) if part.name == names.HIGH_WATERMARK_WAIT]
    if freed:
        first = min(freed, key=lambda part: part.end_ns)
        found.add(steps.REPLICATED, first.end_ns, first)


def _last_before(spans: Iterable[Span], call: Span | None) -> Span | None:
    """The latest that ends before a call begins, both at the controller."""
    if call is None:
        return None
    return max((span for span in spans if span.end_ns <= call.start_ns), key=lambda span: span.end_ns, default=None)


def _segments(
    boundaries: list[Boundary], start_ns: int, end_ns: int, first: str, trace: Trace, tail: frozenset[str]
) -> tuple[Segment, ...]:
    """The steps between two moments of one process, ``first``."""
    boundaries.sort()
    absent = steps.expected(trace.kind, trace.cause, tail) - {boundary[0] for boundary in boundaries}
    unseen = tail is steps.OF_NO_CLIENT
    made = []
    position = -1
    offset = before = of_first = trace.offsets.get(first, UNKNOWN)
    correction_ns = offset.correction_ns
    of = last = first
    at, end, raw_at = start_ns - correction_ns, end_ns - correction_ns, start_ns
    for here, ns, process in boundaries:
        if process != last:
            offset, last = trace.offsets.get(process, UNKNOWN), process
            correction_ns = offset.correction_ns
        # Neither before what came before it nor after the whole.
        reached = corrected = ns - correction_ns
        clock, known = process, offset
        if corrected > end:
            # What lies behind the end is cut off there: by the clock of the end.
            reached, clock, known = end, first, of_first
        elif corrected < at:
            reached = at
        raw_reached = ns if raw_at <= ns <= end_ns else max(raw_at, min(ns, end_ns))
        step = named = steps.STEPS[here]
        if absent and reached > at and (gaps := {other for other in absent if position < other < here}):
            named = steps.UNSEEN if unseen and gaps <= _OF_CLIENTS else steps.UNEXPLAINED
        bound = 0.0 if clock == of else _sum(before.bound_ns, known.bound_ns)
        ms = (reached - at) / MS
        raw_ms = ms if raw_reached - raw_at == reached - at else (raw_reached - raw_at) / MS
        made.append(segment_of((named, ms, raw_ms, bound, step, process)))
        raw_at = raw_reached
        if reached > at:
            # What was done before its turn is not where the next step begins.
            at, of, before, position = reached, clock, known, here
    return tuple(made)


_LEADS: Final = steps.ORDER[steps.LEADS]
_OF_CLIENTS: Final = frozenset({steps.ORDER[steps.LEARNED], steps.ORDER[steps.SENT]})


def _sum(one: int | None, other: int | None) -> float | None:
    return None if one is None or other is None else (one + other) / MS
