"""A topic whose node is damaged when a reign begins: whoever asks for it hears that it exists, and what to do."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.port import Children
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.nodes import TopicIdNode
from regnum_service.errors import ExitStatus, RegnumError, traits_of
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

GARBAGE = b"{bad"
SAYS = "topic v exists, but its node in the store is damaged: see `regnum status`"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def left_alone(cluster: FakeCluster) -> Controller:
    """The next reign after topic v was damaged, whose guard records no assignment: release 0.1.0 made it."""
    id, _ = await create(await cluster.reign(), wanted("v"), wanted("w"))
    await cluster.end_reign()
    cluster.server.overwrite(paths.topic_id(id), TopicIdNode(topic="v").encode())
    cluster.server.overwrite(paths.topic("v"), GARBAGE)
    controller = await cluster.reign(2)
    assert "v" not in controller.picture.names
    return controller


def named(outcome: object) -> None:
    assert isinstance(outcome, Rejection)
    assert outcome.message == SAYS
    assert traits_of(outcome.code).exit_status is ExitStatus.CONFLICT
    assert not traits_of(outcome.code).retriable


async def test_creation_names_the_damage(cluster: FakeCluster) -> None:
    controller = await left_alone(cluster)
    for validate_only in (True, False):
        answered = await controller.topics.create(
            [wanted("v")], validate_only=validate_only, wait_s=DEADLINE_S, account=ANYBODY
        )
        named(answered.outcomes[0])
    assert (await cluster.outside.get(paths.topic("v"))).data == GARBAGE


class SlowWatch(MemoryStore):
    """Shows what stands below a folder, and nothing that comes later."""

    async def watch_children(self, path: str) -> AsyncGenerator[Children, None]:
        """See Store."""
        async with aclosing(super().watch_children(path)) as answers:
            yield await anext(answers)
            await self.wait_lost()


async def test_creation_over_a_node_that_was_written_a_moment_ago_reads_what_stands_there(cluster: FakeCluster) -> None:
    cluster.open_store = SlowWatch
    controller = await cluster.reign()
    await create(controller, wanted("w"))
    await cluster.outside.create(paths.topic("v"), GARBAGE)
    await cluster.outside.create(paths.topic("whole"), b'{"0":[1,2,3]}')
    requests = [wanted("v"), wanted("whole")]
    answered = await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    named(answered.outcomes[0])
    other = answered.outcomes[1]
    assert isinstance(other, Rejection)
    assert other.code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
    assert "written by hand" in other.message


async def test_deletion_names_the_damage_and_is_no_deletion_of_what_is_not_there(cluster: FakeCluster) -> None:
    controller = await left_alone(cluster)
    request = DeletionRequest(name="v", topic_id="", mutation=None)
    answered = await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
    named(answered.outcomes[0])
    unknown = DeletionRequest(name="u", topic_id="", mutation=None)
    (missing,) = (await controller.topics.delete([unknown], wait_s=DEADLINE_S, account=ANYBODY)).outcomes
    assert isinstance(missing, Rejection)
    assert missing.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


async def test_a_damaged_topic_that_a_person_removed_is_damaged_no_more(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("v"), GARBAGE)
    await until(lambda: "v" in controller._context.refused)
    await cluster.outside.delete(paths.topic("v"), version=None)
    await until(lambda: "v" not in controller._context.refused)
    request = DeletionRequest(name="v", topic_id="", mutation=None)
    (missing,) = (await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)).outcomes
    assert isinstance(missing, Rejection)
    assert missing.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    await create(controller, wanted("v"))


async def test_partitions_of_it_are_neither_added_nor_removed_nor_given_up(cluster: FakeCluster) -> None:
    controller = await left_alone(cluster)
    addition = AdditionRequest(name="v", total=2, assignment=(), mutation=None)
    added = await controller.partitions.add([addition], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    named(added.outcomes[0])
    removal = RemovalRequest(name="v", topic_id="", partitions=(1,), mutation=None)
    removed = await controller.partitions.remove([removal], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    named(removed.outcomes[0])
    with pytest.raises(RegnumError, match="its node in the store is damaged"):
        await controller.partitions.giving_up.give_up("v", (), accept_loss=True, who="me", wait_s=DEADLINE_S)
    recovery = RecoveryRequest(topic="v", partitions=(), first_partition=0, accept_loss=False, who="me")
    with pytest.raises(RegnumError, match="its node in the store is damaged"):
        await controller.recoveries.recover(recovery, wait_s=DEADLINE_S)


async def test_partitions_are_not_added_to_a_topic_whose_node_is_damaged_under_this_reign(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, wanted("v"))
    cluster.server.overwrite(paths.topic("v"), GARBAGE)
    addition = AdditionRequest(name="v", total=2, assignment=(), mutation=None)
    added = await controller.partitions.add([addition], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    named(added.outcomes[0])
    assert (await cluster.outside.get(paths.topic("v"))).data == GARBAGE
