"""Settings that others announce: what the controller reads for it, and what goes between."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum_election.configs.book import TOPICS_PER_STEP
from regnum_model.configs import MIN_INSYNC_REPLICAS, encode_config, topic_config
from regnum_model.quotas import CHANGES
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

TOPICS = 2 * TOPICS_PER_STEP + 1


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def say(cluster: FakeCluster) -> None:
    """People write settings of many topics."""
    for number in range(TOPICS):
        await cluster.outside.create(topic_config(f"t{number}"), encode_config({MIN_INSYNC_REPLICAS: "3"}))


async def test_what_a_person_announces_by_hand_is_in_force_for_every_topic(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=2)
    await say(cluster)
    await cluster.outside.create(f"{CHANGES}/by-hand", b"")
    await until(lambda: len(controller.picture.settings.topics) == TOPICS)
    assert all(own == {MIN_INSYNC_REPLICAS: 3} for own in controller.picture.settings.topics.values())


async def test_a_failure_waits_for_the_settings_of_some_topics_and_not_of_all(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=2)
    await say(cluster)
    in_force = [len(controller.picture.settings.topics) async for _ in controller._config_book.take_announced(None)]
    assert in_force == [TOPICS_PER_STEP, 2 * TOPICS_PER_STEP, TOPICS]


async def test_a_look_at_some_topics_beside_it_takes_no_settings_from_the_others(cluster: FakeCluster) -> None:
    """Whichever turns of the loop the two get: a topic without its settings would lose records to the cluster's."""
    controller = await cluster.reign(min_insync=2)
    book = controller._config_book
    for number in range(TOPICS_PER_STEP):
        await cluster.outside.create(topic_config(f"t{number}"), encode_config({MIN_INSYNC_REPLICAS: "3"}))
    async for _ in book.take_announced(None):
        pass
    everything = controller.picture.settings

    async def look(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)  # a turn: where the look begins is what differs
        await book.look()

    async def take() -> None:
        async for _ in book.take_announced(None):
            pass

    for turns in range(40):
        await asyncio.gather(take(), look(turns))
        assert controller.picture.settings == everything, turns
