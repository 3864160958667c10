"""Whether the expression of an alert is true of metrics as they are now: the part of PromQL that needs no history.

What is understood: ``max``, ``min`` or ``sum`` of a metric, of its ``abs`` or of the quotient of two, grouped or not,
with label matchers (``=``; others are taken as true), compared with a number; ``or 0 * ANOTHER`` in it: 0 where only
that metric is, now also for ``last_over_time``; several such with ``and on (cluster)`` between them, and of several
alternatives (``or``) the first.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from regnum_testing.direct_http import opened_directly

RULES: Final = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "alerts.yaml"

AND: Final = " and on (cluster) "
"""Between two expressions that are both to be true."""

Sample = tuple[str, Mapping[str, str], float]
"""Name of a metric, its labels with ``instance``, its value."""

_EXPRESSION: Final = re.compile(
    r"(?P<how>max|min|sum)(?: by \((?P<by>[^)]*)\))? ?"
    r"\((?P<abs>abs\()?(?P<metric>\w+)(?P<labels>\{[^}]*\})?(?: / (?P<per>\w+))?(?(abs)\))"
    r"(?: or 0 \* (?:last_over_time\()?(?P<there>\w+)(?:\{[^}]*\})?(?:\[\w+\]\))?)?\)"
    r" (?P<is>>|<|==) (?P<limit>[\d.]+)(?: or .*)?"
)
_NAME: Final = re.compile(r"\b(?:regnum|process)_\w+")
_MATCHER: Final = re.compile(r'(\w+)="([^"]*)"')
_HOW: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {"max": max, "min": min, "sum": sum}


@cache
def expressions() -> dict[str, str]:
    """The expression of each alert, by its name."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def is_true(expression: str, samples: Sequence[Sample]) -> bool:
    """Whether an expression is true of some series. ValueError: it is of another kind."""
    if AND in expression:
        return all(is_true(one, samples) for one in expression.split(AND))
    parsed = _EXPRESSION.fullmatch(expression)
    if parsed is None:
        raise ValueError(f"history is needed, or another function: {expression}")
    wanted = dict(_MATCHER.findall(parsed["labels"] or ""))
    by = [label.strip() for label in (parsed["by"] or "").split(",") if label.strip()]
    per = {labels["instance"]: value for name, labels, value in samples if name == parsed["per"]}
    groups: dict[tuple[str, ...], list[float]] = {}
    for name, labels, value in samples:
        if name == parsed["metric"] and wanted.items() <= labels.items():
            shown = value / per[labels["instance"]] if parsed["per"] else abs(value) if parsed["abs"] else value
            groups.setdefault(tuple(labels.get(label, "") for label in by), []).append(shown)
        elif name == parsed["there"]:
            groups.setdefault(tuple(labels.get(label, "") for label in by), []).append(0.0)
    found = [_HOW[parsed["how"]](values) for values in groups.values()]
    limit = float(parsed["limit"])
    return any({">": one > limit, "<": one < limit, "==": one == limit}[parsed["is"]] for one in found)


def scrape(address: object, expression: str, *, timeout_s: float = 2.0) -> list[Sample]:
    """What a process shows of an expression's metrics; nothing where it does not answer, as Prometheus has then.

    Args:
        address: of its listener for metrics.
        expression: what is wanted: the rest is not parsed, which takes the time of a page.
        timeout_s: how long an answer is waited for.
    """
    try:
        with opened_directly(f"http://{address}/metrics", timeout=timeout_s) as answer:
            lines = answer.read().decode().splitlines(keepends=True)
    except OSError:
        return []
    wanted = tuple(_NAME.findall(expression))
    text = "".join(line for line in lines if line.startswith(wanted))
    return [
        (sample.name, {**sample.labels, "instance": str(address)}, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
