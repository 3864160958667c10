"""Safety rules S1 to S7 on every driver: what a store must refuse for them to hold."""

import asyncio
from contextlib import aclosing, suppress

import pytest
from regnum_coordination.errors import (
    BadVersion,
    ConnectionLoss,
    InvalidRequest,
    NodeExists,
    NodeFailure,
    NoNode,
    SessionExpired,
)
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Outcome,
    Refused,
    SessionState,
    Set,
    Store,
    Written,
)
from regnum_coordination.recipes.leadership import Leadership
from regnum_coordination.recipes.resolve import Resolver
from regnum_model.ids import ElectionId
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import eventually, within

PADDING = b"." * 3000


async def _reachable(store: Store) -> None:
    async def answers() -> bool:
        with suppress(ConnectionLoss):
            await store.exists("/")
            return store.session_state is SessionState.CONNECTED
        return False

    await eventually(answers, what="the connection")


async def _cluster(store: Store) -> None:
    """A controller's epoch, two brokers as registered, and a topic, as the design writes them."""
    for path in ("/brokers/epochs", "/brokers/ids", "/brokers/topic_ids", "/brokers/topics/t/0"):
        await store.create(path, b"", make_parents=True)
    await store.create("/controller_epoch", b"1")
    await store.create("/brokers/topic_ids/one", b"t")
    await store.create("/brokers/topics/t/0/leaderAndISR", b"first")


async def _register(store: Store, broker: int) -> int:
    """Register a broker; the version of its guard."""
    guard, node = f"/brokers/epochs/{broker}", f"/brokers/ids/{broker}"
    found = await store.exists(guard, current=True)
    move = Create(guard, b"") if found is None else Set(guard, b"", found.version)
    version = 0 if found is None else found.version + 1
    await store.multi([move, Create(node, str(version).encode(), ephemeral=True)])
    return version


def _reason(outcome: Outcome) -> tuple[type[Exception], str]:
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, NodeFailure)
    return type(outcome.error), outcome.error.path


async def test_s1_a_late_write_may_still_come_and_its_repeat_is_definite(world: World, store: Store) -> None:
    """Safety rule S1: three looks show the old value, and the write comes nevertheless, unless it was repeated."""
    other = await world.open()
    await store.create("/a", b"old")
    late = await world.delay(store, lambda: store.set("/a", PADDING, version=0))
    assert isinstance(late.answer, ConnectionLoss)
    for _ in range(3):
        assert (await other.get("/a", current=True)).data == b"old"
    await _reachable(store)
    (result,) = await within(Resolver(store, SystemClock()).multi([Set("/a", PADDING, 0)]))
    assert result.stat is not None
    assert result.stat.version == 1
    await late.arrive()
    assert (await other.get("/a", current=True)).stat.version == 1


async def test_s1_a_lost_answer_to_a_delete_is_found_by_repeating(world: World, store: Store) -> None:
    """Safety rule S1, for the writes that leave nothing to look at."""
    await store.create("/a", b"")
    await store.create("/guard", b"")
    resolver = Resolver(store, SystemClock())
    answer = await world.lose_reply(store, lambda: resolver.multi([Check("/guard", 0), Delete("/a", 0)]), "/a")
    assert isinstance(answer, tuple)
    assert await store.exists("/a", current=True) is None


async def test_s1_an_ephemeral_node_of_a_lost_answer_is_ones_own(world: World, store: Store) -> None:
    """Safety rule S1: the owner tells one's own create from that of somebody with the same content."""
    other = await world.open()
    resolver = Resolver(store, SystemClock())
    answer = await world.lose_reply(store, lambda: resolver.multi([Create("/e", b"me", ephemeral=True)]), "/e")
    assert isinstance(answer, tuple)
    assert (await other.get("/e", current=True)).stat.ephemeral_owner == store.session_id
    with pytest.raises(NodeExists):
        await Resolver(other, SystemClock()).multi([Create("/e", b"me", ephemeral=True)])


