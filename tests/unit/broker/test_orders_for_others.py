"""What is sent to one known process says to which; a broker that gets another one's order does nothing with it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from regnum.election.v1 import controller_pb2
from regnum.propagation.v1 import propagation_pb2
from regnum.quota.v1 import quota_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.controller import ControllerCalls, ControllerLocation
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.forwarding.forwarder import Forwarder, PassedOn
from regnum_election.admission.quota_channel import GrpcQuotaChannel
from regnum_election.dispatch.broker_channel import GrpcControlChannel
from regnum_election.publication.propagation_channel import GrpcPropagationChannel
from regnum_metadata.broker_stream import GrpcBrokerStream
from regnum_metadata.lane import Receiver
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId, MetadataId
from regnum_model.nodes import Address
from regnum_service.addressee import AddresseeInterceptor, who_answered
from regnum_service.channel import ADDRESSEE, Channels, Open, open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import within

NOWHERE = Address(host="127.0.0.1", port=1)


class AnyServer(grpc.GenericRpcHandler):  # type: ignore[misc] # its stubs are generic
    """Refuses every call, and knows for whom each was."""

    def __init__(self) -> None:
        self.called: dict[str, str | None] = {}
        self.address = Address(host="127.0.0.1", port=1)

    def service(self, handler_call_details: Any) -> Any:
        metadata = dict(handler_call_details.invocation_metadata)
        self.called[handler_call_details.method.rpartition("/")[2]] = metadata.get(ADDRESSEE)

        async def refuse(_requests: object, context: Any) -> None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

        return grpc.stream_stream_rpc_method_handler(refuse)


@contextlib.asynccontextmanager
async def serving(*interceptors: grpc.aio.ServerInterceptor) -> AsyncIterator[AnyServer]:
    handler, server = AnyServer(), grpc.aio.server(interceptors=interceptors)
    server.add_generic_rpc_handlers((handler,))
    handler.address = Address(host="127.0.0.1", port=server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    yield handler
    await server.stop(None)


@pytest.fixture
async def anywhere() -> AsyncIterator[AnyServer]:
    async with serving() as handler:
        yield handler


async def by_control(at: Address) -> None:
    channel = GrpcControlChannel(BrokerId(3), at)
    asked = control_pb2.GetReplicaLogInfoRequest(), control_pb2.DescribeBrokerSettingsRequest()
    for call in (
        channel.leader_and_isr(b""),
        channel.stop_replica(control_pb2.StopReplicaRequest()),
        channel.get_replica_log_info(asked[0], timeout_s=10),
        channel.describe_settings(asked[1], timeout_s=10),
    ):
        with pytest.raises(RegnumError):
            await call
    await channel.close()


async def by_metadata(at: Address) -> None:
    stream = GrpcBrokerStream(Receiver(id=BrokerId(3), epoch=BrokerEpoch(1), internal=at))
    with pytest.raises(RegnumError):
        await stream.answer()
    await stream.close()


async def by_propagation(at: Address) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b""

    channel = GrpcPropagationChannel(MetadataId(3), at)
    for call in (channel.publish(parts()), channel.lag(propagation_pb2.DescribeLagRequest())):
        with pytest.raises(RegnumError):
            await call
    await channel.close()


async def by_quotas(at: Address) -> None:
    channel = GrpcQuotaChannel(3, at)
    for call in (
        channel.admit(quota_pb2.AdmitRequest(), timeout_s=10),
        channel.describe(quota_pb2.DescribeBucketsRequest(), timeout_s=10),
    ):
        with pytest.raises(RegnumError):
            await call
    await channel.close()


def controller(at: Address) -> ControllerLocation:
    return ControllerLocation(election_id=ElectionId(3), internal=at, lifeline=at)


class Found:
    """A controller that stays where it is."""

    def __init__(self, at: Address) -> None:
        self.location = controller(at)


async def by_calls_to_the_controller(at: Address) -> None:
    channels = Channels()
    calls = ControllerCalls(finder=Found(at), channels=channels, clock=SystemClock())  # type: ignore[arg-type]
    with pytest.raises(RegnumError):
        await calls.call(
            lambda stub: stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=10), timeout_s=0.0
        )
    await channels.close()


async def by_forwarding(at: Address) -> None:
    channels = Channels()
    forwarder = Forwarder(locate=lambda: controller(at), channels=channels, clock=SystemClock())
    call = PassedOn(
        method="/m", request=b"", caller=controller_pb2.OriginalCaller(), mutation_id="id", repeatable=False
    )
    with pytest.raises(RegnumError):
        await forwarder.forward(call, connection="c", wait_s=10)
    await channels.close()


async def by_lifeline(at: Address) -> None:
    lifeline = Lifeline(BrokerId(1), offline=lambda: ())
    running = asyncio.ensure_future(lifeline.run())
    lifeline.move(controller(at))
    lifeline.identify(None)
    try:
        await asyncio.Event().wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    ("send", "methods", "meant"),
    [
        (by_control, ["LeaderAndIsr", "StopReplica", "GetReplicaLogInfo", "DescribeBrokerSettings"], "broker-3"),
        (by_metadata, ["UpdateMetadata"], "broker-3"),
        (by_propagation, ["PublishChanges", "DescribeLag"], "metadata-3"),
        (by_quotas, ["Admit", "DescribeBuckets"], "quota-3"),
        (by_calls_to_the_controller, ["ControlledShutdown"], "election-3"),
        (by_forwarding, ["Envelope"], "election-3"),
        (by_lifeline, ["BrokerLifeline"], "election-3"),
    ],
)
async def test_each_sender_says_for_whom_its_calls_are(
    anywhere: AnyServer, send: Callable[[Address], Awaitable[None]], methods: Sequence[str], meant: str
) -> None:
    sending = asyncio.ensure_future(send(anywhere.address))
    try:
        async with asyncio.timeout(60):
            while not sending.done() and len(anywhere.called) < len(methods):
                await asyncio.sleep(0.001)
    finally:
        if sending.done() or send is not by_lifeline:
            await within(sending)
        else:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
    assert anywhere.called == dict.fromkeys(methods, meant)


def controls(open_one: Open) -> dict[str, Callable[[], Awaitable[object]]]:
    channel = GrpcControlChannel(BrokerId(3), NOWHERE, open_one)
    stream = GrpcBrokerStream(Receiver(id=BrokerId(3), epoch=BrokerEpoch(1), internal=NOWHERE), open_one)
    return {
        "LeaderAndIsr": lambda: channel.leader_and_isr(b""),
        "StopReplica": lambda: channel.stop_replica(control_pb2.StopReplicaRequest()),
        "GetReplicaLogInfo": lambda: channel.get_replica_log_info(control_pb2.GetReplicaLogInfoRequest(), timeout_s=10),
        "DescribeBrokerSettings": lambda: channel.describe_settings(
            control_pb2.DescribeBrokerSettingsRequest(), timeout_s=10
        ),
        "UpdateMetadata": stream.answer,
    }


@pytest.mark.parametrize(
    "method", ["LeaderAndIsr", "StopReplica", "GetReplicaLogInfo", "DescribeBrokerSettings", "UpdateMetadata"]
)
async def test_a_call_that_another_broker_refused_goes_over_another_connection(method: str) -> None:
    """The one to that broker stands as long as it runs, also when the address leads to broker 3 again."""
    opened: list[grpc.aio.Channel] = []
    async with serving(AddresseeInterceptor("broker-1")) as other, serving(AddresseeInterceptor("broker-3")) as meant:

        def open_one(_: Address, addressee: str = "") -> grpc.aio.Channel:
            opened.append(open_channel(meant.address if opened else other.address, addressee))
            return opened[-1]

        call = controls(open_one)[method]
        with pytest.raises(RegnumError) as refused:
            await call()
        assert who_answered(refused.value) == "broker-1"
        assert opened[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN
        with pytest.raises(RegnumError) as refused:
            await call()
        assert who_answered(refused.value) is None
        assert (other.called, meant.called) == ({method: "broker-3"}, {method: "broker-3"})
        with pytest.raises(RegnumError):
            await call()
        assert len(opened) == 2, "where the broker itself refuses, the connection stays"
        await opened[1].close()


async def test_an_order_whose_connection_is_given_up_meanwhile_has_failed_and_no_more() -> None:
    """Its sender, which sends again, is not cancelled by that."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        channel = GrpcControlChannel(BrokerId(3), Address(host="127.0.0.1", port=silent.getsockname()[1]))
        sending = asyncio.ensure_future(channel.leader_and_isr(b""))
        connection, _ = await within(asyncio.ensure_future(asyncio.get_running_loop().sock_accept(silent)))
        await channel.close()
        connection.close()
        with pytest.raises(RegnumError) as failed:
            await within(sending)
    assert failed.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE


