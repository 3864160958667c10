"""Compare or write the dashboards of deploy/grafana.

python -m regnum_testing.dashboards            exit 1 when a file says something else
python -m regnum_testing.dashboards --write    write them; ``make proto``
python -m regnum_testing.dashboards --ask http://127.0.0.1:9090 CLUSTER
                                               ask a Prometheus every query; exit 1 when one has no data and no reason
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum_testing.dashboards import clients, cluster, controller, failovers, replication, telemetry
from regnum_testing.dashboards.asking import answers, told
from regnum_testing.dashboards.building import text
from regnum_testing.dashboards.panels import Dashboard

FOLDER: Final = Path(__file__).resolve().parents[4] / "deploy" / "grafana"
"""Where they are."""

DASHBOARDS: Final[tuple[Dashboard, ...]] = tuple(
    module.DASHBOARD for module in (cluster, failovers, controller, replication, clients, telemetry)
)
"""All of them, in the order in which a person looks at them."""


def files() -> Mapping[Path, str]:
    """What each file says."""
    return {FOLDER / f"regnum-{one.name}.json": text(one) for one in DASHBOARDS}


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    if len(arguments) == 3 and arguments[0] == "--ask":
        return _ask(*arguments[1:])
    if list(arguments) not in ([], ["--write"]):
        print("usage: python -m regnum_testing.dashboards [--write | --ask URL CLUSTER]", file=sys.stderr)  # noqa: T201
        return 2
    wanted = files()
    if arguments:
        for path, said in wanted.items():
            path.write_text(said, encoding="utf-8")
        return 0
    return int(any(not path.exists() or path.read_text(encoding="utf-8") != said for path, said in wanted.items()))


def _ask(prometheus: str, cluster: str) -> int:
    found = list(answers(DASHBOARDS, prometheus=prometheus, cluster=cluster))
    wrong = [line for line in map(told, found) if line]
    print(*wrong, sep="\n")  # noqa: T201
    some, numbers = sum(one.series > 0 for one in found), sum(one.numbers > 0 for one in found)
    print(f"{len(found)} queries: {some} have series, {numbers} have numbers, {len(wrong)} have nothing and no reason")  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
