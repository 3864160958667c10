"""What brokers and metadata processes answer, as events for the controller's queue."""

from typing import Final

import structlog
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataId, PartitionKey, TopicId

from regnum_election.publication.metadata_processes import remove_dead_process
from regnum_election.reign.events import (
    BrokersChanged,
    EventQueue,
    LeadershipsFenced,
    Mutation,
    PartitionsDeleted,
    ReplicasDeleted,
    ReplicasOffline,
    ReplicasUsable,
    Superseded,
    nobody_waits,
)
from regnum_election.reign.reign import Reign
from regnum_election.reign.writing import FencedStore


class ReplyListener:
    """DispatchListener and PublicationListener of one reign. On the controller's loop only; nothing here blocks."""

    def __init__(self, reign: Reign, queue: EventQueue, store: FencedStore) -> None:
        """Only assigns."""
        self._reign: Final = reign
        self._queue: Final = queue
        self._store: Final = store
        self._log: Final = structlog.get_logger("controller").bind(epoch=reign.epoch)

    def superseded(self, seen: ControllerEpoch) -> None:
        """A broker knows a later controller epoch."""
        # Whoever refuses us has seen a later epoch, even if the refusal does not name it.
        self._queue.put(Superseded(seen=max(seen, ControllerEpoch(self._reign.epoch + 1))))

    def broker_outdated(self, broker: BrokerId) -> None:
        """A broker says that it has registered anew."""
        self._log.info("broker has a later epoch", broker=broker)
        self._queue.put(BrokersChanged(frozenset({str(broker)})))

    def replicas_deleted(self, broker: BrokerId, topics: tuple[tuple[TopicId, bool], ...]) -> None:
        """A broker answered orders to delete."""
        self._queue.put(ReplicasDeleted(broker=broker, topics=topics))

    def partitions_deleted(self, broker: BrokerId, partitions: tuple[tuple[PartitionKey, bool], ...]) -> None:
        """A broker answered orders to delete single replicas."""
        self._queue.put(PartitionsDeleted(broker=broker, partitions=partitions))

    def replicas_offline(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused replicas because it cannot use them."""
        self._queue.put(ReplicasOffline(broker=broker, epoch=epoch, keys=keys))

    def leaderships_fenced(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused to lead in leader epochs that its logs know already."""
        self._queue.put(LeadershipsFenced(broker=broker, epoch=epoch, keys=keys))

    def replicas_usable(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker took up replicas that it could not use before."""
        self._queue.put(ReplicasUsable(broker=broker, epoch=epoch, keys=keys))

    def metadata_process_dead(self, id: MetadataId, creation_id: int) -> None:
        """A metadata process is proved dead."""
        steps = remove_dead_process(self._store, id, creation_id)
        self._queue.put_urgent(Mutation(name="metadata process dead", steps=steps, abandon=nobody_waits))
