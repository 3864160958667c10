"""What callers hear when something breaks off in the middle, and who goes on with it (safety rules S13 and S20)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.propagation.v1 import propagation_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import BadVersion
from regnum_coordination.port import Group, Refused, Written
from regnum_election.decisions.rejection import Rejection
from regnum_election.dispatch.broker_channel import GrpcControlChannel
from regnum_election.publication.propagation_channel import GrpcPropagationChannel
from regnum_election.reign.writing import FencedStore
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted, DeletionOutcome
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, MetadataId, PartitionKey
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

HARDLY_S = 60.0
"""A deadline that nobody should wait for."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def wanted(name: str, partitions: int = 1, factor: int = 1) -> TopicRequest:
    return TopicRequest(name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=None)


async def test_a_call_taken_from_the_queue_as_the_session_ends_is_answered_at_once(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    assert cluster.controller_store is not None
    session = cluster.controller_store.session_id
    cluster.server.disconnect(session)
    stopping = [
        asyncio.create_task(
            controller.brokers.controlled_shutdown(BrokerId(1), cluster.brokers[BrokerId(1)].epoch, wait_s=HARDLY_S)
        )
        for _ in range(3)
    ]
    # One of them is taken, and waits for the session to be confirmed.
    await until(lambda: len(controller.queue._cluster) == 2)
    cluster.server.expire(session)
    async with asyncio.timeout(DEADLINE_S):
        answers = await asyncio.gather(*stopping, return_exceptions=True)
    for answer in answers:
        assert isinstance(answer, RegnumError)
        assert answer.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER


async def test_a_topic_is_created_though_a_metadata_process_dies_meanwhile(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    cluster.metadata.dies = True
    answered = await controller.topics.create([wanted("t")], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert isinstance(answered.outcomes[0], Created)


async def test_what_a_short_answer_leaves_out_is_ordered_again(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    broker = cluster.brokers[BrokerId(1)]
    broker.answers_max = 1
    creating = asyncio.create_task(
        controller.topics.create([wanted("t", partitions=3)], validate_only=False, wait_s=HARDLY_S, account=ANYBODY)
    )
    await until(lambda: len(broker.states) == 3 and sum(len(request.partitions) for request in broker.requests) > 3)
    assert not creating.done()
    broker.answers_max = None
    outcome = (await creating).outcomes[0]
    assert isinstance(outcome, Created)

    broker.answers_max = 0
    outcomes = await delete(cluster, "t")
    assert outcomes == (Deleted(name="t", topic_id=outcome.topic_id),)
    await until(lambda: len(broker.stops) > 1)
    broker.answers_max = None

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(outcome.topic_id)) is None

    await until(gone)


async def delete(cluster: FakeCluster, name: str) -> Sequence[DeletionOutcome]:
    assert cluster.controller is not None
    request = DeletionRequest(name=name, topic_id="", mutation="m1")
    return (await cluster.controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)).outcomes


class Contested(FencedStore):
    """Somebody writes a topic's node each time before it is deleted."""

    def __init__(self, store: FencedStore, path: str) -> None:
        self.__dict__.update(store.__dict__)
        self.path = path
        self.contested = True

    async def write_batch(self, groups: Sequence[Group]) -> tuple[Written | Refused, ...]:
        if self.contested and any(operation.path == self.path for group in groups for operation in group):
            assert len(groups) == 1
            return (Refused(BadVersion(self.path, expected=0, found=1)),)
        return await super().write_batch(groups)


async def test_a_topic_whose_nodes_cannot_be_deleted_is_not_called_deleted_and_goes_later(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign(corrections_interval_s=0.05)
    answered = await controller.topics.create([wanted("t")], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (created,) = answered.outcomes
    assert isinstance(created, Created)
    contested = Contested(controller._context.store, paths.topic("t"))
    controller._context.store = contested  # type: ignore[misc]
    for _ in range(2):
        # A repeat is told the same, and not that there is no such topic.
        (outcome,) = await delete(cluster, "t")
        assert isinstance(outcome, Rejection)
        assert outcome.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert await cluster.outside.exists(paths.deletion(created.topic_id)) is not None
    contested.contested = False

    async def gone() -> bool:
        return await cluster.outside.exists(paths.topic_id(created.topic_id)) is None

    await until(gone)
    assert PartitionKey(created.topic_id, 0) not in controller.picture.partitions


async def test_a_channel_that_was_closed_is_not_opened_again() -> None:
    """What is still on its way at the end of a reign would open one that nobody closes."""
    address = Address(host="127.0.0.1", port=1)
    control, propagation = GrpcControlChannel(BrokerId(1), address), GrpcPropagationChannel(MetadataId(1), address)
    await control.close()
    await propagation.close()
    with pytest.raises(RegnumError, match="told no more"):
        await control.stop_replica(control_pb2.StopReplicaRequest())
    with pytest.raises(RegnumError, match="told no more"):
        await propagation.lag(propagation_pb2.DescribeLagRequest())
