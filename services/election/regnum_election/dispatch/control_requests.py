"""The picture in the words of the wire: what control messages say of brokers and partitions."""

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_model.configs import NO_SETTINGS, ReplicaSettings
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import Address, LeaderAndIsr
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.cluster import Broker, Cluster, HeldState, Partition
from regnum_election.decisions.configs import Settings
from regnum_election.dispatch.newborn import Newborn
from regnum_election.dispatch.outbox import StatesCall, Stop
from regnum_election.reign.reign import Reign


def endpoint(address: Address) -> types_pb2.Endpoint:
    """An address."""
    return types_pb2.Endpoint(host=address.host, port=address.port)


def broker_message(broker: Broker) -> types_pb2.Broker:
    """A broker as other processes see it."""
    return types_pb2.Broker(
        id=broker.id,
        epoch=broker.epoch,
        rack=broker.rack or "",
        client=endpoint(broker.client),
        internal=endpoint(broker.internal),
        kafka=None if broker.kafka is None else endpoint(broker.kafka),
    )


def partition_state(
    number: int,
    partition: Partition,
    offline: Collection[BrokerId] = (),
    *,
    min_insync: int = 0,
    adding: Collection[BrokerId] = (),
) -> types_pb2.PartitionState:
    """State of a partition; without a leader while none can be named.

    Args:
        number: its number.
        partition: what the picture says of it.
        offline: live brokers that cannot use their replica; for those who describe it, not for those who carry it out.
        min_insync: effective min.insync.replicas; likewise.
        adding: replicas that an open reassignment brings in; likewise.
    """
    held = partition.held
    if held is None or partition.trouble is not None:
        return types_pb2.PartitionState(
            partition=number,
            leader=NO_LEADER,
            leader_epoch=NO_EPOCH,
            replicas=partition.replicas,
            version=-1,
            offline_replicas=sorted(offline),
            offline_reason=partition.trouble or "",
            min_insync_replicas=min_insync,
            adding_replicas=adding,
        )
    state = held.state
    return types_pb2.PartitionState(
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=partition.replicas,
        elr=state.elr,
        version=held.version,
        offline_replicas=sorted(offline),
        offline_reason=_offline_reason(held.state, offline),
        min_insync_replicas=min_insync,
        adding_replicas=adding,
    )


def _offline_reason(state: LeaderAndIsr, offline: Collection[BrokerId]) -> str:
    """Why a partition has no leader, if replicas that cannot be used are the reason."""
    unusable = sorted(id for id in (*state.isr, *state.elr) if id in offline)
    if state.leader != NO_LEADER or not unusable:
        return ""
    return (
        f"the complete replicas on brokers {unusable} cannot be used, and no other is live; "
        "mend their files or disks and start these brokers again"
    )


def _is_from_before(state: LeaderAndIsr, broker: Broker) -> bool:
    """Whether a state lets a broker lead that has come anew since: it may have lost records that others have.

    It is told when it has been elected again, in a new leader epoch, or somebody else has (safety rule S10).
    """
    return state.leader == broker.id and state.members[broker.id].broker_epoch != broker.epoch


NO_RATES: Final = (0, 0)
"""Rates of partitions that do not move."""

_Sources = tuple[
    HeldState, int, tuple[BrokerId, ...], Reassignment | None, tuple[int, int], ReplicaSettings, LeaderEpoch
]
"""What a message is built of."""

_Built = tuple[Partition, Settings, _Sources, bytes]
"""A message, behind the partition and the settings of the picture that it was last asked for with."""


def _settings_message(settings: ReplicaSettings) -> control_pb2.ReplicaSettings:
    return control_pb2.ReplicaSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        index_interval_bytes=settings.index_interval_bytes,
        max_message_bytes=settings.max_message_bytes,
        max_message_unpacked_bytes=settings.max_message_unpacked_bytes,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_ms,
        cleanup_policy=settings.cleanup_policy,
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        delete_retention_ms=settings.delete_retention_ms,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        max_compaction_lag_ms=settings.max_compaction_lag_ms,
        flush_messages=settings.flush_messages,
        flush_ms=settings.flush_ms,
    )


