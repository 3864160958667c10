"""Answers that are no messages of their calls."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc, standby_pb2
from regnum.propagation.v1 import propagation_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.dispatch.broker_channel import GrpcControlChannel
from regnum_election.publication.propagation_channel import GrpcPropagationChannel
from regnum_model.ids import BrokerId, MetadataId
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.readable_answers import UNREADABLE
from regnum_service.status import from_rpc_error
from regnum_testing.waiting import DEADLINE_S, until, within

DAMAGED = b"\xff\xff"


class Damaged(grpc.GenericRpcHandler):
    """Answers every call with a message that can be read, if it is a stream, and then with one that cannot."""

    def __init__(self) -> None:
        self.ended = 0
        """Streams whose end it has seen."""

    def service(self, details: Any) -> Any:
        if "Follow" in details.method or "Lifeline" in details.method:
            return grpc.stream_stream_rpc_method_handler(self._many)
        if "Publish" in details.method:
            return grpc.stream_unary_rpc_method_handler(self._one)
        return grpc.unary_unary_rpc_method_handler(self._one)

    async def _one(self, _request: Any, _context: Any) -> bytes:
        return DAMAGED

    async def _many(self, _requests: Any, _context: Any) -> AsyncIterator[bytes]:
        try:
            yield b""
            while True:
                yield DAMAGED
        finally:
            self.ended += 1


@pytest.fixture
def damaged() -> Damaged:
    return Damaged()


@pytest.fixture
async def address(damaged: Damaged) -> AsyncIterator[Address]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((damaged,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Address(host="127.0.0.1", port=port)
    await server.stop(0)


async def _parts() -> AsyncIterator[bytes]:
    yield b""


async def test_for_a_controller_it_is_a_call_that_failed(address: Address) -> None:
    """With anything else its process would end, and each of its successors in turn."""
    broker, metadata = GrpcControlChannel(BrokerId(1), address), GrpcPropagationChannel(MetadataId(1), address)
    logs, settings = control_pb2.GetReplicaLogInfoRequest(), control_pb2.DescribeBrokerSettingsRequest()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: broker.leader_and_isr(b""),
        lambda: broker.stop_replica(control_pb2.StopReplicaRequest()),
        lambda: broker.get_replica_log_info(logs, timeout_s=DEADLINE_S),
        lambda: broker.describe_settings(settings, timeout_s=DEADLINE_S),
        lambda: metadata.publish(_parts()),
        lambda: metadata.lag(propagation_pb2.DescribeLagRequest()),
    ]
    for call in calls:
        with pytest.raises(RegnumError, match="cannot be read") as failed:
            await within(call())
        assert failed.value.code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
    await broker.close()
    await metadata.close()


async def test_a_stream_ends_with_it(damaged: Damaged, address: Address) -> None:
    async with open_channel(address) as channel:
        got = []

        async def follow() -> None:
            stub = controller_pb2_grpc.ControllerServiceStub(channel)
            async for message in stub.FollowState(standby_pb2.FollowStateRequest()):
                got.append(message)  # noqa: PERF401 - what came before the failure is looked at

        with pytest.raises(grpc.aio.AioRpcError, match=UNREADABLE):
            await within(follow())
        assert got == [standby_pb2.FollowStateResponse()]
        await until(lambda: damaged.ended == 1, what="the other side hears that nobody reads on")


async def test_a_stream_that_is_read_ends_with_it(damaged: Damaged, address: Address) -> None:
    async with open_channel(address) as channel:
        call = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline()
        assert await within(call.read()) == controller_pb2.BrokerLifelineResponse()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await within(call.read())
        assert from_rpc_error(failed.value).code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
        await until(lambda: damaged.ended == 1, what="the other side hears that nobody reads on")
