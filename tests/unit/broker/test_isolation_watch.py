"""A leader that hears from nobody sends its clients away, and serves them again (safety rule S8)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.isolation_watch import IsolationWatch
from regnum_broker.replication.decisions.isolation import SILENCE_S
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.fetching.requests import LATEST, FetchPartition, FetchRequest, OffsetQuery, OffsetResult
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import Acks, ProducePartition, ProduceRequest
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import FetchingFollower, LeadingReplicas
from regnum_testing.waiting import eventually, within

NOT_LEADER = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
NONE = errors_pb2.ERROR_CODE_NONE
TOGETHER, ALONE = 0, 1


@dataclass
class Links:
    """What the broker still has."""

    session: bool = True
    lifeline: bool = True
    astray: bool = False


class Cut:
    """A broker that leads one partition with a follower in sync, and one alone; its clients; its links."""

    def __init__(self, leading: LeadingReplicas, clock: FakeClock) -> None:
        self.leading = leading
        self.clock = clock
        self.links = Links()
        self.supervisor = Supervisor("broker")
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.fetching = FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage)
        self.offsets = OffsetsHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage)
        self.producing = ProduceHandler(
            replicas=leading.replicas,
            leaders=leaders,
            storage=leading.storage,
            clock=clock,
            batch_bytes_max=1 << 20,
            supervisor=self.supervisor,
        )
        watch = IsolationWatch(
            replicas=leading.replicas,
            session_lost=lambda: not self.links.session,
            lifeline_open=lambda: self.links.lifeline,
            orders_astray=lambda: self.links.astray,
            clock=clock,
        )
        self.supervisor.start("isolation watch", watch.run())

    async def produce(self, partition: int, acks: int = Acks.LEADER) -> int:
        item = ProducePartition(topic="t", partition=partition, record_batch=batch_of(b"v"))
        return (await self.producing.produce(ProduceRequest(acks=acks, partitions=[item]))).results[0].error_code

    async def fetch(self, partition: int, *, wait_ms: int = 0) -> int:
        item = FetchPartition(topic="t", partition=partition, offset=0)
        request = FetchRequest(partitions=[item], max_wait_ms=wait_ms, min_bytes=1)
        return (await self.fetching.fetch(request)).results[0].error_code

    def end_of(self, partition: int) -> int:
        answer = self.offsets.list_offsets(OffsetQuery(topic="t", partition=partition, timestamp_ms=LATEST))
        assert isinstance(answer, OffsetResult)
        return answer.error_code

    async def answers(self, partition: int) -> set[int]:
        """What Produce, Fetch and ListOffsets say."""
        return {await self.produce(partition), await self.fetch(partition), self.end_of(partition)}


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, clock=clock) as leading:
        leading.lead(ALONE, epoch=1, isr=(1,))
        made = Cut(leading, clock)
        yield made
        await made.supervisor.unwind()


async def test_a_leader_without_session_lifeline_and_followers_sends_clients_away(cut: Cut) -> None:
    cut.links = Links(session=False, lifeline=False)
    assert await cut.answers(TOGETHER) == {NONE}
    await cut.clock.advance(SILENCE_S + 1)
    assert await cut.answers(TOGETHER) == {NOT_LEADER}


async def test_a_leader_whose_orders_go_astray_sends_clients_away_until_they_arrive(cut: Cut) -> None:
    cut.links = Links(astray=True)
    assert await cut.answers(TOGETHER) == {NONE}
    await cut.clock.advance(SILENCE_S + 1)
    assert await cut.answers(TOGETHER) == {NOT_LEADER}
    cut.links = Links()
    await cut.clock.advance(0.5)
    assert await cut.answers(TOGETHER) == {NONE}


async def test_a_leader_whose_orders_go_astray_serves_on_while_a_follower_fetches(cut: Cut) -> None:
    follower = FetchingFollower(cut.leading.session())
    cut.links = Links(astray=True)
    await follower.ask((TOGETHER, 0))
    for _ in range(5):
        await cut.clock.advance(SILENCE_S - 0.5)
        await follower.ask()
        assert await cut.fetch(TOGETHER) == NONE


@pytest.mark.parametrize("links", [Links(session=False, lifeline=False), Links(astray=True)])
async def test_a_leader_that_is_alone_in_the_isr_goes_on_for_ever(cut: Cut, links: Links) -> None:
    cut.links = links
    await cut.clock.advance(60)
    assert await cut.answers(ALONE) == {NONE}


@pytest.mark.parametrize("links", [Links(session=False), Links(lifeline=False)])
async def test_a_store_or_a_controller_that_is_merely_away_changes_nothing(cut: Cut, links: Links) -> None:
    cut.links = links
    await cut.clock.advance(60)
    assert await cut.answers(TOGETHER) == {NONE}


async def test_a_follower_that_still_fetches_keeps_its_leader_serving(cut: Cut) -> None:
    follower = FetchingFollower(cut.leading.session())
    cut.links = Links(session=False, lifeline=False)
    await follower.ask((TOGETHER, 0))
    for _ in range(10):
        await cut.clock.advance(SILENCE_S - 0.5)
        await follower.ask()
        assert await cut.fetch(TOGETHER) == NONE
    await cut.clock.advance(SILENCE_S + 1)
    assert await cut.fetch(TOGETHER) == NOT_LEADER
    await follower.ask()
    await cut.clock.advance(0.5)
    assert await cut.fetch(TOGETHER) == NONE


@pytest.mark.parametrize("links", [Links(session=False), Links(lifeline=False)])
async def test_it_serves_again_when_any_link_is_back(cut: Cut, links: Links) -> None:
    cut.links = Links(session=False, lifeline=False)
    await cut.clock.advance(10)
    assert await cut.answers(TOGETHER) == {NOT_LEADER}
    cut.links = links
    await cut.clock.advance(0.5)
    assert await cut.answers(TOGETHER) == {NONE}


async def test_whoever_waits_when_it_stops_is_told_at_once(cut: Cut) -> None:
    partition = cut.leading.partition(TOGETHER)
    fetch = asyncio.create_task(cut.fetch(TOGETHER, wait_ms=60_000))
    produce = asyncio.create_task(cut.produce(TOGETHER, Acks.ALL))

    async def waiting() -> bool:
        return len(partition.acks) == 1 and len(partition.committed) == 1

    await eventually(waiting)
    cut.links = Links(session=False, lifeline=False)
    await cut.clock.advance(SILENCE_S + 1)
    assert await within(fetch) == NOT_LEADER
    assert await within(produce) == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND
