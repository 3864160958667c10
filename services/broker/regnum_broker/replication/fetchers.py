"""The streams of a broker to the leaders that its replicas follow: one to each."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey
from regnum_service.cancellation import end_task
from regnum_service.supervisor import Supervisor

from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.partition import Following, Partition


class Fetchers:
    """All fetch streams of this broker."""

    def __init__(self, make_stream: Callable[[BrokerId], LeaderStream], supervisor: Supervisor) -> None:
        self._make_stream: Final = make_stream
        self._supervisor: Final = supervisor
        self._streams: Final[dict[BrokerId, LeaderStream]] = {}
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._leaders: Final[dict[PartitionKey, BrokerId]] = {}
        self._held: dict[PartitionKey, tuple[Partition, Following]] | None = None
        self._held_known: frozenset[PartitionKey] = frozenset()
        """What was followed when that began. An order has it forgotten before it is followed again."""
        self._stopped = False

    def follow(self, partition: Partition, following: Following) -> None:
        """Fetch a partition from its leader."""
        known = partition.key in self._held_known
        self.forget(partition.key)
        if following.leader == NO_LEADER or self._stopped:
            return
        if self._held is not None and not known:
            self._held[partition.key] = partition, following
            return
        stream = self._streams.get(following.leader)
        if stream is None:
            stream = self._streams[following.leader] = self._make_stream(following.leader)
            self._tasks.append(self._supervisor.start(f"fetch from broker {following.leader}", stream.run()))
        self._leaders[partition.key] = following.leader
        stream.add(partition, following)

    def forget(self, key: PartitionKey) -> None:
        """Fetch it no longer."""
        if self._held:
            self._held.pop(key, None)
        leader = self._leaders.pop(key, None)
        if leader is not None:
            self._streams[leader].remove(key)

    def hold(self) -> None:
        """Follow from now on what is followed, and nothing else.

        What is led is about to be handed over, and a broker that goes must not enter the in-sync sets of those who take
        it (defect D11).
        """
        if self._held is None:
            self._held, self._held_known = {}, frozenset(self._leaders)

    def release(self) -> None:
        """The broker stays: follow what was not followed meanwhile."""
        held, self._held, self._held_known = self._held, None, frozenset()
        for partition, following in () if held is None else held.values():
            self.follow(partition, following)

    def start_moved(self, key: PartitionKey) -> None:
        """The log of a replica begins later now: its leader, if it follows one, is told."""
        leader = self._leaders.get(key)
        if leader is not None:
            self._streams[leader].start_moved(key)

    def is_idle(self, partition: Partition) -> bool:
        """Whether a replica does nothing: it has no role, or follows a leader that refuses it, or none that answers."""
        if not isinstance(partition.role, Following):
            return partition.role is None
        leader = self._leaders.get(partition.key)
        return leader is None or not self._streams[leader].serves(partition.key)

    def heard_s(self, key: PartitionKey) -> float:
        """Moment of the newest answer of the leader that a replica follows; minus infinity: there was none."""
        leader = self._leaders.get(key)
        return -math.inf if leader is None else self._streams[leader].heard_s

    def answers(self) -> dict[BrokerId, int]:
        """How many answers each leader that is waited for has given so far."""
        return {leader: count for leader, stream in self._streams.items() if (count := stream.answers) is not None}

    async def stop(self) -> None:
        """End all streams, for good: a broker that shuts down must not enter an ISR again (defect D11)."""
        self._stopped = True
        for task in self._tasks:
            end_task(task)
        if self._tasks:
            await asyncio.wait(self._tasks)
