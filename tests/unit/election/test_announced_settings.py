"""Settings that others announce: what the controller reads for it, and what goes between."""

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
