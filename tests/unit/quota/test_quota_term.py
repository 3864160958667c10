"""A term: what it reads, when it may judge, and how it follows changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Create, Delete, Node, Set
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.mutating import announcement
from regnum_coordination.timing import Backoff
from regnum_model import quotas
from regnum_model.quota_matching import BucketKey
from regnum_model.quotas import QuotaEntity, QuotaNode
from regnum_quota.admission import Admission, Mode
from regnum_quota.term import Term
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

ANN = QuotaEntity(user="ann")
KEY = BucketKey("ann", None)


class FailingStore(MemoryStore):
    """Loses the connection under some reads of several nodes."""

    fails = 0

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """As the store's, unless it is to fail."""
        if self.fails:
            self.fails -= 1
            raise ConnectionLoss("no answer")
        return await super().get_many(paths, current=current)


class World:
    """A store, a clock and a term."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.clock = FakeClock()
        self.store = FailingStore(self.server)
        self.outside = MemoryStore(self.server)
        self.changes = 0
        self.term = Term(
            self.store,
            self.clock,
            incarnation="run",
            exempt=frozenset(),
            backoff=Backoff(first_s=0.1, longest_s=0.1, chance=lambda: 1.0),
        )
        self.running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.running = asyncio.create_task(self.term.run())
        await settle(50)

    async def announce(self, number: int, path: str) -> None:
        await self.outside.create(quotas.change_path(number), announcement(path) if path else b"")

    async def set_quota(self, rate: float, *, announced: bool = True, path: str = "") -> None:
        data = QuotaNode(config={quotas.RATE_KEY: str(rate), quotas.BURST_KEY: "100"}).encode()
        there = await self.outside.exists(ANN.path)
        operation = Create(ANN.path, data) if there is None else Set(ANN.path, data, there.version)
        self.changes += 1
        change = (Create(quotas.change_path(self.changes), announcement(path) if path else b""),) if announced else ()
        await self.outside.multi([operation, *change])

    def judge(self, permits: int) -> tuple[bool, int]:
        asked = Admission(request_id="", user="ann", client_id="", mode=Mode.STRICT, permits=(permits,))
        verdict = self.term.ledger.judge(asked, self.clock.monotonic())
        return verdict.admitted[0], verdict.throttle_ms

    def tokens(self) -> float:
        ((_, bucket),) = self.term.ledger.state([KEY], self.clock.monotonic())
        return bucket.tokens


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await ensure_folders(world.outside, quotas.FOLDERS, world.clock)
    yield world
    if world.running is not None:
        world.running.cancel()
        await asyncio.gather(world.running, return_exceptions=True)
    assert world.server.watches_open() == 0


def refused(world: World) -> str:
    with pytest.raises(RegnumError) as error:
        _ = world.term.ledger
    assert error.value.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    return str(error.value)


async def test_nothing_is_judged_before_the_quotas_are_read(world: World) -> None:
    assert "reads the quotas" in refused(world)
    await world.term.catch_up(7)
    assert "reads the quotas" in refused(world)
    await world.begin()
    assert world.judge(1) == (True, 0)


async def test_quotas_that_were_there_start_empty_and_new_ones_full(world: World) -> None:
    await world.set_quota(10)
    await world.begin()
    assert (world.judge(5), world.judge(1)) == ((True, 0), (False, 500))
    await world.outside.delete(ANN.path, version=None)
    await world.outside.create(quotas.change_path(50), b"")
    await settle(50)
    assert world.judge(1_000) == (True, 0)
    world.changes = 50
    await world.set_quota(10)
    await settle(50)
    assert world.judge(1) == (True, 0)
    assert world.tokens() == 99


async def test_a_change_at_run_time_keeps_the_tokens(world: World) -> None:
    await world.begin()
    await world.set_quota(10)
    await settle(50)
    world.judge(150)
    await world.clock.advance(2.0)
    await world.set_quota(1)
    await settle(50)
    assert world.tokens() == -30
    await world.clock.advance(2.0)
    assert world.tokens() == -28


async def test_who_has_seen_a_change_is_judged_by_it_before_the_watch_tells(world: World) -> None:
    await world.begin()
    world.server.hold_watches()
    await world.set_quota(10)
    assert world.judge(150) == (True, 0)
    await world.term.catch_up(1)
    assert (world.judge(150), world.judge(1)) == ((True, 0), (False, 5_000))


async def test_whoever_edits_by_hand_announces_it_by_any_name(world: World) -> None:
    await world.begin()
    await world.set_quota(10, announced=False)
    await world.outside.create(f"{quotas.CHANGES}/look here", b"")
    await settle(50)
    world.judge(1)
    assert world.tokens() == 99


async def test_a_store_that_was_put_back_to_an_older_state_is_believed(world: World) -> None:
    await world.begin()
    for _ in range(2):
        await world.set_quota(10)
    await settle(50)
    await world.outside.multi([Delete(ANN.path, None), Delete(quotas.change_path(2), None)])
    await settle(50)
    assert world.judge(1_000) == (True, 0)
    assert world.term.ledger.describe(0.0) == ()


async def test_announcements_that_are_tidied_away_cost_no_reading(world: World) -> None:
    await world.begin()
    for _ in range(3):
        await world.set_quota(10)
    await settle(50)
    await world.set_quota(20, announced=False)
    await world.outside.delete(quotas.change_path(1), version=None)
    await settle(50)
    world.judge(150)
    await world.clock.advance(1.0)
    assert world.tokens() == -40


async def test_what_is_announced_beside_quotas_costs_no_reading_and_is_known(world: World) -> None:
    await world.begin()
    await world.set_quota(10)
    await settle(50)
    await world.set_quota(20, announced=False)
    for number in range(2, 22):
        await world.announce(number, "/config/topics/t")
        await settle(50)
    await world.term.catch_up(21)
    world.judge(150)
    await world.clock.advance(1.0)
    assert world.tokens() == -40


@pytest.mark.parametrize(
    ("number", "path"),
    [
        (8, ANN.path),
        (8, QuotaEntity(client_id="app").path),
        (8, QuotaEntity().path),
        (8, quotas.USERS),
        (8, ""),
        (9, "/config/topics/t"),
        (4, "/config/topics/t"),
    ],
    ids=["user", "client", "windows", "folder", "no path", "one is missing", "by hand, of a number before"],
)
async def test_what_may_be_of_a_quota_has_all_read(world: World, number: int, path: str) -> None:
    await world.begin()
    world.changes = 4
    await world.set_quota(10)
    await world.announce(6, "/config/topics/t")
    await world.announce(7, "/acl/topic/t")
    await settle(50)
    await world.set_quota(20, announced=False)
    await world.announce(number, path)
    await settle(50)
    world.judge(150)
    await world.clock.advance(1.0)
    assert world.tokens() == -30


async def test_a_quota_is_read_whose_announcement_could_not_be_looked_at_at_first(world: World) -> None:
    await world.begin()
    await world.set_quota(10)
    await settle(50)
    world.store.fails = 2
    await world.set_quota(20, path=ANN.path)
    await settle(50)
    await world.clock.advance(0.2)
    await settle(50)
    world.judge(150)
    await world.clock.advance(1.0)
    assert (world.tokens(), world.store.fails) == (-30, 0)


async def test_who_has_seen_nothing_new_costs_no_reading(world: World) -> None:
    await world.begin()
    await world.set_quota(10)
    await settle(50)
    await world.set_quota(20, announced=False)
    await world.term.catch_up(1)
    world.judge(150)
    await world.clock.advance(1.0)
    assert world.tokens() == -40


async def test_a_change_that_is_not_there_any_more_is_looked_for_once(world: World) -> None:
    await world.begin()
    await world.term.catch_up(9)
    await world.set_quota(10, announced=False)
    await world.term.catch_up(9)
    assert world.judge(500) == (True, 0)
    assert world.term.ledger.describe(0.0) == ()
    await world.term.catch_up(10)
    world.judge(1)
    assert world.tokens() == 99


async def test_many_who_have_seen_a_change_share_one_reading(world: World) -> None:
    await world.begin()
    world.server.hold_watches()
    await world.set_quota(10)
    await within(asyncio.gather(*(world.term.catch_up(1) for _ in range(50))))
    assert (world.judge(150), world.judge(1)) == ((True, 0), (False, 5_000))


async def test_nothing_is_judged_while_the_session_is_in_doubt(world: World) -> None:
    await world.begin()
    world.server.disconnect(world.store.session_id)
    assert "lost the store" in refused(world)
    with pytest.raises(RegnumError, match="lost the store"):
        await world.term.catch_up(1)
    world.server.reconnect(world.store.session_id)
    assert world.judge(1) == (True, 0)


async def test_what_has_been_counted_outlives_a_doubt(world: World) -> None:
    await world.begin()
    await world.set_quota(10)
    await settle(50)
    world.judge(150)
    world.server.disconnect(world.store.session_id)
    world.server.reconnect(world.store.session_id)
    await settle(50)
    assert world.tokens() == -50


async def test_the_end_of_the_session_ends_the_term(world: World) -> None:
    await world.begin()
    world.server.expire(world.store.session_id)
    assert world.running is not None
    with pytest.raises(SessionExpired):
        await within(world.running)
    refused(world)


async def test_a_store_that_does_not_answer_is_asked_again(world: World) -> None:
    await world.set_quota(10)
    world.server.disconnect(world.store.session_id)
    await world.begin()
    refused(world)
    world.server.reconnect(world.store.session_id)
    await world.clock.advance(0.2)
    await settle(50)
    assert world.judge(1) == (True, 0)
