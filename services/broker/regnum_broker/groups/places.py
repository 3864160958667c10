"""Which broker coordinates what: the leader of the partition of an internal topic."""

from collections.abc import Sequence
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId

from regnum_broker.groups.offsets_topic import OffsetsTopic, partition_of
from regnum_broker.groups.seats import CoordinatorPlace
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders


class CoordinatorPlaces:
    """Of one internal topic. Belongs to the event loop."""

    def __init__(self, topic: OffsetsTopic, *, leaders: CurrentLeaders, replicas: Replicas) -> None:
        """Only assigns."""
        self._topic: Final = topic
        self._leaders: Final = leaders
        self._replicas: Final = replicas

    async def of(self, keys: Sequence[str], *, wait_s: float) -> list[CoordinatorPlace]:
        """Who coordinates each of them; the topic is created if need be.

        Raises:
            RegnumError: COORDINATOR_NOT_AVAILABLE: there is no topic yet. The caller has not the right.
        """
        view = await self._topic.ensure(key=keys[0] if keys else "", wait_s=wait_s)
        found: list[CoordinatorPlace] = []
        for key in keys:
            leader = BrokerId(self._leaders.state_of(view, partition_of(key, self._topic.partitions)).leader)
            client = None if leader == NO_LEADER else self._replicas.client_listener_of(leader)
            found.append(CoordinatorPlace(broker=leader, client=client))
        return found
