"""Streams end with the token that opened them: a real server, and time that a test moves."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.delegation_tokens import DelegationToken, Secrets, token_id_of
from regnum_model.nodes import Address
from regnum_model.principals import Principal
from regnum_service.access.authentication import Authentication
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.streams import ENDED_PER_TURN
from regnum_service.access.tokens.check import SCHEME, credential_of
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.access.tokens.streams import token_streams
from regnum_service.access.tokens.table import TokenTable
from regnum_service.access.validity import Validity
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.muting import Muting
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

SECRETS = Secrets(b"s" * 32)
ID = token_id_of(b"one")
BEAT = controller_pb2.BrokerLifelineRequest(beat=1)


def token(expiry_ms: int, id: str = ID) -> DelegationToken:
    alice = Principal("alice")
    return DelegationToken(
        id=id, owner=alice, requester=alice, issued_ms=0, expiry_ms=expiry_ms, max_ms=expiry_ms + 100_000
    )


class Streams:
    """The streams of a process, and tasks that hold some open."""

    def __init__(self) -> None:
        self.clock = FakeClock(wall_ms=1_000_000)
        self.table = TokenTable()
        self.streams = token_streams(self.table, self.clock)
        self.looking = asyncio.create_task(self.streams.run())

    def open(self, id: str = ID) -> "asyncio.Task[None]":
        async def stream() -> None:
            with self.streams.opened(id):
                await asyncio.Event().wait()

        return asyncio.create_task(stream())


@pytest.fixture
async def world() -> AsyncIterator[Streams]:
    made = Streams()
    yield made
    made.looking.cancel()


def code_of(task: "asyncio.Task[None]") -> int:
    error = task.exception()
    assert isinstance(error, RegnumError)
    return error.code


async def test_a_stream_ends_within_a_second_of_its_tokens_expiry_and_others_go_on(world: Streams) -> None:
    world.table.put(token(1_010_000))
    world.table.put(token(1_900_000, token_id_of(b"two")))
    first, other = world.open(), world.open(token_id_of(b"two"))
    await world.clock.advance(10.0)
    assert not first.done(), "it lives to the end of its last millisecond"
    await world.clock.advance(1.0)
    assert code_of(first) == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED
    assert not other.done()
    assert len(world.streams) == 1
    other.cancel()


@pytest.mark.parametrize("of_each", [1, 500])
async def test_very_many_streams_end_some_in_each_turn_of_the_loop(world: Streams, of_each: int) -> None:
    ids = [token_id_of(b"%d" % number) for number in range(500 // of_each)]
    for id in ids:
        world.table.put(token(1_010_000, id))
    tasks = [world.open(id) for id in ids for _ in range(of_each)]
    await settle()
    assert len(world.streams) == 500
    for id in ids:
        world.table.drop(id)
    world.streams.changed(ids)
    left = [500]
    while left[-1]:
        await asyncio.sleep(0)  # one turn of the loop
        left.append(sum(not task.done() for task in tasks))
        assert left[-2] - left[-1] <= ENDED_PER_TURN
        assert len(left) < 100, "each turn ends some"
    assert {code_of(task) for task in tasks} == {errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED}
    assert len(world.streams) == 0


async def test_a_token_that_was_renewed_carries_its_streams_on(world: Streams) -> None:
    world.table.put(token(1_010_000))
    stream = world.open()
    await world.clock.advance(5)
    world.table.put(token(1_020_000))
    world.streams.changed((ID,))
    await world.clock.advance(14.9)
    assert not stream.done()
    await world.clock.advance(1.1)
    assert code_of(stream) == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("how", ["revoked", "gone", "shortened"])
async def test_a_token_that_somebody_ends_ends_its_streams_as_soon_as_that_is_heard(world: Streams, how: str) -> None:
    world.table.put(token(1_900_000))
    streams = [world.open() for _ in range(3)]
    await settle()
    match how:
        case "revoked":
            world.table.put(replace(token(1_900_000), revoked=True))
        case "gone":
            world.table.drop(ID)
        case _:
            world.table.put(token(999_999))
    world.streams.changed((ID, token_id_of(b"other")))
    await settle()
    assert {code_of(stream) for stream in streams} == {errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED}
    assert len(world.streams) == 0


async def test_a_token_that_ended_while_its_stream_was_being_opened_ends_it_with_the_next_look(world: Streams) -> None:
    stream = world.open()
    await world.clock.advance(0.5)
    assert code_of(stream) == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED


async def test_a_client_that_hangs_up_is_no_expiry(world: Streams) -> None:
    world.table.put(token(1_010_000))
    stream = world.open()
    await settle()
    stream.cancel()
    await settle()
    assert stream.cancelled()
    assert len(world.streams) == 0
    await world.clock.advance(20)


class Service(controller_pb2_grpc.LifelineServiceServicer):
    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for _ in request_iterator:
            yield controller_pb2.BrokerLifelineResponse()


class Encrypted(ListenerAccess):
    """A listener that takes tokens as if it had TLS, which is tried elsewhere."""

    def authentication(self, listener: str, validity: Validity | None = None) -> Authentication:
        return Authentication(listener, encrypted=True, tokens=self.tokens)


@pytest.mark.parametrize("gated", [False, True])
async def test_over_the_wire_an_open_stream_ends_with_the_reason_and_the_next_call_is_refused(gated: bool) -> None:
    clock = FakeClock(wall_ms=1_000_000)
    tokens = ProcessTokens(SECRETS, clock)
    tokens.table.put(token(1_010_000))
    tokens._follower._is_known = True
    taken = Encrypted(tokens=tokens._check, token_streams=tokens._streams)
    supervisor = Supervisor("test")
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=Service(),
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            )
        ],
        supervisor=supervisor,
        gates=(Muting(SystemClock()),) if gated else (),
        access=taken,
    )
    await server.start()
    entry = ("authorization", SCHEME + credential_of(ID, SECRETS.prove(ID)))
    async with open_channel(server.address) as channel:
        stub = controller_pb2_grpc.LifelineServiceStub(channel)
        call = stub.BrokerLifeline(metadata=(entry,))
        await call.write(BEAT)
        await within(call.read())
        anonymous = stub.BrokerLifeline()
        await anonymous.write(BEAT)
        await within(anonymous.read())
        assert tokens.streams == 1
        clock.skip(11)
        tokens._streams.look()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await within(call.read())
        assert from_rpc_error(ended.value).code == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED
        await anonymous.write(BEAT)
        assert await within(anonymous.read()) is not grpc.aio.EOF, "nobody else is disturbed"
        again = stub.BrokerLifeline(metadata=(entry,))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await within(again.read())
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        anonymous.cancel()
    await server.stop()
    assert supervisor.failure is None
    assert tokens.streams == 0
