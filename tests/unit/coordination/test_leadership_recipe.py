"""Safety rule S7: one leader, an epoch, and nothing that blocks elections."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Create, Fenced, Written
from regnum_coordination.recipes.leadership import Incumbent, Leadership, Loss, Reign
from regnum_coordination.timing import Backoff
from regnum_model.ids import ControllerEpoch, ElectionId
from regnum_model.nodes import ControllerNode
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import DEADLINE_S, within

_T = TypeVar("_T")

FOREIGN = [
    b"",
    b"not json",
    b"\xff\xfe",
    b'{"version":1,"brokerid":-1,"timestamp":"1"}',
    b'{"version":1,"brokerid":"7"}',
    b'{"version":1,"brokerid":9,"timestamp":"1"}',
]


class Candidate:
    """An election process as far as the recipe sees it."""

    def __init__(self, server: MemoryServer, clock: FakeClock, id: int) -> None:
        self.store = MemoryStore(server)
        backoff = Backoff(first_s=0.1, longest_s=0.1, chance=lambda: 1.0)
        self.leadership = Leadership(self.store, clock, id=ElectionId(id), backoff=backoff)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def one(server: MemoryServer, clock: FakeClock) -> Candidate:
    return Candidate(server, clock, 1)


@pytest.fixture
def two(server: MemoryServer, clock: FakeClock) -> Candidate:
    return Candidate(server, clock, 2)


async def _run(clock: FakeClock, work: Coroutine[Any, Any, _T], seconds: float = 5.0) -> _T:
    task = asyncio.create_task(work)
    for _ in range(round(seconds * 10)):
        if task.done():
            break
        await clock.advance(0.1)
    return await within(task)


async def test_the_first_reign_has_epoch_one(one: Candidate, clock: FakeClock) -> None:
    """Seed 002."""
    reign = await one.leadership.campaign()
    assert (reign.epoch, reign.epoch_version) == (1, 0)
    assert (await one.store.get("/controller_epoch")).data == b"1"
    node = await one.store.get("/controller")
    assert node.stat.ephemeral_owner == one.store.session_id
    assert node.stat.creation_id == reign.creation_id
    assert ControllerNode.decode(node.data) == ControllerNode(election_id=ElectionId(1), timestamp=str(clock.wall_ms()))


async def test_the_next_reign_begins_when_the_first_is_over(
    server: MemoryServer, one: Candidate, two: Candidate
) -> None:
    first = await one.leadership.campaign()
    waiting = asyncio.create_task(two.leadership.campaign())
    await settle()
    assert not waiting.done()
    server.expire(one.store.session_id)
    second = await within(waiting)
    assert (second.epoch, second.epoch_version) == (2, 1)
    assert await within(one.leadership.hold(first)) is Loss.SESSION


async def test_ten_candidates_one_winner(server: MemoryServer, clock: FakeClock) -> None:
    candidates = [Candidate(server, clock, number) for number in range(10)]
    campaigns = [asyncio.create_task(candidate.leadership.campaign()) for candidate in candidates]
    epochs = []
    while campaigns:
        (done, _) = await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
        (winner,) = done
        epochs.append(winner.result().epoch)
        server.expire(candidates[campaigns.index(winner)].store.session_id)
        candidates.pop(campaigns.index(winner))
        campaigns.remove(winner)
    assert epochs == list(range(1, 11))


async def test_a_win_whose_answer_was_lost(server: MemoryServer, one: Candidate, clock: FakeClock) -> None:
    server.lose_reply(touching="/controller")
    reign = await _run(clock, one.leadership.campaign())
    assert (reign.epoch, reign.epoch_version) == (1, 0)


async def test_a_win_that_somebody_else_had_meanwhile(
    server: MemoryServer, one: Candidate, two: Candidate, clock: FakeClock
) -> None:
    """The first attempt never arrived; before the repeat, the other one won."""
    server.drop_write(session_id=one.store.session_id)
    campaign = asyncio.create_task(one.leadership.campaign())
    await settle()
    reign = await two.leadership.campaign()
    await clock.advance(1.0)
    assert not campaign.done()
    await two.leadership.resign(reign)
    assert (await _run(clock, asyncio.wait_for(campaign, DEADLINE_S))).epoch == 2


async def test_a_win_that_arrives_late_meets_a_closed_door(
    server: MemoryServer, one: Candidate, two: Candidate
) -> None:
    """Steps: 1's multi is under way; 2 wins and dies; 1's multi arrives: its epoch version is gone."""
    held = server.hold_write(session_id=one.store.session_id)
    campaign = asyncio.create_task(one.leadership.campaign())
    await held.arrived.wait()
    await two.leadership.campaign()
    server.expire(two.store.session_id)
    held.commit()
    assert await one.store.exists("/controller") is None
    campaign.cancel()


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("with_epoch", [True, False])
async def test_a_node_without_owner_does_not_block_elections(
    server: MemoryServer, one: Candidate, content: bytes, *, with_epoch: bool
) -> None:
    server.overwrite("/controller", content)
    if with_epoch:
        server.overwrite("/controller_epoch", b"41")
    reign = await within(one.leadership.campaign())
    assert reign.epoch == (42 if with_epoch else 1)


@pytest.mark.parametrize("content", FOREIGN[:5])
async def test_unreadable_content_of_a_live_session_does_not_block_elections(
    server: MemoryServer, one: Candidate, content: bytes
) -> None:
    foreigner = MemoryStore(server)
    await foreigner.create("/controller", content, ephemeral=True)
    assert (await within(one.leadership.campaign())).epoch == 1


async def test_children_below_the_node_do_not_block_elections(
    server: MemoryServer, one: Candidate, clock: FakeClock
) -> None:
    for path in ("/controller", "/controller/x", "/controller/x/y"):
        server.overwrite(path, b"")
    assert (await _run(clock, one.leadership.campaign())).epoch == 1


@pytest.mark.parametrize("content", FOREIGN)
async def test_the_incumbent_deletes_foreign_content_and_loses(
    server: MemoryServer, one: Candidate, two: Candidate, content: bytes
) -> None:
    reign = await one.leadership.campaign()
    holding = asyncio.create_task(one.leadership.hold(reign))
    waiting = asyncio.create_task(two.leadership.campaign())
    await settle()
    server.overwrite("/controller", content)
    assert await within(holding) in {Loss.FOREIGN_CONTENT, Loss.NODE}
    assert (await within(waiting)).epoch == 2


async def test_a_person_deletes_the_node(server: MemoryServer, one: Candidate, two: Candidate) -> None:
    """Seed 002: that triggers an election."""
    reign = await one.leadership.campaign()
    holding = asyncio.create_task(one.leadership.hold(reign))
    waiting = asyncio.create_task(two.leadership.campaign())
    await settle()
    await MemoryStore(server).delete("/controller", version=None)
    assert await within(holding) is Loss.NODE
    assert (await within(waiting)).epoch == 2


async def test_a_missed_succession_is_noticed(server: MemoryServer, one: Candidate, two: Candidate) -> None:
    """The watch shows only the last state, a node that is there: but it is another one."""
    reign = await one.leadership.campaign()
    holding = asyncio.create_task(one.leadership.hold(reign))
    await settle()
    server.hold_watches()
    await MemoryStore(server).delete("/controller", version=None)
    await two.leadership.campaign()
    server.release_watches()
    assert await within(holding) is Loss.NODE


async def test_a_fence_deposes_only_the_reign_it_means(one: Candidate, two: Candidate) -> None:
    dead = await one.leadership.campaign()
    assert await two.leadership.fence(dead.epoch_version) is True
    assert await one.store.exists("/controller") is None
    await one.leadership.campaign()
    assert await two.leadership.fence(dead.epoch_version) is False
    assert await one.store.exists("/controller") is not None


async def test_a_fence_of_nobody_is_done(two: Candidate, one: Candidate) -> None:
    reign = await one.leadership.campaign()
    await one.leadership.resign(reign)
    assert await two.leadership.fence(reign.epoch_version) is True


async def test_the_fence_that_reigns_hand_out_stops_old_writers(one: Candidate, two: Candidate) -> None:
    old = await one.leadership.campaign()
    await two.leadership.fence(old.epoch_version)
    assert [type(o) for o in await one.store.write_batch([(Create("/x", b""),)], fence=old.fence)] == [Written]
    await two.leadership.campaign()
    assert [type(o) for o in await one.store.write_batch([(Create("/y", b""),)], fence=old.fence)] == [Fenced]


async def test_the_next_epoch_exceeds_every_epoch_seen(one: Candidate) -> None:
    one.leadership.saw_epoch(ControllerEpoch(17))
    one.leadership.saw_epoch(ControllerEpoch(3))
    assert (await one.leadership.campaign()).epoch == 18


@pytest.mark.parametrize("content", [None, b"garbage", b"2"])
async def test_a_lost_or_restored_epoch_node_is_healed(
    server: MemoryServer, one: Candidate, content: bytes | None
) -> None:
    one.leadership.saw_epoch(ControllerEpoch(9))
    if content is not None:
        server.overwrite("/controller_epoch", content)
    reign = await one.leadership.campaign()
    assert reign.epoch == 10
    assert (await one.store.get("/controller_epoch")).data == b"10"


@pytest.mark.parametrize("written", [b"999999999", b"2147483646", b"2147483647", b"99999999999999999999"])
async def test_no_number_in_the_epoch_node_uses_the_epochs_up(
    server: MemoryServer, one: Candidate, two: Candidate, clock: FakeClock, written: bytes
) -> None:
    server.overwrite("/controller_epoch", written)
    one.leadership.saw_epoch(ControllerEpoch(41))
    first = await _run(clock, one.leadership.campaign())
    assert first.epoch == 42
    await one.leadership.resign(first)
    second = await _run(clock, two.leadership.campaign())
    assert second.epoch == 43


async def test_resigning_twice_leaves_the_successor_alone(one: Candidate, two: Candidate) -> None:
    reign = await one.leadership.campaign()
    await one.leadership.resign(reign)
    await two.leadership.campaign()
    await one.leadership.resign(reign)
    assert await two.leadership.incumbent() is not None


async def test_resigning_works_when_the_epoch_was_edited(server: MemoryServer, one: Candidate) -> None:
    reign = await one.leadership.campaign()
    server.overwrite("/controller_epoch", b"100")
    await one.leadership.resign(reign)
    assert await one.store.exists("/controller") is None
    assert (await one.leadership.campaign()).epoch == 101


async def test_resigning_with_a_lost_answer(server: MemoryServer, one: Candidate, clock: FakeClock) -> None:
    reign = await one.leadership.campaign()
    server.lose_reply()
    await _run(clock, one.leadership.resign(reign))
    assert await one.store.exists("/controller") is None


async def test_incumbents_are_told_with_their_epochs(server: MemoryServer, one: Candidate, two: Candidate) -> None:
    async with aclosing(two.leadership.incumbents()) as incumbents:
        assert await within(anext(incumbents)) is None
        await one.leadership.campaign()
        assert await within(anext(incumbents)) == Incumbent(
            id=ElectionId(1), epoch=ControllerEpoch(1), epoch_version=0, session_id=one.store.session_id
        )
        server.overwrite("/controller", b"garbage")
        assert await within(anext(incumbents)) is None
        server.expire(two.store.session_id)
        with pytest.raises(SessionExpired):
            await within(anext(incumbents))


async def test_a_campaign_ends_with_its_session(server: MemoryServer, one: Candidate, two: Candidate) -> None:
    await one.leadership.campaign()
    waiting = asyncio.create_task(two.leadership.campaign())
    await settle()
    server.expire(two.store.session_id)
    with pytest.raises(SessionExpired):
        await within(waiting)


async def test_a_leftover_of_the_own_session_is_cleared(server: MemoryServer, one: Candidate) -> None:
    """A reign that this process does not know of: its win came late."""
    await one.leadership.campaign()
    again: Reign = await within(one.leadership.campaign())
    assert again.epoch == 2
    assert server.watches_open() == 0
