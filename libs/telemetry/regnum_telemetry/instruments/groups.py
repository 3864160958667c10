"""What a broker shows of the groups that it coordinates. Pure."""

from typing import Final

from regnum_telemetry.instruments.definition import BROKER, Definitions

DEFINED: Final = Definitions(BROKER)
"""In the order of this file."""

GROUPS: Final = DEFINED.gauge(
    "regnum.broker.groups",
    "{groups}",
    "Consumer groups that this broker coordinates",
    kafka="kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
)

GROUP_MEMBERS: Final = DEFINED.gauge(
    "regnum.broker.group.members",
    "{members}",
    "Members of these groups, all together",
)

GROUP_REBALANCES: Final = DEFINED.counter(
    "regnum.broker.group.rebalances",
    "{rebalances}",
    "Generations that consumer groups have begun; many, though no members come and go: some are too slow",
)

LOG_END: Final = DEFINED.gauge(
    "regnum.broker.partition.log.end",
    "{offsets}",
    "Offset behind the last record that consumers may read (high watermark) of partitions led here, but those of"
    " internal topics; of --metrics-partitions-max",
    labels=("topic", "partition"),
    kafka="kafka.log:type=Log,name=LogEndOffset,topic=,partition=",
)

COMMITTED_OFFSET: Final = DEFINED.gauge(
    "regnum.broker.group.offset",
    "{offsets}",
    "Offset that a group coordinated here has committed: the next record that it processes; of"
    " --metrics-partitions-max. Less than the log end by how far the group lags",
    labels=("group", "topic", "partition"),
)

LAG_LEFT_OUT: Final = DEFINED.gauge(
    "regnum.broker.lag.left_out",
    "{partitions}",
    "Log ends (log_end) and committed offsets (committed) beyond --metrics-partitions-max, which are not shown: with"
    " more than 0 some group may lag and no metric says it",
    labels=("of",),
)

OFFSETS_COMMITTED: Final = DEFINED.counter(
    "regnum.broker.group.offsets.committed",
    "{offsets}",
    "Offsets that groups have committed",
)

OFFSET_COMMIT_DURATION: Final = DEFINED.histogram(
    "regnum.broker.group.commit.duration",
    "s",
    "Commits of offsets from their arrival to their answer, refused ones included; the followers are in it",
)

GROUP_LOAD_DURATION: Final = DEFINED.histogram(
    "regnum.broker.group.load.duration",
    "s",
    "Time from taking over a partition of __consumer_offsets until all its groups were read",
)
