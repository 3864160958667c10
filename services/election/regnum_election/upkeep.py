"""What a controller does by the clock: balances leaders, finishes what conflicted, sees what a person put right."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import structlog
from regnum_service.supervisor import Spawn

from regnum_election.configs.book import ConfigBook
from regnum_election.leaders.balance import balance_leaders, check_interval_s, is_enabled
from regnum_election.partitions.by_hand import OrdersByHand
from regnum_election.partitions.inspection import Inspection
from regnum_election.partitions.removal import PartitionRemover
from regnum_election.reassignment.agent import INTERVAL_S as REASSIGNMENT_INTERVAL_S
from regnum_election.reassignment.agent import Reassigner
from regnum_election.reassignment.by_hand import ReassignmentsByHand
from regnum_election.reign.events import EventQueue, Mutation, QueueFullError, nobody_waits
from regnum_election.reign.reign import DeposedError
from regnum_election.state.accepted import record_assignments
from regnum_election.state.context import ControllerContext
from regnum_election.state.silent_nodes import SilentNodes
from regnum_election.topics.adoption import TopicAdopter
from regnum_election.topics.deletion import TopicDeleter
from regnum_election.topics.unfinished import UNFINISHED_INTERVAL_S, finish_partitions

BALANCE_POLL_S: Final = 1.0
"""Longest time after which another interval of balancing is noticed."""

CORRECTIONS_INTERVAL_S: Final = 5.0
"""Pause between two looks at what only a person can repair."""


class Upkeep:
    """Tasks of one reign that put work into its queue."""

    def __init__(
        self,
        context: ControllerContext,
        queue: EventQueue,
        *,
        adopter: TopicAdopter,
        deleter: TopicDeleter,
        remover: PartitionRemover,
        orders: OrdersByHand,
        configs: ConfigBook,
        reassigner: Reassigner,
        reassignments: ReassignmentsByHand,
        balance_interval_s: float,
        first_balance_s: float,
        corrections_interval_s: float,
    ) -> None:
        """Only assigns."""
        self._context: Final = context
        self._queue: Final = queue
        self._adopter: Final = adopter
        self._deleter: Final = deleter
        self._remover: Final = remover
        self._orders: Final = orders
        self._config_book: Final = configs
        self._reassigner: Final = reassigner
        self._reassignments: Final = reassignments
        self._balance_interval_s: Final = balance_interval_s
        self._first_balance_s: Final = first_balance_s
        self._corrections_interval_s: Final = corrections_interval_s
        self._silent: Final = SilentNodes(context.store, context.clock)
        self._inspection: Final = Inspection(context)
        self._log: Final = structlog.get_logger("controller").bind(epoch=context.reign.epoch)
        self.looks_at_balance = 0
        """How often it was time to look at the balance of leaders, whether or not that is switched on."""
        self.looks_for_corrections = 0
        """How often it was looked whether a person has corrected what was damaged."""
        self.looks_for_settings = 0
        """How often it was looked whether a person has changed settings."""

    def start(self, spawn: Spawn, ready: Callable[[], Awaitable[None]]) -> "list[asyncio.Task[None]]":
        """Do all of it from now on, as far as it has to wait for that from the moment when the reign has begun."""
        return [
            spawn("leader-balance", self.balance()),
            spawn("corrections", self.look_for_corrections(ready)),
            spawn("unfinished", self.finish_partitions()),
            spawn("reassignments", self.move_partitions(ready)),
        ]

    async def balance(self) -> None:
        """Give leadership back to preferred replicas now and then; a task that never ends."""
        context = self._context
        clock, flag_s = context.clock, self._balance_interval_s
        looked_s = clock.monotonic() - max(0.0, flag_s - self._first_balance_s)
        while True:
            interval_s = check_interval_s(context.picture.settings, flag_s)
            left_s = looked_s + interval_s - clock.monotonic()
            if left_s > 0:
                await clock.sleep(min(left_s, BALANCE_POLL_S))
                continue
            looked_s = clock.monotonic()
            self.looks_at_balance += 1
            if not is_enabled(context.picture.settings):
                continue
            steps = balance_leaders(self._context)
            try:
                self._queue.put_mutation(Mutation(name="leader balance", steps=steps, abandon=nobody_waits))
            except QueueFullError:
                await steps.aclose()

    async def finish_partitions(self) -> None:
        """Decide again about partitions still in conflict; a task that never ends."""
        free = asyncio.Event()
        free.set()
        while True:
            await self._context.clock.sleep(UNFINISHED_INTERVAL_S)
            if self._context.unfinished and free.is_set():
                free.clear()
                self._put_internal("unfinished partitions", finish_partitions(self._context, free.set))

    async def move_partitions(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Move partitions on that are being reassigned, once the reign has begun; a task that never ends."""
        await ready()
        clock, looked_s = self._context.clock, 0.0
        while True:
            await clock.sleep(self._reassigner.pause_s)
            self._reassigner.go_on()
            if clock.monotonic() - looked_s >= REASSIGNMENT_INTERVAL_S:
                looked_s = clock.monotonic()
                self._reassigner.wake()

    async def look_for_corrections(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Look now and then, once the reign has begun; a task that never ends."""
        await ready()
        while True:
            await self._context.clock.sleep(self._corrections_interval_s)
            await self._look_for_settings()
            await self._sweep()
            if self._adopter.has_damage:
                self._put_internal("corrections by hand", self._adopter.look_again())
                self.looks_for_corrections += 1
            if self._adopter.is_in_doubt:
                self._put_internal("topic nodes made anew", self._adopter.compare())
            if self._context.unrecorded and not self._context.unverified.has_any:
                self._put_internal("assignments not recorded", record_assignments(self._context))
            if self._deleter.is_stuck:
                self._put_internal("deletions that were held up", self._deleter.try_again())
            if self._context.removals.begun:
                self._put_internal("removals that were held up", self._remover.resume())
            await self._look_for_orders()
            await self._inspect()

    async def _look_for_orders(self) -> None:
        """A watch shows new topics only: what is written below one that stands is seen by looking."""
        try:
            waiting = await self._orders.are_there()
            moving = await self._reassignments.are_there()
        except DeposedError as error:
            # The reign's own task finds out by itself.
            self._log.info("orders by hand not read", reason=str(error))
            return
        if waiting:
            self._put_internal("partitions by hand", self._orders.look())
        if moving:
            self._put_internal("reassignments by hand", self._reassignments.look())

    async def _look_for_settings(self) -> None:
        try:
            steps = await self._config_book.look()
        except DeposedError as error:
            # The reign's own task finds out by itself.
            self._log.info("settings not read", reason=str(error))
            return
        if steps is not None:
            self._put_internal("settings by hand", steps)
        self.looks_for_settings += 1

    async def _inspect(self) -> None:
        try:
            await self._inspection.look()
        except DeposedError as error:
            # The reign's own task finds out by itself.
            self._log.info("nodes of topics not looked at", reason=str(error))

    async def _sweep(self) -> None:
        try:
            gone = await self._silent.sweep_in_time()
        except DeposedError as error:
            self._log.info("nodes that say nothing not swept", reason=str(error))
            return
        if gone:
            self._log.info("nodes that say nothing swept", nodes=gone)

    def _put_internal(self, name: str, steps: AsyncGenerator[None, None]) -> None:
        self._queue.put_urgent(Mutation(name=name, steps=steps, abandon=nobody_waits))
