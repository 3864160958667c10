"""How far brokers that have started are from being in sync, and which partitions hold back those that want to stop."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from immutables import Map
from regnum.types.v1 import errors_pb2
from regnum_election.brokers.in_sync import COUNTED_AT_ONCE, LOOKED_AT_AGAIN, InSyncWatch
from regnum_election.brokers.shutdown import Departure
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster, HeldState
from regnum_election.decisions.in_sync import ASKED_S, WholeStop, holds_back, is_awaited
from regnum_election.reign.events import AwaitsInSync, CatchingUp, IsrsWritten, ReplicasOffline
from regnum_election.reign.reign import Reign
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.reassignment import Reassignment
from regnum_service.errors import RegnumError
from regnum_testing.creating import assigned, create
from regnum_testing.election_values import broker, replicas, state, surroundings, topic
from regnum_testing.election_values import cluster as picture_of
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def shown(isr: tuple[int, ...], *, leader: int = 2, live: int = 3) -> tuple[Cluster, PartitionKey]:
    """A picture of one partition of brokers 1, 2 and 3."""
    made, partitions = topic("t", (1, 2, 3))
    held = HeldState(state=replace(state(leader, isr), topic_id=made.id), version=1)
    picture = picture_of(*range(1, live + 1), topics=[(made, {0: replace(partitions[0], held=held)})])
    return picture, PartitionKey(made.id, 0)


def test_a_broker_waits_for_a_partition_until_it_is_in_its_in_sync_set() -> None:
    picture, key = shown((2, 3))
    assert is_awaited(picture, key, ONE)
    assert not is_awaited(picture, key, TWO)
    picture, key = shown((2, 3, 1))
    assert not is_awaited(picture, key, ONE)


def test_a_member_that_has_come_back_since_it_was_recorded_has_yet_to_catch_up() -> None:
    picture, key = shown((2, 3, 1))
    back = picture.with_broker(broker(1, epoch=90))
    assert is_awaited(back, key, ONE)
    assert not is_awaited(back, key, TWO)


def test_what_cannot_come_right_by_waiting_is_not_waited_for() -> None:
    """Nobody leads; the replica cannot be used; a reassignment is only bringing it; it is assigned to others."""
    unled, key = shown((2, 3), leader=-1)
    assert not is_awaited(unled, key, ONE)

    picture, key = shown((2, 3))
    assert not is_awaited(picture.with_offline(ONE, [key]), key, ONE)
    assert is_awaited(picture.with_offline(THREE, [key]), key, ONE)
    assert not is_awaited(picture.with_trouble({key: "its node is gone"}), key, ONE)

    coming = Reassignment(origin=replicas(2, 3), target=replicas(1, 2, 3))
    leaving = Reassignment(origin=replicas(1, 2, 3), target=replicas(2, 3))
    assert not is_awaited(picture.with_assignments({key: (replicas(2, 3, 1), coming)}), key, ONE)
    assert is_awaited(picture.with_assignments({key: (replicas(1, 2, 3), leaving)}), key, ONE)

    assert not is_awaited(picture, key, BrokerId(4))
    assert not is_awaited(replace(picture, partitions=Map()), key, ONE)


@pytest.mark.parametrize(
    ("isr", "leaving", "live", "held"),
    [
        ((1, 2, 3), (), (1, 2, 3), False),
        ((1, 2), (), (1, 2, 3), True),
        ((1, 2, 3), (2,), (1, 2, 3), True),
        ((1, 2, 3), (1,), (1, 2, 3), False),
        ((1, 2, 3), (), (1, 2), True),
        ((1,), (), (1, 2, 3), True),
        ((2, 3), (), (1, 2, 3), False),
    ],
)
def test_a_broker_is_held_back_while_too_few_would_stay(
    isr: tuple[int, ...], leaving: tuple[int, ...], live: tuple[int, ...], held: bool
) -> None:
    around = surroundings(*live, leaving=leaving)
    assert holds_back(state(isr[0], isr), replicas(1, 2, 3), ONE, around, min_insync=2) is held


def test_a_partition_that_would_be_below_in_any_case_holds_nobody_back() -> None:
    around = surroundings(1, 2, 3)
    assert not holds_back(state(1, (1,)), replicas(1), ONE, around, min_insync=1)
    assert not holds_back(state(1, (1, 2)), replicas(1, 2), ONE, around, min_insync=2)
    assert not holds_back(state(-1, (1, 2)), replicas(1, 2, 3), ONE, around, min_insync=2)
    assert holds_back(state(1, (1, 2)), replicas(1, 2, 3), ONE, around, min_insync=2)
    # Below it may be, but not without a leader while the other one catches up.
    assert holds_back(state(1, (1,)), replicas(1, 2), ONE, around, min_insync=2)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def ask(cluster: FakeCluster, controller: Controller, id: int, *, begins: bool = True) -> None:
    epoch = cluster.brokers[BrokerId(id)].epoch
    controller.brokers.in_sync.heard_of(AwaitsInSync(broker=BrokerId(id), epoch=epoch, open=begins))


def said(cluster: FakeCluster, id: int, awaited: int, replicas: int) -> CatchingUp:
    epoch = cluster.brokers[BrokerId(id)].epoch
    return CatchingUp(broker=BrokerId(id), epoch=epoch, replicas=replicas, awaited=awaited)


async def write_isr(cluster: FakeCluster, controller: Controller, name: str, topic_id: str, *isr: int) -> None:
    """A leader writes another in-sync set, and reports it."""
    path = paths.leader_and_isr(name, 0)
    node = await cluster.outside.get(path)
    found = LeaderAndIsr.decode(node.data)
    joining = {
        BrokerId(id): Membership(
            broker_epoch=cluster.brokers[BrokerId(id)].epoch, log_id=cluster.brokers[BrokerId(id)].log_id
        )
        for id in isr
        if id not in found.isr
    }
    grown = with_isr(found, tuple(BrokerId(id) for id in isr), min_insync=2, joining=joining)
    await cluster.outside.set(path, grown.encode(), version=node.stat.version)
    key = PartitionKey(found.topic_id, 0)
    assert found.topic_id == topic_id
    controller.queue.put(IsrsWritten.unseen({key}))

    def known() -> bool:
        held = controller.picture.partitions[key].held
        return held is not None and held.state.isr == grown.isr

    await until(known)


async def left(
    cluster: FakeCluster, controller: Controller, *topics: tuple[str, str], staying: tuple[int, ...]
) -> None:
    """Broker 1 has gone and come back: it is in no in-sync set."""
    cluster.kill(1)
    for name, id in topics:
        key = PartitionKey(controller.picture.names[name], 0)
        assert key.topic_id == id

        def shrunk(key: PartitionKey = key) -> bool:
            held = controller.picture.partitions[key].held
            return held is not None and held.state.isr == tuple(BrokerId(id) for id in staying)

        await until(shrunk)
    await cluster.register(1)
    await until(lambda: controller.picture.brokers.get(ONE) is not None)


async def test_a_broker_hears_how_far_it_is_and_at_last_that_it_is_in_sync(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    a, b = await create(controller, assigned("a", 2, 3, 1), assigned("b", 2, 3, 1))
    await left(cluster, controller, ("a", a), ("b", b), staying=(2, 3))

    ask(cluster, controller, 1)
    await until(lambda: cluster.told_in_sync == [said(cluster, 1, 2, 2)])
    await write_isr(cluster, controller, "a", a, 2, 3, 1)
    await until(lambda: cluster.told_in_sync[1:] == [said(cluster, 1, 1, 2)])
    await write_isr(cluster, controller, "b", b, 2, 3, 1)
    await until(lambda: cluster.told_in_sync[2:] == [said(cluster, 1, 0, 2)])
    # Never again: what it leaves later is no matter of its readiness.
    await write_isr(cluster, controller, "b", b, 2, 3)
    ask(cluster, controller, 2)
    await until(lambda: len(cluster.told_in_sync) > 3)
    assert cluster.told_in_sync[3:] == [said(cluster, 2, 0, 2)]


async def test_a_broker_without_replicas_is_in_sync_at_once(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    ask(cluster, controller, 3)
    await until(lambda: cluster.told_in_sync)
    assert cluster.told_in_sync == [said(cluster, 3, 0, 0)]


async def test_a_broker_that_the_controller_has_not_heard_of_is_counted_as_soon_as_it_has(cluster: FakeCluster) -> None:
    await cluster.begin(2, 3)
    controller = await cluster.reign()
    watch = controller.brokers.in_sync
    watch.heard_of(AwaitsInSync(broker=ONE, epoch=(await _next_epoch(cluster)), open=True))
    await watch.turn()
    assert cluster.told_in_sync == []
    await cluster.register(1)
    # The epoch that was guessed is over by now; the lifeline for the true one asks again.
    ask(cluster, controller, 1)
    await until(lambda: cluster.told_in_sync == [said(cluster, 1, 0, 0)])


async def _next_epoch(cluster: FakeCluster) -> int:
    """A broker epoch that nobody has had yet."""
    return max(one.epoch for one in cluster.brokers.values()) + 1


async def test_a_replica_that_turns_out_to_be_unusable_is_waited_for_no_longer(cluster: FakeCluster) -> None:
    """No publication names it: the broker is in no in-sync set that could change."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (a,) = await create(controller, assigned("a", 2, 3, 1))
    await left(cluster, controller, ("a", a), staying=(2, 3))
    ask(cluster, controller, 1)
    await until(lambda: cluster.told_in_sync == [said(cluster, 1, 1, 1)])
    keys = frozenset({PartitionKey(a, 0)})
    controller.queue.put(ReplicasOffline(broker=ONE, epoch=cluster.brokers[ONE].epoch, keys=keys))
    await until(lambda: len(cluster.told_in_sync) > 1)
    assert cluster.told_in_sync[1:] == [said(cluster, 1, 0, 1)]