async def test_s2_a_registration_made_anew_between_read_and_fence_stays(world: World, store: Store) -> None:
    """Safety rule S2: versions start at 0 again, so that only the guard tells the incarnations apart."""
    await _cluster(store)
    dead, born = await world.open(), await world.open()
    read = await _register(dead, 1)
    old = await store.get("/brokers/ids/1", current=True)
    await dead.close()
    await _register(born, 1)
    fresh = await born.get("/brokers/ids/1", current=True)
    assert fresh.stat.version == old.stat.version
    fence = [Check("/controller_epoch", 0), Set("/brokers/epochs/1", b"", read), Delete("/brokers/ids/1", 0)]
    with pytest.raises(BadVersion) as caught:
        await store.multi(fence)
    assert caught.value.path == "/brokers/epochs/1"
    assert (await store.get("/brokers/ids/1", current=True)).stat.creation_id == fresh.stat.creation_id


async def test_s2_a_topic_made_anew_between_read_and_write_keeps_its_state(world: World, store: Store) -> None:
    """Safety rule S2: the state of the topic of the same name is at the same version; the guard is another."""
    await _cluster(store)
    controller = await world.open()
    state = "/brokers/topics/t/0/leaderAndISR"
    await controller.multi([Delete(state, 0), Delete("/brokers/topic_ids/one", 0)])
    await controller.multi([Create("/brokers/topic_ids/two", b"t"), Create(state, b"second")])
    (outcome,) = await store.write_batch([(Check("/brokers/topic_ids/one"), Set(state, b"of the first", 0))])
    assert _reason(outcome) == (NoNode, "/brokers/topic_ids/one")
    assert (await store.get(state, current=True)).data == b"second"


async def test_s3_a_member_that_died_or_came_anew_is_not_added(world: World, store: Store) -> None:
    """Safety rule S3: the write names the registration of the member it adds, and each way of losing it refuses."""
    await _cluster(store)
    state = "/brokers/topics/t/0/leaderAndISR"
    member = await world.open()
    registration = await _register(member, 2)
    leader = await _register(store, 1)

    def adding(version: int) -> Group:
        return (
            Check("/brokers/topic_ids/one"),
            Check("/brokers/epochs/1", leader),
            Check("/brokers/epochs/2", registration),
            Check("/brokers/ids/2"),
            Set(state, b"1,2", version),
        )

    assert isinstance((await store.write_batch([adding(0)]))[0], Written)
    await member.close()
    (gone,) = await store.write_batch([adding(1)])
    assert _reason(gone) == (NoNode, "/brokers/ids/2")
    await _register(await world.open(), 2)
    (bounced,) = await store.write_batch([adding(1)])
    assert _reason(bounced) == (BadVersion, "/brokers/epochs/2")
    assert (await store.get(state, current=True)).stat.version == 1


async def test_s3_a_controllers_write_after_its_reign_changes_nothing(world: World, store: Store) -> None:
    """Safety rule S3: a deposed controller's batch is fenced as a whole, though none of its nodes has moved."""
    await _cluster(store)
    successor = await world.open()
    await successor.set("/controller_epoch", b"2", version=0)
    groups: list[Group] = [(Set("/brokers/topics/t/0/leaderAndISR", b"late", 0),), (Create("/late", b""),)]
    assert set(map(type, await store.write_batch(groups, fence=Check("/controller_epoch", 0)))) == {Fenced}
    assert (await successor.get("/brokers/topics/t/0/leaderAndISR", current=True)).data == b"first"
    assert await successor.exists("/late", current=True) is None