async def test_the_order_to_delete_a_replica_deletes_it_at_no_other_broker(tmp_path: Path) -> None:
    """Broker 3 advertised where broker 1 listens, and lost a partition: broker 1, which had not, deleted it."""
    world = BrokerWorld(tmp_path)
    await world.begin()
    try:
        await world.start(1)
        await world.elect(1, [1])
        epoch, node = await world.registration(1)
        request = control_pb2.StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            # Above broker 1's own, as those of a broker are that registered later.
            broker_epoch=epoch + 1_000,
            partitions=[
                control_pb2.StopReplicaPartition(topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=9, delete=True)
            ],
        )
        astray = GrpcControlChannel(BrokerId(3), node.listeners["internal"])
        for call in (astray.stop_replica(request), astray.leader_and_isr(b"")):
            with pytest.raises(RegnumError) as refused:
                await call
            assert refused.value.code == errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED
            assert who_answered(refused.value) == "broker-1"
        await astray.close()
        metadata = GrpcBrokerStream(Receiver(id=BrokerId(3), epoch=BrokerEpoch(1), internal=node.listeners["internal"]))
        with pytest.raises(RegnumError) as refused:
            await metadata.answer()
        assert who_answered(refused.value) == "broker-1"
        await metadata.close()
        assert world.brokers[BrokerId(1)].leads()
        # A controller of an earlier release does not say whom it means, and is obeyed.
        stopped = await world.control(1).StopReplica(request)
        assert [one.error_code for one in stopped.results] == [errors_pb2.ERROR_CODE_NONE]
        assert not world.brokers[BrokerId(1)].leads()
    finally:
        await world.close()
