"""What the store says of a partition's leader epoch, for an order that names one far above all that is known here."""

from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_model import paths
from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr, MalformedNodeError


async def recorded_leader_epoch(store: Store | None, topic: str, key: PartitionKey) -> LeaderEpoch:
    """Leader epoch of the partition's state in the store; NO_EPOCH when there is none, or no store to ask.

    A round trip of the task that carries orders out, and only for an epoch that nobody can have reached while this
    broker was away: the controller sends its order again when it is refused.
    """
    if store is None:
        return NO_EPOCH
    try:
        node = await store.get(paths.leader_and_isr(topic, key.partition), current=True)
        state = LeaderAndIsr.decode(node.data)
    except (NoNode, ConnectionLoss, SessionExpired, MalformedNodeError):
        return NO_EPOCH
    return state.leader_epoch if state.topic_id == key.topic_id else NO_EPOCH
