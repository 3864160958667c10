"""The controller and its metadata processes, over a memory store."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.publication.metadata_processes import remove_dead_process
from regnum_election.reign.writing import FencedStore
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.nodes import Address
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until
from structlog.testing import capture_logs


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str) -> None:
    request = TopicRequest(name=name, partitions=1, replication_factor=1, assignment=(), mutation=None)
    (outcome,) = (
        await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcome, Created), outcome


class Deaths:
    """A detector that says what it is told."""

    def __init__(self) -> None:
        self.dead = asyncio.Event()

    async def wait_dead(self, _address: Address, /) -> None:
        await self.dead.wait()


async def test_a_process_that_was_away_gets_what_it_lacks(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await until(lambda: cluster.metadata.version > 0)
    cluster.metadata.down = True
    await create(controller, "missed")
    cluster.metadata.down = False
    await until(lambda: "missed" in cluster.metadata.topics)
    assert cluster.metadata.topics["missed"] == {0: 1}


async def test_a_process_that_lost_its_image_gets_a_full_one(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await create(controller, "first")
    await until(lambda: "first" in cluster.metadata.topics)
    cluster.metadata.messages.clear()
    cluster.metadata.forget()
    await create(controller, "second")
    await until(lambda: set(cluster.metadata.topics) == {"first", "second"})
    assert cluster.metadata.topics == {"first": {0: 1}, "second": {0: 1}}


async def test_a_process_that_registers_anew_gets_a_full_image(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await create(controller, "t")
    await until(lambda: "t" in cluster.metadata.topics)
    cluster.metadata.messages.clear()
    cluster.metadata.forget()
    await cluster.metadata.register()
    await until(lambda: "t" in cluster.metadata.topics)
    assert cluster.metadata.topics == {"t": {0: 1}}


async def test_creation_does_not_wait_for_a_process_that_is_down_for_ever(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await until(lambda: cluster.metadata.version > 0)
    cluster.metadata.down = True
    async with asyncio.timeout(DEADLINE_S):
        await create(controller, "t")
    assert set(controller.picture.names) == {"t"}
    assert "t" not in cluster.metadata.topics


async def test_a_later_controller_at_a_process_ends_the_reign(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    cluster.metadata.controller_epoch = 9
    await cluster.reign(wait=False)
    running = cluster.running
    assert running is not None
    await until(running.done)
    assert getattr(running.exception(), "seen", None) == 9


async def test_a_dead_process_loses_its_registration(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    deaths = Deaths()
    await cluster.reign(metadata_detector=deaths)
    await until(lambda: cluster.metadata.version > 0)
    deaths.dead.set()

    async def gone() -> bool:
        return await cluster.outside.exists(paths.metadata_id(cluster.metadata.id)) is None

    await until(gone)
    assert cluster.running is not None
    assert not cluster.running.done(), "the reign goes on without it"


async def test_a_later_life_of_a_dead_process_keeps_its_registration(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    dead = cluster.metadata.creation_id
    await cluster.metadata.register()
    assert cluster.metadata.creation_id != dead
    assert cluster.controller_store is not None
    store = FencedStore(cluster.controller_store, controller.reign, cluster.clock)
    async for _ in remove_dead_process(store, cluster.metadata.id, dead):
        pass
    assert await cluster.outside.exists(paths.metadata_id(cluster.metadata.id)) is not None


async def test_hand_written_nodes_are_ignored_with_a_word(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    read = await cluster.outside.get(paths.metadata_id(cluster.metadata.id))
    names = ("nobody", str(2**31), "9" * 5_000)
    for name in names:
        await cluster.outside.create(f"{paths.METADATA_IDS}/{name}", read.data)
    await cluster.outside.create(f"{paths.METADATA_IDS}/2", b"\xff")
    with capture_logs() as logs:
        controller = await cluster.reign()
        await create(controller, "t")
        await until(lambda: "t" in cluster.metadata.topics)
    ignored = {entry["path"] for entry in logs if entry["event"] == "metadata process ignored"}
    assert ignored == {f"{paths.METADATA_IDS}/{name}" for name in (*names, "2")}
