"""First acknowledgements of new leaders to producers: a change of leadership ends with them, traced or not.

The controller is told of those of partitions that were busy when the leadership changed, which it hears with the answer
to its order. Nothing is decided by it.
"""

from collections.abc import Callable
from typing import Final

from regnum_model.ids import LeaderEpoch, PartitionKey

REMEMBERED_MAX: Final = 10_000
"""Leaderships of which it is remembered that they are told of; of so many at once the oldest are not."""


class FirstAcknowledgements:
    """Of one broker. Belongs to the event loop."""

    def __init__(self) -> None:
        self._is_busy: Callable[[PartitionKey], bool] = lambda _key: False
        self._tell: Callable[[PartitionKey, LeaderEpoch], None] = lambda _key, _epoch: None
        self._epochs: Final[dict[PartitionKey, LeaderEpoch]] = {}
        """Newest leader epochs that are told of, or were."""
        self.awaited: Final[dict[PartitionKey, LeaderEpoch]] = {}
        """Those of them without an acknowledgement; mostly none."""

    def report(
        self, is_busy: Callable[[PartitionKey], bool], tell: Callable[[PartitionKey, LeaderEpoch], None]
    ) -> None:
        """Tell of them from now on.

        Args:
            is_busy: whether records were committed in a partition lately.
            tell: takes a partition and its leader epoch, with the first acknowledgement in that.
        """
        self._is_busy, self._tell = is_busy, tell

    def began(self, key: PartitionKey, epoch: LeaderEpoch) -> None:
        """A leadership began."""
        if not self._is_busy(key):
            return
        for known in (self._epochs, self.awaited):
            known.pop(key, None)
            known[key] = epoch
            if len(known) > REMEMBERED_MAX:
                del known[next(iter(known))]

    def follows(self, key: PartitionKey, epoch: LeaderEpoch) -> bool:
        """Whether the first acknowledgement in that leader epoch is told of, or was."""
        return self._epochs.get(key) == epoch

    def acknowledged(self, key: PartitionKey) -> None:
        """A producer got an acknowledgement; for those that are awaited."""
        epoch = self.awaited.pop(key, None)
        if epoch is not None:
            self._tell(key, epoch)
