"""How far partitions are that move, as their brokers say over the lifeline: for people, nothing is decided by it.

Bounded: of partitions that are being reassigned only, and of the brokers that have a part in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.reign.events import LogSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """How far one partition is."""

    total: int | None
    """Bytes that the new replicas have to have; None: their leader has not said yet."""
    done: int
    """Bytes of these that they have."""


class MovingLogs:
    """Of one reign. Used on the controller's loop only."""

    def __init__(self) -> None:
        self._sizes: Final[dict[PartitionKey, dict[BrokerId, LogSize]]] = {}

    def take(self, picture: Cluster, broker: BrokerId, said: Iterable[tuple[PartitionKey, LogSize]]) -> None:
        """What a broker says of its replicas."""
        for key in [key for key in self._sizes if key not in picture.reassigning]:
            del self._sizes[key]
        for key, size in said:
            partition = picture.partitions.get(key)
            if key in picture.reassigning and partition is not None and broker in partition.replicas:
                self._sizes.setdefault(key, {})[broker] = size

    def sizes(self, key: PartitionKey) -> Mapping[BrokerId, LogSize]:
        """What was said of a partition, by broker."""
        return self._sizes.get(key, {})

    def bytes_of(self, key: PartitionKey, partition: Partition) -> Bytes:
        """How far a partition is; a new replica in the ISR has everything."""
        move, held, sizes = partition.reassignment, partition.held, self.sizes(key)
        if move is None or held is None or held.state.leader not in sizes:
            return Bytes(total=None, done=0)
        whole = sizes[held.state.leader].size_bytes
        done = sum(
            whole if id in held.state.isr else min(sizes[id].size_bytes if id in sizes else 0, whole)
            for id in move.adding
        )
        return Bytes(total=whole * len(move.adding), done=done)
