"""What a broker notices of fetches that do not come or are not answered (safety rule S9)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.contacts import (
    HELD_UP_S,
    LOOK_INTERVAL_S,
    SILENT_S,
    UNREACHABLE_S,
    ContactWatch,
    FetchContacts,
)
from regnum_broker.cluster.reports import Reports
from regnum_model.ids import BrokerId
from regnum_testing.clock import FakeClock


class Counts:
    """Answers of leaders and fetches of followers, as a test counts them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.of_leaders: dict[BrokerId, int] = {}
        self.of_followers: dict[BrokerId, int] = {}
        self.told: list[FetchContacts] = []
        self.watch = ContactWatch(replicas=self, fetchers=self, tell=self.told.append, clock=self.clock)  # type: ignore[arg-type]

    def answers(self) -> dict[BrokerId, int]:
        return dict(self.of_leaders)

    def fetches(self) -> dict[BrokerId, int]:
        return dict(self.of_followers)

    @property
    def unreachable(self) -> set[int]:
        return set(self.told[-1].unreachable_leaders) if self.told else set()

    @property
    def silent(self) -> set[int]:
        return set(self.told[-1].silent_followers) if self.told else set()


@pytest.fixture
async def counts() -> AsyncIterator[Counts]:
    made = Counts()
    watching = asyncio.create_task(made.watch.run())
    await made.clock.advance(0)
    yield made
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_leader_that_answers_no_more_is_unreachable_until_it_answers_again(counts: Counts) -> None:
    counts.of_leaders = {BrokerId(2): 5, BrokerId(3): 5}
    for _ in range(20):
        counts.of_leaders[BrokerId(3)] += 1
        await counts.clock.advance(LOOK_INTERVAL_S)
    assert counts.unreachable == {2}
    counts.of_leaders[BrokerId(2)] += 1
    await counts.clock.advance(LOOK_INTERVAL_S)
    assert counts.unreachable == set()
    # What has not changed is not told again.
    assert len(counts.told) == 2


async def test_a_leader_has_its_time_from_the_moment_it_is_waited_for(counts: Counts) -> None:
    """Nothing is followed there, or the follower itself is still storing what it was sent."""
    counts.of_leaders = {BrokerId(2): 5}
    await counts.clock.advance(UNREACHABLE_S - LOOK_INTERVAL_S)
    counts.of_leaders = {}
    await counts.clock.advance(LOOK_INTERVAL_S)
    counts.of_leaders = {BrokerId(2): 5}
    await counts.clock.advance(UNREACHABLE_S)
    assert counts.unreachable == set()
    await counts.clock.advance(LOOK_INTERVAL_S)
    assert counts.unreachable == {2}


async def test_a_follower_that_never_fetched_or_stopped_is_silent(counts: Counts) -> None:
    counts.of_followers = {BrokerId(2): 0, BrokerId(3): 9, BrokerId(4): 0}
    for _ in range(int(SILENT_S / LOOK_INTERVAL_S) + 1):
        counts.of_followers[BrokerId(4)] += 1
        await counts.clock.advance(LOOK_INTERVAL_S)
    assert counts.silent == {2, 3}


async def test_a_broker_that_was_held_up_itself_accuses_nobody(counts: Counts) -> None:
    counts.of_leaders, counts.of_followers = {BrokerId(2): 5}, {BrokerId(3): 5}
    await counts.clock.advance(2 * LOOK_INTERVAL_S)
    counts.clock.skip(HELD_UP_S + UNREACHABLE_S)
    await counts.clock.advance(LOOK_INTERVAL_S)
    assert counts.told == []


# On the lifeline


def message_of(reports: Reports) -> controller_pb2.BrokerLifelineRequest:
    message = controller_pb2.BrokerLifelineRequest()
    reports.put_into(message)
    return message


def test_contacts_go_out_once_whole_and_again_on_every_new_stream() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    assert not message_of(reports).HasField("fetch_contacts")
    reports.set_contacts(FetchContacts(unreachable_leaders=frozenset({BrokerId(0)})))
    assert list(message_of(reports).fetch_contacts.unreachable_leaders) == [0]
    assert not message_of(reports).HasField("fetch_contacts")
    reports.begin_stream()
    assert list(message_of(reports).fetch_contacts.unreachable_leaders) == [0]


def test_contacts_that_are_well_again_are_told_as_well() -> None:
    reports = Reports(lambda: ())
    reports.set_contacts(FetchContacts(silent_followers=frozenset({BrokerId(2)})))
    message_of(reports)
    reports.set_contacts(FetchContacts())
    message = message_of(reports)
    assert message.HasField("fetch_contacts")
    assert not message.fetch_contacts.silent_followers
