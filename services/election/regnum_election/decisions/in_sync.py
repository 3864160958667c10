"""Which partitions a broker has still to be in sync with, and which hold it back when it wants to stop. Pure.

Goals
    A broker says that it is ready when its going away again would cost as little as that of any other: when it is in
    the in-sync set of all that it holds. One that stops in order takes no partition below min.insync.replicas. Both
    together let a rolling restart, and the draining of machines, go on by themselves without a moment in which
    acks=all is refused.

Constraints
    - Nothing is waited for that cannot come right by waiting. A partition without a leader has nobody to catch up
      with: a leader that is away for good is no leader, because the controller elects another one or writes that there
      is none. A replica that its broker cannot use stays as it is until somebody mends the disk. A broker that a
      reassignment brings in fills its replica for as long as that takes, and nothing counts on it before.
    - A partition whose other replicas would not suffice even if all of them were in sync is taken below in any case:
      with a replication factor of 1, or of 2 and min.insync.replicas 2. It holds nobody back when all of them are in
      sync; until then it does, for with none of them it would be without a leader.
    - When every broker wants to stop, nobody comes back for whom to wait: the whole cluster is being stopped. Every
      broker is also one that is away and has replicas. It may be restarting, and copies from those that ask now; only
      if it asked when they did, it is being stopped with them.
    - A member of the in-sync set counts only with the broker epoch that is recorded for it (safety rule S10): a broker
      that came back faster than it was missed has yet to catch up.

Example: assignment [1, 2, 3], min.insync.replicas 2. Broker 1 restarts: it waits for the partition until the in-sync
set is [2, 3, 1]. If 2 is told to stop while the set is [2, 3], it is held back until 1 is in it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, PartitionKey
from regnum_model.nodes import LeaderAndIsr

from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.leadership import Surroundings

ASKED_S: Final = 5.0
"""For so long a broker counts as one that wants to stop after it asked: it asks every second."""


def is_awaited(picture: Cluster, key: PartitionKey, id: BrokerId) -> bool:
    """Whether a live broker has still to enter the in-sync set of a partition, and can by waiting."""
    partition, broker = picture.partitions.get(key), picture.brokers.get(id)
    if partition is None or broker is None or id not in partition.replicas:
        return False
    if not partition.is_led or partition.held is None or key in picture.offline.get(id, ()):
        return False
    move = partition.reassignment
    if move is not None and id not in move.origin:
        return False
    state = partition.held.state
    return id not in state.isr or state.members[id].broker_epoch != broker.epoch


def holds_back(
    state: LeaderAndIsr, replicas: Sequence[BrokerId], id: BrokerId, surroundings: Surroundings, *, min_insync: int
) -> bool:
    """Whether a partition would have too few in-sync replicas without a broker, and waiting may help.

    Args:
        state: what the node holds.
        replicas: assignment.
        id: the broker that wants to stop.
        surroundings: live brokers, and those that are stopping already.
        min_insync: effective min.insync.replicas.
    """
    if state.leader == NO_LEADER or id not in state.isr:
        return False
    staying = sum(
        other != id and other not in surroundings.leaving and surroundings.is_intact(other, state.members)
        for other in state.isr
    )
    return staying < min(min_insync, len(set(replicas) - {id}))


class WholeStop:
    """Knows when all brokers are being stopped; one for each reign."""

    def __init__(self) -> None:
        self._asked: Final[dict[BrokerId, tuple[BrokerEpoch, float]]] = {}
        self._stopped: Mapping[BrokerId, BrokerEpoch] = {}

    def heard(self, id: BrokerId, epoch: BrokerEpoch, now_s: float) -> None:
        """A broker asks, whenever its turn may come: where all ask at once, the last one's comes late.

        Also one that goes in any case: it is being stopped like those that can wait.
        """
        self._asked[id] = epoch, now_s

    def asks(self, id: BrokerId, picture: Cluster, now_s: float) -> bool:
        """Whether a broker that wants to stop now is one of all; moments in seconds of a monotonic clock."""
        live = {broker.id: broker.epoch for broker in picture.brokers.values()}
        if self._stopped.get(id) == live[id]:
            # It was found when the last of the others asked, who may have gone since.
            return True
        self._asked[id] = live[id], now_s
        away = {other for other, assigned in picture.assigned.items() if assigned and other not in live}
        others = (live.keys() | away) - {id}
        if not others or not all(self._asks(other, live.get(other), now_s) for other in others):
            return False
        self._stopped = live
        return True

    def _asks(self, id: BrokerId, epoch: BrokerEpoch | None, now_s: float) -> bool:
        """Whether a broker asked lately: in its present life, or in its last one if it is away."""
        asked_epoch, asked_s = self._asked.get(id, (None, 0.0))
        return asked_epoch is not None and epoch in {None, asked_epoch} and now_s - asked_s <= ASKED_S
