"""A broker that never comes back is waited for no more; one that does is not forgotten (safety rules S2, S13)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Create, Group, Node, Outcome, Unknown
from regnum_election.brokers.description import describe_brokers
from regnum_election.brokers.forgetting import Forgotten
from regnum_election.controller import Controller
from regnum_election.health.messages import describe_health
from regnum_election.partitions.requests import RemovalRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import DeletionNode
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S, until

TOPICS = 3


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def deleted_without(cluster: FakeCluster, controller: Controller, *away: int) -> list[TopicId]:
    """Topics that went while brokers were away, and whose records name only these."""
    requests = [
        TopicRequest(name=f"t{i}", partitions=2, replication_factor=3, assignment=(), mutation=None)
        for i in range(TOPICS)
    ]
    answered = await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    for id in away:
        cluster.kill(id)
        await until(lambda id=id: BrokerId(id) not in controller.picture.brokers)
    await controller.topics.delete(
        [DeletionRequest(name=request.name, topic_id="", mutation=None) for request in requests],
        wait_s=DEADLINE_S,
        account=ANYBODY,
    )
    ids = [outcome.topic_id for outcome in answered.outcomes if isinstance(outcome, Created)]
    assert len(ids) == TOPICS

    async def only_they_are_left() -> bool:
        return [await recorded(cluster, id) for id in ids] == [set(away)] * TOPICS

    await until(only_they_are_left)
    return ids


async def removed_without(cluster: FakeCluster, controller: Controller, *away: int) -> None:
    """Partitions that were removed while brokers were away, and whose records name only these."""
    request = TopicRequest(name="t", partitions=3, replication_factor=3, assignment=(), mutation=None)
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    for id in away:
        cluster.kill(id)
        await until(lambda id=id: BrokerId(id) not in controller.picture.brokers)
    removal = RemovalRequest(name="t", topic_id="", partitions=(1, 2), mutation=None)
    await controller.partitions.remove([removal], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    removals, left = controller._context.removals, set(map(BrokerId, away))

    def waited_for() -> list[object]:
        known = (removals.get(key) for key in removals.of_broker(BrokerId(away[0])))
        return [one.waiting for one in known if one is not None]

    await until(lambda: waited_for() == [left] * 2)


async def recorded(cluster: FakeCluster, id: TopicId) -> set[int] | None:
    if await cluster.outside.exists(paths.deletion(id)) is None:
        return None
    return set(DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data).brokers)


async def forget(controller: Controller, broker: int, *, validate_only: bool = False) -> Forgotten:
    return await controller.forgetting.forget(
        BrokerId(broker), validate_only=validate_only, who="a test", wait_s=DEADLINE_S
    )


async def test_deletions_wait_for_it_no_more_and_its_guard_stays(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await deleted_without(cluster, controller, 3)
    guard = await cluster.outside.get(paths.broker_epoch(BrokerId(3)))
    looked = await forget(controller, 3, validate_only=True)
    assert looked == Forgotten(deletions=TOPICS, deletions_ended=TOPICS, assigned_partitions=0)
    assert [await recorded(cluster, id) for id in ids] == [{3}] * TOPICS
    assert await forget(controller, 3) == looked
    assert [await recorded(cluster, id) for id in ids] == [None] * TOPICS
    assert not len(controller._context.deletions)
    assert (await cluster.outside.get(paths.broker_epoch(BrokerId(3)))).stat == guard.stat
    # A repeat finds nothing to do.
    assert await forget(controller, 3) == Forgotten(deletions=0, deletions_ended=0, assigned_partitions=0)


async def test_another_broker_that_is_away_is_waited_for_still(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await deleted_without(cluster, controller, 2, 3)
    assert await forget(controller, 3) == Forgotten(deletions=TOPICS, deletions_ended=0, assigned_partitions=0)
    assert [await recorded(cluster, id) for id in ids] == [{2}] * TOPICS
    back = await cluster.register(2)
    await until(lambda: not len(controller._context.deletions))
    assert {stop.topic_id for stop in back.stops} == set(ids)
    assert [await recorded(cluster, id) for id in ids] == [None] * TOPICS


async def test_a_broker_that_is_registered_is_refused(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    with pytest.raises(RegnumError, match="is registered") as refused:
        await forget(controller, 3)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_a_mistyped_id_is_refused(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    for id in (77, -1):
        with pytest.raises(RegnumError, match="look at the id"):
            await forget(controller, id)


async def test_partitions_assigned_to_it_are_counted_and_stay(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    request = TopicRequest(name="kept", partitions=4, replication_factor=3, assignment=(), mutation=None)
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    assert await forget(controller, 3) == Forgotten(deletions=0, deletions_ended=0, assigned_partitions=4)
    assert 3 in (await cluster.topic("kept")).partitions[0]


class Meanwhile(MemoryStore):
    """Something happens right after the controller has read a node, once."""

    def __init__(self, server: MemoryServer, path: str, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(server)
        self.path, self.happens = path, happens
        self.due = False

    async def get_many(self, wanted: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Answer, and then let it happen."""
        found = await super().get_many(wanted, current=current)
        if self.due and self.path in wanted:
            self.due = False
            await self.happens()
        return found


