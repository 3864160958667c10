"""Of too many connections those go that nobody uses, and who uses theirs keeps it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.channel import open_channel
from regnum_service.connection_limit import (
    CROWDED_S,
    FORGET_INTERVAL_S,
    INTERVAL_S,
    ConnectionLimit,
    Use,
    Uses,
    crowded,
    surplus,
)
from regnum_service.connections import peers_at, sockets
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import DEADLINE_S, until

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def use(began_s: float, last_s: float, under_way: int = 0) -> Use:
    return Use("", began_s, last_s, under_way)


def test_the_example_of_the_page() -> None:
    used = {"streams": use(0, 0, 1), "a minute": use(0, 40), "a second": use(0, 99)}
    connected = {*used, "silent 1", "silent 2", "silent 3"}
    assert sorted(surplus(connected, used, 3)) == ["silent 1", "silent 2", "silent 3"]
    assert surplus(connected, used, 2)[-1] == "a minute"
    assert surplus(connected, used, 1)[-1] == "a second"


def test_of_those_that_are_busy_the_newest_go() -> None:
    used = {"old": use(1, 1, 1), "new": use(5, 5, 3), "newer": use(6, 6, 1)}
    assert surplus(used, used, 1) == ["newer", "new"]
    assert surplus(used, used, 3) == []


@given(
    st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 9), st.integers(0, 2)), max_size=30),
    st.sets(st.text(max_size=3), max_size=30),
    st.integers(1, 40),
)
def test_as_many_go_as_are_too_many_and_nobody_busy_before_somebody_idle(used, silent, limit) -> None:
    uses = {peer: use(last_s, last_s, under_way) for peer, (last_s, under_way) in used.items()}
    connected = {*uses, *silent}
    doomed = surplus(connected, uses, limit)
    assert len(doomed) == len(set(doomed)) == max(0, len(connected) - limit)
    busy = {peer for peer in connected if peer in uses and uses[peer].under_way}
    assert not busy & set(doomed) or connected - busy <= set(doomed)


def test_what_is_remembered_of_connections_goes_with_them() -> None:
    uses = Uses(lambda: 1.0)
    for peer in ("ipv4:10.0.0.1:1", "ipv6:%5B::ffff:10.0.0.1%5D:2", "ipv6:%5B::1%5D:3"):
        uses.began(peer)
        uses.ended(peer)
    uses.began("ipv4:10.0.0.1:4")
    uses.keep({"ipv4:10.0.0.1:2", "ipv6:%5B::1%5D:3"})
    assert sorted(uses.by_name()) == ["ipv4:10.0.0.1:2", "ipv4:10.0.0.1:4", "ipv6:%5B::1%5D:3"]


def test_the_kernels_table_is_read_as_grpc_names_peers(tmp_path: Path) -> None:
    table, table6 = tmp_path / "tcp", tmp_path / "tcp6"
    table.write_text(
        HEADER
        + "   0: 0100007F:2384 0201000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
        + "   1: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1\n"
        + "   2: 0100007F:2385 0201000A:D432 01 00000000:00000000 00:00000000 00000000     0        0 3 1\n"
    )
    table6.write_text(
        HEADER
        + "   0: 00000000000000000000000001000000:2384 00000000000000000000000001000000:0001 01 0:0 0:0 0 0 0 1 1\n"
        + "   1: 0000000000000000FFFF00000100007F:2384 0000000000000000FFFF00000201000A:0002 01 0:0 0:0 0 0 0 2 1\n"
    )
    assert peers_at(0x2384, (table, table6)) == {"ipv4:10.0.1.2:54321", "ipv6:%5B::1%5D:1", "ipv4:10.0.1.2:2"}
    assert peers_at(0x2384, (tmp_path / "none",)) is None


def test_of_one_address_those_go_that_do_nothing_and_others_stay() -> None:
    crowd = [f"ipv4:10.0.0.1:{port}" for port in range(1, 6)]
    others = ["ipv4:10.0.0.2:1", "ipv6:%5B::1%5D:1", "ipv6:%5B::1%5D:2"]
    used = {crowd[0]: Use(crowd[0], 0.0, 0.0, 1), crowd[1]: Use(crowd[1], 0.0, 9.0)}
    doomed, of_address = crowded([*crowd, *others], used, limit=100, of_address=2)
    assert (set(doomed), of_address) == (set(crowd[2:]), 3)
    assert crowded([*crowd, *others], used, limit=100, of_address=None) == ([], 0)
    # What is too much for the listener is counted after that.
    doomed, of_address = crowded([*crowd, *others], used, limit=4, of_address=2)
    assert (len(doomed), of_address) == (4, 3)
    assert set(doomed).isdisjoint(crowd[:2])


class Kernel:
    """What the limit asks."""

    def __init__(self, sockets: int | None, peers: set[str] | None) -> None:
        self.sockets = sockets
        self.peers = peers
        self.tables_read = 0

    def limit(self, clock: FakeClock, *, connections_max: int = 10, reading_s: float = 0.0) -> ConnectionLimit:
        def peers(_port: int) -> set[str] | None:
            self.tables_read += 1
            clock.skip(reading_s)
            return self.peers

        return ConnectionLimit(
            connections_max, listener="test", port=lambda: 1, clock=clock, sockets=lambda: self.sockets, peers=peers
        )


async def test_the_tables_are_not_read_where_there_are_fewer_sockets_than_connections_may_be() -> None:
    """It takes milliseconds, in every process, however little is in them."""
    kernel = Kernel(10, {"ipv4:10.0.0.1:1"})
    limit = kernel.limit(FakeClock())
    assert await limit.look() == 0
    assert kernel.tables_read == 0
    kernel.sockets = 11
    assert await limit.look() == 0
    assert kernel.tables_read == 1


async def test_they_are_read_where_nobody_says_how_many_sockets_there_are() -> None:
    kernel = Kernel(None, set())
    assert await kernel.limit(FakeClock()).look() == 0
    assert kernel.tables_read == 1


async def test_what_is_remembered_of_those_that_are_gone_is_let_go_in_time() -> None:
    clock, kernel = FakeClock(), Kernel(3, {"ipv4:10.0.0.1:1"})
    limit = kernel.limit(clock)
    for peer in ("ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2"):
        limit.uses.began(peer)
        limit.uses.ended(peer)
    await limit.look()
    assert len(limit.uses.by_peer) == 2
    clock.skip(FORGET_INTERVAL_S)
    await limit.look()
    assert list(limit.uses.by_peer) == ["ipv4:10.0.0.1:1"]


async def test_and_at_once_where_more_is_remembered_than_connections_may_be() -> None:
    kernel = Kernel(3, set())
    limit = kernel.limit(FakeClock(), connections_max=10)
    for number in range(11):
        limit.uses.began(f"ipv4:10.0.0.1:{number}")
        limit.uses.ended(f"ipv4:10.0.0.1:{number}")
    await limit.look()
    assert not limit.uses.by_peer


async def test_the_tables_are_read_the_less_often_the_longer_it_takes() -> None:
    clock, kernel = FakeClock(), Kernel(11, set())
    limit = kernel.limit(clock, reading_s=0.01)
    await limit.look()
    for _ in range(3):
        clock.skip(INTERVAL_S)
        await limit.look()
    assert kernel.tables_read == 1
    clock.skip(INTERVAL_S)
    await limit.look()
    assert kernel.tables_read == 2


async def test_a_listener_is_crowded_for_a_while_once_clients_that_made_calls_were_closed() -> None:
    clock = FakeClock()
    kernel = Kernel(None, {f"ipv4:10.0.0.1:{number}" for number in range(11)})
    limit = kernel.limit(clock)
    await limit.look()
    assert limit.crowded == "", "it never made a call, and takes the place of nobody"
    clock.skip(INTERVAL_S)
    for peer in kernel.peers or ():
        limit.uses.began(peer)
    await limit.look()
    assert limit.crowded.startswith("more than 10 connections at its test listener")
    clock.skip(CROWDED_S)
    assert limit.crowded == ""


def test_sockets_are_counted_as_the_kernel_does(tmp_path: Path) -> None:
    counts, counts6 = tmp_path / "sockstat", tmp_path / "sockstat6"
    counts.write_text("sockets: used 8\nTCP: inuse 27 orphan 0 tw 40 alloc 30 mem 2\nUDP: inuse 3 mem 0\n")
    counts6.write_text("TCP6: inuse 5\nUDP6: inuse 1\n")
    assert sockets((counts, counts6)) == 32
    assert sockets((counts, tmp_path / "none")) == 27
    assert sockets((tmp_path / "none",)) is None


class Lifeline(controller_pb2_grpc.LifelineServiceServicer):
    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for request in request_iterator:
            yield controller_pb2.BrokerLifelineResponse(probe=request.beat)


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    supervisor = Supervisor("test")
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=Lifeline(),
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            )
        ],
        supervisor=supervisor,
        access=ListenerAccess(limits=ListenerLimits(connections_max=5)),
    )
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    yield server
    await supervisor.unwind()


async def test_silent_connections_beyond_the_limit_are_closed_and_a_stream_goes_on(server: GrpcServer) -> None:
    address = server.address
    async with open_channel(address) as channel:
        stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S)
        await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
        assert (await stream.read()).probe == 1
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(20)]
        await until(lambda: len(peers_at(address.port) or ()) <= 5, "those that are too many are closed")
        await stream.write(controller_pb2.BrokerLifelineRequest(beat=2))
        assert (await stream.read()).probe == 2
        async with open_channel(address) as another:
            # Room is made for whoever comes, at the cost of the silent.
            late = controller_pb2_grpc.LifelineServiceStub(another).BrokerLifeline(timeout=DEADLINE_S)
            await late.write(controller_pb2.BrokerLifelineRequest(beat=3))
            assert (await late.read()).probe == 3
            late.cancel()
        stream.cancel()
        for _, writer in silent:
            writer.close()


async def test_what_this_system_says_is_no_less_than_the_connections_there_are(server: GrpcServer) -> None:
    if sockets() is None:
        pytest.skip("this system does not tell how many sockets there are")
    address = server.address
    opened = [await asyncio.open_connection(address.host, address.port) for _ in range(5)]
    await until(lambda: len(peers_at(address.port) or ()) == 5)
    assert (sockets() or 0) >= 5
    for _, writer in opened:
        writer.close()
