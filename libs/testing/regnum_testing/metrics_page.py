"""docs/metrics.md, made from the definitions of the metrics.

python -m regnum_testing.metrics_page            exit 1 when the page says something else
python -m regnum_testing.metrics_page --write    write it; ``make proto``
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from regnum_telemetry.exposition import FOREIGN
from regnum_telemetry.instruments import BY_MODULE, Instrument

from regnum_testing.made_file import ROOT, look_or_write

PAGE: Final = ROOT / "docs" / "metrics.md"

INTRODUCTION: Final = """\
# Metrics

Made from the definitions in `libs/telemetry/regnum_telemetry/instruments/` by `make proto`: change them there.

Every service shows these on `--metrics-listen` at `/metrics`, in Prometheus's text and in OpenMetrics;
[state and history](operations/looking.md#metrics) says how. Names and units go by OpenTelemetry's rules,
made into Prometheus's: a counter ends in `_total`, seconds and bytes are in the name. A histogram `x` has the series
`x_bucket` (with `le`), `x_sum` and `x_count`. Alert rules (`deploy/prometheus`) and dashboards for
Grafana (`deploy/grafana`) use them: [observability.md](observability.md).

Every series has the label `cluster`, the cluster's id, from the moment when its process has learned that.

"Kafka" names the MBean that says the same or nearly the same, for dashboards that are brought along. Kafka
shows rates and percentiles; here are counters and histograms, of which Prometheus makes them: `rate(x_total[1m])`,
`histogram_quantile(0.99, sum by (le) (rate(x_bucket[1m])))`.

A label has few values, all of them known to the code, or a bounded number:
[state and history](operations/looking.md#metrics) has the bounds. Partitions are labels of log ends and committed
offsets alone: `regnum status` names unhealthy ones.
"""

TITLES: Final = {
    "process": "Every process",
    "election": "Election: the controller, and its standbys",
    "metadata": "Metadata",
    "quota": "Quota",
    "broker": "Broker",
    "topics": "Broker, by topic",
    "groups": "Broker: consumer groups",
}
"""Titles of the modules that define metrics."""

HEAD: Final = ("| metric | kind | unit | labels | meaning | Kafka |", "|---" * 6 + "|")

FOREIGN_HEAD: Final = ("| metric | kind | meaning |", "|---" * 3 + "|")


def page() -> str:
    """All of it."""
    lines = [INTRODUCTION]
    for module, instruments in BY_MODULE.items():
        lines += [f"## {TITLES[module]}", "", *_table(instruments), ""]
    lines += [
        "## As Prometheus's own library shows them",
        "",
        "Every process has them, under the names that every dashboard of Python processes goes by.",
        "",
        *FOREIGN_HEAD,
        *(f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in FOREIGN),
        "",
    ]
    return "\n".join(lines)


def _table(instruments: Iterable[Instrument]) -> list[str]:
    return [*HEAD, *map(row, instruments)]


def row(instrument: Instrument) -> str:
    """Its line."""
    labels = ", ".join(f"`{label}`" for label in instrument.labels) or "-"
    kafka = f"`{instrument.kafka}`" if instrument.kafka else "-"
    unit = instrument.unit or "-"
    return (
        f"| `{instrument.prometheus}` | {instrument.kind.value} | {unit} | {labels} | {instrument.meaning} | {kafka} |"
    )


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    return look_or_write(PAGE, page, arguments, tool="metrics_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
