"""Callers over their quota of mutations, over real connections: told at once, held from then on (KIP-599)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.machine import Machine
from regnum_service.muting import HELD_MAX, Muting
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.quota_world import THROTTLED, QuotaWorld
from regnum_testing.waiting import DEADLINE_S, eventually, within

RATE = 5.0
BURST = 10.0
PARTITIONS = 3
"""Of every topic."""
STRICT = 6
PERMISSIVE = 5
"""Versions of CreateTopics: the older one knows no refusal."""


class Served:
    """A controller behind a real listener, on a clock that stands still: so do the times of muted connections."""

    def __init__(self) -> None:
        self.world = QuotaWorld()
        self.muting = Muting(self.world.clock)
        self.role = ControllerRole()
        self.admin = AdminServicer(self.role, muting=self.muting)
        self.address = Address(host="127.0.0.1", port=0)
        self._supervisor = Supervisor("test")
        self._topics = 0

    async def start(self) -> GrpcServer:
        await self.world.begin()
        self.process = await self.world.start_process()
        await self.world.set_quota(RATE, BURST)
        self.role.hold(self.world.controller)
        service = ServiceRegistration(
            name="regnum.admin.v1.AdminService",
            servicer=self.admin,
            add_to_server=admin_pb2_grpc.add_AdminServiceServicer_to_server,
        )
        machine = Machine()
        machine.clock = self.world.clock
        server = GrpcServer(self.address, [service], supervisor=self._supervisor, gates=(self.muting,), machine=machine)
        await server.start()
        await server.set_serving(serving=True)
        self.address = server.address
        return server

    @property
    def created(self) -> int:
        """Partitions that were created so far."""
        return PARTITIONS * len(self.world.controller.picture.names)

    def request(self, *, version: int, count: int = 1) -> admin_pb2.CreateTopicsRequest:
        """Topics of names that nobody had."""
        first, self._topics = self._topics, self._topics + count
        topics = [
            admin_pb2.NewTopic(name=f"t{number}", partitions=PARTITIONS, replication_factor=1)
            for number in range(first, first + count)
        ]
        return admin_pb2.CreateTopicsRequest(header=types_pb2.RequestHeader(api_version=version), topics=topics)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    server = await served.start()
    yield served
    await server.stop(0.0)
    await served.world.close()


@asynccontextmanager
async def connected(served: Served) -> "AsyncIterator[tuple[grpc.aio.Channel, admin_pb2_grpc.AdminServiceAsyncStub]]":
    """A connection of its own."""
    channel = open_channel(served.address)
    try:
        yield channel, admin_pb2_grpc.AdminServiceStub(channel)
    finally:
        await channel.close()


async def test_the_answer_goes_out_at_once_and_then_the_connection_waits_and_no_other(served: Served) -> None:
    async with connected(served) as (channel, admin), connected(served) as (_, other):
        answer = await within(admin.CreateTopics(served.request(version=STRICT, count=6)))
        assert [result.error_code for result in answer.results] == [0, 0, 0, 0, THROTTLED, THROTTLED]
        # 12 of 10 tokens are gone.
        assert answer.throttle_time_ms == 400
        held = asyncio.ensure_future(admin.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest()))
        await eventually(lambda: holds(served, 1), what="the next call is held")
        assert len((await within(other.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest()))).quotas) == 1
        health = await within(health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        await served.world.clock.advance(0.39)
        assert not held.done()
        await served.world.clock.advance(0.02)
        assert len((await within(held)).quotas) == 1
        assert served.muting.held == 0


async def test_a_held_change_whose_deadline_passes_is_never_made(served: Served) -> None:
    async with connected(served) as (_, admin):
        await within(admin.CreateTopics(served.request(version=PERMISSIVE, count=6)))
        before = served.created
        call = admin.CreateTopics(served.request(version=PERMISSIVE), timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await call
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: holds(served, 0), what="the call is dropped")
        await served.world.clock.advance(60.0)
        await within(admin.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest()))
        assert served.created == before


@pytest.mark.parametrize("hangs_up", [True, False], ids=["hangs up", "gives it too little time"])
@pytest.mark.parametrize("version", [STRICT, PERMISSIVE])
async def test_who_does_not_wait_for_the_answer_is_held_up_as_if_he_did(
    served: Served, version: int, hangs_up: bool
) -> None:
    """Each such call would else be one more than he may: no answer comes to say that the connection has to wait."""
    never = asyncio.Event()
    for broker in served.world.cluster.brokers.values():
        broker.held = never
    async with connected(served) as (_, admin):
        # Of six a strict caller gets four, and is told to wait for the others.
        request = served.request(version=version, count=6 if version == STRICT else 4)
        request.timeout_ms = round(1000 * DEADLINE_S)
        served.process.held = asyncio.Event()
        first = admin.CreateTopics(request)

        async def is_to_be_charged() -> bool:
            return served.process.in_flight == 1

        async def is_made() -> bool:
            return served.created == 4 * PARTITIONS

        await eventually(is_to_be_charged, what="it has come as far as the quota process")
        if not hangs_up:
            served.world.clock.skip(DEADLINE_S)
        served.process.held.set()
        await eventually(is_made, what="it is made, and nobody leads it yet")
        if hangs_up:
            first.cancel()
        else:
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await within(first)
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        second = admin.CreateTopics(served.request(version=PERMISSIVE))
        await eventually(lambda: holds(served, 1), what="the next call is held")
        await served.world.clock.advance(0.398)
        assert served.created == 4 * PARTITIONS
        await served.world.clock.advance(0.004)
        await eventually(lambda: holds(served, 0), what="the time is over")
        second.cancel()


async def test_a_hundred_calls_are_held_and_the_next_is_refused_with_the_time_to_wait(served: Served) -> None:
    async with connected(served) as (_, admin):
        await within(admin.CreateTopics(served.request(version=PERMISSIVE, count=6)))
        question = admin_pb2.DescribeClientQuotasRequest()
        held = [asyncio.ensure_future(admin.DescribeClientQuotas(question)) for _ in range(HELD_MAX)]
        await eventually(lambda: holds(served, HELD_MAX), what="all are held")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await within(admin.DescribeClientQuotas(question))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        error = from_rpc_error(refused.value)
        assert (error.code, error.retry_after_ms) == (errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, 1_600)
        await served.world.clock.advance(2.0)
        assert len(await within(asyncio.gather(*held))) == HELD_MAX


@pytest.mark.parametrize("version", [STRICT, PERMISSIVE])
async def test_who_ignores_throttle_times_gets_no_more_through_than_who_honours_them(
    served: Served, version: int
) -> None:
    """20 calls at any moment on one connection, for 20 s; and then one after another, each after the time it was told.

    The bound of KIP-599 holds in both, also for requests that can never be refused: only being held stops those.
    """
    clock, seconds = served.world.clock, 20.0

    def bound(passed_s: float) -> float:
        return RATE * passed_s + BURST + PARTITIONS + 1e-6

    began_s = clock.monotonic()
    async with connected(served) as (_, admin):
        outstanding = 0

        async def ignoring() -> None:
            nonlocal outstanding
            while clock.monotonic() < began_s + seconds:
                outstanding += 1
                await admin.CreateTopics(served.request(version=version), timeout=DEADLINE_S)
                outstanding -= 1
                assert served.created <= bound(clock.monotonic() - began_s)

        async def all_held() -> bool:
            for task in callers:
                if task.done():
                    task.result()
            return served.admin.held >= outstanding

        callers = [asyncio.create_task(ignoring()) for _ in range(20)]
        while clock.monotonic() < began_s + seconds:
            await eventually(all_held, what="every call is held")
            await clock.advance(0.2)
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    ignored = served.created
    await clock.advance(600.0)
    before, began_s = served.created, clock.monotonic()
    async with connected(served) as (_, admin):
        while clock.monotonic() < began_s + seconds:
            answer = await within(admin.CreateTopics(served.request(version=version), timeout=DEADLINE_S))
            await clock.advance(answer.throttle_time_ms / 1000)
            assert served.created - before <= bound(clock.monotonic() - began_s)
    honoured = served.created - before
    assert honoured >= RATE * seconds
    assert ignored <= honoured + PARTITIONS


async def test_changes_that_cannot_be_refused_wait_for_one_another_and_a_hundred_at_most(served: Served) -> None:
    """All of them came in before any was answered: the first takes all there is, and more."""
    served.process.held = asyncio.Event()
    async with connected(served) as (_, admin):
        answers = [
            asyncio.ensure_future(admin.CreateTopics(served.request(version=PERMISSIVE, count=4)))
            for _ in range(HELD_MAX + 2)
        ]

        async def one_is_refused() -> bool:
            return any(answer.done() and answer.exception() is not None for answer in answers)

        await eventually(one_is_refused, what="there is no room for one")
        await eventually(lambda: holds(served, HELD_MAX), what="the others wait")
        served.process.held.set()

        async def one_is_done() -> bool:
            return served.created > 0

        await eventually(one_is_done, what="the first is done")
        assert served.created == 4 * PARTITIONS
        failed = [answer.exception() for answer in answers if answer.done() and answer.exception() is not None]
        assert [error.code() for error in failed] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await eventually(lambda: holds(served, 0), what="nothing is kept of those whose client is gone")
        await served.world.clock.advance(600.0)
        assert served.created == 4 * PARTITIONS


async def holds(served: Served, count: int) -> bool:
    return served.admin.held == count
