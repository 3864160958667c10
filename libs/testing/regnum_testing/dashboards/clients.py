"""What clients do, how far groups lag, and whom quotas make wait. Pure."""

from typing import Final

from regnum_testing.dashboards.panels import Dashboard, Row, lines, number, percentiles

LAG: Final = (
    "clamp_min(max by (cluster, topic, partition) (regnum_broker_partition_log_end)"
    " - on (cluster, topic, partition) group_right ()"
    " max by (cluster, group, topic, partition) (regnum_broker_group_offset), 0)"
)
"""How far each group lags in each partition: what leaders have, less what coordinators have on record."""

DASHBOARD: Final = Dashboard(
    name="clients",
    title="Regnum / Clients, groups and quotas",
    about="Consumer groups and their lag, what clients hold of brokers, and whom quotas make wait.",
    rows=(
        Row(
            "Consumer groups",
            (
                number("Groups", "sum(regnum_broker_groups)", wide=4),
                number("Members", "sum(regnum_broker_group_members)", wide=4),
                number("Largest lag", f"max(sum by (group) ({LAG}))", about="Records, of one group", wide=4),
                number(
                    "Not shown",
                    "sum(regnum_broker_lag_left_out)",
                    about="Log ends and offsets beyond --metrics-partitions-max: with more than 0 a lag may be missing",
                    wide=4,
                ),
                number("Streams of metadata", "sum(regnum_broker_watchers_open)", wide=4),
                number("Calls that quotas hold", "sum(regnum_broker_client_calls_held)", wide=4),
                lines("Lag by group", (f"topk(20, sum by (group) ({LAG}))", "{{group}}"), wide=12),
                lines(
                    "Lag by group and topic",
                    (f"topk(20, sum by (group, topic) ({LAG}))", "{{group}} {{topic}}"),
                    wide=12,
                ),
                lines(
                    "Partitions that lag most",
                    (f"topk(20, {LAG})", "{{group}} {{topic}}/{{partition}}"),
                    wide=12,
                ),
                lines(
                    "Records committed and produced",
                    (
                        "topk(20, sum by (group, topic) (rate(regnum_broker_group_offset[$__rate_interval])))",
                        "{{group}} {{topic}}",
                    ),
                    (
                        "topk(20, sum by (topic) (rate(regnum_broker_partition_log_end[$__rate_interval])))",
                        "produced {{topic}}",
                    ),
                    unit="ops",
                    about="A group is as quick as the topic's producers where both lines are alike",
                    wide=12,
                ),
                lines(
                    "Rebalances",
                    (
                        "sum by (instance) (rate(regnum_broker_group_rebalances_total[$__rate_interval]))",
                        "{{instance}}",
                    ),
                    unit="ops",
                ),
                percentiles("Commits p50, p99", "regnum_broker_group_commit_duration_seconds_bucket"),
                lines(
                    "Offsets committed",
                    ("sum(rate(regnum_broker_group_offsets_committed_total[$__rate_interval]))", "offsets"),
                    unit="ops",
                ),
            ),
        ),
        Row(
            "Produce and fetch",
            (
                percentiles("Produce time p50, p99", "regnum_broker_produce_duration_seconds_bucket"),
                percentiles("Fetch time p50, p99", "regnum_broker_fetch_duration_seconds_bucket"),
                lines(
                    "Topics by records in and out",
                    (
                        "topk(10, sum by (topic) (rate(regnum_broker_topic_produced_records_total[$__rate_interval])))",
                        "{{topic}} in",
                    ),
                    (
                        "topk(10, sum by (topic) (rate(regnum_broker_topic_fetched_records_total[$__rate_interval])))",
                        "{{topic}} out",
                    ),
                    unit="ops",
                ),
                lines(
                    "Memory that clients hold",
                    ("sum by (instance, purpose) (regnum_broker_client_held_bytes)", "{{instance}} {{purpose}}"),
                    unit="bytes",
                ),
                lines(
                    "Throttled for memory",
                    ("sum by (purpose) (rate(regnum_broker_client_throttled_total[$__rate_interval]))", "{{purpose}}"),
                    unit="ops",
                ),
                lines(
                    "Connections by listener",
                    ("sum by (listener) (regnum_server_connections)", "{{listener}}"),
                ),
            ),
        ),
        Row(
            "Quotas",
            (
                lines(
                    "Answers that asked to wait",
                    ("sum by (quota) (rate(regnum_broker_quota_throttled_total[$__rate_interval]))", "{{quota}}"),
                    unit="ops",
                ),
                lines("Clients with quotas", ("sum by (quota) (regnum_broker_quota_accounts)", "{{quota}}")),
                lines(
                    "Mutations admitted and throttled",
                    ("sum by (decision) (rate(regnum_controller_admissions_total[$__rate_interval]))", "{{decision}}"),
                    unit="ops",
                ),
                lines(
                    "Mutation rate by user and client",
                    ("topk(10, regnum_quota_mutation_rate_per_second)", "{{user}}/{{client_id}}"),
                ),
                lines(
                    "Tokens by user and client",
                    ("bottomk(10, regnum_quota_tokens)", "{{user}}/{{client_id}}"),
                    about="Below 0: in debt",
                ),
                lines(
                    "Throttle time by user and client",
                    ("topk(10, regnum_quota_throttle_time_seconds)", "{{user}}/{{client_id}}"),
                    unit="s",
                ),
            ),
        ),
    ),
)
"""It."""
