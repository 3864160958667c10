"""Which brokers append no records, and in which partitions nothing is committed, as brokers say: kept by health."""

from collections.abc import Callable, Iterator
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey

from regnum_election.decisions.cluster import Cluster
from regnum_election.reign.writability import CommitsWait, DiskSaid

NO_KEYS: Final[frozenset[PartitionKey]] = frozenset()
"""Of a broker that has not said that anything waits."""


class Writability:
    """One for each reign. What a broker said in an earlier registration counts no more."""

    def __init__(self, picture: Callable[[], Cluster]) -> None:
        """Only assigns."""
        self._picture: Final = picture
        self._disks: Final[dict[BrokerId, DiskSaid]] = {}
        self._waits: Final[dict[BrokerId, CommitsWait]] = {}
        self.refusing: frozenset[BrokerId] = frozenset()
        """Brokers that append no records, as of the last turn."""
        self._waiting: dict[BrokerId, frozenset[PartitionKey]] = {}
        """What brokers said that waits, as of the last turn."""

    def heard_of(self, said: DiskSaid | CommitsWait) -> None:
        """A broker has said something."""
        if isinstance(said, DiskSaid):
            self._disks[said.broker] = said
        else:
            self._waits[said.broker] = said

    def disk_of(self, id: BrokerId) -> DiskSaid | None:
        """What a broker says of its disk in the registration that it has; None: nothing."""
        said = self._disks.get(id)
        return said if said is not None and self._is_of_now(said) else None

    def waits(self, key: PartitionKey, leader: BrokerId) -> bool:
        """Whether its leader says that nothing is committed there."""
        return key in self._waiting.get(leader, NO_KEYS)

    def turn(self) -> Iterator[PartitionKey]:
        """Take up what was said; returns the partitions that have to be looked at again.

        What a broker has not said anew costs nothing, however many partitions that is (safety rule S22).
        """
        picture = self._picture()
        refusing = frozenset([id for id, said in self._disks.items() if said.refuses_because and self._is_of_now(said)])
        waiting = {id: said.keys for id, said in self._waits.items() if self._is_of_now(said)}
        changed, before = refusing ^ self.refusing, self._waiting
        self.refusing, self._waiting = refusing, waiting
        for id in changed:
            yield from picture.assigned.get(id, ())
        for id in before.keys() | waiting.keys():
            known, said_now = before.get(id, NO_KEYS), waiting.get(id, NO_KEYS)
            if known is not said_now:
                yield from known ^ said_now

    def because(self, key: PartitionKey) -> str:
        """Why no write can succeed in a partition, in words; empty: nothing is known."""
        partition = self._picture().partitions.get(key)
        held = None if partition is None else partition.held
        if held is None:
            return ""
        members = dict.fromkeys((held.state.leader, *held.state.isr))
        said = [disk for id in members if (disk := self.disk_of(id)) is not None and disk.refuses_because]
        if said:
            return "; ".join(f"broker {one.broker}: {one.refuses_because}" for one in said)
        if self.waits(key, held.state.leader):
            return (
                f"records wait at its leader, broker {held.state.leader}, and nothing was committed for seconds: look "
                "at the members of its ISR, and whether the store takes writes"
            )
        return ""

    def _is_of_now(self, said: DiskSaid | CommitsWait) -> bool:
        broker = self._picture().brokers.get(said.broker)
        return broker is not None and broker.epoch == said.epoch
