"""Writes that make a topic, got no answer, were repeated, and happen after the topic was deleted (safety rule S1)."""

from collections.abc import AsyncIterator

import pytest
from regnum_coordination.port import Refused
from regnum_election.controller import Controller
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import TopicNode
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def delete(controller: Controller, id: TopicId) -> None:
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    outcomes = (await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)).outcomes
    assert outcomes == (Deleted(name="t", topic_id=id),)


async def test_a_creation_that_comes_late_brings_no_deleted_topic_back(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    held = cluster.server.hold_write(touching=paths.topic("t"))
    (id,) = await create(controller, wanted("t"))
    assert held.arrived.is_set()
    await delete(controller, id)
    (late,) = held.commit()
    assert isinstance(late, Refused), late
    assert await cluster.outside.exists(paths.topic("t")) is None
    assert await cluster.outside.exists(paths.topic_id(id)) is None


async def test_a_topic_that_is_taken_up_late_replaces_none_of_its_name(cluster: FakeCluster) -> None:
    """A hand-written topic is taken up without an answer, deleted, and written anew: its id goes to no other life."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    by_hand = TopicNode(topic_id=None, partitions={0: (BrokerId(1),)}).encode()
    assert cluster.controller_store is not None
    session_id = cluster.controller_store.session_id
    held = cluster.server.hold_write(session_id=session_id, touching=paths.topic("t"))
    await cluster.outside.create(paths.topic("t"), by_hand)
    await until(lambda: "t" in controller.picture.names)
    assert held.arrived.is_set()
    id = controller.picture.names["t"]
    await delete(controller, id)
    # The controller knows nothing of the second one yet.
    cluster.server.hold_watches()
    await cluster.outside.create(paths.topic("t"), by_hand)
    (late,) = held.commit()
    assert isinstance(late, Refused), late
    assert (await cluster.topic("t")).topic_id is None


async def test_creations_go_on_after_a_person_has_written_the_folder_of_the_guards(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, wanted("t"))
    folder = await cluster.outside.get(paths.TOPIC_IDS)
    await cluster.outside.set(paths.TOPIC_IDS, b"by hand", version=folder.stat.version)
    (id,) = await create(controller, wanted("u"))
    assert await cluster.outside.exists(paths.topic_id(id)) is not None
    await delete(controller, controller.picture.names["t"])
    assert (await cluster.outside.get(paths.TOPIC_IDS)).stat.version > folder.stat.version
