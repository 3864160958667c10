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
