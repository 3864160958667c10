"""What a broker has of a partition, as the judge takes it."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from regnum_coordination.port import Node
from regnum_model import paths
from regnum_model.ids import BrokerId, LogId, PartitionKey
from regnum_model.nodes import BrokerNode, LeaderAndIsr, TopicNode
from regnum_records.read import read_records

from regnum_testing.simulation.judging.judge import Log

if TYPE_CHECKING:
    from regnum_testing.simulation.cluster import SimulatedCluster


def log_of(replica: Any) -> Log:
    """A replica of a broker as it is now."""
    log, records = replica.log, []
    at = log.log_start_offset
    while at < log.log_end_offset:
        some = list(read_records(log.read(at, bytes_max=1 << 24), from_offset=at))
        records += [(record.offset, int(record.value or b"")) for record in some]
        at = some[-1].offset + 1
    return Log(start=log.log_start_offset, records=tuple(records), high_watermark=replica.high_watermark)


def directory_of(broker: Any) -> Any:
    """The log directory of a broker that runs."""
    return vars(broker)["_storage"].directory


def brought_back(cluster: "SimulatedCluster") -> set[tuple[str, PartitionKey]]:
    """Replicas that were deleted, as the store knows, and that a volume brought along when it went back.

    By broker and partition. No order is about them: each broker finds its own after ``--stray-grace-s``.
    """
    nodes = cluster.stores.server.reading(current=True)
    topics = [TopicNode.decode(node.data) for topic in cluster.topics() if (node := nodes.get(paths.topic(topic)))]
    ordered = {
        (f"broker-{broker}", PartitionKey(topic.topic_id, number))
        for topic in topics
        if topic.topic_id is not None
        for brokers_of in (topic.partitions, topic.left)
        for number, brokers in brokers_of.items()
        for broker in brokers
    }
    return {(name, key) for name, disk in cluster.disks.items() for key in disk.brought_back} - ordered


def registered_logs(nodes: Mapping[str, Node], sessions: Collection[int]) -> dict[BrokerId, Collection[LogId]]:
    """The logs of each broker that one of these sessions has registered.

    Args:
        nodes: the store, by path.
        sessions: those of brokers that run.
    """
    return {
        BrokerId(int(path.removeprefix(f"{paths.BROKER_IDS}/"))): BrokerNode.decode(node.data).directories.values()
        for path, node in nodes.items()
        if path.startswith(f"{paths.BROKER_IDS}/") and node.stat.ephemeral_owner in sessions
    }


def in_sync(state: LeaderAndIsr, logs: Mapping[BrokerId, Collection[LogId]]) -> set[BrokerId]:
    """Members of the ISR that have the log that is recorded of them; another one lacks what it has lost (S10a).

    Args:
        state: of a partition.
        logs: see ``registered_logs``.
    """
    return {id for id in state.isr if state.members[id].log_id in logs.get(id, ())}
