"""TLS at the Kafka listener: one certificate is the same caller at both doors, and without one nobody is let in."""

import asyncio
import contextlib
import gc
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_broker.kafka.listener import HANDSHAKES_MAX, KafkaListener
from regnum_kafka_wire.apis import Buffers
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.access.identity import Caller, caller
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.clock import Clock, SystemClock
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_service.tls.channels import opener
from regnum_service.tls.files import CHECK_INTERVAL_S, TlsFiles, WatchedFiles
from regnum_service.tls.server import ServerTls
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.tls_cases import HOST, Certificates, Leaf
from regnum_testing.waiting import DEADLINE_S, until, within
from structlog.testing import capture_logs

MIB = 1024 * 1024
REQUEST = struct.pack(">ihhih", 10, 3, 0, 1, 0)


class Door(controller_pb2_grpc.ControllerServiceServicer):
    """Both doors: notes who calls."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.more = b""
        """Behind each answer of the Kafka listener."""

    async def answer(self, frame: memoryview, context: Any) -> Buffers:
        del frame, context
        self.callers.append(caller())
        return [struct.pack(">ii", 4 + len(self.more), 1), self.more]

    def takes_together(self, head: Any) -> bool:
        del head
        return False

    def ends_with_its_client(self, head: Any) -> bool:
        del head
        return True

    async def ControlledShutdown(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name in the proto
        self.callers.append(caller())
        return controller_pb2.ControlledShutdownResponse()


class World:
    def __init__(
        self,
        folder: Path,
        *,
        limits: ListenerLimits | None = None,
        tls: type[ServerTls] = ServerTls,
        clock: Clock | None = None,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        self.certificates = Certificates(folder)
        self.supervisor, self.door = Supervisor("test"), Door()
        files = self.certificates.files(self.certificates.right(common_name="broker"))
        self.files = WatchedFiles(files)
        access = ListenerAccess(tls=tls(files=self.files, requires_certificate=True), limits=limits or ListenerLimits())
        address = Address(host=HOST, port=0)
        self.metrics = Metrics()
        self.kafka = KafkaListener(
            address,
            door=self.door,
            budget=Budget(HeldBytes(Shares(total_max=MIB, connection_max=MIB)), SystemClock()),
            access=access,
            request_bytes_max=MIB,
            clock=clock or SystemClock(),
            supervisor=self.supervisor,
            metrics=self.metrics,
            handshakes_max=handshakes_max,
        )
        self.grpc = GrpcServer(
            address,
            [
                ServiceRegistration(
                    name="regnum.election.v1.ControllerService",
                    servicer=self.door,
                    add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
                )
            ],
            supervisor=self.supervisor,
            access=access,
        )

    async def connect(self, leaf: Leaf | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        if leaf is not None:
            context.load_cert_chain(leaf.certificate, leaf.key)
        return await within(asyncio.open_connection(HOST, self.kafka.address.port, ssl=context))

    async def by_kafka(self, leaf: Leaf | None) -> bytes:
        reader, writer = await self.connect(leaf)
        try:
            writer.write(REQUEST)
            return await within(reader.readexactly(8))
        finally:
            writer.close()

    async def by_grpc(self, leaf: Leaf) -> None:
        files = TlsFiles(ca=self.certificates.ca, certificate=leaf.certificate, key=leaf.key)
        async with opener(WatchedFiles(files))(self.grpc.address) as channel:
            stub: Any = controller_pb2_grpc.ControllerServiceStub(channel)
            await stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=DEADLINE_S)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.kafka.start()
    await world.grpc.start()
    yield world
    await world.kafka.stop()
    await world.grpc.stop(0)
    await world.supervisor.unwind()


@pytest.mark.parametrize("name", ['a, "b" + c\\d <e>;é#', "#x ", " y\x01\x7f~", "plain"])
async def test_one_certificate_is_the_same_caller_at_both_doors(world: World, name: str) -> None:
    leaf = world.certificates.right("client.example", common_name=name)
    assert await world.by_kafka(leaf) == struct.pack(">ii", 4, 1)
    await world.by_grpc(leaf)
    by_kafka, by_grpc = world.door.callers
    assert by_kafka.subject == by_grpc.subject
    assert by_kafka.principal == by_grpc.principal
    assert (by_kafka.listener, by_kafka.encrypted, by_kafka.host) == ("kafka", True, HOST)


async def test_without_a_certificate_of_the_authority_nobody_is_let_in(world: World) -> None:
    for leaf in (None, world.certificates.of_another_authority(), world.certificates.expired()):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await world.by_kafka(leaf)
    reader, writer = await asyncio.open_connection(HOST, world.kafka.address.port)
    writer.write(REQUEST)
    with contextlib.suppress(ConnectionError):
        assert await within(reader.read(100)) != struct.pack(">ii", 4, 1)
    writer.close()
    assert world.door.callers == []


async def test_a_large_answer_comes_whole(world: World) -> None:
    world.door.more = bytes(MIB)
    reader, writer = await world.connect(world.certificates.right("client.example"))
    for _ in range(2):
        writer.write(REQUEST)
        assert await within(reader.readexactly(8 + MIB)) == struct.pack(">ii", 4 + MIB, 1) + world.door.more
    writer.close()


@pytest.mark.parametrize("first", [5 * len(REQUEST), 2 * len(REQUEST) + 4])
async def test_requests_that_come_at_once_are_all_answered(world: World, first: int) -> None:
    requests = REQUEST * 5
    reader, writer = await world.connect(world.certificates.right("client.example"))
    writer.write(requests[:first])
    whole = first // len(REQUEST)
    assert await within(reader.readexactly(8 * whole)) == struct.pack(">ii", 4, 1) * whole
    writer.write(requests[first:])
    assert await within(reader.readexactly(8 * (5 - whole))) == struct.pack(">ii", 4, 1) * (5 - whole)
    writer.close()


async def test_those_that_say_nothing_in_their_handshake_are_bounded_and_cost_no_other_its_connection(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, limits=ListenerLimits(connections_max=2))
    await world.kafka.start()
    reader, writer = await world.connect(world.certificates.right("client.example", common_name="c"))
    silent = [await asyncio.open_connection(HOST, world.kafka.address.port) for _ in range(10)]
    assert await world.kafka._handshakes.look() == 11 - 2 * 2
    writer.write(REQUEST)
    assert await within(reader.readexactly(8)) == struct.pack(">ii", 4, 1)
    for _, one in (*silent, (reader, writer)):
        one.close()
    await world.kafka.stop()
    await world.supervisor.unwind()


async def test_more_handshakes_than_there_may_be_cost_the_oldest_their_connections(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, handshakes_max=3)
    await world.kafka.start()
    silent = [await asyncio.open_connection(HOST, world.kafka.address.port) for _ in range(5)]
    closed = world.metrics.counter(instruments.CONNECTIONS_CLOSED, "kafka", "listener")
    await until(lambda: closed.value == 2)
    for reader, _ in silent[:2]:
        with contextlib.suppress(ConnectionResetError):
            assert await within(reader.read()) == b""
    for number in range(3):
        leaf = world.certificates.right("client.example", common_name=str(number))
        assert await world.by_kafka(leaf) == struct.pack(">ii", 4, 1)
    assert closed.value == 3, "one that is through its handshake counts no more"
    for _, writer in silent:
        writer.close()
    await world.kafka.stop()
    await world.supervisor.unwind()


async def test_a_connection_that_says_nothing_costs_no_quarter_of_a_megabyte(world: World) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        silent = [await asyncio.open_connection(HOST, world.kafka.address.port) for _ in range(20)]
        await until(lambda: len(world.kafka.shaking) == len(silent))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(silent) * 128 * 1024
    for _, writer in silent:
        writer.close()


async def test_certificates_that_do_not_fit_are_told_of_once_and_tried_until_they_do(tmp_path: Path) -> None:
    unfit, tried = False, 0

    class Changing(ServerTls):
        def context(self) -> ssl.SSLContext:
            nonlocal tried
            tried += 1
            if unfit:
                raise ssl.SSLError("the key is of another certificate")
            return super().context()

    clock = FakeClock()
    world = World(tmp_path, tls=Changing, clock=clock)
    await world.kafka.start()
    # The certificates, and the handshakes.
    await until(lambda: clock.sleepers == 2)
    unfit, world.files.version = True, 2
    with capture_logs() as told:
        for count in (2, 3, 4):
            await clock.advance(CHECK_INTERVAL_S)
            await until(lambda count=count: (tried, clock.sleepers) == (count, 2))
        unfit = False
        await clock.advance(CHECK_INTERVAL_S)
        await until(lambda: (tried, clock.sleepers) == (5, 2))
        assert await world.by_kafka(world.certificates.right("client.example")) == struct.pack(">ii", 4, 1)
    assert len([line for line in told if "cannot be used" in line["event"]]) == 1
    await world.kafka.stop()
    await world.supervisor.unwind()
