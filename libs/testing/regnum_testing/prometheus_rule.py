"""The alert rules of deploy/prometheus as an object of the Prometheus operator; they are kept in one place.

python -m regnum_testing.prometheus_rule            exit 1 when the object says something else
python -m regnum_testing.prometheus_rule --write    write it; ``make proto``
"""

import sys
from collections.abc import Sequence
from typing import Final

import yaml

from regnum_testing.made_file import ROOT, look_or_write

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


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    return look_or_write(OBJECT, text, arguments, tool="prometheus_rule")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
