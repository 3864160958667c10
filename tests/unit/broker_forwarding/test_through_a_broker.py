"""Every mutation by way of a broker at its old version, and at the controller at its new one: real listeners."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.message import Message
from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model import paths
from regnum_model.nodes import Address, TopicNode
from regnum_model.topics import TRANSACTIONS_TOPIC
from regnum_service.status import from_rpc_error
from regnum_testing.every_call import opened
from regnum_testing.every_kind import EveryKind
from regnum_testing.old_calls import (
    DONE,
    MUTATIONS,
    SAMPLES,
    SECURED,
    newest_old,
    of_version,
    outcomes,
    path_of,
    prepared,
    secured,
    set_to,
)
from regnum_testing.waiting import DEADLINE_S, eventually


@dataclass(slots=True)
class World:
    """The cluster, and a loop that turns while a test waits for it."""

    runner: asyncio.Runner
    cluster: EveryKind

    def call(self, kind: str, name: str, request: Message) -> bytes:
        """Ask a process over its client listener; the answer's bytes."""

        async def asked() -> bytes:
            async with opened(self.address(kind)) as channel:
                answer: bytes = await channel.unary_unary(path_of(name))(
                    request.SerializeToString(), timeout=DEADLINE_S
                )
                return answer

        return self.runner.run(asked())

    def address(self, kind: str) -> Address:
        return self.cluster.processes[kind].listeners["client_listen"]

    def prepare(self, tag: str) -> None:
        answer = self.call("election", "CreateTopics", prepared(tag))
        assert set(outcomes("CreateTopics", answer)) == {0}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        cluster = EveryKind(tmp_path_factory.mktemp("through-a-broker"))
        world = World(runner, cluster)
        runner.run(cluster.start())

        async def ready() -> bool:
            async with opened(world.address("broker")) as channel:
                metadata: metadata_pb2_grpc.MetadataServiceAsyncStub = metadata_pb2_grpc.MetadataServiceStub(channel)
                found = await metadata.DescribeCluster(metadata_pb2.DescribeClusterRequest(), timeout=DEADLINE_S)
                return found.controller.id == 1 and len(found.brokers) == 1

        runner.run(eventually(ready, what="the broker knows itself and a controller"))
        world.call("election", "IncrementalAlterConfigs", one_replica())
        yield world
        runner.run(cluster.close())
        for process in cluster.processes.values():
            assert process.supervisor.failure is None


def one_replica() -> Message:
    """There is one broker."""
    request = set_to("", "1")
    request.alterations[0].resource.type = 4  # type: ignore[assignment]  # CONFIG_RESOURCE_TYPE_BROKER: the cluster
    request.alterations[0].configs[0].name = "default.replication.factor"
    return request


def test_there_is_a_sample_of_every_mutation_that_brokers_pass_on() -> None:
    assert set(MUTATIONS) <= SAMPLES.keys() | SECURED.keys()
    assert SAMPLES.keys() <= set(MUTATIONS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_an_old_version_does_at_a_broker_what_the_new_one_does_at_the_controller(world: World, name: str) -> None:
    for kind, tag, version in (("broker", f"old-{name}", newest_old(name)), ("election", f"new-{name}", None)):
        world.prepare(tag)
        before = world.cluster.nodes()
        answer = world.call(kind, name, of_version(name, SAMPLES[name](tag), version))
        assert outcomes(name, answer) == DONE, kind
        changed = {path for path, data in world.cluster.nodes().items() if before.get(path) != data}
        gone = before.keys() - world.cluster.nodes().keys()
        assert any(tag in path for path in changed | gone), "it was done"


@pytest.mark.parametrize("name", sorted(SECURED.keys() & set(MUTATIONS)))
def test_of_rights_and_tokens_an_old_version_ends_at_a_broker_as_the_new_one_does_at_the_controller(
    world: World, name: str
) -> None:
    request = secured(name)
    ends = [
        how_it_ends(world, "election", name, request),
        how_it_ends(world, "broker", name, of_version(name, request, newest_old(name))),
    ]
    assert ends[0] == ends[1]
    assert ends[0] not in {errors_pb2.ERROR_CODE_NOT_CONTROLLER, errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR}


def how_it_ends(world: World, kind: str, name: str, request: Message) -> int:
    """The error of the whole call, 0 for none."""
    try:
        world.call(kind, name, request)
    except grpc.RpcError as error:
        return from_rpc_error(error).code
    return 0


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_new_version_at_a_broker_is_shown_the_way_to_the_controller_and_does_nothing(world: World, name: str) -> None:
    tag = f"lost-{name}"
    world.prepare(tag)
    before = world.cluster.nodes()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        world.call("broker", name, SAMPLES[name](tag))
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert error.metadata["controller_address"] == str(world.address("election"))
    assert error.metadata["controller_epoch"] == world.cluster.nodes()[paths.CONTROLLER_EPOCH].decode()
    assert world.cluster.nodes() == before


def test_a_storm_of_questions_for_coordinators_of_transactions_makes_their_topic_once(world: World) -> None:
    request = group_pb2.FindCoordinatorRequest(transactional_ids=[f"payments-{number}" for number in range(20)])

    async def ask() -> list[group_pb2.FindCoordinatorResponse]:
        async with opened(world.address("broker")) as channel:
            groups: group_pb2_grpc.GroupServiceAsyncStub = group_pb2_grpc.GroupServiceStub(channel)

            async def answered() -> bool:
                answers[:] = await asyncio.gather(
                    *(groups.FindCoordinator(request, timeout=DEADLINE_S) for _ in range(50))
                )
                return all(one.error_code == 0 for answer in answers for one in answer.coordinators)

            answers: list[group_pb2.FindCoordinatorResponse] = []
            await eventually(answered, what="every partition has its leader")
            return answers

    answers = world.runner.run(ask())
    places = {(one.broker_id, one.client.port) for answer in answers for one in answer.coordinators}
    assert places == {(1, world.address("broker").port)}
    assert [one.transactional_id for one in answers[0].coordinators] == list(request.transactional_ids)
    assert not any(one.group_id for one in answers[0].coordinators)
    node = TopicNode.decode(world.cluster.nodes()[paths.topic(TRANSACTIONS_TOPIC)])
    assert len(node.partitions) == 8
    created = [data for path, data in world.cluster.nodes().items() if path.startswith(f"{paths.TOPIC_IDS}/")]
    assert sum(TRANSACTIONS_TOPIC.encode() in data for data in created) == 1
