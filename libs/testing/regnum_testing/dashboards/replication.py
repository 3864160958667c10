"""Do followers keep up, and do logs and disks? Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Row, lines, number

DASHBOARD: Final = Dashboard(
    name="replication",
    title="Regnum / Replication",
    about="In-sync sets, what brokers copy from one another, logs, their writers and their disks.",
    rows=(
        Row(
            "Replicas",
            (
                number("Under-replicated", "sum(regnum_broker_partitions_under_replicated)", wide=4),
                number("Under min.insync.replicas", "sum(regnum_broker_partitions_under_min_isr)", wide=4),
                number("Offline", "sum(regnum_broker_replicas_offline)", wide=4),
                number("Awaited before ready", "sum(regnum_broker_replicas_awaited)", wide=4),
                number("Strays", "sum(regnum_broker_replicas_stray)", wide=4),
                number("Idle", 'sum(regnum_broker_replicas{role="idle"})', wide=4),
            ),
        ),
        Row(
            "Copying",
            (
                lines(
                    "In-sync sets that shrink and grow",
                    ("sum(rate(regnum_broker_isr_shrinks_total[$__rate_interval]))", "shrinks"),
                    ("sum(rate(regnum_broker_isr_expands_total[$__rate_interval]))", "expands"),
                    unit="ops",
                ),
                lines(
                    "Sent and received by broker",
                    (
                        "sum by (instance) (rate(regnum_broker_replication_sent_bytes_total[$__rate_interval]))",
                        "{{instance}} sent",
                    ),
                    (
                        "sum by (instance) (rate(regnum_broker_replication_received_bytes_total[$__rate_interval]))",
                        "{{instance}} received",
                    ),
                    unit="Bps",
                ),
                lines(
                    "Replicas by role", ("sum by (instance, role) (regnum_broker_replicas)", "{{instance}} {{role}}")
                ),
            ),
        ),
        Row(
            "Logs",
            (
                lines(
                    "Log size by broker",
                    ("sum by (instance) (regnum_broker_log_size_bytes)", "{{instance}}"),
                    unit="bytes",
                ),
                lines(
                    "Free on the disk",
                    ("min by (instance) (regnum_broker_disk_free_bytes)", "{{instance}}"),
                    unit="bytes",
                ),
                lines("Segments", ("sum by (instance) (regnum_broker_log_segments)", "{{instance}}")),
                lines(
                    "Log writer: wait and run p99",
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, instance)"
                            " (rate(regnum_broker_log_writer_wait_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{instance}} wait",
                    ),
                    (
                        (
                            "histogram_quantile(0.99, sum by (le, instance)"
                            " (rate(regnum_broker_log_writer_run_seconds_bucket[$__rate_interval])))"
                        ),
                        "{{instance}} run",
                    ),
                    unit="s",
                ),
                lines(
                    "Waiting for the log writer, and for the disk",
                    ("sum by (instance) (regnum_broker_log_writer_pending_bytes)", "{{instance}} writer"),
                    ("sum by (instance) (regnum_broker_log_flush_pending_bytes)", "{{instance}} disk"),
                    unit="bytes",
                ),
                lines(
                    "Memory of indexes",
                    ("sum by (instance) (regnum_broker_log_index_memory_bytes)", "{{instance}}"),
                    unit="bytes",
                ),
            ),
        ),
        Row(
            "Compaction",
            (
                lines(
                    "Read and written",
                    ("sum(rate(regnum_broker_log_cleaner_read_bytes_total[$__rate_interval]))", "read"),
                    ("sum(rate(regnum_broker_log_cleaner_written_bytes_total[$__rate_interval]))", "written"),
                    unit="Bps",
                ),
                lines(
                    "Logs that wait, and that cannot be compacted",
                    ("sum(regnum_broker_log_cleaner_waiting)", "waiting"),
                    ("sum(regnum_broker_log_cleaner_uncleanable)", "not any more"),
                ),
                lines(
                    "Dirtiest log",
                    ("max by (instance) (regnum_broker_log_cleaner_max_dirty)", "{{instance}}"),
                    unit="percentunit",
                ),
            ),
        ),
    ),
)
"""It."""
