"""The lifeline and the main loop of a broker leave each other alone (safety rule S9)."""

import asyncio
import selectors
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.lifeline_stream import LifelineStream
from regnum_broker.identity import Identity
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId, Registration
from regnum_model.nodes import Address
from regnum_service.channel import aio_channel
from regnum_service.listening import make_server
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import DEADLINE_S, eventually, within


class Controller(controller_pb2_grpc.LifelineServiceServicer):
    """Answers every message of a lifeline, on threads; ends the stream after ``answers_max``."""

    def __init__(self) -> None:
        self.answers_max = 1_000_000
        self.wall_clock_ms: int | None = None
        """What it says the time is; None: it is of a release that does not say."""
        self.orders_astray = False
        self.heard: list[controller_pb2.BrokerLifelineRequest] = []
        self.heard_more = threading.Condition()

    def BrokerLifeline(  # noqa: N802 - gRPC's name
        self, requests: Iterator[controller_pb2.BrokerLifelineRequest], _context: Any
    ) -> Iterable[controller_pb2.BrokerLifelineResponse]:
        for number, request in enumerate(requests, 1):
            with self.heard_more:
                self.heard.append(request)
                self.heard_more.notify_all()
            yield controller_pb2.BrokerLifelineResponse(
                probe=number, wall_clock_ms=self.wall_clock_ms, orders_astray=self.orders_astray
            )
            if number >= self.answers_max:
                return

    def wait_for(self, count: int) -> bool:
        """Hold the calling thread until so many messages were heard; False: they were not in time."""
        with self.heard_more:
            return self.heard_more.wait_for(lambda: len(self.heard) >= count, DEADLINE_S)


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def address(controller: Controller) -> Iterator[Address]:
    server = grpc.server(ThreadPoolExecutor(8))
    controller_pb2_grpc.add_LifelineServiceServicer_to_server(controller, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Address(host="127.0.0.1", port=port)
    server.stop(None)


async def soon(condition: Callable[[], bool], *, what: str) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, what=what)


def readers() -> int:
    return sum(thread.name == "lifeline reader" for thread in threading.enumerate())


async def test_messages_go_both_ways_until_either_side_ends_it(controller: Controller, address: Address) -> None:
    controller.answers_max = 2
    stream = LifelineStream.open(address)
    for number in (1, 2):
        stream.write(controller_pb2.BrokerLifelineRequest(beat=number))
        answer = await within(stream.read())
        assert answer is not None
        assert answer.probe == number
    assert await within(stream.read()) is None
    stream.write(controller_pb2.BrokerLifelineRequest(beat=3))
    stream.close()
    assert [request.beat for request in controller.heard] == [1, 2]
    await soon(lambda: not readers(), what="the thread that reads to end")


async def test_a_stream_that_is_closed_leaves_no_thread_behind(controller: Controller, address: Address) -> None:
    before = threading.active_count()
    streams = [LifelineStream.open(address) for _ in range(3)]
    for stream in streams:
        stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
        assert await within(stream.read()) is not None
        stream.close()
    # Those of the server's pool stay.
    await soon(lambda: not readers() and threading.active_count() <= before + len(streams), what="the threads to end")
    assert not readers()


async def test_a_controller_that_cannot_be_reached_is_an_error_of_the_read() -> None:
    stream = LifelineStream.open(Address(host="127.0.0.1", port=1))
    stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
    with pytest.raises(grpc.RpcError):
        await within(stream.read())
    stream.close()


async def test_beats_and_answered_probes_go_on_while_the_main_loop_is_held(
    controller: Controller, address: Address
) -> None:
    lifeline = Lifeline(BrokerId(1), offline=lambda: ())
    running = asyncio.create_task(lifeline.run())
    lifeline.identify(Identity(broker_epoch=BrokerEpoch(7), registration=Registration(0)))
    lifeline.move(ControllerLocation(election_id=ElectionId(1), internal=address, lifeline=address))
    await within(lifeline.wait_open())
    # From here on this thread waits, and with it the loop.
    assert controller.wait_for(len(controller.heard) + 10)
    beats = [request.beat for request in controller.heard]
    assert beats == sorted(set(beats))
    assert controller.heard[0].hello.broker_epoch == 7
    assert controller.heard[-1].probe_answered > 5
    running.cancel()
    await asyncio.wait([running])
    await soon(lambda: not readers(), what="the stream to be closed")


