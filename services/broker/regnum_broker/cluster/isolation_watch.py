"""Stops serving what may be led elsewhere by now, and serves it again (safety rule S8).

The decision is made anew every time, from what is so at that moment: nothing that was missed can leave a partition
unserved.
"""

from collections.abc import Callable
from typing import Final

import structlog
from regnum_service.clock import Clock
from regnum_service.slices import Turns

from regnum_broker.replication.decisions.isolation import is_cut_off
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import Replicas

INTERVAL_S: Final = 0.25
"""Time between two looks."""

SLICE: Final = 200
"""Partitions looked at before the event loop gets a turn."""


class IsolationWatch:
    """Looks at leaderships while orders go astray or there is no session and no lifeline; else costs nothing."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        session_lost: Callable[[], bool],
        lifeline_open: Callable[[], bool],
        orders_astray: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._replicas: Final = replicas
        self._session_lost: Final = session_lost
        self._lifeline_open: Final = lifeline_open
        self._orders_astray: Final = orders_astray
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("isolation")
        self._cut_off: dict[Leadership, None] = {}

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            await self._look()

    async def _look(self) -> None:
        before = len(self._cut_off)
        if not self._orders_astray() and (not self._session_lost() or self._lifeline_open()):
            for leadership in self._cut_off:
                leadership.cut_off = False
            self._cut_off = {}
        else:
            turns = Turns(SLICE)
            for leadership in self._replicas.leading():
                await turns.took()
                self._judge(leadership)
        if bool(self._cut_off) != bool(before):
            self._log.warning(
                "partitions may be led elsewhere" if self._cut_off else "partitions are served again",
                partitions=len(self._cut_off) or before,
                orders_astray=self._orders_astray(),
            )

    def _judge(self, leadership: Leadership) -> None:
        cut_off = leadership.partition.role is leadership and is_cut_off(
            session_lost=self._session_lost(),
            lifeline_open=self._lifeline_open(),
            orders_astray=self._orders_astray(),
            others_in_sync=len(leadership.state.isr) > 1,
            heard_s=leadership.heard_s,
            now_s=self._clock.monotonic(),
        )
        if cut_off and not leadership.cut_off:
            self._cut_off[leadership] = None
            leadership.cut_off = True
            leadership.partition.send_away()
        elif leadership.cut_off and not cut_off:
            leadership.cut_off = False
            self._cut_off.pop(leadership, None)
