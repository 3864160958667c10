"""One change drawn: the chains of its partitions, and below them its spans by process. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import CONSUMER, MS, Chain
from regnum_insight.attribution.changes import Change
from regnum_insight.reporting import svg
from regnum_insight.reporting.rows import chains_of, title
from regnum_insight.spans.span import Kind, Span

PARTITIONS_SHOWN: Final = 8
"""Partitions that are drawn of one change."""
SPANS_SHOWN: Final = 60
"""Spans that are drawn of one change."""

_GROUPS: Final = {
    "found": (steps.FAILED, steps.NOTICED, steps.DETECTED),
    "decided": (steps.FENCED, steps.WON, steps.LOADED, steps.DECIDED, steps.WRITTEN, steps.VERIFIED, steps.DISPATCHED),
    "told": (steps.ORDER_SENT, steps.RECEIVED, steps.LEADS),
    "client": (steps.LEARNED, steps.BACKOFF, steps.SENT, steps.ANSWERED, steps.UNSEEN),
    "log": (steps.IN_SYNC, steps.APPENDED, steps.REPLICATED, steps.ACKNOWLEDGED),
    "nobody": (steps.UNEXPLAINED,),
}
_LEGEND: Final = {
    "found": "until it was detected",
    "decided": "controller and store",
    "told": "the new leader takes over",
    "client": "the client finds it",
    "log": "append, replication, acknowledgement",
    "nobody": "unexplained",
}
STEP_CLASS: Final = {
    step: f"g-{group} s{position % 4}" for group, of in _GROUPS.items() for position, step in enumerate(of)
}
"""Classes of each step's colour."""
_SPAN_CLASS: Final = {Kind.SERVER: "k-server", Kind.CLIENT: "k-client", Kind.PRODUCER: "k-producer"}


def key() -> str:
    """What the colours of steps mean."""
    items = "".join(f"<span><i class='g-{group}'></i>{escape(text)}</span> " for group, text in _LEGEND.items())
    return f"<p class=key>{items}</p>"


def figures_of(change: Change) -> dict[str, str]:
    """Its figures to the nanosecond, as attributes of the element that tells of it: programs read them there."""
    exact = " ".join(f"{step}={ms:.6f}" for step, ms in change.steps_ms.items())
    return {"data-trace": change.trace_id, "data-total-ms": f"{change.total_ms:.6f}", "data-steps-ms": exact}


def waterfall(change: Change, spans: Sequence[Span]) -> str:
    """The chains of its partitions, the worst outlined, and below them the spans by process."""
    ahead = {note.process: round(note.ahead_ms * MS) for note in change.clocks}
    chains = chains_of(change)[:PARTITIONS_SHOWN]
    path = set(change.worst.path.split())
    first = min(chain.start_ns - ahead.get(chain.client, 0) for chain in chains)
    first = min(first, change.start_ns)
    rows = [
        svg.Row(
            chain.name if chain.seen_by != CONSUMER else f"{chain.name}, consumer",
            chain_bars(chain, (chain.start_ns - ahead.get(chain.client, 0) - first) / MS),
            outlined=position == 0,
        )
        for position, chain in enumerate(chains)
    ]
    of: dict[str, list[svg.Bar]] = defaultdict(list)
    relevant = [span for span in spans if _is_shown(span)]
    # Those of the path first: what is left out is beside it.
    relevant.sort(key=lambda span: (span.span_id not in path, span.start_ns, span.span_id))
    for span in sorted(relevant[:SPANS_SHOWN], key=lambda span: (span.start_ns, span.span_id)):
        begin_ms = (span.start_ns - ahead.get(span.process, 0) - first) / MS
        end_ms = (span.end_ns - ahead.get(span.process, 0) - first) / MS
        short = span.name.rpartition("/")[2].rpartition(".")[2]
        style = _SPAN_CLASS.get(Kind(span.kind), "k-other")
        style += " path" if span.span_id in path else ""
        told = f"{span.name}: {end_ms - begin_ms:.2f} ms{', on the worst chain' if span.span_id in path else ''}"
        of[span.process].append(svg.Bar(begin_ms, end_ms, style, told, short))
    # Of one that has just begun no step has taken time.
    end = max((bar.end for row in rows for bar in row.bars), default=0.0)
    end = end or max((bar.end for bars in of.values() for bar in bars), default=0.0) or 1.0
    for process, bars in sorted(of.items()):
        for lane, row in enumerate(_lanes(bars)):
            rows.append(svg.Row(process if lane == 0 else "", row))
    return svg.bars(rows, begin=0, end=end, about=f"Waterfall of the change of trace {change.trace_id}")


def _is_shown(span: Span) -> bool:
    # Outages are the chains above, and the root is all of it.
    return span.name not in _NOT_SHOWN


_NOT_SHOWN: Final = frozenset({names.OUTAGE, names.CONSUMER_OUTAGE, names.LEADERSHIP_CHANGE})


def _lanes(bars: Iterable[svg.Bar]) -> list[list[svg.Bar]]:
    """Bars of one process in as few rows as they need without lying upon one another."""
    lanes: list[list[svg.Bar]] = []
    for bar in bars:
        lane = next((lane for lane in lanes if lane[-1].end <= bar.begin), None)
        if lane is None:
            lanes.append([bar])
        else:
            lane.append(bar)
    return lanes


def chain_bars(chain: Chain, begin: float) -> list[svg.Bar]:
    """Its steps one behind the other, from ``begin`` milliseconds on."""
    found = []
    at = begin
    for segment in chain.segments:
        if segment.ms <= 0:
            continue
        bound = "" if segment.bound_ms in (0, None) else f" ± {segment.bound_ms:.1f}"
        name = title(segment.step) if segment.step == segment.until else f"unexplained, until {title(segment.until)}"
        text = f"{name}: {segment.ms:.2f}{bound} ms, by {segment.process}"
        found.append(svg.Bar(at, at + segment.ms, STEP_CLASS[segment.step], text, title(segment.step)))
        at += segment.ms
    return found
