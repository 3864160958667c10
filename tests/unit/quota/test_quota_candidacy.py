"""Candidates for /quota/active over a memory store (safety rules S2, S5 and S7 in kind)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import SessionExpired
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.timing import Backoff
from regnum_model import quotas
from regnum_model.nodes import Address
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import QUOTA_ACTIVE, QUOTA_TERMS, QuotaProcessNode
from regnum_quota.candidacy import Candidacy, Seat
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

FOREIGN = [
    b"",
    b"garbage{",
    b"\xff",
    b'{"quota_id":9}',
    QuotaProcessNode(id=9, incarnation="nine", internal=Address(host="h", port=9)).encode(),
]


class FakeDetector:
    """Says that a process is dead when the test says so."""

    def __init__(self) -> None:
        self.dead: dict[int, asyncio.Event] = {}

    async def wait_dead(self, listener: Address) -> None:
        await self.dead.setdefault(listener.port, asyncio.Event()).wait()


class Candidate:
    """One quota process as far as its candidacy goes."""

    def __init__(
        self, candidates: "Candidates", id: int, *, incarnation: str, previous: frozenset[str], exempt: frozenset[str]
    ) -> None:
        self.me = QuotaProcessNode(id=id, incarnation=incarnation, internal=Address(host="h", port=100 + id))
        self.store = MemoryStore(candidates.server)
        self.known: QuotaProcessNode | None = None
        self.candidacy = Candidacy(
            self.store,
            candidates.clock,
            me=self.me,
            previous=previous,
            detector=candidates.detector if candidates.detects else None,
            known=self.hear,
            spawn=candidates.spawn,
            exempt=exempt,
            backoff=Backoff(first_s=0.1, longest_s=0.1, chance=lambda: 1.0),
        )
        self.campaign = asyncio.create_task(self.candidacy.campaign())
        self.holding: asyncio.Task[str] | None = None

    def hear(self, known: QuotaProcessNode | None) -> None:
        self.known = known

    async def won(self) -> Seat:
        return await within(asyncio.shield(self.campaign))

    def hold(self, seat: Seat) -> "asyncio.Task[str]":
        self.holding = asyncio.create_task(self.candidacy.hold(seat))
        return self.holding


class Candidates:
    """Several of them."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.clock = FakeClock()
        self.detector = FakeDetector()
        self.detects = True
        self.outside = MemoryStore(self.server)
        self.all: list[Candidate] = []
        self.spawned: list[asyncio.Task[None]] = []

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine, name=name)
        self.spawned.append(task)
        return task

    async def start(
        self, id: int, *, incarnation: str = "", previous: str = "", exempt: frozenset[str] = frozenset()
    ) -> Candidate:
        await ensure_folders(self.outside, quotas.FOLDERS, self.clock)
        candidate = Candidate(
            self,
            id,
            incarnation=incarnation or f"run-{id}",
            previous=frozenset({previous} if previous else ()),
            exempt=exempt,
        )
        self.all.append(candidate)
        await settle()
        return candidate

    async def close(self) -> None:
        tasks = [*self.spawned, *(one.campaign for one in self.all), *(one.holding for one in self.all if one.holding)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def candidates() -> AsyncIterator[Candidates]:
    candidates = Candidates()
    yield candidates
    await candidates.close()
    assert candidates.server.watches_open() == 0


async def test_one_is_active_and_the_other_knows_it(candidates: Candidates) -> None:
    one = await candidates.start(1)
    seat = await one.won()
    node = await candidates.outside.get(QUOTA_ACTIVE)
    assert QuotaProcessNode.decode(node.data) == one.me
    assert (node.stat.ephemeral_owner, node.stat.creation_id) == (one.store.session_id, seat.creation_id)
    two = await candidates.start(2)
    assert (two.known, two.campaign.done()) == (one.me, False)


async def test_every_term_moves_the_guard(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await one.won()
    first = (await candidates.outside.get(QUOTA_TERMS)).stat.version
    two = await candidates.start(2)
    candidates.server.expire(one.store.session_id)
    await two.won()
    assert (await candidates.outside.get(QUOTA_TERMS)).stat.version == first + 1


async def test_a_win_says_who_is_exempt_and_that_outlives_the_process(candidates: Candidates) -> None:
    one = await candidates.start(1, exempt=frozenset({"root", "ann"}))
    await one.won()
    candidates.server.expire(one.store.session_id)
    await settle()
    left = QuotaTermsNode.decode((await candidates.outside.get(QUOTA_TERMS)).data)
    assert left.exempt_users == {"root", "ann"}
    two = await candidates.start(2)
    await two.won()
    assert QuotaTermsNode.decode((await candidates.outside.get(QUOTA_TERMS)).data) == QuotaTermsNode()


async def test_the_end_of_the_session_frees_the_seat(candidates: Candidates) -> None:
    one = await candidates.start(1)
    holding = one.hold(await one.won())
    two = await candidates.start(2)
    candidates.server.expire(one.store.session_id)
    await two.won()
    assert two.known is None
    with pytest.raises(SessionExpired):
        await within(holding)


async def test_a_standby_outlives_no_session(candidates: Candidates) -> None:
    await (await candidates.start(1)).won()
    two = await candidates.start(2)
    candidates.server.expire(two.store.session_id)
    with pytest.raises(SessionExpired):
        await two.won()


async def test_a_dead_process_loses_its_seat_before_its_session_ends(candidates: Candidates) -> None:
    one = await candidates.start(1)
    holding = one.hold(await one.won())
    two = await candidates.start(2)
    candidates.detector.dead[101].set()
    await two.won()
    assert await within(holding) in {"/quota/active was deleted", "/quota/active is another process's"}


async def test_without_a_detector_the_dead_keep_their_seat(candidates: Candidates) -> None:
    candidates.detects = False
    await (await candidates.start(1)).won()
    two = await candidates.start(2)
    assert candidates.spawned == []
    assert two.known is not None


async def test_a_death_that_is_noticed_late_does_not_hit_the_next_term(candidates: Candidates) -> None:
    """The version of the node is 0 in every term: only the guard tells them apart."""
    one = await candidates.start(1)
    await one.won()
    two = await candidates.start(2)
    late = candidates.server.hold_write(session_id=two.store.session_id, touching=QUOTA_ACTIVE)
    candidates.detector.dead[101].set()
    await within(late.arrived.wait())
    candidates.server.expire(one.store.session_id)
    await two.won()
    before = await candidates.outside.get(QUOTA_ACTIVE)
    late.commit()
    assert await candidates.outside.get(QUOTA_ACTIVE) == before


@pytest.mark.parametrize("content", FOREIGN)
async def test_what_people_write_blocks_nobody(candidates: Candidates, content: bytes) -> None:
    candidates.server.overwrite(QUOTA_ACTIVE, content)
    one = await candidates.start(1)
    await one.won()
    assert QuotaProcessNode.decode((await candidates.outside.get(QUOTA_ACTIVE)).data) == one.me


@pytest.mark.parametrize("content", FOREIGN)
async def test_what_people_write_over_the_active_process_ends_its_term(candidates: Candidates, content: bytes) -> None:
    one = await candidates.start(1)
    holding = one.hold(await one.won())
    two = await candidates.start(2)
    candidates.server.overwrite(QUOTA_ACTIVE, content)
    assert "/quota/active" in await within(holding)
    await two.won()


async def test_the_active_process_clears_what_was_written_when_it_is_alone(candidates: Candidates) -> None:
    one = await candidates.start(1)
    holding = one.hold(await one.won())
    candidates.server.overwrite(QUOTA_ACTIVE, b"?")
    assert "it was deleted" in await within(holding)
    assert await candidates.outside.exists(QUOTA_ACTIVE) is None


async def test_nodes_below_the_node_keep_nothing_alive(candidates: Candidates) -> None:
    await candidates.outside.create(f"{QUOTA_ACTIVE}/a/b", b"", make_parents=True)
    one = await candidates.start(1)
    for _ in range(5):
        await candidates.clock.advance(0.1)
    await one.won()
    assert QuotaProcessNode.decode((await candidates.outside.get(QUOTA_ACTIVE)).data) == one.me
    assert await candidates.outside.exists(f"{QUOTA_ACTIVE}/a/b") is None


async def test_a_restarted_process_takes_its_own_seat_back_at_once(candidates: Candidates) -> None:
    """After kill -9 of the only one: its session goes on, but it knows its last run (S5)."""
    one = await candidates.start(1)
    await one.won()
    again = await candidates.start(1, incarnation="second run", previous="run-1")
    await again.won()
    assert QuotaProcessNode.decode((await candidates.outside.get(QUOTA_ACTIVE)).data) == again.me


async def test_a_win_whose_answer_is_lost_is_a_win(candidates: Candidates) -> None:
    candidates.server.lose_reply(touching=QUOTA_ACTIVE)
    one = await candidates.start(1)
    for _ in range(5):
        await candidates.clock.advance(0.1)
    seat = await one.won()
    assert (await candidates.outside.get(QUOTA_ACTIVE)).stat.creation_id == seat.creation_id


async def test_folders_that_somebody_removed_are_made_again(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await one.won()
    two = await candidates.start(2)
    await candidates.outside.delete(quotas.QUOTA_IDS, version=None)
    await candidates.outside.delete(QUOTA_TERMS, version=None)
    candidates.server.expire(one.store.session_id)
    await two.won()
    assert QuotaProcessNode.decode((await candidates.outside.get(QUOTA_ACTIVE)).data) == two.me
    assert await candidates.outside.exists(QUOTA_TERMS) is not None, "what guards the seat is there again"
