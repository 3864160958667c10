"""The dashboard for Grafana names metrics and labels that exist, and what an operator looks for is on it."""

import json
from pathlib import Path
from typing import Any

import pytest
from regnum_telemetry.instruments import BY_MODULE
from regnum_testing.prometheus_names import checked, labels_in

FILE = Path(__file__).parents[3] / "deploy" / "grafana" / "regnum.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title} {one['refId']}" for title, one in TARGETS])
def test_a_panel_names_series_that_exist_and_shows_labels_that_they_have(title: str, target: dict[str, Any]) -> None:
    labels = checked(target["expr"])
    legend = target["legendFormat"]
    assert legend == "__auto" or labels_in(legend) <= labels, title


def test_every_service_and_every_part_of_one_is_on_it() -> None:
    expressions = " ".join(target["expr"] for _, target in TARGETS)
    for module, instruments in BY_MODULE.items():
        if module != "groups":
            assert any(one.prometheus in expressions for one in instruments), f"nothing of {module}"


def test_panels_have_places_and_names_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert (len(set(ids)), len(set(titles))) == (len(ids), len(titles))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_whoever_imports_it_chooses_the_prometheus() -> None:
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)
    assert [variable["type"] for variable in DASHBOARD["templating"]["list"]] == ["datasource"]


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(regnum_broker_produced_total[1m]))",
        "sum by (topic) (rate(regnum_broker_produced_bytes_total[1m]))",
        'regnum_broker_replicas{rule="leader"}',
        'rate(regnum_loop_lag_seconds_bucket{le="0.051"}[1m])',
        "rate(regnum_loop_lag_seconds_total[1m])",
        "sum(up)",
    ],
)
def test_what_does_not_exist_is_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        checked(expression)
