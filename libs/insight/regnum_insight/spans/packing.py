"""Spans as bytes, where many of them wait for the rest of their trace: in memory, or between machines. Pure."""

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import orjson

from regnum_insight.spans.span import Span, span_of

_VERSION: Final = 2
"""Of marshal's format: without references, so that the same span gives the same bytes in every process."""

_Common = tuple[str, int, str, str, str, tuple[str, ...]]


def packed(span: Span) -> bytes:
    """Everything of a span but its trace id: some 300 bytes, which any process of this product can read."""
    return marshal.dumps(cast("Any", span[1:]), _VERSION)


def spans_of_trace(trace_id: str, packs: Iterable[bytes]) -> list[Span]:
    """The spans of a trace, each once and in the order of their ids, whatever order they came in and how often."""
    return _each_once([Span(trace_id, *marshal.loads(one)) for one in packs])  # noqa: S302 - made by ``packed``


class Waiting:
    """Spans that wait in this process, by trace: what many of them have in common is held once."""

    def __init__(self) -> None:
        """Without any."""
        self._packs: Final[dict[str, list[bytes]]] = defaultdict(list)
        self._numbers: Final[dict[_Common, int]] = {}
        self._common: Final[list[_Common]] = []
        """Name, kind, process, version, cluster, and names of attributes, by number."""

    def add(self, spans: Iterable[Span], trace_of: Callable[[Span], str]) -> None:
        """Hold spans, each in some 100 bytes; those of one trace cost the less the more of them come at once.

        ``trace_of`` says of a span to which trace it belongs.
        """
        numbers = self._numbers
        by_trace: dict[str, list[tuple[Any, ...]]] = {}
        for span in spans:
            _, span_id, parent_id, name, kind, start_ns, end_ns, process, attributes, links, version, cluster = span
            common = (name, kind, process, version, cluster, tuple(attributes))
            number = numbers.get(common)
            if number is None:
                number = numbers[common] = len(self._common)
                self._common.append(common)
            values = tuple(attributes.values()) if attributes else 0
            rows = by_trace.setdefault(trace_of(span), [])
            # Nothing is a number: most have no links, and half of them no attributes.
            rows.append((number, span_id, parent_id, start_ns, end_ns, links or 0, values))
        for trace_id, rows in by_trace.items():
            # A copy: what the encoder gives was a kilobyte before it was cut, which leaves holes that nothing fills.
            self._packs[trace_id].append(memoryview(orjson.dumps(rows)).tobytes())

    def traces(self) -> Iterator[list[Span]]:
        """The spans of each trace as ``spans_of_trace`` has them; a trace is let go of when the next is asked for."""
        for trace_id in sorted(self._packs):
            yield _each_once(self._spans(trace_id, self._packs.pop(trace_id)))

    def _spans(self, trace_id: str, packs: Iterable[bytes]) -> list[Span]:
        common = self._common
        found = []
        for pack in packs:
            for number, span_id, parent_id, start_ns, end_ns, linked, values in orjson.loads(pack):
                name, kind, process, version, cluster, keys = common[number]
                attributes = dict(zip(keys, values, strict=True)) if values else {}
                links = tuple(map(tuple, linked)) if linked else ()
                found.append(span_of((
                    trace_id, span_id, parent_id, name, kind, start_ns, end_ns, process, attributes, links, version,
                    cluster,
                )))  # fmt: skip
        return found


def _each_once(spans: Sequence[Span]) -> list[Span]:
    found = {span.span_id: span for span in spans}
    if len(found) < len(spans):
        found = {}
        for span in spans:
            other = found.setdefault(span.span_id, span)
            # Of two that differ under one id the same one counts, whatever the order of files.
            if other is not span and other != span and packed(span) < packed(other):
                found[span.span_id] = span
    return [found[span_id] for span_id in sorted(found)]
