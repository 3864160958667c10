"""A deletion of a topic happens once, however often it is sent and whoever reigns by then (safety rule S20)."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Delete
from regnum_election.controller import Controller
from regnum_election.decisions.deletion import Deletion
from regnum_election.decisions.rejection import Rejection
from regnum_election.state.deleted_topics import DeletedTopics
from regnum_election.topics.deletion import Deleted, DeletionOutcome
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_model.mutations import REPEATED_MS
from regnum_model.nodes import DeletionNode
from regnum_testing.clock import FakeClock
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, eventually


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = FakeCluster()
    await made.begin(1, 2, 3)
    yield made
    await made.close()


async def delete(controller: Controller, *topics: tuple[str, str], mutation: str = "m") -> tuple[DeletionOutcome, ...]:
    requests = [DeletionRequest(name=name, topic_id=id, mutation=mutation) for name, id in topics]
    return (await controller.topics.delete(requests, wait_s=DEADLINE_S, account=ANYBODY)).outcomes


async def forgotten(cluster: FakeCluster) -> None:
    async def confirmed() -> bool:
        return not (await cluster.outside.children(paths.DELETE_TOPICS)).names

    await eventually(confirmed, what="every broker confirmed and the records are gone")


async def kept(cluster: FakeCluster) -> int:
    return len((await cluster.outside.children(paths.DELETED_TOPICS)).names)


async def test_a_repeat_at_the_next_controller_is_answered_and_leaves_a_later_topic_of_the_name(
    cluster: FakeCluster,
) -> None:
    first = await cluster.reign()
    (id,) = await create(first, wanted("t"))
    assert await delete(first, ("t", "")) == (Deleted(name="t", topic_id=id),)
    await forgotten(cluster)
    (later,) = await create(first, wanted("t"))
    await cluster.end_reign()
    second = await cluster.reign(2)
    for named in (("t", ""), ("t", id), ("", id)):
        assert await delete(second, named) == (Deleted(name="t", topic_id=id),)
    assert second.picture.topic_named("t") is not None
    assert await cluster.outside.exists(paths.topic_id(later)) is not None
    # Somebody else's deletion is another.
    assert await delete(second, ("t", ""), mutation="n") == (Deleted(name="t", topic_id=later),)


async def test_an_id_of_another_deletion_is_refused_and_deletes_nothing(cluster: FakeCluster) -> None:
    first = await cluster.reign()
    await create(first, wanted("t"), wanted("u"))
    await delete(first, ("t", ""))
    (refused,) = await delete(first, ("u", ""))
    await forgotten(cluster)
    await cluster.end_reign()
    second = await cluster.reign(2)
    (still,) = await delete(second, ("u", ""))
    for one in (refused, still):
        assert isinstance(one, Rejection)
        assert one.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
        assert "an id of its own" in one.message
    assert second.picture.topic_named("u") is not None


async def test_topics_that_one_call_deletes_under_one_id_go_all_the_same(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, wanted("t"), wanted("u"))
    outcomes = await delete(controller, ("t", ""), ("u", ""))
    assert all(isinstance(one, Deleted) for one in outcomes)
    await forgotten(cluster)
    assert await kept(cluster) == 1


async def test_a_deletion_that_ends_because_a_broker_is_forgotten_is_remembered_too(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t"))
    cluster.kill(3)

    async def gone() -> bool:
        return BrokerId(3) not in controller.picture.brokers

    await eventually(gone, what="the broker is gone")
    await delete(controller, ("t", ""))

    async def waits_for_one() -> bool:
        record = DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data)
        return record.brokers == {BrokerId(3)}

    await eventually(waits_for_one, what="the others confirmed")
    ended = await controller.forgetting.forget(BrokerId(3), validate_only=False, who="test", wait_s=DEADLINE_S)
    assert ended.deletions_ended == 1
    await forgotten(cluster)
    await cluster.end_reign()
    assert await delete(await cluster.reign(2), ("t", "")) == (Deleted(name="t", topic_id=id),)


async def test_a_folder_that_somebody_took_away_holds_no_deletion_up(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, wanted("t"))
    await cluster.outside.delete(paths.DELETED_TOPICS, version=0)
    (deleted,) = await delete(controller, ("t", ""))
    assert isinstance(deleted, Deleted)
    await forgotten(cluster)


async def test_what_is_kept_is_bounded_in_number_and_age(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    store, clock = controller.health.context.store, FakeClock()
    deleted = DeletedTopics(store, clock.wall_ms, kept=3)
    for number in range(5):
        id = TopicId(f"{number:022}")
        record = DeletionNode(topic=f"t{number}", brokers=frozenset(), mutation=f"m{number}")
        await cluster.outside.create(paths.deletion(id), record.encode())
        group = (Delete(paths.deletion(id), 0),)
        await deleted.write([(Deletion.recorded_as(id, record, version=0), group)])
    known = await deleted.remembered([f"m{number}" for number in range(5)])
    assert {mutation: node.topic for mutation, node in known.items()} == {"m2": "t2", "m3": "t3", "m4": "t4"}
    clock.skip(REPEATED_MS / 1000 - 1)
    assert await deleted.sweep() == 0
    clock.skip(2)
    await cluster.outside.create(f"{paths.DELETED_TOPICS}/junk", b"junk")
    assert await deleted.sweep() == 4
    assert await kept(cluster) == 0
