"""Is the controller quick, do brokers answer it, and does the store? Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Row, lines, number, percentiles

DASHBOARD: Final = Dashboard(
    name="controller",
    title="Regnum / Controller",
    about="The controller, its orders to brokers, the coordination store, and metadata on its way.",
    rows=(
        Row(
            "Reign",
            (
                number("Controller epoch", "max(regnum_controller_epoch)", wide=4),
                number("Lifelines", "sum(regnum_controller_lifelines)", wide=4),
                number("Orders overdue", "max(regnum_controller_orders_overdue)", wide=4),
                number("Store went back", "max(regnum_controller_store_went_back)", wide=4),
                number("Store takes no writes", "max(regnum_controller_store_writes_refused)", wide=4),
                number(
                    "Metadata lag",
                    "max(regnum_controller_metadata_version) - min(regnum_broker_metadata_version)",
                    about="Versions by which the slowest broker is behind the controller",
                    wide=4,
                ),
            ),
        ),
        Row(
            "Its queue",
            (
                lines("Waiting", ("sum by (kind) (regnum_controller_event_queue_depth)", "{{kind}}")),
                lines(
                    "Wait p99",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, kind)"
                            " (rate(regnum_controller_event_queue_wait_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{kind}}",
                    ),
                    unit="s",
                ),
                lines(
                    "Time of events p99",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, event)"
                            " (rate(regnum_controller_event_duration_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{event}}",
                    ),
                    unit="s",
                ),
            ),
        ),
        Row(
            "Brokers",
            (
                lines(
                    "Orders outstanding",
                    ("max by (broker) (regnum_controller_orders_outstanding)", "broker {{broker}}"),
                ),
                lines(
                    "Oldest order by broker",
                    ("max by (broker) (regnum_controller_orders_oldest_age_seconds)", "broker {{broker}}"),
                    unit="s",
                ),
                lines(
                    "Lifelines: answer p99, lag",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le)"
                            " (rate(regnum_controller_lifeline_answer_duration_seconds_bucket[$__rate_interval])))"
                        ),
                        "answer p99",
                    ),
                    ("max by (broker) (regnum_controller_lifeline_lag_seconds)", "broker {{broker}}"),
                    unit="s",
                    about="After 2 s without an answer a broker is fenced",
                ),
                lines(
                    "Brokers registered, heard, ready",
                    ("sum(regnum_broker_registered)", "registered"),
                    ("sum(regnum_broker_lifeline_open)", "heard"),
                    ("sum(regnum_broker_ready)", "ready"),
                ),
                lines(
                    "Partitions in trouble for long",
                    ("max by (trouble) (regnum_controller_partitions_troubled_long)", "{{trouble}}"),
                ),
                lines(
                    "Clock differences",
                    ("max by (instance) (regnum_broker_clock_difference_seconds)", "{{instance}}"),
                    unit="s",
                    about="Of each broker's machine to the controller's",
                ),
            ),
        ),
        Row(
            "Store",
            (
                lines(
                    "Calls p99",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, operation)"
                            " (rate(regnum_store_call_duration_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{operation}}",
                    ),
                    unit="s",
                ),
                lines(
                    "Calls that failed",
                    (
                        (
                            "sum by (outcome)"
                            ' (rate(regnum_store_call_duration_seconds_count{outcome!="ok"}[$__rate_interval]))'
                        ),
                        "{{outcome}}",
                    ),
                    unit="ops",
                ),
                lines("Time of a write", ("max(regnum_controller_store_write_time_seconds)", "write"), unit="s"),
            ),
        ),
        Row(
            "Metadata",
            (
                lines("Brokers behind", ("max by (broker) (regnum_metadata_broker_lag)", "broker {{broker}}")),
                lines(
                    "Payloads serialised",
                    ("sum by (kind) (rate(regnum_metadata_payloads_total[$__rate_interval]))", "{{kind}}"),
                    unit="ops",
                ),
                lines(
                    "Payload bytes",
                    ("sum(rate(regnum_metadata_payloads_serialised_bytes_total[$__rate_interval]))", "serialised"),
                    ("sum(rate(regnum_metadata_payloads_sent_bytes_total[$__rate_interval]))", "sent"),
                    unit="Bps",
                ),
            ),
        ),
        Row(
            "Events",
            (
                lines(
                    "Events written and dropped",
                    ("sum(rate(regnum_event_log_written_total[$__rate_interval]))", "written"),
                    ("sum(rate(regnum_event_log_dropped_total[$__rate_interval]))", "dropped"),
                    unit="ops",
                    wide=12,
                ),
                percentiles(
                    "Calls that brokers passed on p50, p99",
                    "regnum_broker_forwarding_remote_time_seconds_bucket",
                    wide=12,
                ),
            ),
        ),
    ),
)
"""It."""
