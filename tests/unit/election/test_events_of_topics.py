"""Each topic that comes to be, and each that goes, is one event, whoever made or removed it, over all reigns."""

from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.history.encoding import encode
from regnum_election.history.events import Entry, Kind, OtherEntry
from regnum_election.history.missing import LoggedLeaders, logged_leaders
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, TopicId
from regnum_model.nodes import DeletionNode
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

CREATED, DELETED = words.EVENT_KIND_TOPIC_CREATED, words.EVENT_KIND_TOPIC_DELETED
BY_HAND = words.EVENT_CAUSE_WRITTEN_BY_HAND
LOST = words.EVENT_CAUSE_NOT_WRITTEN_DOWN


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2)
    yield cluster
    await cluster.close()


def told(entries: Sequence[Entry]) -> list[tuple[Kind, str, words.EventCause.ValueType]]:
    kinds = (CREATED, DELETED)
    found = [one for one in entries if isinstance(one, OtherEntry) and one.kind in kinds]
    return [(one.kind, one.topic, one.reason.cause) for one in found]


async def next_reign(cluster: FakeCluster, *, lost: int = 0) -> Controller:
    """Another controller, whose log has all but the last events of its predecessors."""
    await cluster.end_reign()
    kept = cluster.recorded[: len(cluster.recorded) - lost]
    del cluster.recorded[len(kept) :]

    async def of_log(_reign: ControllerEpoch) -> LoggedLeaders | None:
        return logged_leaders(encode(entry) for entry in reversed(kept))

    controller = await cluster.reign(2, logged_leaders=of_log)
    await until(lambda: all(task.done() for task in cluster.tasks if task.get_name() == "unlogged states"))
    return controller


async def delete(controller: Controller, name: str) -> None:
    request = DeletionRequest(name=name, topic_id=None, mutation=None)
    await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)


async def remove(cluster: FakeCluster, name: str) -> None:
    await cluster.outside.delete_below(paths.topic(name))
    await cluster.outside.delete(paths.topic(name), version=None)


async def is_cleared(cluster: FakeCluster, id: TopicId) -> None:
    async def gone() -> bool:
        return await cluster.outside.exists(paths.topic_id(id)) is None

    await until(gone)


async def test_a_topic_that_a_person_makes_and_removes_is_told_of_once_each(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("t"), b'{"0":[1,2]}')
    await until(lambda: "t" in controller.picture.names)
    controller = await next_reign(cluster)
    id = controller.picture.names["t"]
    await remove(cluster, "t")
    await is_cleared(cluster, id)
    await next_reign(cluster)
    assert told(cluster.recorded) == [(CREATED, "t", BY_HAND), (DELETED, "t", BY_HAND)]


async def test_a_topic_that_a_person_makes_and_removes_while_no_controller_runs(cluster: FakeCluster) -> None:
    await cluster.reign()
    await cluster.end_reign()
    await cluster.outside.create(paths.topic("t"), b'{"0":[1,2]}')
    controller = await cluster.reign(2)
    id = controller.picture.names["t"]
    await cluster.end_reign()
    await remove(cluster, "t")
    await cluster.reign(3)
    await is_cleared(cluster, id)
    await next_reign(cluster)
    assert told(cluster.recorded) == [(CREATED, "t", BY_HAND), (DELETED, "t", BY_HAND)]


async def test_a_topic_that_is_made_anew_by_hand_is_one_that_goes_and_one_that_comes(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=0.02)
    (former,) = await create(controller, wanted("t", factor=2))
    cluster.server.hold_watches()
    await remove(cluster, "t")
    await cluster.outside.create(paths.topic("t"), b'{"0":[1,2]}')
    cluster.server.release_watches()
    await until(lambda: controller.picture.names.get("t") not in {None, former})
    assert sorted(told(cluster.recorded)[1:]) == sorted(
        [(DELETED, "t", words.EVENT_CAUSE_DELETION), (CREATED, "t", BY_HAND)]
    )


async def test_what_a_client_asks_for_is_told_of_as_before(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, wanted("t", factor=2))
    controller = await next_reign(cluster)
    await delete(controller, "t")
    await next_reign(cluster)
    causes = (words.EVENT_CAUSE_CREATION, words.EVENT_CAUSE_DELETION)
    assert told(cluster.recorded) == [(CREATED, "t", causes[0]), (DELETED, "t", causes[1])]


@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_creation_that_its_controller_did_not_write_down_is_told_of_by_the_next_one_once(
    cluster: FakeCluster, by_hand: bool
) -> None:
    controller = await cluster.reign()
    before = len(cluster.recorded)
    if by_hand:
        await cluster.outside.create(paths.topic("t"), b'{"0":[1,2]}')
        await until(lambda: "t" in controller.picture.names)
    else:
        await create(controller, wanted("t", factor=2))
    await next_reign(cluster, lost=len(cluster.recorded) - before)
    await next_reign(cluster)
    assert told(cluster.recorded) == [(CREATED, "t", LOST)]


async def test_a_deletion_that_its_controller_did_not_write_down_is_told_of_by_the_next_one_once(
    cluster: FakeCluster,
) -> None:
    """The record stands, and so do the nodes: the controller died before it cleared them."""
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    record = DeletionNode(topic="t", brokers=frozenset({cluster.brokers[next(iter(cluster.brokers))].id}))
    await cluster.outside.create(paths.deletion(id), record.encode())

    async def of_log(_reign: ControllerEpoch) -> LoggedLeaders | None:
        return logged_leaders(encode(entry) for entry in reversed(cluster.recorded))

    await cluster.reign(2, logged_leaders=of_log)
    await is_cleared(cluster, id)
    await until(lambda: told(cluster.recorded)[1:] == [(DELETED, "t", LOST)])
    await next_reign(cluster)
    assert len(told(cluster.recorded)) == 2
