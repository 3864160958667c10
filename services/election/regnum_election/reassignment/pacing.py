"""When brokers are told of the steps of reassignments that stand in the store: all at once, or bit by bit.

Goals: who moves partitions under a throttle wants clients not to notice; who sets none wants to be done soon.

Algorithm: a look writes the steps of a dozen partitions together, which is cheap. To carry them out is not: each is
orders for four brokers, fsyncs, files made and deleted, fetches begun anew. Told of all at once, every process of a
cluster is busy at the same moment, and what clients sent in that moment waits. So under a throttle a look is told of in
PORTIONS, one every INTERVAL_S: first the partitions that get another leader, for whom metadata is published at once;
then those that stay where they are led, and those that have just begun, of which clients need not hear at once. The
portions grow with what is left: nothing waits for longer than about a second, however much there is. When a broker
comes or goes, the next portion is all of it: who goes may lead what another one has not been told to lead.

That a state is in the store for a while before its brokers hear of it is nothing new to anybody: an order may take as
long on its way. The leader goes on in its epoch, and all that it acknowledges until then is in the logs of everybody
who stays (``decisions``). A controller that dies meanwhile leaves nothing behind: the next one tells every broker
everything. What changes meanwhile is told of as it is by then.
"""

import math
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied
from regnum_election.state.telling import tell

PORTIONS: Final = 4
"""In how many parts a look is told of."""

INTERVAL_S: Final = 0.2
"""Pause between two parts."""

PORTION_MIN: Final = 2
"""Partitions of a part, at least: each has a price of its own, for every broker."""


class Pacing:
    """Of one reign. Used by the controller's one task."""

    def __init__(self, context: ControllerContext) -> None:
        """Only assigns."""
        self._context: Final = context
        self._untold: dict[PartitionKey, None] = {}
        self._led_elsewhere: set[PartitionKey] = set()
        """Those of the untold that another broker leads now."""
        self._portion = PORTION_MIN
        self._brokers = context.picture.brokers
        """Who lived when the oldest of the untold was written."""

    @property
    def has_untold(self) -> bool:
        """Whether something is left."""
        return bool(self._untold)

    async def written(self, keys: Iterable[PartitionKey], *, led_elsewhere: Collection[PartitionKey]) -> None:
        """These have another state or assignment, which stands in the store and in the picture.

        Args:
            keys: all of them.
            led_elsewhere: those of them that another broker leads now.
        """
        if not self._untold:
            self._brokers = self._context.picture.brokers
        self._led_elsewhere.update(led_elsewhere)
        self._untold = dict.fromkeys((*led_elsewhere, *self._untold, *keys))
        self._portion = max(PORTION_MIN, math.ceil(len(self._untold) / PORTIONS))
        if not any(self._context.picture.settings.throttle_rates):
            await self.tell_all()

    async def tell_some(self) -> None:
        """The next part; all that is left, where some broker came or went: it may be the one that leads until then."""
        same = self._context.picture.brokers is self._brokers
        await self._tell(self._portion if same else len(self._untold))

    async def tell_all(self) -> None:
        """All that is left."""
        await self._tell(len(self._untold))

    async def _tell(self, most: int) -> None:
        some = set(islice(self._untold, most))
        for key in some:
            del self._untold[key]
        if some:
            can_wait = self._led_elsewhere.isdisjoint(some)
            self._led_elsewhere -= some
            await tell(self._context, Applied(leader_changes=some), can_wait=can_wait)
