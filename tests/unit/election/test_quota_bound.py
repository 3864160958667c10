"""KIP-599's promise: whatever the traffic and whoever dies, no more is admitted than rate, burst and one topic allow.

The controller, its queue, its kept buckets and its stand-in, and the quota process from its servicer to its ledger, are
the real ones; between them are no wires, and time moves only when the test moves it.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryStore
from regnum_election.admission.stand_in import Account
from regnum_election.reign.reign import DeposedError
from regnum_model.nodes import Address
from regnum_model.quotas import QUOTA_ACTIVE, QuotaProcessNode
from regnum_quota.office import Office
from regnum_quota.servicer import QuotaServicer
from regnum_quota.term import Term
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.quota_world import QuotaWorld
from regnum_testing.reigning import ANYBODY

RATE = 5.0
BURST = 20.0
LARGEST = 4
"""Partitions of the largest topic."""
CALLERS = (ANYBODY, *(Account(user="ANONYMOUS", client_id=f"c{number}", strict=True) for number in range(3)))


class Process:
    """A quota process as the controller reaches it."""

    def __init__(self, world: QuotaWorld, id: int) -> None:
        self.dead = False
        self._server = world.cluster.server
        self._store = MemoryStore(self._server)
        self._office = Office()
        self._term = Term(self._store, world.clock, incarnation=f"run-{id}", exempt=frozenset())
        self._servicer = QuotaServicer(self._office, world.clock)
        self.address = Address(host="127.0.0.1", port=25_000 + id)
        self._node = QuotaProcessNode(id=id, incarnation=f"run-{id}", internal=self.address)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._term.run())
        await settle(50)
        self._office.begin(self._term)
        await self._store.create(QUOTA_ACTIVE, self._node.encode(), ephemeral=True, make_parents=True)

    async def kill(self) -> None:
        self.dead = True
        self._server.expire(self._store.session_id)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def admit(self, request: quota_pb2.AdmitRequest, *, timeout_s: float) -> quota_pb2.AdmitResponse:
        answer = None if self.dead else await self._servicer.Admit(request, None)
        # Killed meanwhile, it may have charged; nobody hears of it.
        if self.dead or answer is None:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "dead")
        return answer

    async def describe(
        self, request: quota_pb2.DescribeBucketsRequest, *, timeout_s: float
    ) -> quota_pb2.DescribeBucketsResponse:
        raise AssertionError("nobody asks for a description in these histories")

    async def close(self) -> None:
        pass


class History:
    """A cluster, traffic that ignores every throttle time, and deaths."""

    def __init__(self, seed: int, *, kills: bool, reigns: bool) -> None:
        self.world = QuotaWorld()
        self.chance = random.Random(seed)
        self.kills = kills
        self.reigns = reigns
        self.kill_count = 0
        self.reign_count = 0
        self.calls: set[asyncio.Task[None]] = set()
        self.process: Process | None = None
        self.processes: list[Process] = []
        self._topics = 0
        self._began_s = 0.0

    async def begin(self) -> None:
        await self.world.begin()
        await self.start_process()
        await self.world.set_quota(RATE, BURST)
        self._began_s = self.world.clock.monotonic()

    async def start_process(self) -> None:
        self.process = Process(self.world, len(self.processes) + 1)
        self.processes.append(self.process)
        self.world.processes[self.process.address] = self.process  # type: ignore[assignment] - stands for a fake one
        await self.process.start()

    def ask(self) -> None:
        """One call; its answer is looked at by nobody."""
        count, partitions = self.chance.randint(1, 8), self.chance.randint(1, LARGEST)
        names = [f"t{self._topics + number}" for number in range(count)]
        self._topics += count

        async def call() -> None:
            with suppress(RegnumError, DeposedError):
                await self.world.create(names, partitions=partitions, account=self.chance.choice(CALLERS))

        task = asyncio.create_task(call())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    async def step(self) -> None:
        """What happens next."""
        match self.chance.randrange(12):
            case 0 if self.kills and self.process is not None:
                self.kill_count += 1
                process, self.process = self.process, None
                await process.kill()
            case 0 | 1 if self.process is None:
                await self.start_process()
            case 2 if self.reigns:
                self.reign_count += 1
                await self.world.cluster.end_reign()
                await self.world.reign(1 + self.reign_count % 3)
            case 3 | 4 | 5 | 6:
                await self.world.clock.advance(self.chance.choice((0.0, 0.1, 0.5, 1.2)))
            case _:
                self.ask()
                await settle(self.chance.choice((0, 3, 30)))

    async def created(self) -> int:
        picture = self.world.controller.picture
        return len(picture.partitions)

    def bound(self) -> float:
        """What may have been created by now.

        Where the quota process and the controller both die, nobody knows the bucket: it begins with no tokens, and no
        tokens admit one topic (safety rule S21).
        """
        passed_s = self.world.clock.monotonic() - self._began_s
        return RATE * passed_s + BURST + LARGEST * (1 + min(self.kill_count, self.reign_count)) + 1e-6

    async def close(self) -> None:
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)
        for process in self.processes:
            if not process.dead:
                await process.kill()
        await self.world.close()


@pytest.fixture
async def histories() -> AsyncIterator[list[History]]:
    begun: list[History] = []
    yield begun
    for one in begun:
        await one.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kills", "reigns"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["nobody", "quota", "controller", "both"],
)
async def test_no_more_is_admitted_than_rate_and_burst_and_one_topic_whoever_dies(
    histories: list[History], seed: int, kills: bool, reigns: bool
) -> None:
    history = History(seed, kills=kills, reigns=reigns)
    histories.append(history)
    await history.begin()
    for _ in range(100):
        await history.step()
        assert await history.created() <= history.bound()
    if history.process is None:
        await history.start_process()
    for _ in range(20):
        history.ask()
        await history.world.clock.advance(2.0)
    assert await history.created() <= history.bound()
    passed_s = history.world.clock.monotonic() - history._began_s
    assert await history.created() >= 0.5 * RATE * passed_s, "a quota is no standstill"
