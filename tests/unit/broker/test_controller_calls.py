"""Calls to the controller beside one another."""

import asyncio
import socket
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata
from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.controller import ControllerCalls, ControllerFinder, ControllerLocation
from regnum_model.ids import ElectionId
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S, within


class Found(ControllerFinder):
    """A controller that stays where it is."""

    def __init__(self, address: Address) -> None:
        self._location = ControllerLocation(election_id=ElectionId(1), internal=address, lifeline=address)


async def test_a_call_that_fails_takes_no_other_call_with_it() -> None:
    """Else a broker that stops would leave its logs unclosed because a client's call found no controller."""
    address = Address(host="127.0.0.1", port=unused_port())
    with socket.create_server((address.host, address.port)) as silent:
        silent.setblocking(False)
        channels = Channels()
        calls = ControllerCalls(finder=Found(address), channels=channels, clock=SystemClock())
        attempts = 0
        begun = asyncio.Event()

        async def patient(stub: Any) -> str:
            nonlocal attempts
            attempts += 1
            begun.set()
            if attempts == 1:
                await stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=DEADLINE_S)
            return "answered"

        async def failing(_stub: Any) -> str:
            nonlocal attempts
            if attempts == 1:
                raise AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata())
            return "answered"

        waiting = asyncio.create_task(calls.call(patient, timeout_s=10.0))
        # The call is on its way when its connection is there; nobody will answer on it.
        connection, _ = await within(asyncio.get_running_loop().sock_accept(silent))
        assert await within(calls.call(failing, timeout_s=10.0)) == "answered"
        assert await within(waiting) == "answered"
        assert attempts == 2

        attempts = 0
        begun.clear()
        waiting = asyncio.create_task(calls.call(patient, timeout_s=10.0))
        await within(begun.wait())
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await channels.close()
        connection.close()
