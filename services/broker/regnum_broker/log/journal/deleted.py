"""Which replicas were deleted in this run, and how far they had come: none of them is led again as if it were new.

The store may go back to a time before a deletion, and say so (trace T9). What was deleted in an earlier run the broker
does not know; the controller does not call a partition new for a broker that has registered anew.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from regnum_model.ids import LeaderEpoch, PartitionKey
from regnum_model.nodes import MAX_EPOCH

DELETED_MAX: Final = 65_536
"""Deleted replicas that are remembered; the oldest are forgotten."""

UNKNOWN: Final = LeaderEpoch(MAX_EPOCH)
"""Epoch of a replica that could not be read: no life of the partition is surely a later one."""


class ReadableReplica(Protocol):
    """A replica that is not damaged."""

    @property
    def highest_leader_epoch(self) -> LeaderEpoch:
        """Highest leader epoch ever recorded of it; NO_EPOCH: none."""


class DeletedReplicas:
    """Highest leader epoch of each. Written by the writer thread; read by any."""

    def __init__(self, *, room: int = DELETED_MAX) -> None:
        self._room: Final = room
        self._epochs: Final[dict[PartitionKey, LeaderEpoch]] = {}

    def note(self, keys: Iterable[PartitionKey], replicas: Mapping[PartitionKey, ReadableReplica]) -> None:
        """Replicas are deleted; ``replicas``: those of them, and others, that can be read."""
        for key in keys:
            epoch = replicas[key].highest_leader_epoch if key in replicas else UNKNOWN
            self._epochs[key] = max(epoch, self._epochs.pop(key, epoch))
        while len(self._epochs) > self._room:
            del self._epochs[next(iter(self._epochs))]

    def epoch_of(self, key: PartitionKey) -> LeaderEpoch | None:
        """The highest epoch that a deleted replica knew; None: none was deleted."""
        return self._epochs.get(key)
