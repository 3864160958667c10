"""When a broker says that it is ready, and what it says until then."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.broker.v1 import figures_pb2, figures_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_broker.cluster.readiness import CatchingUp, Readiness
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service.server import LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.lifeline_controllers import Controllers, announce
from regnum_testing.waiting import DEADLINE_S, eventually, until, within

LOG_SERVICE = "regnum.broker.v1.LogService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld(tmp_path)
    await world.begin()
    yield world
    await world.close()


@pytest.fixture
async def controllers(world: BrokerWorld) -> AsyncIterator[Controllers]:
    controllers = Controllers(world)
    yield controllers
    await controllers.end()


async def health(world: BrokerWorld, service: str) -> int:
    channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)).status)


async def says(world: BrokerWorld, words: str) -> None:
    """Wait until the figures of the broker give this as the reason."""
    channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
    stub: Any = figures_pb2_grpc.FiguresServiceStub(channel)

    async def said() -> bool:
        answer = await stub.DescribeFigures(figures_pb2.DescribeFiguresRequest(), timeout=DEADLINE_S)
        return bool(answer.not_ready_because == words)

    await eventually(said, what=words)


async def serves(world: BrokerWorld) -> None:
    async def does() -> bool:
        return await health(world, LOG_SERVICE) == SERVING

    await eventually(does, what="readiness")


async def test_a_broker_is_ready_when_the_controller_says_that_it_is_in_sync(
    world: BrokerWorld, controllers: Controllers
) -> None:
    await world.start(1)
    readiness = world.brokers[BrokerId(1)].broker.readiness
    await says(world, "registered; no controller has counted its partitions yet")
    # It lives, and who knows it may use it: only nobody is sent to it.
    assert [await health(world, name) for name in (LOG_SERVICE, "", LIVENESS)] == [NOT_SERVING, SERVING, SERVING]

    await controllers.next()
    await until(lambda: controllers.asked)
    controllers.count(1, 12, 300)
    await says(world, "catching up: 12 of 300 partitions")
    assert readiness.awaited == 12
    assert await health(world, LOG_SERVICE) == NOT_SERVING

    await controllers.next()
    await until(lambda: controllers.asked)
    controllers.count(1, 1, 300)
    await says(world, "catching up: 1 of 300 partitions")
    controllers.count(1, 0, 300)
    await serves(world)
    await says(world, "")
    assert readiness.awaited == 0


class OldController(controller_pb2_grpc.LifelineServiceServicer):
    """One of a release that knows nothing of all this."""

    def __init__(self) -> None:
        self.hellos: list[controller_pb2.LifelineHello] = []

    async def BrokerLifeline(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[controller_pb2.BrokerLifelineRequest], _context: Any
    ) -> AsyncIterator[controller_pb2.BrokerLifelineResponse]:
        number = 0
        async for request in request_iterator:
            if request.HasField("hello"):
                self.hellos.append(request.hello)
            number += 1
            yield controller_pb2.BrokerLifelineResponse(controller_epoch=1, beat=number, probe=number)


@asynccontextmanager
async def reigning(controller: OldController) -> AsyncIterator[Address]:
    """Where it listens."""
    supervisor = Supervisor("test")
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=controller,
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            )
        ],
        supervisor=supervisor,
    )
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop(0.0)
        await supervisor.unwind()


async def test_a_broker_that_was_ready_stays_so_and_asks_nobody_again(
    world: BrokerWorld, controllers: Controllers
) -> None:
    await world.start(1)
    await controllers.next()
    await until(lambda: controllers.asked)
    controllers.count(1, 0, 5)
    await serves(world)
    first = controllers.asked[0].epoch
    # It registers anew, and speaks to another controller.
    world.server.expire(world.brokers[BrokerId(1)].sessions[-1])
    successor = OldController()
    async with reigning(successor) as address:
        await announce(world, 2, address)
        await until(lambda: any(hello.broker_epoch > first for hello in successor.hellos))
        assert not any(hello.awaits_in_sync for hello in successor.hellos)
        assert await health(world, LOG_SERVICE) == SERVING


async def test_with_a_controller_that_does_not_count_a_broker_is_ready_when_it_is_registered(
    world: BrokerWorld,
) -> None:
    old = OldController()
    async with reigning(old) as address:
        await world.start(1)
        assert await health(world, LOG_SERVICE) == NOT_SERVING
        await announce(world, 1, address)
        await serves(world)
    assert all(hello.awaits_in_sync for hello in old.hellos)


def words(readiness: Readiness) -> Iterator[str]:
    """What it says after each thing that happens to it."""
    happens: tuple[Callable[[], None], ...] = (
        lambda: None,
        readiness.registered,
        lambda: readiness.take(CatchingUp(replicas=9, awaited=4)),
        lambda: readiness.take(CatchingUp(replicas=9, awaited=0)),
        # It falls behind under load.
        lambda: readiness.take(CatchingUp(replicas=9, awaited=9)),
        readiness.stop,
    )
    for happening in happens:
        happening()
        yield readiness.why_not


async def test_readiness_says_why_it_is_not_there_and_is_lost_by_stopping_alone() -> None:
    readiness = Readiness()
    assert list(words(readiness)) == [
        "not registered yet",
        "registered; no controller has counted its partitions yet",
        "catching up: 4 of 9 partitions",
        "",
        "",
        "stopping",
    ]
    await within(readiness.wait())
