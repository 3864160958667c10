"""Dashboards as Grafana's JSON, by the builders that Grafana Labs makes of its schemas (grafana-foundation-sdk)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, tempo, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import SearchTableType
from regnum_telemetry import conventions

from regnum_testing.dashboards.panels import CHOSEN, Dashboard, Look, Panel, in_cluster

COLUMNS: Final = 24
"""How wide a dashboard is."""
HIGH: Final = 8
"""Height of a panel."""
NUMBER_HIGH: Final = 4
"""Height of one with a number."""
TRACES_ASKED: Final = 200
"""Traces that are asked for to find the longest: back ends give the newest."""
WORST: Final = 10
"""So many of them are shown."""

PROMETHEUS: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
TEMPO: Final = dashboard.DataSourceRef(type_val="tempo", uid="${tempo}")
JAEGER: Final = dashboard.DataSourceRef(type_val="jaeger", uid="${jaeger}")

CHANGES: Final = f"sum by (kind) (increase(regnum_changes_total{{{CHOSEN}}}[1m])) > 0"
"""Marks changes of leadership in all panels."""
REIGNS: Final = f"max(regnum_controller_epoch{{{CHOSEN}}}) > max(regnum_controller_epoch{{{CHOSEN}}} offset 1m)"
"""Marks new controllers."""

AnyPanel = heatmap.Panel | stat.Panel | table.Panel | timeseries.Panel


class JaegerQuery(Dataquery):
    """A search of Jaeger, which the builders do not have. Also its own builder."""

    def build(self) -> "JaegerQuery":
        """Itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """As Grafana's plug-in has it."""
        return {
            "refId": "A",
            "datasource": JAEGER,
            "queryType": "search",
            "service": "regnum-election",
            "operation": conventions.LEADERSHIP_CHANGE,
            "tags": f"{conventions.CLUSTER_ID}=$cluster",
            "limit": TRACES_ASKED,
        }


def text(one: Dashboard) -> str:
    """Its file."""
    return json.dumps(made(one), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def made(one: Dashboard) -> dashboard.Dashboard:
    """The dashboard by Grafana's schema."""
    uid = f"regnum-{one.name}"
    found = (
        builders.Dashboard(one.title)
        .uid(uid)
        .description(one.about)
        .tags(["regnum"])
        .version(1)
        .refresh("15s")
        .time("now-1h", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            builders.QueryVariable("cluster")
            .label("Cluster")
            .datasource(PROMETHEUS)
            .query("label_values(regnum_build_info, cluster)")
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        )
        .annotation(_annotation("Changes of leadership", CHANGES, "orange"))
        .annotation(_annotation("New controllers", REIGNS, "red"))
        .link(
            builders.DashboardLink("Regnum")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags(["regnum"])
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
            .as_dropdown(as_dropdown=True)
        )
    )
    if one.has_traces:
        for kind in ("tempo", "jaeger"):
            found = found.with_variable(builders.DatasourceVariable(kind).label(kind.capitalize()).type(kind))
    ids, below = iter(range(1, 1_000)), 0
    for row in one.rows:
        places = _places(row.panels, below + 1)
        headline = builders.Row(row.title).id(next(ids)).grid_pos(dashboard.GridPos(h=1, w=COLUMNS, x=0, y=below))
        panels = [_panel(panel).id(next(ids)).grid_pos(place) for panel, place in zip(row.panels, places, strict=True)]
        if row.is_folded:
            headline = headline.collapsed(collapsed=True)
            for panel in panels:
                headline = headline.with_panel(panel)
        found = found.with_row(headline)
        if not row.is_folded:
            for panel in panels:
                found = found.with_panel(panel)
        below = below + 1 if row.is_folded else max(place.y + place.h for place in places)
    return found.build()


def _annotation(name: str, expression: str, colour: str) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(PROMETHEUS)
        .enable(enable=True)
        .hide(hide=False)
        .icon_color(colour)
        .expr(expression)
    )


