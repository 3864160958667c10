"""Can what is seen be believed: spans that are missing or late, clocks that differ, events that are missing? Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Row, lines, number

DASHBOARD: Final = Dashboard(
    name="telemetry",
    title="Regnum / Telemetry health",
    about="Whether what the other dashboards, traces and reports show is whole and in order.",
    rows=(
        Row(
            "In the chosen range",
            (
                number("Dropped", "sum(increase(regnum_telemetry_spans_dropped_total[$__range]))", wide=4),
                number("Waiting", "sum(regnum_telemetry_spans_waiting)", wide=4),
                number(
                    "Longest export under way",
                    "max(regnum_telemetry_export_under_way_seconds)",
                    "s",
                    about="Spans are late by as much",
                    wide=4,
                ),
                number(
                    "Largest clock difference",
                    "max(abs(regnum_broker_clock_difference_seconds))",
                    "s",
                    about="Traces are put in order across clocks; a difference is still work for their reader",
                    wide=4,
                ),
                number("Events dropped", "sum(increase(regnum_event_log_dropped_total[$__range]))", wide=4),
                number("Audit lines missing", "sum(increase(regnum_audit_dropped_total[$__range]))", wide=4),
            ),
        ),
        Row(
            "Spans",
            (
                lines(
                    "Spans brought out",
                    (
                        "sum by (instance) (rate(regnum_telemetry_spans_exported_total[$__rate_interval]))",
                        "{{instance}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Spans dropped",
                    (
                        "sum by (instance) (rate(regnum_telemetry_spans_dropped_total[$__rate_interval]))",
                        "{{instance}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Export under way",
                    ("max by (instance) (regnum_telemetry_export_under_way_seconds)", "{{instance}}"),
                    unit="s",
                ),
                lines(
                    "Changes that began and that ended",
                    ("sum(regnum_changes_total)", "began"),
                    ("sum(regnum_changes_ended_total)", "ended"),
                    about="Those whose controller died end never: their traces have no root",
                ),
                lines("Spans waiting", ("sum by (instance) (regnum_telemetry_spans_waiting)", "{{instance}}")),
                lines(
                    "Clock differences",
                    ("max by (instance) (regnum_broker_clock_difference_seconds)", "{{instance}}"),
                    unit="s",
                ),
            ),
        ),
        Row(
            "Events, audit, scrapes",
            (
                lines(
                    "Event logs on disk",
                    ("min by (instance) (regnum_event_log_on_disk)", "{{instance}}"),
                    about="0: the run directory cannot be written, and memory has the newest",
                ),
                lines(
                    "Audit lines",
                    (
                        "sum by (event, destination) (rate(regnum_audit_lines_total[$__rate_interval]))",
                        "{{event}} {{destination}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Processes that are scraped",
                    ("count by (job) (regnum_build_info)", "{{job}}"),
                    about="Fewer than run: Prometheus does not reach them",
                ),
            ),
        ),
    ),
)
"""It."""
