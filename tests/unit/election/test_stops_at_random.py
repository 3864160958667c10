"""Brokers that are told to stop, come back and catch up in any order, under any controller: never below min ISR.

Of three brokers at most two are told to stop while the third is away, and nobody asks with it: it left six seconds ago.
So the cluster is never stopped as a whole, and every partition keeps two members in its in-sync set, in the store. With
these seeds two did not when a broker that restarts did not count (further seeds find nothing else).
"""

import asyncio
import random

import pytest
from regnum_coordination.errors import BadVersion
from regnum_election.brokers.shutdown import Departure
from regnum_election.controller import Controller
from regnum_election.decisions.in_sync import ASKED_S
from regnum_election.reign.events import IsrsWritten
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.creating import assigned, create
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

BROKERS = tuple(map(BrokerId, (1, 2, 3)))
TOPICS = tuple(f"t{number}" for number in range(6))
STEPS = 40


class JumpingClock(SystemClock):
    """Goes on by itself, and by as much as it is told."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s


class Stops:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = JumpingClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.told: set[BrokerId] = set()
        """Brokers that are told to stop."""
        self.away: set[BrokerId] = set()
        self.gone = 0
        """How many were let go."""
        self.reigns = 1
        self.story: list[str] = []

    async def begin(self) -> None:
        await self.cluster.begin(*BROKERS)
        self.controller: Controller = await self.cluster.reign()
        await create(self.controller, *(assigned(name, *self.chance.sample(BROKERS, 3)) for name in TOPICS))

    async def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.25 and len(self.told) < 2 and (here := [id for id in BROKERS if id not in self.told | self.away]):
            self.told.add(self.chance.choice(here))
        elif kind < 0.6:
            await self.ask()
        elif kind < 0.8 and self.away:
            await self.come_back(self.chance.choice(sorted(self.away)))
        elif kind < 0.9:
            for id in BROKERS:
                await self.catch_up(id)
        else:
            await self.cluster.end_reign()
            self.reigns += 1
            self.controller = await self.cluster.reign(1 + self.reigns % 2)
        self.story.append(f"{kind:.2f} told {sorted(self.told)} away {sorted(self.away)}")

    async def ask(self) -> None:
        """All that are told to stop ask at one moment; who may goes."""

        async def departure(id: BrokerId) -> Departure | None:
            epoch, brokers = self.cluster.brokers[id].epoch, self.controller.brokers
            try:
                return await brokers.controlled_shutdown(id, epoch, can_wait=True, wait_s=DEADLINE_S)
            except RegnumError:
                return None

        asking = self.chance.sample(sorted(self.told), len(self.told))
        for id, said in zip(asking, await asyncio.gather(*map(departure, asking)), strict=True):
            if said is not None and not said.below:
                self.cluster.kill(id)
                self.told.remove(id)
                self.away.add(id)
                self.gone += 1
                await until(lambda id=id: id not in self.controller.picture.brokers)
                self.clock.skipped_s += ASKED_S + 1.0

    async def come_back(self, id: BrokerId) -> None:
        back = await self.cluster.register(id)
        self.away.remove(id)
        await until(lambda: id in (known := self.controller.picture.brokers) and known[id].epoch == back.epoch)

    async def catch_up(self, id: BrokerId) -> None:
        """Leaders take a broker into some in-sync sets, and tell the controller of some."""
        own = self.cluster.brokers[id]
        for name in TOPICS:
            path = paths.leader_and_isr(name, 0)
            node = await self.cluster.outside.get(path)
            state = LeaderAndIsr.decode(node.data)
            if id in self.away | set(state.isr) or state.leader not in set(BROKERS) - self.away:
                continue
            if self.chance.random() < 0.5:
                continue
            joining = {id: Membership(broker_epoch=own.epoch, log_id=own.log_id)}
            grown = with_isr(state, (*state.isr, id), min_insync=2, joining=joining)
            try:
                await self.cluster.outside.set(path, grown.encode(), version=node.stat.version)
            except BadVersion:
                continue
            if self.chance.random() < 0.7:
                self.controller.queue.put(IsrsWritten.unseen({PartitionKey(state.topic_id, 0)}))

    async def check(self) -> None:
        for name in TOPICS:
            state = await self.cluster.state(name, 0)
            assert len(state.isr) >= 2, f"{name}: in sync {state.isr}, leader {state.leader}, after {self.story}"
            assert state.leader not in self.away, f"{name}: leader {state.leader}, after {self.story}"


@pytest.mark.parametrize("seed", [0, 3, 4])
async def test_brokers_that_stop_one_by_one_never_take_a_partition_below_min_isr(seed: int) -> None:
    stops = Stops(seed)
    try:
        await stops.begin()
        for _ in range(STEPS):
            await stops.step()
            await stops.check()
        assert stops.gone
    finally:
        await stops.cluster.close()
