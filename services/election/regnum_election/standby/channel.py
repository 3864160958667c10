"""Both ``OpenStream``s over gRPC."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
from regnum.election.v1 import controller_pb2_grpc, history_pb2, standby_pb2
from regnum_model.ids import ControllerEpoch
from regnum_model.nodes import Address
from regnum_service.channel import Open, open_channel
from regnum_service.status import from_rpc_error

from regnum_election.history.events import Position


@asynccontextmanager
async def follow_state(
    address: Address, epoch: ControllerEpoch, version: int, *, open_one: Open = open_channel
) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Encoded parts from the controller with that internal listener; reading them raises RegnumError."""
    async with open_one(address) as channel:
        stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
        call = stub.FollowState(standby_pb2.FollowStateRequest(controller_epoch=epoch, version=version))

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for response in call:
                    yield response.part
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        try:
            yield parts()
        finally:
            call.cancel()


@asynccontextmanager
async def follow_events(
    address: Address, position: Position, *, open_one: Open = open_channel
) -> AsyncGenerator[AsyncIterator[Sequence[bytes]]]:
    """Encoded entries from the controller with that internal listener; reading them raises RegnumError."""
    async with open_one(address) as channel:
        stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
        call = stub.FollowEvents(
            history_pb2.FollowEventsRequest(controller_epoch=position.epoch, number=position.number)
        )

        async def portions() -> AsyncIterator[Sequence[bytes]]:
            try:
                async for response in call:
                    yield response.entries
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        try:
            yield portions()
        finally:
            call.cancel()
