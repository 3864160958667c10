"""The dashboards for Grafana name metrics and labels that exist, of one cluster, and are what Grafana's schema has."""

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard
from regnum_telemetry.instruments import BY_MODULE
from regnum_testing.dashboards.__main__ import DASHBOARDS, FOLDER, files, main
from regnum_testing.dashboards.asking import REASONS, Answer, told
from regnum_testing.dashboards.panels import CHOSEN, in_cluster
from regnum_testing.prometheus_names import checked, labels_in, series_in

register_default_plugins()
SHOWN: dict[str, dict[str, Any]] = {
    one.name: json.loads((FOLDER / f"regnum-{one.name}.json").read_text(encoding="utf-8")) for one in DASHBOARDS
}


def panels(name: str) -> list[dict[str, Any]]:
    """All panels of a dashboard but headlines, folded ones as well."""
    found = [panel for one in SHOWN[name]["panels"] for panel in (one, *one.get("panels", ()))]
    return [panel for panel in found if panel["type"] != "row"]


TARGETS = [
    (f"{name}: {panel['title']}", target)
    for name in SHOWN
    for panel in panels(name)
    for target in panel["targets"]
    if "expr" in target
]


def test_the_files_are_what_the_code_makes_and_there_are_no_others() -> None:
    assert main([]) == 0, "run `make proto` (python -m regnum_testing.dashboards --write)"
    assert set(FOLDER.glob("*.json")) == set(files())
    told = (FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    assert all(path.name in told for path in files())


@pytest.mark.parametrize("name", SHOWN)
def test_grafana_s_schema_has_all_of_it(name: str) -> None:
    # What the schema does not know is lost on the way through its classes.
    # (It has no queries of Jaeger.)
    said = {**SHOWN[name], "panels": [one for one in SHOWN[name]["panels"] if "Jaeger" not in one["title"]]}
    again = json.loads(json.dumps(dashboard.Dashboard.from_json(said), cls=JSONEncoder))
    assert _bare(again) == _bare(said)


def _bare(value: Any) -> Any:
    """Without what is empty: leaving it out says the same."""
    if isinstance(value, dict):
        return {key: shown for key, one in value.items() if (shown := _bare(one)) not in (None, [], {})}
    return [_bare(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title} {one['refId']}" for title, one in TARGETS])
def test_a_query_names_series_that_exist_of_one_cluster_and_shows_labels_that_they_have(
    title: str, target: dict[str, Any]
) -> None:
    labels = checked(target["expr"])
    legend = target["legendFormat"]
    assert legend == "__auto" or labels_in(legend) <= labels, title
    assert all(CHOSEN in selector for _, selector in series_in(target["expr"])), title


@pytest.mark.parametrize("name", SHOWN)
def test_marks_name_series_of_one_cluster(name: str) -> None:
    marks = [mark for mark in SHOWN[name]["annotations"]["list"] if "expr" in mark]
    assert len(marks) == 2
    for mark in marks:
        checked(mark["expr"])
        assert all(CHOSEN in selector for _, selector in series_in(mark["expr"]))


@pytest.mark.parametrize("name", SHOWN)
def test_whoever_imports_it_chooses_the_prometheus_and_the_cluster(name: str) -> None:
    variables = {one["name"]: one for one in SHOWN[name]["templating"]["list"]}
    assert list(variables)[:2] == ["datasource", "cluster"]
    assert variables["cluster"]["query"] == "label_values(regnum_build_info, cluster)"
    assert not variables["cluster"].get("multi")
    for panel in panels(name):
        wanted = re.fullmatch(r"\$\{(\w+)\}", panel["datasource"]["uid"])
        assert wanted is not None
        assert wanted[1] in variables
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("name", SHOWN)
def test_panels_have_places_and_names_of_their_own(name: str) -> None:
    shown = SHOWN[name]["panels"]
    found = [panel for one in shown for panel in (one, *one.get("panels", ()))]
    assert len({panel["id"] for panel in found}) == len({panel["title"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        columns = range(place.get("x", 0), place.get("x", 0) + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert columns.stop <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_service_and_every_part_of_one_is_on_some_dashboard() -> None:
    expressions = " ".join(target["expr"] for _, target in TARGETS)
    for module, instruments in BY_MODULE.items():
        assert any(one.prometheus in expressions for one in instruments), f"nothing of {module}"


def test_outages_are_shown_as_a_heat_map_with_links_to_traces_and_changes_can_be_looked_up() -> None:
    found = {panel["title"]: panel for panel in panels("failovers")}
    assert found["Outages of partitions"]["type"] == "heatmap"
    assert found["Outages of partitions"]["targets"][0]["exemplar"] is True
    for back_end in ("Tempo", "Jaeger"):
        (target,) = found[f"Longest changes in {back_end}"]["targets"]
        assert "regnum.leadership_change" in json.dumps(target)
        assert "$cluster" in json.dumps(target)


def test_series_are_selected_by_cluster_and_nothing_else_is_touched() -> None:
    assert in_cluster('topk(9, sum by (rpc_method) (rate(rpc_server_call_duration_seconds_bucket{le="0.5"}[1m])))') == (
        'topk(9, sum by (rpc_method) (rate(rpc_server_call_duration_seconds_bucket{cluster="$cluster",le="0.5"}[1m])))'
    )
    assert in_cluster("process_open_fds / process_max_fds") == (
        'process_open_fds{cluster="$cluster"} / process_max_fds{cluster="$cluster"}'
    )


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(regnum_broker_produced_total[1m]))",
        "sum by (topic) (rate(regnum_broker_produced_bytes_total[1m]))",
        'regnum_broker_replicas{rule="leader"}',
        'rate(regnum_loop_lag_seconds_bucket{le="0.051"}[1m])',
        "rate(regnum_loop_lag_seconds_total[1m])",
        'regnum_changes_total{clusters="$cluster"}',
        "sum(up)",
    ],
)
def test_what_does_not_exist_is_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        checked(expression)


def test_reasons_to_have_no_data_are_of_panels_that_there_are() -> None:
    titles = {panel.title for one in DASHBOARDS for row in one.rows for panel in row.panels}
    assert set(REASONS) <= titles


def test_a_query_without_data_is_told_unless_its_panel_has_a_reason() -> None:
    some = Answer("D: Brokers", "Brokers", "max(x)", series=1, numbers=0)
    assert told(some) == ""
    assert told(some._replace(series=0)) == "D: Brokers: nothing for max(x)"
    assert told(some._replace(series=0, title="Brokers behind")) == ""
