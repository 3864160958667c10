"""All replicas of this broker, and who asks for which."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.configs import ReplicaSettings
from regnum_model.epochs import is_plausible
from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service.errors import Code

from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Following, Partition, Role
from regnum_broker.replication.purgatory import Signal
from regnum_broker.replication.sessions.first_acknowledgements import FirstAcknowledgements


@dataclass(frozen=True, slots=True)
class NotHere:
    """Why a client cannot be served a partition here."""

    code: Code
    """The error."""
    message: str
    """What to do next."""
    promised: Partition | None = None
    """The replica, where it leads as soon as that is recorded; None: it does not."""


class Replicas:
    """The broker's replicas by key and by name. Belongs to the event loop."""

    def __init__(self, broker: BrokerId) -> None:
        self.broker: Final = broker
        self.arrivals: Final = Signal()
        """Fires when replicas were added: sessions may wait for one."""
        self.first_acknowledgements: Final = FirstAcknowledgements()
        """Of new leaderships to producers."""
        self._partitions: Final[dict[PartitionKey, Partition]] = {}
        self._topics: Final[dict[TopicId, dict[PartitionKey, None]]] = {}
        self._named: Final[dict[tuple[str, int], Partition]] = {}
        self._leading: Final[dict[PartitionKey, Leadership]] = {}
        self._promised: Final[dict[PartitionKey, Partition]] = {}
        self._following = 0
        self.unlooked: Final = Signal()
        """Fires when there is something for ``take_unlooked``."""
        self._unlooked: Final[dict[PartitionKey, None]] = {}
        self.unclean: Final = Signal()
        """Fires when there is something for ``take_unclean``."""
        self._unclean: Final[dict[PartitionKey, None]] = {}
        self._incomplete: Final[dict[Leadership, None]] = {}
        self._moved: Final[dict[PartitionKey, Partition]] = {}
        self._addresses: Final[dict[BrokerId, Address]] = {}
        self._client_listeners: Final[dict[BrokerId, types_pb2.Endpoint]] = {}
        self._racks: Final[dict[BrokerId, str]] = {}
        self._fetches: Final[dict[BrokerId, int]] = {}
        self._log: Final = structlog.get_logger("replicas")

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, key: PartitionKey) -> Partition | None:
        """The replica with that key."""
        return self._partitions.get(key)

    def add(self, key: PartitionKey, topic: str, log: ReplicaLog) -> Partition:
        """A replica that is new here or was found on disk."""
        partition = self._partitions[key] = Partition(key, topic, log, self._moved)
        # What its log has may be less than the checkpoint says.
        self._moved[key] = partition
        self._topics.setdefault(key.topic_id, {})[key] = None
        return partition

    def remove(self, key: PartitionKey) -> None:
        """A replica whose files are gone."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            keys = self._topics[key.topic_id]
            del keys[key]
            self._moved.pop(key, None)
            if not keys:
                del self._topics[key.topic_id]
            self.give(partition, None)
            if self._named.get((partition.topic, key.partition)) is partition:
                del self._named[partition.topic, key.partition]

    def configure(self, partition: Partition, settings: ReplicaSettings) -> None:
        """Have a replica act by other settings of its topic."""
        if not partition.take_settings(settings):
            return
        if isinstance(partition.role, Leadership):
            self._look_at(partition)
        if partition.log.settings.is_compacted:
            self._unclean[partition.key] = None
            self.unclean.fire()

    def take_unclean(self) -> tuple[PartitionKey, ...]:
        """Replicas whose topic is compacted, by new settings, since they were taken last."""
        unclean = tuple(self._unclean)
        self._unclean.clear()
        return unclean

    def take_unlooked(self) -> tuple[PartitionKey, ...]:
        """Replicas that are led here, or with other settings, since they were taken last: retention may be due."""
        unlooked = tuple(self._unlooked)
        self._unlooked.clear()
        return unlooked

    def _look_at(self, partition: Partition) -> None:
        self._unlooked[partition.key] = None
        self.unlooked.fire()

    def take_moved(self) -> dict[PartitionKey, Partition]:
        """Replicas whose high watermark has moved since they were taken last, and new ones: the caller has them now."""
        moved = dict(self._moved)
        self._moved.clear()
        return moved

    def put_back(self, moved: Mapping[PartitionKey, Partition]) -> None:
        """What was taken was not saved."""
        for key, partition in moved.items():
            if self._partitions.get(key) is partition:
                self._moved[key] = partition

    def of_topic(self, topic_id: TopicId) -> list[PartitionKey]:
        """Keys of all replicas of a topic."""
        return list(self._topics.get(topic_id, ()))

    def give(self, partition: Partition, role: Role | None) -> None:
        """Change a replica's role; the name belongs to the replica that got a role last."""
        self._end_leading(partition)
        self._promised.pop(partition.key, None)
        if isinstance(role, Leadership):
            self._leading[partition.key] = role
            role.keep_in(self._incomplete)
            if partition.log.settings.is_limited:
                self._look_at(partition)
        if role is not None:
            self._named[partition.topic, partition.key.partition] = partition
        self._following += isinstance(role, Following) - isinstance(partition.role, Following)
        partition.take_role(role)

    def promise(self, partition: Partition) -> None:
        """End a replica's role: it leads as soon as that is recorded, and ``give`` is called."""
        self._end_leading(partition)
        self._following -= isinstance(partition.role, Following)
        self._promised[partition.key] = partition
        partition.promise()

    def _end_leading(self, partition: Partition) -> None:
        former = self._leading.pop(partition.key, None)
        if former is not None:
            former.keep_in(None)

    def namesake(self, key: PartitionKey, topic: str) -> Partition | None:
        """The replica that has the name now but another topic id; None: nobody, or itself."""
        held = self._named.get((topic, key.partition))
        return held if held is not None and held.key != key else None

    @property
    def leading_count(self) -> int:
        """Number of leaderships."""
        return len(self._leading)

    @property
    def following_count(self) -> int:
        """Number of replicas that follow."""
        return self._following

    def leading(self) -> tuple[Leadership, ...]:
        """All leaderships."""
        return tuple(self._leading.values())

    def incomplete(self) -> tuple[Leadership, ...]:
        """Leaderships whose ISR lacks an assigned replica, or has something else left to be written."""
        return tuple(self._incomplete)

    def step_down(self, leadership: Leadership, reason: str) -> None:
        """Give one leadership up; the replica waits for the next order."""
        partition = leadership.partition
        if partition.role is leadership:
            self._log.warning("stepped down", topic=partition.topic, partition=partition.key.partition, reason=reason)
            self.give(partition, None)

    def learn_leaders(self, topic: types_pb2.TopicState) -> None:
        """Give up what others lead by now, in later epochs than this broker's, and has not been told of here.

        A broker that a reassignment takes a partition from is told to stop when the next leader has begun; until then
        it would keep clients waiting for acknowledgements that cannot come.
        """
        topic_id, gone = TopicId(topic.topic_id), 0
        for state in topic.partitions:
            leading = self._leading.get(PartitionKey(topic_id, state.partition))
            if (
                leading is not None
                and not state.removed
                and state.leader_epoch > leading.state.leader_epoch
                and is_plausible(state.leader_epoch, leading.state.leader_epoch)
                and state.leader not in {NO_LEADER, self.broker}
            ):
                self.give(leading.partition, None)
                gone += 1
        if gone:
            self._log.info("partitions are led elsewhere", topic=topic.name, partitions=gone)

    def surrender(self) -> None:
        """Give all leaderships up: the broker's registration is over (safety rules S8 and S11)."""
        leading = self.leading()
        for leadership in leading:
            self.give(leadership.partition, None)
        for partition in tuple(self._promised.values()):
            # Who waits for it is sent away; it is given all the same, and given up again (``Orders.surrender``).
            self.give(partition, None)
        if leading:
            self._log.warning("gave all leadership up, the registration is over", partitions=len(leading))

    def find_leader(self, topic: str, topic_id: str, partition: int, *, known: bool) -> Leadership | NotHere:
        """The leadership that a client asks for.

        Args:
            topic: topic name.
            topic_id: topic id that the client knows; empty: any.
            partition: partition number.
            known: whether the metadata cache knows the partition.
        """
        found = self._named.get((topic, partition))
        if found is None:
            if known:
                return NotHere(
                    errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
                    f"broker {self.broker} has no replica of {topic}/{partition}; refresh metadata, go to the leader",
                )
            return NotHere(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}/{partition} is not known here; check the name, or create the topic first",
            )
        if topic_id and topic_id != found.key.topic_id:
            return NotHere(
                errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
                f"topic {topic} has id {found.key.topic_id} now; it was deleted and created again: refresh metadata",
            )
        role = found.role
        if not isinstance(role, Leadership):
            return NotHere(
                errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker} does not lead {topic}/{partition}; refresh metadata and go to the leader",
                promised=None if found.promised is None else found,
            )
        if role.cut_off:
            return NotHere(
                errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker} hears from no store, no controller and no follower of {topic}/{partition}:"
                " another may lead by now; refresh metadata, from another broker",
            )
        return role

    def epoch_of(self, topic: str, partition: int) -> LeaderEpoch | None:
        """Leader epoch of the replica with that name; None: there is none."""
        found = self._named.get((topic, partition))
        return None if found is None else found.leader_epoch

    def named(self, topic: str, partition: int) -> Partition | None:
        """The replica with that name."""
        return self._named.get((topic, partition))

    def follows(self, topic: str, partition: int) -> bool:
        """Whether there is a replica with that name, and it follows."""
        found = self._named.get((topic, partition))
        return found is not None and isinstance(found.role, Following)

    def learn_listeners(self, brokers: Iterable[types_pb2.Broker]) -> None:
        """Take up where brokers are."""
        for broker in brokers:
            id = BrokerId(broker.id)
            self._addresses[id] = Address(host=broker.internal.host, port=broker.internal.port)
            self._racks[id] = broker.rack
            if broker.HasField("client"):
                self._client_listeners[id] = broker.client

    def rack_of(self, broker: BrokerId) -> str:
        """Rack of a broker, as heard last; empty: none."""
        return self._racks.get(broker, "")

    def address_of(self, broker: BrokerId) -> Address | None:
        """Internal listener of a broker, as heard last."""
        return self._addresses.get(broker)

    def client_listener_of(self, broker: BrokerId) -> types_pb2.Endpoint | None:
        """Client listener of a broker, as heard last."""
        return self._client_listeners.get(broker)

    def note_fetch(self, broker: BrokerId) -> None:
        """A broker sent a request on a fetch stream."""
        if broker in self._addresses:
            # Whoever invents ids fills no memory.
            self._fetches[broker] = self._fetches.get(broker, 0) + 1

    def fetches(self) -> dict[BrokerId, int]:
        """How many fetch requests every other broker has sent so far."""
        return {id: self._fetches.get(id, 0) for id in self._addresses if id != self.broker}
