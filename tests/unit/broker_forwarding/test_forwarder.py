"""Calls on their way to a controller that moves, dies, freezes, refuses, or answers what it was not asked."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.forwarding.forwarder import Forwarder, PassedOn
from regnum_broker.forwarding.lines import LineLimits
from regnum_model.ids import ElectionId
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.errors import Code, RegnumError, reason_of
from regnum_service.status import to_status
from regnum_telemetry import tracing
from regnum_testing.fake_controller import FakeController, echo
from regnum_testing.ports import unused_port
from regnum_testing.waiting import eventually, within

CALLER = controller_pb2.OriginalCaller(principal_type="User", principal_name="alice")


class Cluster:
    """A forwarder, and where it believes the controller to be."""

    def __init__(self, limits: LineLimits | None = None) -> None:
        self.location: ControllerLocation | None = None
        self.channels = Channels()
        self.forwarder = Forwarder(
            locate=lambda: self.location, channels=self.channels, clock=SystemClock(), limits=limits
        )
        self.controllers: list[FakeController] = []

    async def controller(self, id: int = 1, *, port: int = 0) -> FakeController:
        """Another election process, which listens."""
        made = FakeController(id, port=port)
        self.controllers.append(made)
        location = await made.start()
        if self.location is None:
            self.move(location)
        else:
            self.others = location
        return made

    def move(self, location: ControllerLocation) -> None:
        """The controller is seen there."""
        self.location = location
        self.forwarder.moved()

    async def send(
        self, request: bytes = b"r", *, repeatable: bool = True, connection: str = "c", wait_s: float = 10.0
    ) -> bytes:
        call = PassedOn(method="/m", request=request, caller=CALLER, mutation_id="id", repeatable=repeatable)
        return (await self.forwarder.forward(call, connection=connection, wait_s=wait_s)).response

    async def refused(self, *, wait_s: float = 10.0, repeatable: bool = True) -> Code:
        with pytest.raises(RegnumError) as caught:
            await within(self.send(wait_s=wait_s, repeatable=repeatable))
        return caught.value.code

    async def close(self) -> None:
        await self.channels.close()
        for controller in self.controllers:
            await controller.stop()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()
    assert made.forwarder.calls == 0, "a call that has ended holds no place"


def refusing(code: Code) -> "type[RegnumError] | object":
    async def answer(_: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        raise RegnumError(code, f"the controller says {reason_of(code)}")

    return answer


def refusing_inside(error: RegnumError) -> object:
    async def answer(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        return controller_pb2.EnvelopeResponse(correlation_id=envelope.correlation_id, status=to_status(error))

    return answer


async def test_a_call_comes_back_with_its_answer_and_was_sent_once(cluster: Cluster) -> None:
    controller = await cluster.controller()
    assert await within(cluster.send(b"request")) == b"request"
    (envelope,) = controller.received
    assert (envelope.method, envelope.caller, envelope.mutation_id) == ("/m", CALLER, "id")


async def test_what_the_controller_refused_to_the_client_is_not_traced_here_either(cluster: Cluster) -> None:
    controller = await cluster.controller()
    for refused in (False, True):

        async def answer(
            envelope: controller_pb2.EnvelopeRequest, refused: bool = refused
        ) -> controller_pb2.EnvelopeResponse:
            return controller_pb2.EnvelopeResponse(correlation_id=envelope.correlation_id, refused=refused)

        controller.answer = answer
        served = tracing.ServedCall()
        with tracing.serving(served):
            await within(cluster.send())
        assert served.refused is refused


async def test_no_controller_is_waited_for_and_the_next_one_gets_what_came_meanwhile(cluster: Cluster) -> None:
    sending = [asyncio.create_task(cluster.send(b"%d" % number)) for number in range(20)]
    await eventually(lambda: _true(cluster.forwarder.calls == 20), what="all of them wait")
    await cluster.controller()
    assert await within(asyncio.gather(*sending)) == [b"%d" % number for number in range(20)]


async def test_who_does_not_reign_any_more_is_asked_again_until_the_next_one_is_seen(cluster: Cluster) -> None:
    former = await cluster.controller(1)
    former.answer = refusing(errors_pb2.ERROR_CODE_NOT_CONTROLLER)
    following = await cluster.controller(2)
    sending = asyncio.create_task(cluster.send(b"request"))
    await eventually(lambda: _true(len(former.received) >= 2), what="it asks again")
    cluster.move(cluster.others)
    assert await within(sending) == b"request"
    ids = [one.correlation_id for one in (*former.received, *following.received)]
    assert len(set(ids)) == len(ids), "each envelope has a number of its own"
    assert {one.mutation_id for one in (*former.received, *following.received)} == {"id"}


async def test_not_controller_from_within_the_call_is_asked_again_too(cluster: Cluster) -> None:
    controller = await cluster.controller()
    lost = RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the controller changed; ask the new one")
    controller.answer = refusing_inside(lost)
    sending = asyncio.create_task(cluster.send(b"request", repeatable=False))
    await eventually(lambda: _true(bool(controller.received)), what="it was asked")
    controller.answer = echo
    assert await within(sending) == b"request"


async def test_a_controller_that_dies_over_a_call_is_asked_again_where_the_call_may_be_repeated(
    cluster: Cluster,
) -> None:
    dying = await cluster.controller(1)
    following = await cluster.controller(2)
    never = asyncio.Event()

    async def silent(_: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        await never.wait()
        raise AssertionError("nobody answers")

    dying.answer = silent
    sending = asyncio.create_task(cluster.send(b"request"))
    await eventually(lambda: _true(bool(dying.received)), what="it was asked")
    await dying.stop()
    cluster.move(cluster.others)
    assert await within(sending) == b"request"
    assert [one.mutation_id for one in following.received] == ["id"]


async def test_a_call_that_must_not_be_repeated_is_not_and_its_caller_hears_that_nobody_knows(
    cluster: Cluster,
) -> None:
    dying = await cluster.controller(1)
    following = await cluster.controller(2)
    never = asyncio.Event()

    async def silent(_: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        await never.wait()
        raise AssertionError("nobody answers")

    dying.answer = silent
    sending = asyncio.create_task(cluster.refused(repeatable=False))
    await eventually(lambda: _true(bool(dying.received)), what="it was asked")
    cluster.move(cluster.others)
    await dying.stop()
    assert await within(sending) == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert following.received == []


async def test_a_call_that_must_not_be_repeated_waits_for_a_connection_that_stands(cluster: Cluster) -> None:
    """Nothing was sent: it may go to whoever is there later."""
    nobody = Address(host="127.0.0.1", port=unused_port())
    cluster.move(ControllerLocation(election_id=ElectionId(9), internal=nobody, lifeline=nobody))
    sending = asyncio.create_task(cluster.send(b"request", repeatable=False))
    await eventually(lambda: _true(cluster.forwarder.calls == 1), what="it waits")
    await cluster.controller(2)
    cluster.move(cluster.others)
    assert await within(sending) == b"request"


async def test_a_frozen_controller_is_left_as_soon_as_another_is_seen(cluster: Cluster) -> None:
    """It takes connections and says nothing."""
    with socket.socket() as frozen:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen()
        host, port = frozen.getsockname()
        address = Address(host=host, port=port)
        cluster.move(ControllerLocation(election_id=ElectionId(9), internal=address, lifeline=address))
        sending = asyncio.create_task(cluster.send(b"request"))
        await eventually(lambda: _true(cluster.forwarder.calls == 1), what="it is on its way")
        await cluster.controller(2)
        cluster.move(cluster.others)
        assert await within(sending) == b"request"


async def test_when_the_time_is_over_the_caller_hears_that(cluster: Cluster) -> None:
    assert await cluster.refused(wait_s=0.3) == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    controller = await cluster.controller()
    controller.answer = refusing(errors_pb2.ERROR_CODE_NOT_CONTROLLER)
    assert await cluster.refused(wait_s=0.3) == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT


async def test_an_answer_to_another_call_is_none(cluster: Cluster) -> None:
    controller = await cluster.controller()

    async def confused(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        return controller_pb2.EnvelopeResponse(correlation_id=envelope.correlation_id + 1, response=b"somebody's")

    controller.answer = confused
    assert await cluster.refused() == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
    assert len(controller.received) == 1


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        errors_pb2.ERROR_CODE_PRINCIPAL_DESERIALIZATION_FAILURE,
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
    ],
)
async def test_what_is_wrong_between_broker_and_controller_stays_between_them(cluster: Cluster, code: Code) -> None:
    controller = await cluster.controller()
    controller.answer = refusing(code)
    with pytest.raises(RegnumError) as caught:
        await within(cluster.send())
    assert caught.value.code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
    assert reason_of(code) not in caught.value.message
    assert len(controller.received) == 1


async def test_a_version_that_the_controller_cannot_read_is_told_as_such(cluster: Cluster) -> None:
    controller = await cluster.controller()
    controller.answer = refusing(errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION)
    assert await cluster.refused() == errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION


async def test_what_the_call_was_refused_with_reaches_the_client_as_it_was(cluster: Cluster) -> None:
    controller = await cluster.controller()
    controller.answer = refusing_inside(
        RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "wait", metadata={"a": "b"}, retry_after_ms=1_234)
    )
    with pytest.raises(RegnumError) as caught:
        await within(cluster.send())
    found = caught.value
    assert (found.code, found.message, found.metadata, found.retry_after_ms) == (
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
        "wait",
        {"a": "b"},
        1_234,
    )
    assert len(controller.received) == 1, "it was answered"


async def test_a_connection_that_floods_waits_for_itself_and_is_refused_with_the_time_to_wait() -> None:
    cluster = Cluster(LineLimits(calls_of_connection=5, under_way_of_connection=2))
    controller = await cluster.controller()
    held = asyncio.Event()

    async def hold_the_flood(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        if envelope.request == b"flood":
            await held.wait()
        return await echo(envelope)

    controller.answer = hold_the_flood
    flood = [asyncio.create_task(cluster.send(b"flood", connection="loud")) for _ in range(5)]
    await eventually(lambda: _true(len(controller.received) == 2), what="as many are under way as may be")
    with pytest.raises(RegnumError) as caught:
        await within(cluster.send(b"flood", connection="loud"))
    assert caught.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert caught.value.retry_after_ms
    assert await within(cluster.send(b"other", connection="quiet")) == b"other"
    assert len(controller.received) == 3
    held.set()
    assert await within(asyncio.gather(*flood)) == 5 * [b"flood"]
    await cluster.close()
    assert cluster.forwarder.calls == 0


async def test_a_client_that_hangs_up_leaves_its_place_to_the_next() -> None:
    cluster = Cluster(LineLimits(under_way_max=1))
    controller = await cluster.controller()
    held = asyncio.Event()

    async def hold(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        if envelope.request == b"first":
            await held.wait()
        return await echo(envelope)

    controller.answer = hold
    first = asyncio.create_task(cluster.send(b"first", connection="a"))
    await eventually(lambda: _true(bool(controller.received)), what="the first is under way")
    waiting = asyncio.create_task(cluster.send(b"gone", connection="b"))
    last = asyncio.create_task(cluster.send(b"last", connection="c"))
    await eventually(lambda: _true(cluster.forwarder.calls == 3), what="the others wait")
    for task in (waiting, first):
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    assert await within(last) == b"last"
    assert [one.request for one in controller.received] == [b"first", b"last"]
    held.set()
    await cluster.close()


async def _true(value: bool) -> bool:
    return value
