"""How far the replicas of partitions are that move to other brokers: told to the controller while they move.

A hint for people who wait; it decides nothing. Orders say which partitions move; a bounded number of them is told of,
once in INTERVAL_S, and nothing at all while nothing moves.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock

from regnum_broker.replication.replicas import Replicas

INTERVAL_S: Final = 1.0
"""Pause between two reports."""

REPORTED_MAX: Final = 500
"""Replicas of one report; the controller moves fewer partitions at a time."""


class MovingReplica(NamedTuple):
    """What a replica has."""

    key: PartitionKey
    log_start_offset: int
    log_end_offset: int
    size_bytes: int


class MovingReplicas:
    """Belongs to the event loop."""

    def __init__(self, *, replicas: Replicas, tell: Callable[[tuple[MovingReplica, ...]], None], clock: Clock) -> None:
        self._replicas: Final = replicas
        self._tell: Final = tell
        self._clock: Final = clock
        self._keys: Final[dict[PartitionKey, None]] = {}
        self._told = False

    def note(self, key: PartitionKey, moves: bool) -> None:  # noqa: FBT001 - a callback
        """What the newest order says of a partition."""
        if moves:
            self._keys[key] = None
        else:
            self._keys.pop(key, None)

    async def run(self) -> None:
        """Tell for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Tell once, if there is anything to tell, or was."""
        found: list[MovingReplica] = []
        for key in tuple(islice(self._keys, REPORTED_MAX)):
            partition = self._replicas.get(key)
            if partition is None or partition.role is None:
                # Deleted, or stopped: no order is to come.
                del self._keys[key]
                continue
            log = partition.log
            found.append(MovingReplica(key, log.log_start_offset, log.log_end_offset, log.size_bytes))
        if found or self._told:
            self._tell(tuple(found))
        self._told = bool(found)
