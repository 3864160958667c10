"""Every query of every dashboard, asked of a Prometheus that has scraped a cluster: what has no data, and why not."""

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from regnum_testing.dashboards.panels import Dashboard, in_cluster
from regnum_testing.direct_http import opened_directly

RATE: Final = "1m"
"""In place of Grafana's rate interval."""
RANGE: Final = "15m"
"""In place of the chosen range."""

REASONS: Final[Mapping[str, str]] = {
    "Orders outstanding": "brokers without any are left out",
    "Oldest order by broker": "brokers without any are left out",
    "Lifelines: answer p99, lag": "brokers that have answered are left out",
    "Brokers behind": "brokers that are not are left out",
    "Calls that failed": "no call failed in the last minute",
    "Produce errors by code": "no batch was answered with an error in the last minute",
    "Fetch errors by code": "no fetch was answered with an error in the last minute",
    "Certificates: days until the first expires": "listeners have no TLS",
    "Refused: handshakes, callers, rights": "listeners have no TLS and nobody signs in",
    "Audit lines": "there is no audit log",
    "Audit lines missing": "there is no audit log",
    "Clients with quotas": "no client has one",
    "Answers that asked to wait": "no client has a quota",
}
"""Why panels may be empty, by their titles."""


class Answer(NamedTuple):
    """What a query came to."""

    where: str
    """Dashboard and panel."""
    title: str
    """Of the panel."""
    expression: str
    """What was asked."""
    series: int
    """How many there are."""
    numbers: int
    """How many of them have a value that is a number."""
    labels: str = "[]"
    """Labels of all of them, as JSON."""


def ask(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """Series of an expression, now. OSError: no answer, or none that it understands.

    Args:
        prometheus: its URL.
        expression: in PromQL.
    """
    asked = urllib.parse.urlencode({"query": expression})
    with opened_directly(f"{prometheus}/api/v1/query?{asked}", timeout=10.0) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
    return found


def answers(dashboards: tuple[Dashboard, ...], *, prometheus: str, cluster: str) -> Iterator[Answer]:
    """What all queries come to.

    Args:
        dashboards: whose.
        prometheus: its URL.
        cluster: id of the cluster that is chosen.
    """
    for one in dashboards:
        for panel in (panel for row in one.rows for panel in row.panels):
            for query in panel.queries:
                expression = in_cluster(query.expression).replace("$cluster", cluster)
                expression = expression.replace("$__rate_interval", RATE).replace("$__range", RANGE)
                found = ask(prometheus, expression)
                numbers = sum(series["value"][1] != "NaN" for series in found)
                labels = json.dumps([series["metric"] for series in found])
                yield Answer(f"{one.title}: {panel.title}", panel.title, expression, len(found), numbers, labels)


def told(found: Answer) -> str:
    """A line about an answer; empty: it has data, or a reason to have none."""
    if found.series or found.title in REASONS:
        return ""
    return f"{found.where}: nothing for {found.expression}"
