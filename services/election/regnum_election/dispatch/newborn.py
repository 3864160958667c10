"""Partitions whose life has just begun, and which of their members may still have to make an empty replica.

Goals
    A leader that dies in the middle of a creation is succeeded at once by a member that has not heard of the partition
    yet; nothing was acknowledged by all of its ISR before that member had made its replica (safety rule S15).

Constraints
    A leader never makes a replica that it misses unless its order says that it is new (safety rule S10): it may have
    had one, with records that were acknowledged. So what is said here has to be certain.

Algorithm: of the following members no earlier life can have had a replica and lost it.

    - Those of a first state that this reign wrote, until they acknowledge an order that names a leader. Whatever one of
      them took up without that being heard is on its disk still, or its log id is another one and it leads nothing.
    - Those of a state of an earlier reign in the leader epoch in which the partition's life began, if another leader is
      elected over it before the member has acknowledged this reign's full set, and the member is intact
      (``Surroundings.is_intact``): it has been up since it was recorded, and a broker knows what it deleted in one run.
    - One that was elected by a recovery, where the loss of everything else was accepted.

    One that is ordered to stop it had it, or never will.

Example: a topic is created with replicas [1, 2, 3]; broker 1 dies before 2 and 3 have heard of it. Broker 2 is elected
in leader epoch 1, and its order says that the partition is new. It acknowledges and is killed: 3, if it has
acknowledged as well, may not make one any more, and does not have to.

What remains: of a creation under an earlier reign, a member that has bounced before it took up its first order, and one
that was elected and not told. Where no other member has a replica, the partition is Offline until a person recovers it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr
from regnum_model.nodes.reading import kept_ids

from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.leadership import Surroundings


class Newborn:
    """Of one reign. Used by the controller's loop only."""

    def __init__(self) -> None:
        self._members: Final[dict[PartitionKey, tuple[BrokerId, ...]]] = {}

    def written(
        self,
        key: PartitionKey,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr,
        *,
        began: LeaderEpoch,
        surroundings: Surroundings,
        has_full_set: Callable[[BrokerId], bool],
    ) -> None:
        """This reign wrote a state.

        Args:
            key: the partition.
            before: the state until then; None: there was none.
            after: the state now.
            began: leader epoch at which the partition's life began.
            surroundings: the live brokers.
            has_full_set: whether a live broker has acknowledged its full set of this reign.
        """
        if before is None:
            self.add(key, after.isr)
        elif before.leader_epoch == began < after.leader_epoch:
            unheard = (id for id in before.isr if not has_full_set(id))
            self.add(key, (id for id in unheard if surroundings.is_intact(id, before.members)))

    def add(self, key: PartitionKey, members: Iterable[BrokerId]) -> None:
        """Members that may have to make it."""
        known = self._members.get(key, ())
        if together := (*known, *(id for id in members if id not in known)):
            self._members[key] = kept_ids(together)

    def has_it(self, key: PartitionKey, broker: BrokerId) -> None:
        """A broker acknowledged an order that names a leader of it, or is to stop it."""
        known = self._members.get(key)
        if known is None or broker not in known:
            return
        left = tuple(id for id in known if id != broker)
        if left:
            self._members[key] = kept_ids(left)
        else:
            del self._members[key]

    def led(self, keys: Iterable[PartitionKey], picture: Cluster) -> frozenset[PartitionKey]:
        """Those of partitions with a state that have a leader: an order without one makes no replica."""
        return frozenset(key for key in keys if key in self._members and picture.partitions[key].is_led)

    def is_new_to(self, key: PartitionKey, leader: BrokerId) -> bool:
        """Whether a leader may make it; without a leader, whether any member may still have to."""
        known = self._members.get(key)
        return known is not None and (leader == NO_LEADER or leader in known)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that are gone."""
        for key in keys:
            self._members.pop(key, None)

    def __len__(self) -> int:
        return len(self._members)
