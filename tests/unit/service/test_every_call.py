"""Whatever anybody sends to any call of any process: the process lives and answers, and a refusal changed nothing.

The calls are those that each listener says it serves; a new one is covered without a line here.
"""

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from regnum_model.nodes import Address
from regnum_testing.every_call import Call, extremes, messages, opened
from regnum_testing.every_kind import KINDS, EveryKind
from regnum_testing.fuzzed_cluster import World
from regnum_testing.waiting import DEADLINE_S

BATCHES = 3
"""Random batches for each call."""

BATCH = 6
"""Requests of a batch; they are under way at the same time."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        world = World(runner, EveryKind(tmp_path_factory.mktemp("every-kind")))
        runner.run(world.begin())
        yield world
        runner.run(world.cluster.close())
        world.alive()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(300)
def test_no_request_ends_a_process_or_leaves_something_behind_when_it_is_refused(world: World, kind: str) -> None:
    seen: set[str] = set()
    for address in world.cluster.processes[kind].listeners.values():
        for call in world.calls(address):
            type_ = call.method.input_type
            for half_close in (True, False):
                world.send(address, call, [call.empty(), *extremes(type_)], half_close=half_close)
            if call.path in seen:
                # Health and reflection are the same on every listener.
                continue
            seen.add(call.path)
            world.runner.run(world.make_good())

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
                world.send(*to, batch, half_close=half_close)

            anything()
    assert len(seen) >= 5, "health has three calls, reflection one, and the process has some of its own"
    world.runner.run(world.make_good())
    world.runner.run(world.create_and_write(f"after-{kind}"))
    world.alive()


def test_no_listener_of_any_process_takes_a_compressed_message(world: World) -> None:
    async def hears(address: Address) -> tuple[grpc.StatusCode, str | None]:
        async with opened(address) as channel:
            question = health_pb2.HealthCheckRequest(service="x" * 1_000_000)
            try:
                await health_pb2_grpc.HealthStub(channel).Check(
                    question, timeout=DEADLINE_S, compression=grpc.Compression.Gzip
                )
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details()
        raise AssertionError("it was taken")

    listeners = [address for kind in KINDS for address in world.cluster.processes[kind].listeners.values()]
    assert len(listeners) >= 8, "two of a broker and a metadata process, three of an election process, one of quotas"
    for address in listeners:
        assert world.runner.run(hears(address)) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "Compression algorithm 'gzip' is disabled.",
        )
    world.alive()
