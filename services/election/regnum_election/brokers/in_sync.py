"""Telling brokers that have just started how far they are from being in sync, so that they can say that they are ready.

Goals: a broker hears soon after it that it is in sync; nothing is done for brokers that are; a broker with tens of
thousands of replicas costs one walk over them, and then what changes.

Algorithm: a broker asks with the hello of its lifeline. Its partitions are looked at once, in slices, and those that it
waits for are kept. From then on each publication names what changed, and only that is looked at again. What no
publication names (a replica that turned out to be unusable, a state from the predecessor that was verified) is found
by looking at some of the kept ones again in each turn, the longest not looked at first. An empty set is told, and
forgotten: whoever was in sync once is not counted again.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, TopicId
from regnum_service.slices import slices

from regnum_election.decisions.in_sync import is_awaited
from regnum_election.reign.events import AwaitsInSync, CatchingUp
from regnum_election.state.context import ControllerContext

INTERVAL_S: Final = 0.1
"""Time between two turns while some broker waits."""

COUNTED_AT_ONCE: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

LOOKED_AT_AGAIN: Final = 200
"""Partitions of a broker that are looked at again in a turn."""

Tell = Callable[[CatchingUp], None]


def nobody_is_told(_said: CatchingUp) -> None:
    """Where no lifelines are."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    """A broker that asked."""

    epoch: BrokerEpoch
    awaited: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions that it waits for; as a queue, the longest not looked at first."""
    counted: bool = False
    """Whether all of its partitions have been looked at."""
    told: CatchingUp | None = None


class InSyncWatch:
    """One for each reign. Belongs to the controller's loop."""

    def __init__(self, context: ControllerContext, tell: Tell = nobody_is_told) -> None:
        """Only assigns; ``tell`` takes what is to be said to a broker."""
        self._context: Final = context
        self._tell: Final = tell
        self._waiting: Final[dict[BrokerId, _Waiting]] = {}
        self._asked: Final = asyncio.Event()
        self._log: Final = structlog.get_logger("in sync").bind(epoch=context.reign.epoch)

    def heard_of(self, asked: AwaitsInSync) -> None:
        """A broker asked on a new lifeline, or the lifeline is over on which it did."""
        if not asked.open:
            known = self._waiting.get(asked.broker)
            if known is not None and known.epoch == asked.epoch:
                del self._waiting[asked.broker]
            return
        self._waiting[asked.broker] = _Waiting(epoch=asked.epoch)
        self._asked.set()

    def changed(self, keys: Collection[PartitionKey], _deleted: Collection[TopicId] = ()) -> None:
        """Partitions changed; those that are gone are found when they are looked at again."""
        if not self._waiting:
            return
        for key in keys:
            partition = self._context.picture.partitions.get(key)
            for id in () if partition is None else partition.replicas:
                waiting = self._waiting.get(id)
                if waiting is not None:
                    self._look(id, waiting, key)

    async def run(self) -> None:
        """Count until the reign ends; a task of the supervisor, from the moment when the reign has begun."""
        self._context.metadata.tell_of_changes(self.changed)
        try:
            while True:
                await self._asked.wait()
                await self.turn()
                if not self._waiting:
                    self._asked.clear()
                await self._context.clock.sleep(INTERVAL_S)
        finally:
            # Reign and parts refer to one another, and old cycles stay: what is large goes now.
            self._waiting.clear()

    async def turn(self) -> None:
        """One look at all who wait."""
        for id, waiting in tuple(self._waiting.items()):
            broker = self._context.picture.brokers.get(id)
            if broker is not None and broker.epoch > waiting.epoch:
                # It has registered again since, and asks again.
                self._drop(id, waiting)
            if broker is None or broker.epoch != waiting.epoch:
                continue
            if waiting.counted:
                self._look_again(id, waiting)
            else:
                async for part in slices(tuple(self._context.picture.of_broker(id)), COUNTED_AT_ONCE):
                    for key in part:
                        self._look(id, waiting, key)
                waiting.counted = True
            self._say(id, waiting)
            await asyncio.sleep(0)

    def _look(self, id: BrokerId, waiting: _Waiting, key: PartitionKey) -> None:
        # What is known only from the predecessor may be outdated: who is ready by it might be so too soon.
        if key in self._context.unverified or is_awaited(self._context.picture, key, id):
            waiting.awaited[key] = None
        else:
            waiting.awaited.pop(key, None)

    def _look_again(self, id: BrokerId, waiting: _Waiting) -> None:
        for key in tuple(islice(waiting.awaited, LOOKED_AT_AGAIN)):
            del waiting.awaited[key]
            self._look(id, waiting, key)

    def _say(self, id: BrokerId, waiting: _Waiting) -> None:
        if self._waiting.get(id) is not waiting:
            # Its lifeline ended meanwhile.
            return
        replicas = len(self._context.picture.assigned.get(id, ()))
        said = CatchingUp(broker=id, epoch=waiting.epoch, replicas=replicas, awaited=len(waiting.awaited))
        if said != waiting.told:
            waiting.told = said
            self._tell(said)
        if not waiting.awaited:
            self._drop(id, waiting)
            self._log.info("broker in sync", broker=id, broker_epoch=waiting.epoch, replicas=replicas)

    def _drop(self, id: BrokerId, waiting: _Waiting) -> None:
        if self._waiting.get(id) is waiting:
            del self._waiting[id]
