"""Strays: logs here of which the newest metadata names neither topic id nor partition, and that no order is about.

Kafka's word. They are what a topic leaves behind that was made after the backup from which a cluster was restored, that
was deleted while this broker was away and forgotten, or whose nodes in the store somebody removed. Nobody but a person
can know whether their records still matter: they are counted and shown, and never deleted (safety rule S13).

A log counts once it was one at every look for the grace time, under one registration: an order, a piece of news or a
deletion may be on its way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.cluster.strays.key_pages import page_of
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas

Names = Callable[[str, PartitionKey], bool]
"""Whether a picture of the metadata names a partition of a topic, given by name, under that topic id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStrays:
    """What a look found."""

    keys: tuple[PartitionKey, ...]
    """The strays, in no order."""
    size_bytes: int
    """Bytes of their segments."""


class StrayLogs:
    """What is known of strays. Belongs to the event loop; ``found`` may be read by any thread."""

    def __init__(self, replicas: Replicas, *, grace_s: float) -> None:
        """Only assigns.

        Args:
            replicas: what there is.
            grace_s: for how long a log has to be a stray.
        """
        self._replicas: Final = replicas
        self._grace_s: Final = grace_s
        self._began_s: float | None = None
        self._since_s: Mapping[PartitionKey, float] = {}
        self.found: FoundStrays | None = None
        """By the last look; None: there was none for long enough under this registration."""

    def forget(self) -> None:
        """There is another registration, or none: everything is told anew."""
        self._began_s, self._since_s, self.found = None, {}, None

    def begin(self, names: Names | None, now_s: float) -> "Look | None":
        """Begin a look; None: there is no metadata to look by.

        Args:
            names: the newest metadata; it does not change.
            now_s: monotonic time.
        """
        if names is None:
            return None
        if self._began_s is None:
            self._began_s = now_s
        return Look(names, self._since_s, now_s=now_s, grace_s=self._grace_s)

    def end(self, look: "Look", *, now_s: float) -> None:
        """Take over what was found. ``now_s``: when the look began."""
        self._since_s = look.since_s
        if self._began_s is not None and now_s - self._began_s >= self._grace_s:
            self.found = FoundStrays(keys=tuple(look.strays), size_bytes=look.size_bytes)

    async def page(self, after: PartitionKey | None, count: int) -> tuple[Sequence[Partition], PartitionKey | None]:
        """The next ``count`` at most, in order, and where that ends; None: there are no more.

        Those that have gone since are left out.
        """
        keys, more = await page_of(() if self.found is None else self.found.keys, after, count)
        return list(filter(None, map(self._replicas.get, keys))), keys[-1] if more else None


class Look:
    """One look at all replicas that do nothing."""

    def __init__(self, names: Names, before: Mapping[PartitionKey, float], *, now_s: float, grace_s: float) -> None:
        """Only assigns; ``before``: since when each was a stray at the look before."""
        self._names: Final = names
        self._before: Final = before
        self._now_s: Final = now_s
        self._grace_s: Final = grace_s
        self.since_s: Final[dict[PartitionKey, float]] = {}
        """Since when each is a stray."""
        self.strays: Final[list[PartitionKey]] = []
        """Those that are for long enough."""
        self.size_bytes = 0
        """Bytes of these."""

    def add(self, partition: Partition) -> None:
        """Look at one that does nothing."""
        key = partition.key
        if self._names(partition.topic, key):
            return
        since_s = self.since_s[key] = self._before.get(key, self._now_s)
        if self._now_s - since_s >= self._grace_s:
            self.strays.append(key)
            self.size_bytes += partition.log.size_bytes
