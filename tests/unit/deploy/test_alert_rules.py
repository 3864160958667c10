"""The example alert rules name metrics, labels and values that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from regnum_model.topic_filter import Trouble
from regnum_telemetry.instruments import INSTRUMENTS, Instrument, Kind

FILE = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
SERIES: dict[str, Instrument] = {
    f"{instrument.prometheus}{suffix}": instrument
    for instrument in INSTRUMENTS
    for suffix in (("_bucket", "_count", "_sum") if instrument.kind is Kind.HISTOGRAM else ("",))
}
TARGET = {"instance"}
"""Labels that Prometheus gives to what it scrapes."""


def test_there_are_rules_for_what_the_controller_finds_overdue() -> None:
    named = " ".join(rule["expr"] for rule in RULES)
    assert "regnum_controller_orders_overdue" in named
    assert all(f'trouble="{trouble.value}"' in named for trouble in Trouble)
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_expression_names_series_that_exist_with_labels_that_they_have(rule: dict[str, Any]) -> None:
    expression = rule["expr"]
    named = re.findall(r"(regnum_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    for series, selector in named:
        assert series in SERIES, f"{series} is no series of ours"
        instrument = SERIES[series]
        for label, value in re.findall(r'(\w+)="([^"]*)"', selector):
            if label == "le":
                assert float(value) in instrument.bounds
            else:
                assert label in instrument.labels
    labels = {label for series, _ in named for label in SERIES[series].labels}
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= labels | TARGET | {"le"}
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", "'.", "`."))
