"""Safety rule S1, step by step."""

import asyncio
from collections.abc import Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import BadVersion, ConnectionLoss, InvalidRequest, NodeExists, SessionExpired
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Operation,
    Outcome,
    Refused,
    Set,
    Unknown,
    Written,
)
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.requests import MAX_BYTES
from regnum_coordination.timing import Backoff
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

BACKOFF = Backoff(first_s=1.0, longest_s=4.0, chance=lambda: 1.0)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(groups_per_transaction=1)


@pytest.fixture
def store(server: MemoryServer) -> MemoryStore:
    return MemoryStore(server)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def resolver(store: MemoryStore, clock: FakeClock) -> Resolver:
    return Resolver(store, clock, backoff=BACKOFF)


async def test_pauses_double_up_to_a_limit() -> None:
    assert [BACKOFF.pause_s(attempts) for attempts in (1, 2, 3, 4, 99)] == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert Backoff(first_s=1.0, chance=lambda: 0.0).pause_s(1) == 0.5


async def test_nothing_is_repeated_after_a_definite_answer(store: MemoryStore, resolver: Resolver) -> None:
    await resolver.multi([Create("/a", b"")])
    with pytest.raises(NodeExists):
        await resolver.multi([Create("/a", b"")])
    with pytest.raises(BadVersion):
        await resolver.multi([Set("/a", b"", 3)])


