"""Which controller epochs a process that only listens believes.

Whoever obeys the highest controller epoch that it has heard of would obey a number out of nowhere for ever, and would
depose every controller with it. So an epoch far above the one last read in the store is believed only when the store
itself says so. A store that does not answer changes nothing for the epochs near the last one read.
"""

from collections.abc import Callable
from typing import Final

from regnum_model import paths
from regnum_model.epochs import is_plausible
from regnum_model.ids import ControllerEpoch
from regnum_model.nodes import MalformedNodeError, decode_controller_epoch

from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.timing import Clock

READ_INTERVAL_S: Final = 1.0
"""Least time between two looks into the store, however many messages ask for one."""


class BelievedEpochs:
    """The controller epoch as the store showed it last. Belongs to the event loop."""

    def __init__(self, store: Callable[[], Store | None], clock: Clock) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._last_read = ControllerEpoch(0)
        self._next_read_s = float("-inf")

    async def believes(self, epoch: ControllerEpoch) -> bool:
        """Whether a controller epoch that somebody shows may be true."""
        if not is_plausible(epoch, self._last_read):
            await self._read()
        return is_plausible(epoch, self._last_read)

    async def shows(self, epoch: ControllerEpoch) -> bool:
        """Whether the store has shown that epoch or a later one.

        For what somebody says who is no controller: it is a reason to look, and no more.
        """
        if self._last_read < epoch:
            await self._read()
        return self._last_read >= epoch

    async def _read(self) -> None:
        store, now_s = self._store(), self._clock.monotonic()
        if store is None or now_s < self._next_read_s:
            return
        self._next_read_s = now_s + READ_INTERVAL_S
        try:
            node = await store.get(paths.CONTROLLER_EPOCH, current=True)
            self._last_read = decode_controller_epoch(node.data)
        except (NoNode, ConnectionLoss, SessionExpired, MalformedNodeError):
            return
