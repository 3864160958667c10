"""Calls that are for another process than the one that stands at the address."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc, standby_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import ADDRESSEE, Channels, PeerChannel, open_channel
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_telemetry.metrics import Metrics
from regnum_testing.waiting import DEADLINE_S


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def ControlledShutdown(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked.append(request.broker_id)
        return controller_pb2.ControlledShutdownResponse(remaining_partitions=7)

    async def FollowState(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.asked.append(0)
        yield standby_pb2.FollowStateResponse(part=b"x")


class Lifelines(controller_pb2_grpc.LifelineServiceServicer):
    def __init__(self) -> None:
        self.beats: list[int] = []

    async def BrokerLifeline(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for request in requests:
            self.beats.append(request.beat)
            yield controller_pb2.BrokerLifelineResponse(probe=1)


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def lifelines() -> Lifelines:
    return Lifelines()


@pytest.fixture
async def address(controller: Controller, lifelines: Lifelines) -> AsyncIterator[Address]:
    """Of election process 1."""
    supervisor = Supervisor("test")
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.ControllerService",
                servicer=controller,
                add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=lifelines,
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            ),
        ],
        supervisor=supervisor,
        listener="internal",
        metrics=Metrics(),
        own=addressee.election(1),
    )
    await server.start()
    yield server.address
    await server.stop(0)
    assert supervisor.failure is None


async def calls(channel: grpc.aio.Channel, *, taken: bool = False) -> Sequence[object]:
    """One call of each kind; the answers, or errors."""
    controllers: Any = controller_pb2_grpc.ControllerServiceStub(channel)
    lifelines: Any = controller_pb2_grpc.LifelineServiceStub(channel)

    async def one() -> object:
        return await controllers.ControlledShutdown(
            controller_pb2.ControlledShutdownRequest(broker_id=3), timeout=DEADLINE_S
        )

    async def many(stream: Any) -> object:
        return [message async for message in stream]

    async def both_ways() -> object:
        stream = lifelines.BrokerLifeline(timeout=DEADLINE_S)
        if taken:
            # (gRPC's client forgets the status of a stream that ends while it writes.)
            await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
        return await stream.read()

    state = standby_pb2.FollowStateRequest()
    return await asyncio.gather(
        one(),
        many(controllers.FollowState(state, timeout=DEADLINE_S)),
        both_ways(),
        return_exceptions=True,
    )


@pytest.mark.parametrize("meant", ["election-2", "broker-1", "quota-1", "metadata-1", "election-11", "nonsense"])
async def test_a_call_for_another_is_refused_and_nothing_of_it_is_done(
    address: Address, controller: Controller, lifelines: Lifelines, meant: str
) -> None:
    async with open_channel(address, meant) as channel:
        answers = await calls(channel)
    for answer in answers:
        assert isinstance(answer, grpc.aio.AioRpcError), answer
        error = from_rpc_error(answer)
        assert error.code == errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED
        assert addressee.who_answered(error) == "election-1"
        assert "election-1" in error.message
        assert meant in error.message
        assert error.traits.outcome_known, "it may be sent again, to where that process is"
        assert error.traits.retriable
    assert (controller.asked, lifelines.beats) == ([], [])


@pytest.mark.parametrize("meant", ["", "election-1"])
async def test_a_call_for_this_one_and_one_that_does_not_say_are_taken(
    address: Address, controller: Controller, lifelines: Lifelines, meant: str
) -> None:
    """Processes of an earlier release do not say."""
    async with open_channel(address, meant) as channel:
        answers = await calls(channel, taken=True)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert (sorted(controller.asked), lifelines.beats) == ([0, 3], [1])


async def test_channels_to_one_address_are_one_for_each_who_is_meant(address: Address, controller: Controller) -> None:
    channels = Channels()
    right, wrong = (channels.get(address, meant) for meant in ("election-1", "election-2"))
    assert right is channels.get(address, "election-1") is not wrong
    (refused, *_), (taken, *_) = await calls(wrong), await calls(right, taken=True)
    assert isinstance(refused, grpc.aio.AioRpcError)
    assert not isinstance(taken, Exception)
    await channels.drop(address, "election-2")
    assert channels.get(address, "election-1") is right
    assert channels.get(address, "election-2") is not wrong
    await channels.close()


async def test_it_goes_beside_other_metadata_of_a_call(address: Address) -> None:
    async with open_channel(address, "election-1") as channel:
        stub: Any = controller_pb2_grpc.ControllerServiceStub(channel)
        request = controller_pb2.ControlledShutdownRequest(broker_id=3)
        answer = await stub.ControlledShutdown(request, timeout=DEADLINE_S, metadata=(("another", "one"),))
        assert answer.remaining_partitions == 7
    assert ADDRESSEE.lower() == ADDRESSEE, "as gRPC wants it"


async def test_the_connection_to_another_process_is_given_up(address: Address, controller: Controller) -> None:
    """It would lead there for as long as that process lives, whatever the address stands for by then."""
    opened: list[grpc.aio.Channel] = []

    def open_one(address: Address, addressee: str = "") -> grpc.aio.Channel:
        opened.append(open_channel(address, addressee))
        return opened[-1]

    channel = PeerChannel(address, addressee.election(2), gone="it was replaced", open_one=open_one)
    for attempts in (1, 2):
        stub = controller_pb2_grpc.ControllerServiceStub(channel.get())
        with pytest.raises(RegnumError) as refused:
            await channel.answer(
                stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=DEADLINE_S)
            )
        assert addressee.who_answered(refused.value) == "election-1"
        assert len(opened) == attempts
    assert controller.asked == []
    assert [one.get_state() for one in opened] == [grpc.ChannelConnectivity.SHUTDOWN] * 2
    await channel.close()


async def test_a_call_whose_channel_is_closed_under_it_has_failed_and_ends_no_task(address: Address) -> None:
    channel = PeerChannel(address, addressee.election(1), gone="it was replaced", open_one=open_channel)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked = asyncio.ensure_future(channel.answer(never))
    await asyncio.sleep(0)
    never.cancel()
    with pytest.raises(RegnumError, match="it was replaced"):
        await asked
    await channel.close()
