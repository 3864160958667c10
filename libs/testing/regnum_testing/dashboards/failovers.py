"""How long clients waited when leaders changed, where the time went, and which traces show it. Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Look, Panel, Query, Row, lines, number

OUTAGES: Final = "regnum_client_outage_seconds_bucket"
STAGES: Final = "regnum_change_stage_seconds"

DASHBOARD: Final = Dashboard(
    name="failovers",
    title="Regnum / Failovers",
    about=(
        "How long clients waited when leaders changed, and where the time went. Changes are rare: choose a range in"
        " which there were some. A value's trace is one click away where Prometheus keeps exemplars."
    ),
    has_traces=True,
    rows=(
        Row(
            "In the chosen range",
            (
                number("Changes", "sum(increase(regnum_changes_total[$__range]))", wide=4),
                number(
                    "Outage p50",
                    f"histogram_quantile(0.5, sum by (le) (increase({OUTAGES}[$__range])))",
                    "s",
                    about="Of partitions that producers were using: from the change's first sign to the first"
                    " acknowledgement",
                    wide=4,
                ),
                number(
                    "Outage p99", f"histogram_quantile(0.99, sum by (le) (increase({OUTAGES}[$__range])))", "s", wide=4
                ),
                number(
                    "Undetected p99",
                    f'histogram_quantile(0.99, sum by (le) (increase({STAGES}_bucket{{stage="noticed"}}[$__range])))',
                    "s",
                    about="From the first sign of a failure in any process until the controller noticed",
                    wide=4,
                ),
                number(
                    "Not all acknowledged",
                    'sum(increase(regnum_changes_ended_total{complete="false"}[$__range]))',
                    about="Changes that some new leader had not acknowledged after 30 s",
                    wide=4,
                ),
                number(
                    "Changes without end",
                    "sum(regnum_changes_total) - sum(regnum_changes_ended_total)",
                    about="Under way, for 36 s at most; more: their controller died or they are stuck",
                    wide=4,
                ),
            ),
        ),
        Row(
            "What clients waited",
            (
                Panel(
                    "Outages of partitions",
                    (Query(f"sum by (le) (increase({OUTAGES}[$__rate_interval]))", "{{le}}"),),
                    "s",
                    "Each dot is a value with its trace",
                    Look.HEAT,
                    12,
                    exemplars=True,
                ),
                Panel(
                    "Outage p50, p99 by kind",
                    tuple(
                        Query(
                            f"histogram_quantile({share}, sum by (le, kind) (increase({OUTAGES}[$__rate_interval])))",
                            f"{{{{kind}}}} p{name}",
                        )
                        for share, name in ((0.5, "50"), (0.99, "99"))
                    ),
                    "s",
                    wide=12,
                    exemplars=True,
                ),
            ),
        ),
        Row(
            "Where the time went",
            (
                Panel(
                    "Stages of failures of brokers, p99",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, stage)"
                            f' (increase({STAGES}_bucket{{kind="broker failure"}}[$__rate_interval])))',
                            "{{stage}}",
                        ),
                    ),
                    "s",
                    "Each stage is named by what it ends with, as `regnum failovers report` names it",
                    Look.STACK,
                    12,
                    exemplars=True,
                ),
                Panel(
                    "Stages of planned moves, p99",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, stage) (increase("
                            f'{STAGES}_bucket{{kind!~"broker failure|broker returned|succession"}}'
                            "[$__rate_interval])))",
                            "{{stage}}",
                        ),
                    ),
                    "s",
                    "",
                    Look.STACK,
                    12,
                    exemplars=True,
                ),
                Panel(
                    "Stages of successions, p99",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, stage)"
                            f' (increase({STAGES}_bucket{{kind="succession"}}[$__rate_interval])))',
                            "{{stage}}",
                        ),
                    ),
                    "s",
                    "From the first sign that a controller is gone until every broker has acknowledged the next one",
                    Look.STACK,
                    12,
                    exemplars=True,
                ),
                lines(
                    "Mean of each stage",
                    (
                        (
                            f"sum by (kind, stage) (increase({STAGES}_sum[$__rate_interval]))"
                            f" / sum by (kind, stage) (increase({STAGES}_count[$__rate_interval]))"
                        ),
                        "{{kind}}: {{stage}}",
                    ),
                    unit="s",
                    wide=12,
                ),
            ),
        ),
        Row(
            "Which changes there were",
            (
                lines(
                    "Changes by kind", ("sum by (kind) (increase(regnum_changes_total[$__rate_interval]))", "{{kind}}")
                ),
                lines(
                    "Failover time p50, p99",
                    (
                        (
                            "histogram_quantile(0.5, sum by (le, victim)"
                            " (increase(regnum_controller_failover_duration_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{victim}} p50",
                    ),
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, victim)"
                            " (increase(regnum_controller_failover_duration_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{victim}} p99",
                    ),
                    unit="s",
                    about="From the controller's first sign of an end until all new leaders, or brokers, have answered",
                ),
                lines(
                    "Partitions whose producers did not come back",
                    ("sum by (kind) (increase(regnum_client_outages_unheard_total[$__rate_interval]))", "{{kind}}"),
                    about="Within 5 s; they have gone, or wait for longer, and are in no outage",
                ),
                lines(
                    "Leader elections",
                    (
                        "sum by (from) (increase(regnum_controller_leader_elections_total[$__rate_interval]))",
                        "{{from}}",
                    ),
                    about="unclean: records may be lost",
                ),
            ),
        ),
        Row(
            "The ten longest, in Tempo",
            (Panel("Longest changes in Tempo", (), "s", "Where traces go to Tempo", Look.TEMPO, 24),),
            is_folded=True,
        ),
        Row(
            "The ten longest, in Jaeger",
            (Panel("Longest changes in Jaeger", (), "s", "Where traces go to Jaeger", Look.JAEGER, 24),),
            is_folded=True,
        ),
    ),
)
"""It."""
