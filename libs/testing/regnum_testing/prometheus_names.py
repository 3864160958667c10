"""Whether an expression of Prometheus names series, labels and buckets that exist: of ours, and of a Python process."""

import re
from typing import Final

from regnum_telemetry.exposition import CLUSTER, FOREIGN
from regnum_telemetry.instruments import INSTRUMENTS, Instrument

SERIES: Final[dict[str, Instrument]] = {series: one for one in INSTRUMENTS for series in one.series}
OF_PROCESSES: Final = frozenset(name for name, _, _ in FOREIGN)
TARGET: Final = frozenset({"instance", "job", CLUSTER})
"""Labels that Prometheus gives to what it scrapes, and the one that every series of ours has."""

_NAME: Final = re.compile(r"\b((?:regnum|rpc|process|python|target)_\w+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
_GROUPED: Final = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")
_SHOWN: Final = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def checked(expression: str) -> set[str]:
    """The labels that its series have. AssertionError: it names what does not exist."""
    labels = set(TARGET)
    grouped = [label for group in _GROUPED.findall(expression) for label in re.split(r",\s*", group) if label]
    named = series_in(expression)
    assert named, f"no series of ours: {expression}"
    for series, selector in named:
        if series in OF_PROCESSES:
            continue
        assert series in SERIES, f"{series} is no series of ours"
        instrument = SERIES[series]
        own = {*instrument.labels, *TARGET, *(("le",) if series.endswith("_bucket") else ())}
        for label, value in _MATCHER.findall(selector):
            assert label in own, f"{series} has no label {label}"
            assert label != "le" or float(value) in instrument.bounds, f"{series} has no bound {value}"
        labels |= own
    assert set(grouped) <= labels, f"no label {set(grouped) - labels}: {expression}"
    assert expression.count("(") == expression.count(")")
    return labels


def series_in(expression: str) -> list[tuple[str, str]]:
    """Series that an expression names, of ours or of a process, and the selector of each; empty: it has none."""
    # What is grouped by may be called like a metric: rpc_method.
    bare = _GROUPED.sub("", expression)
    return [(series, selector) for series, selector in _NAME.findall(bare) if not _is_label(series, bare)]


def labels_in(text: str) -> set[str]:
    """Labels that a text with templates shows."""
    return set(_SHOWN.findall(text))


def _is_label(name: str, expression: str) -> bool:
    """Whether a name is that of a label in a selector."""
    return re.search(rf"\b{name}\s*(?:=~|!~|!=|=)\s*\"", expression) is not None