async def test_a_broker_whose_lifeline_is_over_is_not_counted_any_more(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (a,) = await create(controller, assigned("a", 2, 3, 1))
    await left(cluster, controller, ("a", a), staying=(2, 3))
    ask(cluster, controller, 1)
    await until(lambda: len(cluster.told_in_sync) == 1)
    ask(cluster, controller, 1, begins=False)
    await write_isr(cluster, controller, "a", a, 2, 3, 1)
    ask(cluster, controller, 2)
    await until(lambda: len(cluster.told_in_sync) > 1)
    assert cluster.told_in_sync[1:] == [said(cluster, 2, 0, 1)], "the other is told nothing"


async def test_the_next_controller_counts_for_a_broker_that_asks_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (a,) = await create(controller, assigned("a", 2, 3, 1))
    await left(cluster, controller, ("a", a), staying=(2, 3))
    await cluster.end_reign()
    controller = await cluster.reign(2)
    ask(cluster, controller, 1)
    await until(lambda: cluster.told_in_sync == [said(cluster, 1, 1, 1)])
    await write_isr(cluster, controller, "a", a, 2, 3, 1)
    await until(lambda: len(cluster.told_in_sync) > 1)
    assert cluster.told_in_sync[1:] == [said(cluster, 1, 0, 1)]


async def goes(cluster: FakeCluster, controller: Controller, id: int, *, can_wait: bool = True) -> Departure:
    epoch = cluster.brokers[BrokerId(id)].epoch
    return await controller.brokers.controlled_shutdown(BrokerId(id), epoch, can_wait=can_wait, wait_s=DEADLINE_S)


async def test_of_two_brokers_that_stop_at_one_moment_the_second_waits_for_the_first_to_be_back(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    a, b = await create(controller, assigned("a", 1, 2, 3), assigned("b", 2, 3, 1))
    first, second = await asyncio.gather(goes(cluster, controller, 1), goes(cluster, controller, 2))
    assert first == Departure(remaining=0)
    assert (second.below, sorted(second.held)) == (2, [("a", 0), ("b", 0)])
    # Nothing was taken from it.
    assert (await cluster.state("b", 0)).leader == 2
    assert {(await cluster.state(name, 0)).isr for name in ("a", "b")} == {(2, 3)}

    await left(cluster, controller, ("a", a), ("b", b), staying=(2, 3))
    assert (await goes(cluster, controller, 2)).below == 2
    await write_isr(cluster, controller, "a", a, 2, 3, 1)
    assert (await goes(cluster, controller, 2)).held == (("b", 0),)
    await write_isr(cluster, controller, "b", b, 2, 3, 1)
    assert await goes(cluster, controller, 2) == Departure(remaining=0)
    assert {(await cluster.state(name, 0)).isr for name in ("a", "b")} == {(3, 1)}


async def test_when_all_brokers_stop_at_one_moment_none_waits_for_another(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, assigned("a", 1, 2, 3))
    assert await goes(cluster, controller, 1) == Departure(remaining=0)
    cluster.kill(1)
    await until(lambda: ONE not in controller.picture.brokers)
    # Two of three: the third may stay.
    assert (await goes(cluster, controller, 2)).below == 1
    # It does not.
    assert await goes(cluster, controller, 3) == Departure(remaining=0)
    cluster.kill(3)
    await until(lambda: THREE not in controller.picture.brokers)
    assert await goes(cluster, controller, 2) == Departure(remaining=1)


async def test_brokers_that_ask_at_once_are_all_heard_before_the_first_one_has_its_turn(cluster: FakeCluster) -> None:
    """With many brokers and partitions the last one's turn comes when the first has long asked again."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, assigned("a", 1, 2, 3))
    departures = await asyncio.gather(*(goes(cluster, controller, id) for id in (1, 2, 3)))
    assert [departure.below for departure in departures] == [0, 0, 0]


async def test_a_question_that_nobody_waits_for_any_more_is_not_gone_into(cluster: FakeCluster) -> None:
    """Else those of many brokers that ask again and again would stand before every failover."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, assigned("a", 1, 2, 3))
    brokers, one, two = controller.brokers, cluster.brokers[ONE].epoch, cluster.brokers[TWO].epoch
    # Behind these, its turn comes when its caller has long gone; and theirs that come behind it when it is over.
    before = [brokers.allocate_producer_ids(ONE, one, wait_s=DEADLINE_S) for _ in range(20)]
    asked = brokers.controlled_shutdown(TWO, two, can_wait=True, wait_s=0.0)
    *_, late = await asyncio.gather(*before, asked, return_exceptions=True)
    assert isinstance(late, RegnumError)
    assert late.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    await brokers.allocate_producer_ids(ONE, one, wait_s=DEADLINE_S)
    assert not controller.picture.leaving
    assert (await cluster.state("a", 0)).isr == (1, 2, 3)


def test_all_brokers_stop_when_each_has_asked_lately_in_its_present_life() -> None:
    three = picture_of(1, 2, 3)
    stop = WholeStop()
    assert not stop.asks(ONE, three, 0.0)
    assert not stop.asks(TWO, three, ASKED_S)
    # The first has not asked again.
    assert not stop.asks(THREE, three, ASKED_S + 0.1)
    assert stop.asks(ONE, three, ASKED_S + 0.2)
    # From then on the others are of them, also when they are the last.
    assert stop.asks(TWO, three.without_broker(ONE).without_broker(THREE), 60.0)

    stop = WholeStop()
    assert not stop.asks(TWO, three, 0.0)
    assert not stop.asks(THREE, three, 0.0)
    # Two has come anew since.
    assert not stop.asks(ONE, three.with_broker(broker(2, epoch=90)), 0.1)
    # Let go a while ago, and still writing its logs: it comes back, and copies from those that ask now.
    stop = WholeStop()
    stop.heard(TWO, three.brokers[TWO].epoch, 0.0)
    assert not stop.asks(THREE, three.with_leaving(TWO), ASKED_S + 0.1)
    assert not stop.asks(ONE, three.with_leaving(TWO), ASKED_S + 0.2)
    # Alone it knows nothing of the others: they may be on their way back.
    assert not WholeStop().asks(ONE, picture_of(1), 0.0)


def test_a_broker_that_is_away_may_be_on_its_way_back_unless_it_asked_with_the_others() -> None:
    """Two of three that are told to stop while the third restarts: the two hold what it has yet to copy."""
    picture, _ = shown((1, 2), live=2)
    stop = WholeStop()
    assert not stop.asks(ONE, picture, 0.0)
    assert not stop.asks(TWO, picture, 0.1)
    # It restarts, and a moment before it went the others were not told to stop.
    stop = WholeStop()
    stop.heard(THREE, BrokerEpoch(3), 0.0)
    assert not stop.asks(ONE, picture, ASKED_S)
    assert not stop.asks(TWO, picture, ASKED_S + 0.1)
    # It was told with them, and was gone first.
    stop = WholeStop()
    stop.heard(THREE, BrokerEpoch(3), 0.0)
    assert not stop.asks(ONE, picture, 0.1)
    assert stop.asks(TWO, picture, ASKED_S)
    # Nothing is assigned to it: nobody waits for it.
    empty = picture_of(1, 2)
    stop = WholeStop()
    assert not stop.asks(ONE, empty, 0.0)
    assert stop.asks(TWO, empty, 0.1)


async def test_an_in_sync_set_that_has_shrunk_unheard_of_is_not_shrunk_further(cluster: FakeCluster) -> None:
    """The leader wrote it, and its report is still on its way: the write that conflicts shows it."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (a,) = await create(controller, assigned("a", 2, 3, 1))
    path = paths.leader_and_isr("a", 0)
    node = await cluster.outside.get(path)
    shrunk = with_isr(LeaderAndIsr.decode(node.data), (TWO, ONE), min_insync=2)
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    departure = await goes(cluster, controller, 1)
    assert (departure.below, departure.held) == (1, (("a", 0),))
    assert (await cluster.state("a", 0)).isr == (2, 1)
    await write_isr(cluster, controller, "a", a, 2, 1, 3)
    assert await goes(cluster, controller, 1) == Departure(remaining=0)


async def test_a_broker_that_cannot_wait_goes_in_any_case(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, assigned("a", 1, 2, 3))
    assert await goes(cluster, controller, 3) == Departure(remaining=0)
    assert (await goes(cluster, controller, 1)).below == 1
    assert await goes(cluster, controller, 1, can_wait=False) == Departure(remaining=0)
    after = await cluster.state("a", 0)
    assert (after.leader, after.isr) == (2, (2,))


class Context:
    """As much of a reign as counting needs."""

    def __init__(self, picture: Cluster) -> None:
        self.picture = picture
        self.unverified: frozenset[PartitionKey] = frozenset()
        self.reign = Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(1), epoch_version=0)


async def test_counting_twenty_thousand_replicas_leaves_the_loop_its_turns() -> None:
    count = 20_000
    picture = picture_of(broker(1, epoch=90), 2, 3, topics=[topic("many", *(((2, 3, 1),) * count))])
    told: list[CatchingUp] = []
    watch = InSyncWatch(Context(picture), told.append)
    watch.heard_of(AwaitsInSync(broker=ONE, epoch=BrokerEpoch(90), open=True))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    await watch.turn()
    counting.cancel()
    assert told == [CatchingUp(broker=ONE, epoch=BrokerEpoch(90), replicas=count, awaited=count)]
    assert turns >= count // COUNTED_AT_ONCE
    # From then on, a turn looks at few of them.
    context = watch._context
    context.picture = Counted(picture)
    await watch.turn()
    assert context.picture.looked_at == LOOKED_AT_AGAIN
    assert len(told) == 1


class Counted:
    """A picture that counts how often it is looked at."""

    def __init__(self, picture: Cluster) -> None:
        self._picture = picture
        self.looked_at = 0

    def __getattr__(self, name: str) -> object:
        self.looked_at += name == "partitions"
        return getattr(self._picture, name)


async def test_what_only_the_predecessor_knew_is_waited_for_until_the_store_has_been_read() -> None:
    made, partitions = topic("t", (1, 2, 3))
    context = Context(picture_of(1, 2, 3, topics=[(made, partitions)]))
    context.unverified = frozenset({PartitionKey(made.id, 0)})
    told: list[CatchingUp] = []
    watch = InSyncWatch(context, told.append)
    watch.heard_of(AwaitsInSync(broker=ONE, epoch=BrokerEpoch(1), open=True))
    await watch.turn()
    await watch.turn()
    assert [one.awaited for one in told] == [1]
    context.unverified = frozenset()
    await watch.turn()
    assert [one.awaited for one in told] == [1, 0]