def _places(panels: Sequence[Panel], top: int) -> list[dashboard.GridPos]:
    """From left to right, in as many lines as it takes."""
    found, x, y, high = [], 0, top, 0
    for panel in panels:
        if x + panel.wide > COLUMNS:
            x, y, high = 0, y + high, 0
        height = NUMBER_HIGH if panel.look is Look.NUMBER else HIGH
        found.append(dashboard.GridPos(h=height, w=panel.wide, x=x, y=y))
        x, high = x + panel.wide, max(high, height)
    return found


def _panel(panel: Panel) -> AnyPanel:
    shown = _shape(panel).title(panel.title)
    if panel.about:
        shown = shown.description(panel.about)
    if panel.look is Look.TEMPO:
        return _longest(shown.datasource(TEMPO).with_target(_tempo()), "traceDuration")
    if panel.look is Look.JAEGER:
        search: Builder[Dataquery] = JaegerQuery()  # type: ignore[assignment]  # (it need not derive from it)
        return _longest(shown.datasource(JAEGER).with_target(search), "duration")
    shown = shown.datasource(PROMETHEUS).unit(panel.unit)
    for query in _queries(panel):
        shown = shown.with_target(query)
    return shown


def _shape(panel: Panel) -> AnyPanel:
    """What it looks like, without what it says."""
    match panel.look:
        case Look.NUMBER:
            return stat.Panel().graph_mode(common.BigValueGraphMode.NONE)
        case Look.HEAT:
            return (
                heatmap.Panel()
                .calculate(calculate=False)
                .color(
                    heatmap.HeatmapColorOptions()
                    .mode(HeatmapColorMode.SCHEME)
                    .scheme("Oranges")
                    .exponent(0.5)
                    .steps(64)
                )
                .y_axis(heatmap.YAxisConfig().unit(panel.unit))
                .exemplars_color("rgba(31, 96, 196, 0.9)")
                .hide_legend()
            )
        case Look.TEMPO | Look.JAEGER:
            return table.Panel()
        case Look.LINES | Look.STACK:
            shown = timeseries.Panel().span_nulls(span_nulls=False).show_points(common.VisibilityMode.AUTO)
            if panel.look is Look.STACK:
                stacked = common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
                return shown.fill_opacity(30).stacking(stacked)
            return shown


def _queries(panel: Panel) -> Iterator[prometheus.Dataquery]:
    for letter, query in zip("ABCDEFGHIJKL", panel.queries, strict=False):
        made_of = (
            prometheus.Dataquery()
            .ref_id(letter)
            .datasource(PROMETHEUS)
            .expr(in_cluster(query.expression))
            .legend_format(query.legend)
        )
        if panel.look is Look.NUMBER:
            made_of = made_of.instant()
        if panel.look is Look.HEAT:
            made_of = made_of.format(PromQueryFormat.HEATMAP)
        if panel.exemplars:
            made_of = made_of.exemplar(exemplar=True)
        yield made_of


def _tempo() -> tempo.TempoQuery:
    of_cluster = f'resource.{conventions.CLUSTER_ID} = "$cluster"'
    return (
        tempo.TempoQuery()
        .ref_id("A")
        .datasource(TEMPO)
        .query_type("traceql")
        .query(f'{{ name = "{conventions.LEADERSHIP_CHANGE}" && {of_cluster} }}')
        .limit(TRACES_ASKED)
        .table_type(SearchTableType.TRACES)
    )


def _longest(shown: AnyPanel, field: str) -> AnyPanel:
    options: list[tuple[str, dict[str, Any]]] = [
        ("sortBy", {"sort": [{"field": field, "desc": True}]}),
        ("limit", {"limitField": WORST}),
    ]
    for id_val, told in options:
        shown = shown.with_transformation(dashboard.DataTransformerConfig(id_val=id_val, options=told))
    return shown
