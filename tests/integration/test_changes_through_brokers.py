"""Old clients, who know no controller, change a real cluster by way of any broker, also while controllers die.

Calls are made as any gRPC client would make them, without the SDK.
"""

import asyncio
from collections import Counter

import grpc
import pytest
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.status import from_rpc_error
from regnum_testing.old_calls import (
    DONE,
    SAMPLES,
    newest_old,
    of_version,
    outcomes,
    path_of,
    prepared,
)
from regnum_testing.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

CHANGES = 60
"""Topics that are made, one after another at each of three brokers, while two controllers are killed."""


async def ask(address: str, name: str, request: Message, timeout_s: float = 60.0) -> bytes:
    """The answer of whoever listens there."""
    channel = open_channel(Address.parse(address))
    try:
        answer: bytes = await channel.unary_unary(path_of(name))(request.SerializeToString(), timeout=timeout_s)
        return answer
    finally:
        await channel.close()


def old(name: str, request: Message) -> Message:
    return of_version(name, request, newest_old(name))


async def test_every_mutation_is_made_at_any_broker_in_its_old_version(cluster: LocalCluster) -> None:
    for broker in cluster.bootstrap:
        tag = broker.rpartition(":")[2]
        made = await ask(broker, "CreateTopics", old("CreateTopics", prepared(tag)))
        assert set(outcomes("CreateTopics", made)) == {0}
        for name in sorted(SAMPLES):
            answer = await ask(broker, name, old(name, SAMPLES[name](tag)))
            assert outcomes(name, answer) == DONE, name
    async with Admin(cluster.bootstrap) as admin:
        names = {view.name for view in await admin.list_topics()}
        grown = await admin.describe_topic(f"grown-{tag}")
    for broker in cluster.bootstrap:
        tag = broker.rpartition(":")[2]
        assert {f"made-{tag}", f"grown-{tag}"} <= names
        assert f"doomed-{tag}" not in names
    assert len(grown.partitions) == 3


async def test_a_new_version_is_told_where_the_controller_is_and_made_there(cluster: LocalCluster) -> None:
    request = SAMPLES["CreateTopics"]("direct")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(cluster.bootstrap[0], "CreateTopics", request)
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    answer = await ask(error.metadata["controller_address"], "CreateTopics", request)
    assert outcomes("CreateTopics", answer) == DONE


@pytest.mark.full
async def test_changes_go_on_by_way_of_brokers_while_controllers_are_killed_and_none_is_made_twice(
    cluster: LocalCluster,
) -> None:
    """A second creation of a topic would be answered TOPIC_ALREADY_EXISTS: the broker's repeats are known as such."""
    answered: Counter[int] = Counter()

    async def make(broker: str, first: int) -> None:
        for number in range(first, CHANGES, len(cluster.bootstrap)):
            request = admin_pb2.CreateTopicsRequest(
                topics=[admin_pb2.NewTopic(name=f"stream-{number}", partitions=2, replication_factor=3)]
            )
            answer = await ask(broker, "CreateTopics", old("CreateTopics", request))
            answered.update(outcomes("CreateTopics", answer))

    making = [asyncio.create_task(make(broker, first)) for first, broker in enumerate(cluster.bootstrap)]
    for killed_at in (CHANGES // 4, CHANGES // 2):

        async def so_far(count: int = killed_at) -> bool:
            for task in making:
                if task.done():
                    task.result()
            return answered.total() >= count

        await eventually(so_far, what=f"{killed_at} topics are made")
        async with Admin(cluster.bootstrap) as admin:
            view = await admin.describe_cluster()
        assert view.controller is not None
        name = f"election-{view.controller.id}"
        await cluster.kill(name)
        await cluster.restart(name)
    await asyncio.gather(*making)
    assert answered == {errors_pb2.ERROR_CODE_NONE: CHANGES}
    async with Admin(cluster.bootstrap) as admin:
        names = {topic.name for topic in await admin.list_topics()}
    assert {f"stream-{number}" for number in range(CHANGES)} <= names