async def test_s4_every_kind_of_conflict_stays_alone(world: World, store: Store) -> None:
    """Safety rule S4: among more groups than a transaction takes, each refused one names its own first path."""
    await store.create("/d", b"")
    await store.write_batch([(Create(f"/d/{number}", b""),) for number in range(400)])
    await store.set("/d/100", b"moved", version=0)
    await store.create("/d/200/child", b"")
    await store.delete("/d/300", version=0)
    groups: list[Group] = [(Check("/d", 0), Set(f"/d/{number}", b"new", 0)) for number in range(400)]
    groups[50] = (Create("/d/50", b""),)
    groups[200] = (Delete("/d/200", 0),)
    outcomes = await store.write_batch(groups)
    refused = {index: outcome.error for index, outcome in enumerate(outcomes) if isinstance(outcome, Refused)}
    assert {index: type(error).__name__ for index, error in refused.items()} == {
        50: "NodeExists",
        100: "BadVersion",
        200: "NotEmpty",
        300: "NoNode",
    }
    assert all(getattr(error, "path", None) == f"/d/{index}" for index, error in refused.items())
    assert sum(isinstance(outcome, Written) for outcome in outcomes) == 396


async def test_s5_taking_over_in_one_multi_is_refused_and_in_two_changes_the_id(world: World, store: Store) -> None:
    """Safety rule S5: a path is written once in a multi, and a new incarnation gets a new creation id."""
    old = (await store.create("/brokers", b"", ephemeral=True)).stat
    born = await world.open()
    with pytest.raises(InvalidRequest):
        await born.multi([Delete("/brokers", 0), Create("/brokers", b"", ephemeral=True)])
    kept = (await born.get("/brokers", current=True)).stat
    assert (kept.creation_id, kept.ephemeral_owner) == (old.creation_id, store.session_id)
    await born.delete("/brokers", version=0)
    new = (await born.create("/brokers", b"", ephemeral=True)).stat
    assert new.creation_id > old.creation_id
    assert new.ephemeral_owner == born.session_id


async def test_s5_groups_that_name_one_path_twice_go_one_after_the_other(store: Store) -> None:
    """Safety rule S5: never two writes of a path in one transaction, and both happen."""
    await store.create("/a", b"0")
    groups: list[Group] = [(Set("/a", str(number).encode(), number),) for number in range(5)]
    assert all(isinstance(outcome, Written) for outcome in await store.write_batch(groups))
    assert (await store.get("/a", current=True)).stat.version == 5


async def test_s5_a_check_of_absence_gives_no_node_a_life(world: World, store: Store) -> None:
    """Safety rule S5, the exception: ZooKeeper's driver writes the path twice, and nobody ever sees a node there."""
    other = await world.open()
    await store.create("/f", b"")
    async with aclosing(other.watch_node("/f/x")) as states:
        assert await within(anext(states)) is None
        await store.multi([Absent("/f/x"), Create("/f/y", b"")])
        for both in ([Absent("/f/x"), Create("/f/x", b"")], [Create("/f/x", b""), Absent("/f/x")]):
            with pytest.raises(InvalidRequest):
                await store.multi(both)
        await other.create("/f/x", b"first")
        seen = await within(anext(states))
    assert seen is not None
    assert (seen.data, seen.stat.version) == (b"first", 0)


async def test_s6_no_kind_of_write_from_a_lost_session_happens(world: World, store: Store) -> None:
    """Safety rule S6: the transaction checks the session, whatever its owner still believes."""
    other = await world.open()
    await other.create("/a", b"kept")
    await other.create("/q", b"")
    writers = [await world.open() for _ in range(8)]
    for writer in writers:
        await world.expire(writer)
    set_, delete, create, ephemeral, sequential, batch, multi, absent = writers
    for write in (
        set_.set("/a", b"from the grave", version=None),
        delete.delete("/a", version=None),
        create.create("/b", b""),
        ephemeral.create("/e", b"", ephemeral=True),
        sequential.create("/q/x-", b"", sequential=True),
        multi.multi([Check("/a", 0), Create("/m", b"")]),
        absent.multi([Absent("/none"), Create("/m", b"")]),
    ):
        with pytest.raises(SessionExpired):
            await within(write)
    assert set(map(type, await batch.write_batch([(Create("/n", b""),), (Set("/a", b"", 0),)]))) == {Expired}
    for writer in writers:
        await within(writer.wait_lost())
    assert (await other.children("/", current=True)).names == ("a", "q")
    assert (await other.children("/q", current=True)).names == ()
    assert (await other.get("/a", current=True)).stat.version == 0


