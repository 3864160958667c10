"""Is the cluster well, who does what, and what is it used for? Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Row, lines, number, percentiles

DASHBOARD: Final = Dashboard(
    name="cluster",
    title="Regnum / Cluster",
    about="Whether the cluster is well, and what it is used for; docs/metrics.md says what each metric means.",
    rows=(
        Row(
            "Cluster",
            (
                number(
                    "Active controllers",
                    "sum(regnum_controller_active)",
                    about="1 is right; 0: leaders that fail are not replaced",
                ),
                number("Controller epoch", "max(regnum_controller_epoch)"),
                number("Brokers", "max(regnum_controller_brokers)"),
                number("Partitions", "max(regnum_controller_partitions)"),
                number("Offline", 'max(regnum_controller_partitions_troubled{trouble="offline"})'),
                number(
                    "Under min.insync.replicas", 'max(regnum_controller_partitions_troubled{trouble="under-min-isr"})'
                ),
                number("Under-replicated", 'max(regnum_controller_partitions_troubled{trouble="under-replicated"})'),
                number("Not writable", 'max(regnum_controller_partitions_troubled{trouble="not-writable"})'),
                number("Topics", "max(regnum_controller_topics)"),
                number("Quota processes that decide", "sum(regnum_quota_active)"),
                number("Metadata processes", "max(regnum_controller_metadata_processes)"),
                number("Brokers refused", "max(regnum_controller_brokers_refused)"),
                number(
                    "Processes without the store",
                    "count(regnum_store_connected == 0) or vector(0)",
                    about="Brokers and election processes whose session with the store is gone, or which it refuses",
                ),
                number("Disks that take no records", "sum(regnum_broker_disk_writes_refused)"),
                number("Replicas offline", "sum(regnum_broker_replicas_offline)"),
                number("Nodes damaged", "max(regnum_controller_nodes_damaged)"),
            ),
        ),
        Row(
            "Traffic",
            (
                lines(
                    "Bytes in by broker",
                    ("sum by (instance) (rate(regnum_broker_produced_bytes_total[$__rate_interval]))", "{{instance}}"),
                    unit="Bps",
                ),
                lines(
                    "Bytes out by broker",
                    ("sum by (instance) (rate(regnum_broker_fetched_bytes_total[$__rate_interval]))", "{{instance}}"),
                    unit="Bps",
                ),
                lines(
                    "Records in and out",
                    ("sum(rate(regnum_broker_produced_records_total[$__rate_interval]))", "in"),
                    ("sum(rate(regnum_broker_fetched_records_total[$__rate_interval]))", "out"),
                    unit="ops",
                ),
                percentiles(
                    "Produce time p50, p99",
                    "regnum_broker_produce_duration_seconds_bucket",
                    about="With acks=all the followers are in it",
                ),
                lines(
                    "Topics by bytes in",
                    (
                        "topk(10, sum by (topic) (rate(regnum_broker_topic_produced_bytes_total[$__rate_interval])))",
                        "{{topic}}",
                    ),
                    unit="Bps",
                    about="As many topics as --metrics-topics-max, the rest as other",
                ),
                lines(
                    "Topics by log size",
                    ("topk(10, sum by (topic) (regnum_broker_topic_log_size_bytes))", "{{topic}}"),
                    unit="bytes",
                ),
                lines(
                    "Produce errors by code",
                    ("sum by (error) (rate(regnum_broker_produce_errors_total[$__rate_interval]))", "{{error}}"),
                    unit="ops",
                ),
                lines(
                    "Fetch errors by code",
                    ("sum by (error) (rate(regnum_broker_fetch_errors_total[$__rate_interval]))", "{{error}}"),
                    unit="ops",
                ),
                lines(
                    "Disk that is free",
                    (
                        "min by (instance) (regnum_broker_disk_free_bytes / regnum_broker_disk_size_bytes)",
                        "{{instance}}",
                    ),
                    unit="percentunit",
                ),
            ),
        ),
        Row(
            "Processes",
            (
                lines(
                    "Event loops late by more than 50 ms",
                    (
                        (
                            "sum by (instance, loop) (rate(regnum_loop_lag_seconds_count[$__rate_interval])) - sum by "
                            '(instance, loop) (rate(regnum_loop_lag_seconds_bucket{le="0.05"}[$__rate_interval]))'
                        ),
                        "{{instance}} {{loop}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Calls by method",
                    (
                        (
                            "topk(10, sum by (rpc_method)"
                            " (rate(rpc_server_call_duration_seconds_count[$__rate_interval])))"
                        ),
                        "{{rpc_method}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Calls that failed",
                    (
                        (
                            "sum by (rpc_method, rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count"
                            '{rpc_response_status_code!~"OK|other"}[$__rate_interval]))'
                        ),
                        "{{rpc_method}} {{rpc_response_status_code}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Connections",
                    ("sum by (instance, listener) (regnum_server_connections)", "{{instance}} {{listener}}"),
                ),
                lines(
                    "Calls and streams under way",
                    ("sum by (instance, kind) (regnum_server_calls)", "{{instance}} {{kind}}"),
                ),
                lines("Processor time", ("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}")),
                lines("Resident memory", ("process_resident_memory_bytes", "{{instance}}"), unit="bytes"),
                lines("Open files", ("process_open_fds / process_max_fds", "{{instance}}"), unit="percentunit"),
                lines(
                    "Garbage collections p99",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, generation)"
                            " (rate(regnum_gc_pause_seconds_bucket[$__rate_interval])))"
                        ),
                        "generation {{generation}}",
                    ),
                    unit="s",
                ),
                lines(
                    "Versions",
                    ("count by (version, commit) (regnum_build_info)", "{{version}} {{commit}}"),
                    about="More than one: an upgrade is under way",
                ),
                lines(
                    "Certificates: days until the first expires",
                    (
                        "min by (instance, listener) (regnum_tls_certificate_expiry_time_seconds - time()) / 86400",
                        "{{instance}} {{listener}}",
                    ),
                    about="Nothing where listeners have no TLS",
                ),
                lines(
                    "Refused: handshakes, callers, rights",
                    ("sum by (reason) (rate(regnum_tls_handshake_failures_total[$__rate_interval]))", "{{reason}}"),
                    (
                        "sum by (reason) (rate(regnum_authentication_failures_total[$__rate_interval]))",
                        "caller {{reason}}",
                    ),
                    ("sum(rate(regnum_acl_denials_total[$__rate_interval]))", "rights"),
                    unit="ops",
                ),
            ),
        ),
    ),
)
"""It."""
