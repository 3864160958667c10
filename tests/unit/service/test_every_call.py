"""Whatever anybody sends to any call of any process: the process lives and answers, and a refusal changed nothing.

The calls are those that each listener says it serves; a new one is covered without a line here.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, Producer
from regnum_model import paths
from regnum_model.nodes import Address, TopicNode
from regnum_testing.every_call import Answer, Call, Known, calls_of, extremes, messages, opened, send_all
from regnum_testing.every_kind import KINDS, EveryKind
from regnum_testing.waiting import eventually

TIMEOUT_S = 0.2
"""A call that waits for something is cut off."""

BATCHES = 3
"""Random batches for each call."""

BATCH = 6
"""Requests of a batch; they are under way at the same time."""

QUIET_LOOKS = 50
"""Looks, some 10 ms apart, of which all see the same: then nothing is under way."""

TOPIC = "t"


@dataclass(slots=True)
class World:
    """The cluster, and a loop that turns while a test waits for it."""

    runner: asyncio.Runner
    cluster: EveryKind

    @property
    def bootstrap(self) -> list[str]:
        return [str(self.cluster.processes["broker"].listeners["client_listen"])]

    def known(self) -> Known:
        """What is true of the cluster now."""
        nodes = self.cluster.nodes()
        topic_id = TopicNode.decode(nodes[paths.topic(TOPIC)]).topic_id
        return {
            "topic": [TOPIC],
            "name": [TOPIC],
            "topics": [TOPIC],
            "topic_id": [topic_id],
            "group_id": ["g"],
            "group_ids": ["g", "h"],
            "protocol_type": ["consumer"],
            "partition": [0],
            "partitions": [1, 2],
            "broker_id": [1],
            "replica_id": [1],
            "leader": [1],
            "controller_id": [1],
            "controller_epoch": [int(nodes[paths.CONTROLLER_EPOCH])],
            "part": [0],
            "parts": [1],
        }

    def alive(self) -> None:
        for kind, process in self.cluster.processes.items():
            assert process.supervisor.failure is None, f"{kind} ended: {process.supervisor.failure!r}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        cluster = EveryKind(tmp_path_factory.mktemp("every-kind"))
        world = World(runner, cluster)
        runner.run(cluster.start())
        runner.run(create_and_write(world, TOPIC))
        runner.run(coordinate(world))
        yield world
        runner.run(cluster.close())
        world.alive()


async def create_and_write(world: World, topic: str) -> None:
    """What the cluster is for."""
    async with asyncio.timeout(20), Admin(world.bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(world.bootstrap) as producer:
            await asyncio.wait_for(await producer.send(topic, b"still here"), 15)


async def coordinate(world: World) -> None:
    """Let the broker coordinate groups: before, it says of every group that it is not available."""
    async with asyncio.timeout(20), Admin(world.bootstrap) as admin:
        # Three replicas, as the cluster would have them, do not fit one broker.
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={"default.replication.factor": "1"}))
    listener = world.cluster.processes["broker"].listeners["client_listen"]
    names = [f"group-{number}" for number in range(100)]
    async with opened(listener) as channel:
        groups: group_pb2_grpc.GroupServiceAsyncStub = group_pb2_grpc.GroupServiceStub(channel)

        async def answers() -> bool:
            try:
                await groups.FindCoordinator(group_pb2.FindCoordinatorRequest(group_ids=names), timeout=20)
                for name in names:
                    await groups.OffsetFetch(group_pb2.OffsetFetchRequest(group_id=name), timeout=20)
            except grpc.RpcError:
                return False
            return True

        await eventually(answers, what="the broker coordinates groups")


async def make_good(world: World) -> None:
    """What a right request may have done: deleted the topic, or had nothing more placed on the one broker."""
    async with asyncio.timeout(20), Admin(world.bootstrap) as admin:
        await admin.drain_broker(1, undo=True)
    if paths.topic(TOPIC) not in world.cluster.nodes():
        await create_and_write(world, TOPIC)


def send(world: World, address: Address, call: Call, requests: Sequence[Message], *, half_close: bool) -> None:
    """Send a batch and look at what it did."""

    async def all_of_them() -> list[Answer]:
        async with opened(address) as channel:
            return await send_all(channel, call, requests, half_close=half_close, timeout_s=TIMEOUT_S)

    for _ in range(2):
        before = world.cluster.nodes()
        answers = world.runner.run(all_of_them())
        world.alive()
        assert not [answer for answer in answers if answer.unexpected], call.path
        if not all(answer.refused for answer in answers) or world.cluster.nodes() == before:
            return
        # A call before this one may have effects that come later, such as a controller that was asked to resign. What
        # this one does it does again.
        world.runner.run(quiet(world))
    pytest.fail(f"refused, and something is left behind: {call.path}")


async def quiet(world: World) -> None:
    """Somebody reigns, and nothing has changed for a while."""
    seen: list[object] = []

    async def unchanged() -> bool:
        nodes = world.cluster.nodes()
        if seen and seen[-1] != nodes:
            seen.clear()
        seen.append(nodes)
        return len(seen) >= QUIET_LOOKS and paths.CONTROLLER in nodes

    await eventually(unchanged, what="the cluster is quiet")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(300)
def test_no_request_ends_a_process_or_leaves_something_behind_when_it_is_refused(world: World, kind: str) -> None:
    async def served(address: Address) -> list[Call]:
        async with opened(address) as channel:
            return await calls_of(channel)

    seen: set[str] = set()
    for address in world.cluster.processes[kind].listeners.values():
        for call in world.runner.run(served(address)):
            type_ = call.method.input_type
            for half_close in (True, False):
                send(world, address, call, [call.empty(), *extremes(type_)], half_close=half_close)
            if call.path in seen:
                # Health and reflection are the same on every listener.
                continue
            seen.add(call.path)
            world.runner.run(make_good(world))

            @settings(
                max_examples=BATCHES,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(
                batch=st.lists(messages(type_, world.known()), min_size=BATCH, max_size=BATCH),
                half_close=st.booleans(),
                to=st.just((address, call)),
            )
            def anything(batch: list[Message], half_close: bool, to: tuple[Address, Call]) -> None:
                send(world, *to, batch, half_close=half_close)

            anything()
    assert len(seen) >= 5, "health has three calls, reflection one, and the process has some of its own"
    world.runner.run(make_good(world))
    world.runner.run(create_and_write(world, f"after-{kind}"))
    world.alive()
