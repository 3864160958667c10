"""What a coordinator of groups has: shards, each with the leadership that it belongs to, and limits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import types_pb2
from regnum_model.ids import BrokerId

from regnum_broker.groups.shard import Shard
from regnum_broker.replication.leader import Leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLimits:
    """What one broker takes on."""

    groups_max: int = 20_000
    """Groups that it coordinates."""
    bytes_max: int = 256 * 1024 * 1024
    """Bytes of memory for groups and offsets, about; what was acknowledged stays, also beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorPlace:
    """Where a coordinator is."""

    broker: BrokerId
    """Its broker; NO_LEADER: there is none."""
    client: types_pb2.Endpoint | None
    """Listener for clients; None: not known here."""


class Seat:
    """A shard and the leadership that it belongs to."""

    def __init__(self, leadership: Leadership, shard: Shard, vacate: Callable[["Seat"], None]) -> None:
        self.leadership: Final = leadership
        self.shard: Final = shard
        self.loading: asyncio.Task[None] | None = None
        self._vacate: Final = vacate

    def set(self) -> None:
        """Hear that the partition moved, perhaps to another leader."""
        if not self.holds:
            self._vacate(self)

    @property
    def holds(self) -> bool:
        """Whether this broker still leads as it did."""
        return self.leadership.partition.role is self.leadership and not self.leadership.cut_off
