"""Brokers that advertise an address of another one, and addresses that stand for another process."""

import random
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_client.admin.health.views import HealthView, health_view
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Broker
from regnum_election.decisions.registrations import at_addresses_of, without_own_address
from regnum_election.health.messages import describe_health
from regnum_election.history.events import Entry, OtherEntry
from regnum_election.reign.events import BrokerDead
from regnum_model.ids import BrokerEpoch, BrokerId, LogId, PartitionKey, Registration
from regnum_model.nodes import Address
from regnum_testing.clock import SkippingClock
from regnum_testing.creating import assigned, create
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until


def broker(id: int, *, epoch: int, client: str = "", internal: str = "") -> Broker:
    return Broker(
        id=BrokerId(id),
        epoch=BrokerEpoch(epoch),
        registration=Registration(0),
        node_version=0,
        rack=None,
        log_ids=frozenset({LogId(f"log-{id}")}),
        client=Address.parse(client or f"host-{id}:1"),
        internal=Address.parse(internal or f"host-{id}:2"),
    )


def left_out(brokers: Sequence[Broker]) -> dict[int, int]:
    """Who is left out, and for whom."""
    return {id: shared.holder for id, shared in without_own_address(brokers).items()}


def test_the_one_that_registered_first_has_the_address_whatever_the_ids_are() -> None:
    one, two = broker(1, epoch=20, client="a:1"), broker(2, epoch=10, client="a:1")
    assert left_out([one, two]) == left_out([two, one]) == {1: 2}
    assert left_out([one]) == {}
    assert left_out([broker(1, epoch=5, client="a:1"), two]) == {2: 1}


def test_port_host_as_written_and_name_of_the_listener_tell_addresses_apart() -> None:
    first = broker(1, epoch=1, client="a:1", internal="a:2")
    assert left_out([first, broker(2, epoch=2, client="a:3", internal="a:4")]) == {}
    assert left_out([first, broker(2, epoch=2, client="a:2", internal="a:1")]) == {}
    assert left_out([first, broker(2, epoch=2, client="a.example:1", internal="a.example:2")]) == {}
    assert left_out([first, broker(2, epoch=2, client="b:1", internal="a:2")]) == {2: 1}


def test_one_that_is_left_out_keeps_nobody_out() -> None:
    one = broker(1, epoch=1, client="a:1")
    two = broker(2, epoch=2, client="a:1", internal="b:2")
    three = broker(3, epoch=3, internal="b:2")
    assert left_out([one, two, three]) == {2: 1}
    assert left_out([two, three]) == {3: 2}


def test_the_reason_names_both_and_what_they_share() -> None:
    (shared,) = without_own_address([broker(1, epoch=1, internal="a:2"), broker(2, epoch=2, internal="a:2")]).values()
    assert shared.broker.id == 2
    for word in ("broker 1", "a:2", "internal listener", "--internal-advertised"):
        assert word in str(shared)


@pytest.mark.parametrize("seed", range(20))
def test_who_is_left_out_is_found_by_looking_at_those_alone_that_share_with_new_ones(seed: int) -> None:
    """While no two of the known brokers share an address, no other one matters: a look need not go through all."""
    chance = random.Random(seed)

    def any_broker(id: int, hosts: int) -> Broker:
        client, internal = (f"host-{chance.randrange(hosts)}:{port}" for port in (1, 2))
        return broker(id, epoch=chance.randrange(1_000), client=client, internal=internal)

    every = [any_broker(id, 30) for id in range(20)]
    known = [one for one in every if one.id not in without_own_address(every)]
    found = [any_broker(id, 30) for id in range(100, 104)]
    some = [*found, *at_addresses_of(found, known)]
    assert without_own_address(some) == without_own_address([*known, *found])


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(SkippingClock())
    yield cluster
    await cluster.close()


async def health_of(controller: Controller) -> HealthView:
    return health_view(await describe_health(controller.health, most=10))


def refusals(entries: Sequence[Entry]) -> list[tuple[int | None, str]]:
    others = (entry for entry in entries if isinstance(entry, OtherEntry))
    return [(one.broker, one.detail) for one in others if one.kind == words.EVENT_KIND_BROKER_REFUSED]


async def test_the_later_one_takes_no_part_until_the_other_is_gone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 3, 1))
    cluster.kill(3)
    late = await cluster.register(3, at=1)
    await until(lambda: refusals(cluster.recorded))
    health = await health_of(controller)
    assert sorted(controller.picture.brokers) == [1, 2]
    assert (late.requests, late.stops) == ([], []), "each would have reached broker 1"
    assert (await cluster.state("t", 0)).isr == (1,)
    ((refused, detail),) = refusals(cluster.recorded)
    assert refused == 3
    assert "broker 1" in detail
    assert any("broker 3 is refused" in problem and "broker 1" in problem for problem in health.problems)
    cluster.kill(1)
    await until(lambda: late.leaders().get(PartitionKey(id, 0)) is not None, what="broker 3 is told")
    assert sorted(controller.picture.brokers) == [2, 3]
    assert not any("refused" in problem for problem in (await health_of(controller)).problems)


async def test_so_it_is_for_one_that_the_next_reign_finds(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    late = await cluster.register(3, at=2)
    controller = await cluster.reign()
    assert sorted(controller.picture.brokers) == [1, 2]
    assert [id for id, _ in refusals(cluster.recorded)] == [3]
    other = cluster.brokers[BrokerId(2)]
    controller.queue.put(
        BrokerDead(broker=other.id, epoch=other.epoch, registration=other.registration, evidence="refused")
    )
    await until(lambda: late.requests, what="it is taken in when the other one was fenced")


async def test_a_registration_that_is_written_anew_with_another_address_is_taken_in(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await cluster.register(3, at=2)
    await until(lambda: refusals(cluster.recorded))
    again = await cluster.register(3)
    await until(lambda: again.requests)
    assert sorted(controller.picture.brokers) == [1, 2, 3]


async def test_an_address_that_answers_as_another_is_shown_until_it_does_not(cluster: FakeCluster) -> None:
    """A name that still stands for where a broker was, or a port that another one got."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    three = cluster.brokers[BrokerId(3)]
    await until(lambda: three.requests)
    three.answers_as = "broker-1"
    (id,) = await create(controller, assigned("t", 1, 3))
    await until(controller.health.context.dispatch.misdirected)
    await controller.health.turn()
    ((refused, detail),) = refusals(cluster.recorded)
    assert (refused, "answers as broker-1" in detail) == (3, True)
    assert any("broker 3 is refused" in one and "broker-1" in one for one in (await health_of(controller)).problems)
    await controller.health.turn()
    assert cluster.told_misdirected == [{3}], "the broker is told, once"
    three.answers_as = ""
    await until(lambda: PartitionKey(id, 0) in three.states, what="the order arrives in the end")
    await controller.health.turn()
    assert not controller.health.misdirected
    assert cluster.told_misdirected == [{3}, set()]
    assert len(refusals(cluster.recorded)) == 1