async def test_a_dropped_write_is_sent_again(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    server.drop_write(times=2)
    task = asyncio.create_task(resolver.multi([Create("/a", b"x")]))
    await clock.advance(0.9)
    assert not task.done()
    await clock.advance(0.2)
    assert not task.done()
    await clock.advance(2.0)
    assert (await within(task))[0].path == "/a"


async def test_a_lost_answer_is_found_to_be_our_own(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    await store.create("/gone", b"")
    await store.create("/a", b"")
    operations = [Check("/a", 0), Set("/a", b"1", 0), Create("/e", b"e", ephemeral=True), Delete("/gone", 0)]
    server.lose_reply(touching="/a")
    task = asyncio.create_task(resolver.multi(operations))
    await clock.advance(1.0)
    results = await within(task)
    assert [result.path for result in results] == ["/a", "/a", "/e", "/gone"]
    assert [result.stat and result.stat.version for result in results] == [None, 1, 0, None]
    assert results[1].stat == (await store.get("/a")).stat


async def test_somebody_elses_write_stays_a_refusal(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    """Ours was dropped; another set the same version with other data."""
    await store.create("/a", b"")
    server.drop_write()
    task = asyncio.create_task(resolver.multi([Set("/a", b"ours", 0)]))
    await settle()
    await store.set("/a", b"theirs", version=0)
    await clock.advance(1.0)
    with pytest.raises(BadVersion):
        await within(task)


async def test_our_write_overwritten_since_is_a_refusal(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    await store.create("/a", b"")
    server.lose_reply()
    task = asyncio.create_task(resolver.multi([Set("/a", b"ours", 0)]))
    await settle()
    await store.set("/a", b"theirs", version=1)
    await clock.advance(1.0)
    with pytest.raises(BadVersion):
        await within(task)


async def test_an_ephemeral_node_of_another_session_is_not_ours(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    other = MemoryStore(server)
    server.drop_write()
    task = asyncio.create_task(resolver.multi([Create("/e", b"same", ephemeral=True)]))
    await settle()
    await other.create("/e", b"same", ephemeral=True)
    await clock.advance(1.0)
    with pytest.raises(NodeExists):
        await within(task)


async def test_a_write_of_ours_that_relied_on_an_absence_stays_ours_when_the_node_has_come(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    server.lose_reply()
    task = asyncio.create_task(resolver.multi([Absent("/t"), Create("/record", b"ours")]))
    await settle()
    await store.create("/t", b"")
    await clock.advance(1.0)
    absent, created = await within(task)
    assert absent.stat is None
    assert created.stat == await store.exists("/record")


async def test_a_write_that_relied_on_an_absence_and_was_dropped_is_refused_when_the_node_has_come(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    server.drop_write()
    task = asyncio.create_task(resolver.multi([Absent("/t"), Create("/record", b"ours")]))
    await settle()
    await store.create("/t", b"")
    await clock.advance(1.0)
    with pytest.raises(NodeExists) as caught:
        await within(task)
    assert caught.value.path == "/t"
    assert await store.exists("/record") is None


@pytest.mark.parametrize("check", [Check("/none"), Absent("/there")])
async def test_a_refused_check_is_not_taken_for_a_write(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock, check: Operation
) -> None:
    await store.create("/there", b"")
    server.drop_write()
    task = asyncio.create_task(resolver.write_batch([(check,)]))
    await clock.advance(1.0)
    (outcome,) = await within(task)
    assert isinstance(outcome, Refused)


async def test_only_unknown_groups_are_repeated(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    await store.create("/f", b"")
    server.lose_reply(touching="/1")
    server.drop_write(touching="/3")
    task = asyncio.create_task(
        resolver.write_batch([(Create(f"/{number}", b""),) for number in range(4)], fence=Check("/f", 0))
    )
    await clock.advance(1.0)
    assert [type(outcome) for outcome in await within(task)] == [Written] * 4


async def test_the_end_of_the_reign_is_an_answer(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    await store.create("/f", b"")
    server.drop_write()
    task = asyncio.create_task(resolver.write_batch([(Create("/a", b""),)], fence=Check("/f", 0)))
    await settle()
    await store.set("/f", b"", version=0)
    await clock.advance(1.0)
    assert await within(task) == (Fenced(),)


async def test_the_end_of_the_session_is_an_answer(
    server: MemoryServer, store: MemoryStore, resolver: Resolver, clock: FakeClock
) -> None:
    server.drop_write()
    task = asyncio.create_task(resolver.write_batch([(Create("/a", b""),)]))
    await settle()
    server.expire(store.session_id)
    await clock.advance(1.0)
    assert await within(task) == (Expired(),)
    with pytest.raises(SessionExpired):
        await resolver.multi([Create("/b", b"")])


async def test_a_deadline_leaves_it_unknown(server: MemoryServer, resolver: Resolver, clock: FakeClock) -> None:
    server.drop_write(times=9)
    task = asyncio.create_task(resolver.write_batch([(Create("/a", b""),)], deadline_s=3.5))
    await clock.advance(3.0)
    assert await within(task) == (Unknown(),)
    task2 = asyncio.create_task(resolver.multi([Create("/a", b"")], deadline_s=0.5))
    with pytest.raises(ConnectionLoss):
        await within(task2)


@pytest.mark.parametrize("operation", [Set("/a", b"", None), Delete("/a", None)])
async def test_unconditional_writes_are_refused(resolver: Resolver, operation: Set | Delete) -> None:
    with pytest.raises(InvalidRequest, match="without a version"):
        await resolver.multi([operation])


async def test_a_group_that_can_never_succeed_is_refused_alone(store: MemoryStore, resolver: Resolver) -> None:
    """What one caller asked for must not fail the others of the batch."""
    groups = [(Create(f"/{number}", b""),) for number in range(7)]
    groups[3] = (Create("/3", b"x" * (MAX_BYTES + 1)),)
    groups[5] = (Create("/a/../b", b""),)
    outcomes = await resolver.write_batch(groups)
    assert [type(outcome) for outcome in outcomes] == [Written, Written, Written, Refused, Written, Refused, Written]
    for index in (3, 5):
        refused = outcomes[index]
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, InvalidRequest)
    with pytest.raises(InvalidRequest):
        await resolver.multi(groups[3])


class LateRefusal(MemoryStore):
    """Finds out only after some of a batch is written that it cannot take the rest, as a server with a lower limit."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """All up to the first large group, and then an error for the batch."""
        for at, group in enumerate(groups):
            if any(isinstance(operation, Create) and len(operation.data) > 10 for operation in group):
                await super().write_batch(groups[:at], fence=fence)
                raise InvalidRequest("request is too large")
        return await super().write_batch(groups, fence=fence)


async def test_what_had_happened_before_a_neighbour_was_refused_counts_as_written(
    server: MemoryServer, clock: FakeClock
) -> None:
    resolver = Resolver(LateRefusal(server), clock, backoff=BACKOFF)
    groups = [(Create("/a", b""),), (Create("/b", b""),), (Create("/c", b"x" * 11),), (Create("/d", b""),)]
    outcomes = await resolver.write_batch(groups)
    assert [type(outcome) for outcome in outcomes] == [Written, Written, Refused, Written]
