"""The alert rules of deploy/prometheus as an object of the Prometheus operator; they are kept in one place.

python -m regnum_testing.prometheus_rule            exit 1 when the object says something else
python -m regnum_testing.prometheus_rule --write    write it; ``make proto``
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout."""

RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
OBJECT: Final = ROOT / "deploy" / "k8s" / "components" / "prometheus-operator" / "prometheusrule.yaml"

HEAD: Final = "# Made from deploy/prometheus/alerts.yaml by `make proto`: change them there.\n"


def text() -> str:
    """The object, as its file has it."""
    labels = {"app.kubernetes.io/name": "regnum", "app.kubernetes.io/part-of": "regnum"}
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "regnum", "labels": labels},
        "spec": yaml.safe_load(RULES.read_text(encoding="utf-8")),
    }
    return HEAD + yaml.safe_dump(made, sort_keys=False, width=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the file, or write it; returns the exit status."""
    if "--write" in (sys.argv[1:] if arguments is None else arguments):
        OBJECT.write_text(text(), encoding="utf-8")
        return 0
    return 0 if OBJECT.exists() and OBJECT.read_text(encoding="utf-8") == text() else 1


if __name__ == "__main__":
    sys.exit(main())