async def test_s6_a_write_under_way_when_its_session_ends_never_happens(world: World, store: Store) -> None:
    """Safety rule S6: also a write that was sent while the session was sound, and comes after its end."""
    other = await world.open()
    await store.create("/a", b"old")
    late = await world.delay(store, lambda: store.multi([Set("/a", PADDING, 0), Create("/e", b"", ephemeral=True)]))
    assert isinstance(late.answer, ConnectionLoss)
    await world.expire(store)
    await late.arrive()
    assert (await other.get("/a", current=True)).data == b"old"
    assert await other.exists("/e", current=True) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00 not text",
        b"{",
        b'{"version":1,"brokerid":-1,"timestamp":"0"}',
        b'{"version":1,"brokerid":7,"timestamp":"0"}',
    ],
)
async def test_s7_a_controller_node_without_an_owner_stops_nobody(world: World, store: Store, content: bytes) -> None:
    """Safety rule S7: whatever it says, also a well-formed id, a node that outlives everybody is taken away."""
    await store.create("/controller", content)
    leader = Leadership(await world.open(), SystemClock(), id=ElectionId(1))
    reign = await within(leader.campaign())
    node = await store.get("/controller", current=True)
    assert node.stat.creation_id == reign.creation_id
    assert node.stat.ephemeral_owner is not None


async def test_s7_a_removal_meant_for_an_earlier_reign_spares_the_next(world: World, store: Store) -> None:
    """Safety rule S7: the epoch's version was read before the node, so that a candidate's late delete is refused."""
    first = Leadership(await world.open(), SystemClock(), id=ElectionId(1))
    second = Leadership(await world.open(), SystemClock(), id=ElectionId(2))
    old = await within(first.campaign())
    read = await store.get("/controller", current=True)
    waiting = asyncio.create_task(second.campaign())
    await first.resign(old)
    new = await within(waiting)
    with pytest.raises(BadVersion) as caught:
        await store.multi([old.fence, Delete("/controller", read.stat.version)])
    assert caught.value.path == "/controller_epoch"
    assert (await store.get("/controller", current=True)).stat.creation_id == new.creation_id


async def test_s14_a_topic_that_is_restored_before_its_deletion_is_recorded_stays(world: World, store: Store) -> None:
    """Safety rule S14: the record is written only while the topic node is gone and the guard stands."""
    await _cluster(store)
    await store.create("/admin/delete_topics", b"", make_parents=True)
    person = await world.open()
    state = "/brokers/topics/t/0/leaderAndISR"
    await person.multi([Delete(state, 0), Delete("/brokers/topics/t/0", 0), Delete("/brokers/topics/t", 0)])
    assert await store.exists("/brokers/topics/t", current=True) is None
    await person.create(state, b"first", make_parents=True)
    record: Group = (
        Check("/brokers/topic_ids/one"),
        Absent("/brokers/topics/t"),
        Create("/admin/delete_topics/one", b""),
    )
    (outcome,) = await store.write_batch([record], fence=Check("/controller_epoch", 0))
    assert _reason(outcome) == (NodeExists, "/brokers/topics/t")
    assert await store.exists("/admin/delete_topics/one", current=True) is None
    await person.multi([Delete(state, 0), Delete("/brokers/topics/t/0", 0), Delete("/brokers/topics/t", 0)])
    (outcome,) = await store.write_batch([record], fence=Check("/controller_epoch", 0))
    assert isinstance(outcome, Written)