class ControlRequests:
    """Builds control messages of one reign.

    Messages of partitions are kept, since every replica gets the same one, until the state, the assignment or a setting
    changes; as bytes, which take a fifth of what message objects do. Serialised lists of messages concatenate.
    """

    def __init__(self, reign: Reign, unverified: Container[PartitionKey] = ()) -> None:
        """Only assigns.

        Args:
            reign: in whose name orders go out.
            unverified: partitions whose state in the picture is not proved yet: no order says anything of them.
        """
        self._reign = reign
        self._unverified = unverified
        self.newborn: Final = Newborn()
        """Partitions that members may still have to make."""
        self._built: dict[PartitionKey, _Built] = {}
        self._settings: Settings | None = None
        """Settings that the next belong to."""
        self._told: dict[str, ReplicaSettings] = {}
        """What topics with settings of their own tell, by name; under no name the others."""

    def leader_and_isr(
        self, picture: Cluster, broker: Broker, call: StatesCall
    ) -> tuple[bytes, tuple[PartitionKey, ...]]:
        """The message for a call, encoded, and the partitions in it: those of the call that have a state."""
        keys: list[PartitionKey] = []
        partitions: list[bytes] = []
        leaders: set[BrokerId] = set()
        for key in call.keys:
            partition = picture.partitions.get(key)
            if partition is None or partition.held is None or partition.trouble is not None:
                continue
            if key in self._unverified or _is_from_before(partition.held.state, broker):
                continue
            if broker.id not in partition.replicas and broker.id not in partition.held.state.isr:
                # Reassigned since the order was put down: it would make a replica that nobody deletes.
                continue
            keys.append(key)
            partitions.append(self._partition(picture, key, partition, partition.held))
            leaders.add(partition.held.state.leader)
        head = control_pb2.LeaderAndIsrRequest(
            controller_id=self._reign.controller_id,
            controller_epoch=self._reign.epoch,
            broker_epoch=broker.epoch,
            init=call.init,
            part=call.part,
            parts=call.parts,
            live_leaders=[broker_message(picture.brokers[id]) for id in sorted(leaders) if id in picture.brokers],
        )
        return b"".join((head.SerializeToString(), *partitions)), tuple(keys)

    def _partition(self, picture: Cluster, key: PartitionKey, partition: Partition, held: HeldState) -> bytes:
        """The partition as a request that has nothing else."""
        built = self._built.get(key)
        if built is not None and built[0] is partition and built[1] is picture.settings:
            # The next replica of the same picture: nothing to be worked out again.
            return built[3]
        min_insync, topic = picture.min_insync(key, partition), picture.topics[key.topic_id].name
        settings = self._replica_settings(picture, topic)
        replicas, move = partition.replicas, partition.reassignment
        adding = () if move is None else tuple(id for id in move.adding if id in replicas)
        rates = picture.settings.throttle_rates if adding else NO_RATES
        sources: _Sources = (held, min_insync, replicas, move, rates, settings, partition.began)
        if built is not None and built[2][0] is held and built[2][1:] == sources[1:]:
            self._built[key] = (partition, picture.settings, sources, built[3])
            return built[3]
        state = held.state
        message = control_pb2.LeaderAndIsrPartition(
            topic=topic,
            topic_id=key.topic_id,
            state=partition_state(key.partition, partition),
            members=[
                control_pb2.Member(broker_id=id, broker_epoch=member.broker_epoch, log_id=member.log_id)
                for id, member in state.members.items()
            ],
            recorded_controller_epoch=state.controller_epoch,
            min_insync_replicas=min_insync,
            # It concerns the leader alone, so one message does for all. In the epoch in which the life of the partition
            # began its leader has been up since; what is kept of a later one may say so after it has acknowledged: it
            # was up since as well, or another state has its epoch by now.
            is_new=state.leader_epoch == partition.began or self.newborn.is_new_to(key, state.leader),
            adding_replicas=adding,
            leader_throttle_rate=rates[0],
            follower_throttle_rate=rates[1],
            settings=None if settings == NO_SETTINGS else _settings_message(settings),
            began_leader_epoch=partition.began,
        )
        data = control_pb2.LeaderAndIsrRequest(partitions=[message]).SerializeToString()
        self._built[key] = (partition, picture.settings, sources, data)
        return data

    def _replica_settings(self, picture: Cluster, topic: str) -> ReplicaSettings:
        """What replicas of a topic are told; thousands of partitions share one value."""
        if picture.settings is not self._settings:
            self._settings = picture.settings
            self._told.clear()
        name = topic if topic in picture.settings.topics else ""
        told = self._told.get(name)
        if told is None:
            told = self._told[name] = picture.settings.of_replicas(topic)
        return told

    def replica_log_info(
        self, broker: Broker, queries: Sequence[control_pb2.ReplicaLogQuery]
    ) -> control_pb2.GetReplicaLogInfoRequest:
        """The question what logs hold."""
        return control_pb2.GetReplicaLogInfoRequest(
            controller_id=self._reign.controller_id,
            controller_epoch=self._reign.epoch,
            broker_epoch=broker.epoch,
            queries=queries,
        )

    def broker_settings(self, broker: Broker) -> control_pb2.DescribeBrokerSettingsRequest:
        """The question what a broker runs with."""
        return control_pb2.DescribeBrokerSettingsRequest(controller_epoch=self._reign.epoch, broker_epoch=broker.epoch)

    def release(self) -> None:
        """Forget all messages."""
        self._built.clear()
        self._settings = None
        self._told.clear()

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that are gone."""
        for key in keys:
            self._built.pop(key, None)

    def stop_replica(self, broker: Broker, stops: Sequence[Stop]) -> control_pb2.StopReplicaRequest:
        """The message for stops."""
        return control_pb2.StopReplicaRequest(
            controller_id=self._reign.controller_id,
            controller_epoch=self._reign.epoch,
            broker_epoch=broker.epoch,
            partitions=[
                control_pb2.StopReplicaPartition(
                    topic=stop.topic,
                    topic_id=stop.topic_id,
                    partition=stop.partition,
                    leader_epoch=stop.leader_epoch,
                    delete=stop.delete,
                    reassigned=stop.reassigned,
                )
                for stop in stops
            ],
        )