async def reign_with(
    cluster: FakeCluster, path: str, happens: Callable[[], Awaitable[object]]
) -> tuple[Controller, list[Meanwhile]]:
    """A controller whose stores are of that kind; any of them may be the one that reads."""
    stores: list[Meanwhile] = []

    def opened(server: MemoryServer) -> Meanwhile:
        stores.append(Meanwhile(server, path, happens))
        return stores[-1]

    cluster.open_store = opened
    return await cluster.reign(), stores


async def test_a_broker_that_registers_at_that_moment_is_not_forgotten(cluster: FakeCluster) -> None:
    controller, stores = await reign_with(cluster, paths.broker_id(BrokerId(3)), lambda: cluster.register(3))
    ids = await deleted_without(cluster, controller, 3)
    for store in stores:
        store.due = True
    with pytest.raises(RegnumError, match="is registered"):
        await forget(controller, 3)
    await until(lambda: not len(controller._context.deletions))
    assert {stop.topic_id for stop in cluster.brokers[BrokerId(3)].stops} == set(ids)


class BetweenWrites(MemoryStore):
    """A broker registers when the first of several groups that rely on its absence is written, once."""

    def __init__(self, server: MemoryServer, broker: BrokerId, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(server)
        self.guard, self.happens = paths.broker_epoch(broker), happens
        self.due = False

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Write one, let it happen, write the others."""
        if not (self.due and any(isinstance(one[0], Check) and one[0].path == self.guard for one in groups)):
            return await super().write_batch(groups, fence=fence)
        self.due = False
        first = await super().write_batch(groups[:1], fence=fence)
        await self.happens()
        return (*first, *await super().write_batch(groups[1:], fence=fence))


@pytest.mark.parametrize("what", ["topics", "partitions"])
async def test_what_was_written_before_it_registered_is_known_and_ends_like_the_rest(
    cluster: FakeCluster, what: str
) -> None:
    stores: list[BetweenWrites] = []

    def opened(server: MemoryServer) -> BetweenWrites:
        stores.append(BetweenWrites(server, BrokerId(3), lambda: cluster.register(3)))
        return stores[-1]

    cluster.open_store = opened
    controller = await cluster.reign()
    if what == "topics":
        await deleted_without(cluster, controller, 2, 3)
    else:
        await removed_without(cluster, controller, 2, 3)
    for store in stores:
        store.due = True
    with pytest.raises(RegnumError, match=r"deletions that wait for it no more: 1\.") as refused:
        await forget(controller, 3)
    assert "regnum brokers strays --broker 3" in refused.value.message
    # The other one comes back as well: everybody has confirmed, and no record stays for want of its version.
    await cluster.register(2)
    await until(lambda: not len(controller._context.deletions) and not len(controller._context.removals))
    for folder in (paths.DELETE_TOPICS, paths.DELETE_PARTITIONS):
        assert (await cluster.outside.children(folder)).names == ()


@pytest.mark.parametrize("successor", ["none", "from a standby"])
async def test_a_forgotten_broker_is_listed_no_more_under_this_controller_and_the_next(
    cluster: FakeCluster, successor: str
) -> None:
    controller = await cluster.reign()
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    request = TopicRequest(name="t", partitions=1, replication_factor=3, assignment=(), mutation=None)
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    await until(standby.has_all)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    deletion = DeletionRequest(name="t", topic_id="", mutation=None)
    await controller.topics.delete([deletion], wait_s=DEADLINE_S, account=ANYBODY)

    async def listed() -> list[set[int]]:
        described = await describe_brokers(controller.picture, ())
        health = await describe_health(controller.health, most=1)
        return [{int(one.id) for one in described}, {one.broker_id for one in health.brokers}]

    assert await listed() == [{1, 2, 3}] * 2, "its deletions wait for it"
    await forget(controller, 3)
    await until(standby.has_all)
    followed = await standby.follower.take()
    await standby.close()
    if successor == "from a standby":
        await cluster.end_reign()
        controller = await cluster.reign(2, followed=followed)
    assert await listed() == [{1, 2}] * 2
    await cluster.register(3)
    await until(lambda: BrokerId(3) in controller.picture.brokers)
    assert await listed() == [{1, 2, 3}] * 2


async def test_a_forgotten_broker_that_partitions_still_name_stays_in_the_lists(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    request = TopicRequest(name="t", partitions=1, replication_factor=3, assignment=(), mutation=None)
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    await forget(controller, 3)
    (one,) = await describe_brokers(controller.picture, (BrokerId(3),))
    assert one.known
    assert 3 in {one.id for one in await describe_brokers(controller.picture, ())}


RESTORED = RestoreMark(
    whole=True, run="r", backup="b", taken_ms=1, since_ms=2, brokers=frozenset(map(BrokerId, (1, 2, 3)))
)


async def heard_first(cluster: FakeCluster) -> set[int]:
    """Brokers whose logs are waited for before a restored partition gets a leader."""
    return set(RestoreMark.decode((await cluster.outside.get(MARK)).data).brokers)


async def test_what_a_broker_says_that_registers_while_it_is_forgotten_is_waited_for(cluster: FakeCluster) -> None:
    """It may have the newest log of a restored partition, and nobody else has it."""
    controller, stores = await reign_with(cluster, MARK, lambda: cluster.register(3))
    await cluster.outside.create(MARK, RESTORED.encode())
    draining = controller.brokers.draining
    await draining.drain(BrokerId(3), undo=False, validate_only=False, who="a test", wait_s=DEADLINE_S)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    for store in stores:
        store.due = True
    with pytest.raises(RegnumError, match="is registered"):
        await forget(controller, 3)
    assert await heard_first(cluster) == {1, 2, 3}
    assert await cluster.outside.exists(paths.draining(BrokerId(3))) is not None


async def test_so_is_what_one_says_that_registers_for_the_first_time(cluster: FakeCluster) -> None:
    """The backup knew it, as a replica of a topic; nothing in the store says that it ever lived."""
    controller, stores = await reign_with(cluster, MARK, lambda: cluster.register(9))
    named = replace(RESTORED, brokers=RESTORED.brokers | {BrokerId(9)})
    await cluster.outside.create(MARK, named.encode())
    looked = await forget(controller, 9, validate_only=True)
    assert looked == Forgotten(deletions=0, deletions_ended=0, assigned_partitions=0)
    assert await cluster.outside.exists(paths.broker_epoch(BrokerId(9))) is None, "looking changes nothing"
    for store in stores:
        store.due = True
    with pytest.raises(RegnumError, match="is registered"):
        await forget(controller, 9)
    assert await heard_first(cluster) == {1, 2, 3, 9}


class LosesTheGuard(MemoryStore):
    """Its broker registers for the first time, and then the creation of its guard does not arrive; nobody says so."""

    def __init__(self, server: MemoryServer, guard: str, registers: Callable[[], Awaitable[object]]) -> None:
        super().__init__(server)
        self._guard, self._registers, self.due = guard, registers, False

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """As the store."""
        created = (one.path for group in groups for one in group if isinstance(one, Create))
        if self.due and self._guard in created:
            self.due = False
            await self._registers()
            return (Unknown(),) * len(groups)
        return await super().write_batch(groups, fence=fence)


async def test_a_guard_that_the_broker_made_itself_is_not_taken_for_the_controllers(cluster: FakeCluster) -> None:
    """The write is repeated until its outcome is known (safety rule S1): what it finds must not look like its own."""
    stores: list[LosesTheGuard] = []

    def opened(server: MemoryServer) -> LosesTheGuard:
        stores.append(LosesTheGuard(server, paths.broker_epoch(BrokerId(9)), lambda: cluster.register(9)))
        return stores[-1]

    cluster.open_store = opened
    controller = await cluster.reign()
    named = replace(RESTORED, brokers=RESTORED.brokers | {BrokerId(9)})
    await cluster.outside.create(MARK, named.encode())
    for store in stores:
        store.due = True
    with pytest.raises(RegnumError, match="is registered"):
        await forget(controller, 9)
    assert await heard_first(cluster) == {1, 2, 3, 9}


async def test_a_broker_that_only_a_restore_names_is_waited_for_no_more(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    named = replace(RESTORED, brokers=RESTORED.brokers | {BrokerId(9)})
    await cluster.outside.create(MARK, named.encode())
    await forget(controller, 9)
    assert await heard_first(cluster) == {1, 2, 3}
    # It may come after all, as a new one.
    back = await cluster.register(9)
    assert back.epoch > 0


async def test_a_mark_that_somebody_else_writes_at_that_moment_loses_the_broker_all_the_same(
    cluster: FakeCluster,
) -> None:
    async def written() -> None:
        await cluster.outside.set(MARK, replace(RESTORED, run="later").encode(), version=None)

    controller, stores = await reign_with(cluster, MARK, written)
    await cluster.outside.create(MARK, RESTORED.encode())
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    for store in stores:
        store.due = True
    await forget(controller, 3)
    assert await heard_first(cluster) == {1, 2}
    assert RestoreMark.decode((await cluster.outside.get(MARK)).data).run == "later"
