"""The rows of one trace, and of an hour, in the order of ``columns``. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import INSIDE, MS, Chain
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change
from regnum_insight.reporting.rows import chains_of, summary_of
from regnum_insight.reporting.statistics import percentile
from regnum_insight.spans.span import Kind, Span
from regnum_insight.tables import columns

UNKNOWN_CLUSTER: Final = "unknown"
"""Where no span of a change says to which cluster it belongs."""
ALL: Final = "all"
"""In the place of a step: the whole chain."""
OUTAGE: Final = "outage"
"""In the place of a step: the longest outage of a producer."""
PLACES_MAX: Final = 64
"""A change is of one cluster, and over within a day or two; spans that somebody made may name any of both."""
_DAY_NS: Final = 86_400 * 10**9
_HOUR_NS: Final = 3_600 * 10**9

Row = tuple[Any, ...]
"""Values in the order of the columns of its table."""
Rows = Mapping[str, Sequence[Row]]
"""Rows by the name of their table."""


class Place(NamedTuple):
    """A partition of the tables."""

    cluster: str
    """Id of the cluster."""
    date: str
    """Day, UTC: ``2026-11-27``."""


def place_of(change: Change) -> Place:
    """Where the rows of a change belong."""
    return Place(change.cluster or UNKNOWN_CLUSTER, _date(change.start_ns))


def places_of(spans: Iterable[Span]) -> list[Place]:
    """Everywhere that rows of a trace could be which were told from some of its spans.

    Empty for a trace of more than PLACES_MAX places, which nobody recorded: its rows are where its change is, alone.
    """
    clusters, dates = set(), set()
    for span in spans:
        clusters.add(span.cluster or UNKNOWN_CLUSTER)
        dates.add(span.start_ns // _DAY_NS)
    if len(clusters) * len(dates) > PLACES_MAX:
        return []
    return [Place(cluster, _date(day * _DAY_NS)) for cluster in sorted(clusters) for day in sorted(dates)]


def _date(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).date().isoformat()


def rows_of(change: Change, spans: Sequence[Span], run: int, *, with_spans: bool = False) -> Rows:
    """All rows of one change; ``spans`` are those of its trace, each once."""
    head = (
        change.trace_id, run, change.start_ns // 1000, change.start_ns, change.start_ns % _DAY_NS // _HOUR_NS,
        change.kind, change.kind in steps.PLANNED, change.version or None,
    )  # fmt: skip
    told = summary_of(change)
    of = told.__getitem__
    traced = change.kind != UNTRACED
    lacks = change.unfinished or change.kind in {UNKNOWN_KIND, UNTRACED} or not change.complete or bool(of("missing"))
    lengths = tuple(of("stages_ms").items())
    found = {
        columns.CHANGES: [(
            *head, *map(of, ("cause", "evidence", "victim", "controller", "partitions", "complete", "unfinished",
            "total_ms", "outage_ms", "outage_partitions", "before_root_ms", "unexplained_ms", "worst")),
            lengths, change.links,
        )] if traced else [],
        columns.OUTAGES: [
            (*head, chain.name, *_client(chain), chain.leader_epoch or None, chain.start_ns, chain.end_ns,
             chain.outage_ms, chain.retried, chain.error or None)
            for chain in (*change.chains, *change.readers, *change.unseen)
        ],
        columns.SEGMENTS: [(*head, *segment) for segment in _segments(change)],
        columns.ORDERS: [(*head, *order) for order in _orders(spans)] if traced else [],
        columns.STORE_WRITES: [
            (*head, span.process, span.start_ns, _ms(span), span.number(names.WRITES),
             span.number(names.WRITES_REFUSED))
            for span in spans if span.name == names.STORE_WRITE
        ],
        columns.SKEW: [(*head, *note) for note in change.clocks],
        columns.INCOMPLETE: [
            (*head, change.unfinished, change.complete, of("unexplained_ms"), tuple(of("missing")), change.unsaid)
        ] if lacks else [],
        columns.SPANS: [(*head, *_span(span)) for span in spans] if with_spans else [],
    }  # fmt: skip
    return {table.name: rows for table, rows in found.items() if rows}


def _client(chain: Chain) -> Row:
    return chain.client or None, chain.seen_by, chain.leader or None


def _segments(change: Change) -> Iterator[Row]:
    for chain in chains_of(change):
        of = (chain.name, *_client(chain), chain is change.worst)
        for position, one in enumerate(chain.segments):
            lengths = (one.ms, one.raw_ms, one.bound_ms, one.uncertain)
            yield (*of, position, one.step, one.until, *lengths, one.process or None)


def _orders(spans: Sequence[Span]) -> Iterator[Row]:
    """Calls and what they came to; then what brokers did whose call was not recorded."""
    served: dict[str, Span] = {}
    leading: dict[str, Span] = {}
    inside: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.name == names.LEADER_AND_ISR and span.kind == Kind.SERVER:
            served[span.parent_id] = span
        elif span.name == names.BECOME_LEADER:
            # Without an order each is one of its own.
            leading[span.parent_id or span.span_id] = span
        elif span.name in INSIDE:
            inside[span.parent_id].append(span)
    by_id = {span.span_id: span for span in spans}
    calls = [span for span in spans if span.name == names.LEADER_AND_ISR and span.kind == Kind.CLIENT]
    for call in calls:
        order = served.pop(call.span_id, None)
        yield _order(call, order, None if order is None else leading.pop(order.span_id, None), by_id, inside)
    for order in served.values():
        yield _order(None, order, leading.pop(order.span_id, None), by_id, inside)
    for became in leading.values():
        yield _order(None, None, became, by_id, inside)


def _order(
    call: Span | None,
    order: Span | None,
    became: Span | None,
    by_id: Mapping[str, Span],
    inside: Mapping[str, Sequence[Span]],
) -> Row:
    known = [span for span in (call, order, became) if span is not None]
    about = [*known, *(above for span in known[:1] if (above := by_id.get(span.parent_id)) is not None)]
    broker = next((told for span in about if (told := span.attributes.get(names.BROKER))), None)
    if broker is None and order is not None:
        broker = order.process.rpartition(" ")[2]
    lengths: dict[str, float] = {}
    for part in () if became is None else inside.get(became.span_id, ()):
        lengths[part.name] = lengths.get(part.name, 0.0) + _ms(part)
    return (
        broker,
        known[0].start_ns,
        None if call is None else _ms(call),
        None if became is None else _ms(became),
        *(lengths.get(name) for name in INSIDE),
        None if call is None else call.attributes.get(names.RPC_STATUS),
    )


def _ms(span: Span) -> float:
    return (span.end_ns - span.start_ns) / MS


def _span(span: Span) -> Row:
    of = span.attributes.get
    return (
        span.span_id, span.parent_id or None, span.name, int(span.kind), span.start_ns, span.end_ns, span.process,
        of(names.TOPIC), span.number(names.PARTITION), of(names.BROKER), of(names.ERROR_TYPE),
        tuple(span.attributes.items()),
    )  # fmt: skip


_HOUR, _KIND, _VERSION, _TOTAL, _OUTAGE, _STEPS = (
    [column.name for column in columns.CHANGES.columns].index(name)
    for name in ("hour", "kind", "version", "total_ms", "outage_ms", "steps_ms")
)


def percentiles_of(changes: Iterable[Row]) -> list[Row]:
    """Rows of ``percentiles_hourly`` of all changes of one partition."""
    lengths: dict[tuple[int, str, str | None, str], list[float]] = defaultdict(list)
    for change in changes:
        of = (change[_HOUR], change[_KIND], change[_VERSION])
        lengths[*of, ALL].append(change[_TOTAL])
        if change[_OUTAGE] is not None:
            lengths[*of, OUTAGE].append(change[_OUTAGE])
        for step, ms in change[_STEPS]:
            lengths[*of, step].append(ms)
    return [
        (*of, len(values), *(percentile(values, share) for share in (0.5, 0.9, 0.99)), max(values))
        for of, values in sorted(lengths.items(), key=lambda item: tuple(map(str, item[0])))
    ]
