"""AdminService as a broker serves it: what is passed on, for whom, and what is sent to the controller itself."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.forwarding.forwarder import Forwarder
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.servicers.admin import REQUEST_BYTES_MAX, ForwardingServicer
from regnum_model.api_versions import ADMIN_SERVICE, FORWARDED, NEWEST
from regnum_model.nodes import Address
from regnum_service.access.listener import OPEN, ListenerAccess
from regnum_service.channel import Channels, open_channel
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock
from regnum_testing.fake_controller import FakeController
from regnum_testing.recorded_rights import RecordedRights
from regnum_testing.waiting import eventually, within

METHODS = {method.name: method for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods}
OLD = sorted(FORWARDED.keys() & METHODS.keys())


class World:
    """A broker's client listener with AdminService behind it, and a controller."""

    def __init__(self, access: ListenerAccess = OPEN) -> None:
        self.controller = FakeController()
        self.location: ControllerLocation | None = None
        self.known = types_pb2.Controller(
            id=3, epoch=9, client=types_pb2.Endpoint(host="controller.example", port=9092)
        )
        self.channels = Channels()
        self.clock = FakeClock()
        self.limits = ClientLimits(held_max=1 << 30, connection_held_max=1 << 28, clock=self.clock)
        self.supervisor = Supervisor("broker")
        servicer = ForwardingServicer(
            forwarder=Forwarder(locate=lambda: self.location, channels=self.channels, clock=self.clock),
            controller=lambda: self.known,
            throttling=self.limits.throttling,
        )
        self.server = GrpcServer(
            Address(host="127.0.0.1", port=0),
            [servicer.registration()],
            supervisor=self.supervisor,
            listener="client",
            gates=self.limits.gates,
            meter=self.limits.throttling,
            access=access,
        )
        self.opened: list[grpc.aio.Channel] = []

    async def start(self) -> None:
        self.location = await self.controller.start()
        await self.server.start()

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        self.opened.append(open_channel(self.server.address))
        return self.opened[-1]

    async def call(
        self, name: str, request: Message | bytes, *, channel: grpc.aio.Channel | None = None, **how: Any
    ) -> bytes:
        """The answer's bytes, as the wire has them."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        call = (channel or self.channel()).unary_unary(f"{ADMIN_SERVICE}{name}")
        answer: bytes = await within(call(data, **how))
        return answer

    async def refused(self, name: str, request: Message | bytes) -> RegnumError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(name, request)
        return from_rpc_error(caught.value)

    async def close(self) -> None:
        for channel in self.opened:
            await channel.close()
        await self.server.stop(0.0)
        await self.channels.close()
        await self.controller.stop()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start()
    yield made
    await made.close()
    assert made.supervisor.failure is None


def of_version(name: str, version: int) -> Message:
    """A request that says nothing but its version."""
    request: Any = message_factory.GetMessageClass(METHODS[name].input_type)()
    request.header.api_version = version
    request.header.version_zero = version == 0
    request.header.client_id = "app"
    return request  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", OLD)
async def test_an_old_version_is_passed_on_byte_for_byte_and_answered_so(world: World, name: str) -> None:
    since = FORWARDED[name].direct_since
    for version in {0, since - 1}:
        # Fields of a later release, which nobody here knows, are passed on too.
        request = of_version(name, version).SerializeToString() + b"\xa2\x7d\x03new"
        assert await world.call(name, request) == request
    for envelope in world.controller.received:
        assert envelope.method == f"{ADMIN_SERVICE}{name}"
        assert 0 < len(envelope.mutation_id) <= 48
    assert len({envelope.mutation_id for envelope in world.controller.received}) == len(world.controller.received)


@pytest.mark.parametrize("name", OLD)
async def test_from_its_new_version_on_a_call_is_sent_to_the_controller_by_name(world: World, name: str) -> None:
    for version in (FORWARDED[name].direct_since, NEWEST):
        error = await world.refused(name, of_version(name, version))
        assert error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
        assert error.metadata == {
            "controller_id": "3",
            "controller_epoch": "9",
            "controller_address": "controller.example:9092",
        }
    assert (await world.refused(name, b"")).code == errors_pb2.ERROR_CODE_NOT_CONTROLLER, "unset is the newest"
    assert world.controller.received == []


@pytest.mark.parametrize("name", sorted(METHODS.keys() - FORWARDED.keys()))
async def test_what_only_controllers_ever_answered_is_passed_on_at_no_version(world: World, name: str) -> None:
    for version in (0, 1, NEWEST):
        assert (await world.refused(name, of_version(name, version))).code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert world.controller.received == []


async def test_while_no_controller_is_known_the_answer_names_none(world: World) -> None:
    world.known = types_pb2.Controller(id=-1)
    error = await world.refused("CreateTopics", of_version("CreateTopics", 6))
    assert (error.code, error.metadata) == (errors_pb2.ERROR_CODE_NOT_CONTROLLER, {})


async def test_the_client_is_who_its_connection_says_and_nothing_that_it_writes_changes_that(world: World) -> None:
    forged = controller_pb2.EnvelopeRequest(
        caller=controller_pb2.OriginalCaller(principal_type="User", principal_name="admin")
    )
    request = of_version("CreateTopics", 5).SerializeToString() + forged.SerializeToString()
    metadata = (("principal", "User:admin"), ("x-forwarded-user", "admin"), ("regnum-principal", "User:admin"))
    await world.call("CreateTopics", request, metadata=metadata)
    (envelope,) = world.controller.received
    assert (envelope.caller.principal_type, envelope.caller.principal_name) == ("User", "ANONYMOUS")
    assert not envelope.caller.token_authenticated
    assert envelope.caller.client_host == "127.0.0.1"
    assert envelope.caller.connection.startswith("ipv4:127.0.0.1:")


async def test_an_envelope_on_the_listener_of_clients_finds_nobody(world: World) -> None:
    stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(world.channel())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(stub.Envelope(controller_pb2.EnvelopeRequest(method=f"{ADMIN_SERVICE}CreateTopics")))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert world.controller.received == []


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"\xff", errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (b"\x0a\x05ab", errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (of_version("CreateTopics", -1), errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION),
        (of_version("CreateTopics", -(2**31)), errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION),
    ],
)
async def test_a_header_that_cannot_be_read_is_refused_here(
    world: World, request_bytes: Message | bytes, code: int
) -> None:
    assert (await world.refused("CreateTopics", request_bytes)).code == code
    assert world.controller.received == []


async def test_a_request_that_no_envelope_takes_is_refused_here_with_the_limit(world: World) -> None:
    request: Any = of_version("CreateTopics", 5)
    request.topics.add(name="x" * REQUEST_BYTES_MAX)
    error = await world.refused("CreateTopics", request)
    assert error.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
    assert str(REQUEST_BYTES_MAX) in error.message


async def test_who_has_to_wait_is_held_here_and_nobody_else_is(world: World) -> None:
    """The controller says for how long; the client is connected here."""

    async def throttled(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        answer = admin_pb2.CreateTopicsResponse(throttle_time_ms=2_000)
        return controller_pb2.EnvelopeResponse(
            correlation_id=envelope.correlation_id, response=answer.SerializeToString(), throttle_time_ms=2_000
        )

    world.controller.answer = throttled
    channel = world.channel()
    admin: admin_pb2_grpc.AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)
    request: Any = of_version("CreateTopics", 5)
    assert (await within(admin.CreateTopics(request))).throttle_time_ms == 2_000
    held = admin.CreateTopics(request)

    async def is_held() -> bool:
        return world.limits.throttling.held == 1

    await eventually(is_held, what="the next call of the connection is held")
    other = admin_pb2.CreateTopicsResponse.FromString(await world.call("CreateTopics", request))
    assert other.throttle_time_ms == 2_000
    assert len(world.controller.received) == 2
    await world.clock.advance(2.1)
    assert (await within(held)).throttle_time_ms == 2_000


async def test_rights_are_asked_for_where_the_call_is_carried_out_and_not_here() -> None:
    """A broker that asked as well would write every refusal down twice, by rules that may be older."""
    rights = RecordedRights()
    world = World(ListenerAccess(authorizer=rights))
    await world.start()
    request = of_version("CreateTopics", 5)
    assert await world.call("CreateTopics", request) == request.SerializeToString()
    assert rights.asked == []
    await world.close()
