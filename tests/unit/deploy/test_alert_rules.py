"""The example alert rules name metrics, labels and values that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from regnum_model.topic_filter import Trouble
from regnum_testing.prometheus_names import checked, labels_in

FILE = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
RUNBOOK = FILE.parents[2] / "docs" / "operations" / "alerts.md"
CASES: dict[str, Any] = yaml.safe_load(FILE.with_name("alerts_test.yaml").read_text(encoding="utf-8"))


def cases(*, firing: bool) -> Iterator[str]:
    """Alerts that some case of the rules' own tests expects to fire, or to be silent."""
    for test in CASES["tests"]:
        for case in test.get("alert_rule_test", ()):
            if bool(case["exp_alerts"]) is firing:
                yield case["alertname"]
        for case in test.get("promql_expr_test", ()):
            told = " ".join(one["labels"] for one in case.get("exp_samples", ()))
            if firing or not told:
                yield from re.findall('alertname="([^"]*)"', told if firing else case["expr"])


def test_of_each_alert_there_is_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    alerts = {rule["alert"] for rule in RULES}
    assert set(cases(firing=True)) == alerts
    assert set(cases(firing=False)) == alerts


def test_there_are_rules_for_what_the_controller_finds_overdue() -> None:
    named = " ".join(rule["expr"] for rule in RULES)
    assert "regnum_controller_orders_overdue" in named
    assert all(f'trouble="{trouble.value}"' in named for trouble in Trouble)
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_expression_names_series_that_exist_with_labels_that_they_have(rule: dict[str, Any]) -> None:
    labels = checked(rule["expr"])
    for text in rule["annotations"].values():
        assert labels_in(text) <= labels


def test_each_alert_has_a_section_that_says_what_to_do_and_there_are_no_others() -> None:
    page, sections = RUNBOOK.read_text(encoding="utf-8"), {}
    for section in page.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        sections[f"docs/operations/alerts.md#{title.lower()}"] = text.strip()
    assert [rule["annotations"]["runbook"] for rule in RULES] == list(sections)
    assert all(rule["annotations"]["runbook"].endswith(f"#{rule['alert'].lower()}") for rule in RULES)
    assert all(len(text) > 100 for text in sections.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_keeps_clusters_apart(rule: dict[str, Any]) -> None:
    # What is put together is so within a cluster, and what is compared is of one.
    together = re.findall(r"\b(?:sum|max|min|count|avg)(?: by \(([^)]*)\))? ?\(", rule["expr"])
    assert together
    compared = re.findall(r"\bon \(([^)]*)\)", rule["expr"])
    assert all("cluster" in re.split(r",\s*", labels) for labels in (*together, *compared))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", "'.", "`."))
