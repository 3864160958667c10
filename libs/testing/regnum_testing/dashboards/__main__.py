"""Compare or write the dashboards of deploy/grafana.

python -m regnum_testing.dashboards            exit 1 when a file says something else
python -m regnum_testing.dashboards --write    write them; ``make proto``
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum_testing.dashboards import clients, cluster, controller, failovers, replication, telemetry
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
    if list(arguments) not in ([], ["--write"]):
        print("usage: python -m regnum_testing.dashboards [--write]", file=sys.stderr)  # noqa: T201
        return 2
    wanted = files()
    if arguments:
        for path, said in wanted.items():
            path.write_text(said, encoding="utf-8")
        return 0
    return int(any(not path.exists() or path.read_text(encoding="utf-8") != said for path, said in wanted.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