async def test_a_broker_compares_its_wall_clock_with_the_controllers_and_says_what_it_finds(
    controller: Controller, address: Address
) -> None:
    clock = FakeClock()
    expiry = ExpiryClock(clock, difference_s_max=300.0)
    lifeline = Lifeline(BrokerId(1), offline=lambda: (), expiry=expiry)
    running = asyncio.create_task(lifeline.run())
    lifeline.identify(Identity(broker_epoch=BrokerEpoch(7), registration=Registration(0)))
    lifeline.move(ControllerLocation(election_id=ElectionId(1), internal=address, lifeline=address))
    await within(lifeline.wait_open())
    await soon(lambda: expiry.now_ms() is not None, what="a controller of release 0.1.0 to be heard")
    assert not any(request.HasField("clock_difference") for request in controller.heard)

    controller.wall_clock_ms = clock.wall_ms() - 400_000

    def said() -> tuple[int, bool]:
        said = controller.heard[-1].clock_difference
        return said.ahead_ms, said.expiry_held_back

    await soon(lambda: said() == (400_000, True), what="the controller to hear that the clocks differ")
    assert expiry.now_ms() is None
    controller.wall_clock_ms = clock.wall_ms() - 200_000
    await soon(lambda: said() == (200_000, False), what="the controller to hear that they agree")
    assert expiry.now_ms() == clock.wall_ms()
    running.cancel()
    await asyncio.wait([running])
    await soon(lambda: not readers(), what="the stream to be closed")


async def test_orders_go_astray_while_a_controller_says_so_on_an_open_lifeline(
    controller: Controller, address: Address
) -> None:
    lifeline = Lifeline(BrokerId(1), offline=lambda: ())
    running = asyncio.create_task(lifeline.run())
    location = ControllerLocation(election_id=ElectionId(1), internal=address, lifeline=address)
    lifeline.identify(Identity(broker_epoch=BrokerEpoch(7), registration=Registration(0)))
    lifeline.move(location)
    await within(lifeline.wait_open())
    assert not lifeline.orders_astray
    controller.orders_astray = True
    await soon(lambda: lifeline.orders_astray, what="the broker to hear that its orders go astray")
    controller.orders_astray = False
    await soon(lambda: not lifeline.orders_astray, what="the broker to hear that they arrive")
    controller.orders_astray = True
    await soon(lambda: lifeline.orders_astray, what="the broker to hear it once more")
    lifeline.identify(Identity(broker_epoch=BrokerEpoch(8), registration=Registration(1)))
    assert not lifeline.orders_astray, "no stream is open for this registration"
    await soon(lambda: lifeline.orders_astray, what="the next stream to say it")
    lifeline.move(None)
    await soon(lambda: not lifeline.orders_astray, what="the end of the stream to be the end of it")
    running.cancel()
    await asyncio.wait([running])
    await soon(lambda: not readers(), what="the stream to be closed")


class CountedSelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Counts the turns of its loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        return super().select(timeout)


@pytest.fixture
async def health_channel() -> AsyncIterator[grpc.aio.Channel]:
    server = make_server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def test_calls_of_the_main_loop_do_not_wake_the_loop_of_the_lifeline(
    controller: Controller, address: Address, health_channel: grpc.aio.Channel
) -> None:
    """grpc.aio would: it has one poller for all loops, and each event wakes all of them."""
    selector = CountedSelector()
    opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def hold() -> None:
        stream, ended = LifelineStream.open(address), asyncio.Event()
        stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
        assert await within(stream.read()) is not None
        opened.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()
        stream.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(hold())

    holding = asyncio.create_task(asyncio.to_thread(run))
    loop, ended = await within(asyncio.wrap_future(opened))
    before = selector.turns
    stub = health_pb2_grpc.HealthStub(health_channel)  # type: ignore[no-untyped-call]
    for _ in range(100):
        await stub.Check(health_pb2.HealthCheckRequest())
    assert selector.turns - before <= 2
    loop.call_soon_threadsafe(ended.set)
    await within(holding)
