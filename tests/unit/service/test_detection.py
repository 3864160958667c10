"""What proves that a process is dead: two refusals in a row, and nothing less."""

import asyncio

import pytest
from regnum_model.contact import KNOCKS_AFTER_BREAK, Contact
from regnum_model.nodes import Address
from regnum_service.clock import SystemClock
from regnum_service.detection import HealthWatchDetector, connect, is_dead
from regnum_service.server import GrpcServer
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock, settle
from regnum_testing.ports import unused_port
from regnum_testing.waiting import within

YES, NO, SILENT = Contact.ACCEPTED, Contact.REFUSED, Contact.NO_ANSWER
SOMEWHERE = Address(host="127.0.0.1", port=1)


@pytest.mark.parametrize(
    ("contacts", "dead", "after_s"),
    [
        ([NO, NO], True, 0.02),
        ([YES, NO, NO], True, 0.04),
        ([NO, YES, NO, NO], True, 0.06),
        ([SILENT, NO, NO], True, 0.04),
        ([NO, SILENT], False, 0.02),
        ([YES, YES, SILENT], False, 0.06),
        ([YES] * 12, False, 0.94),
        ([NO, YES] * 6, False, 0.46),
    ],
)
async def test_two_refusals_in_a_row(contacts: list[Contact], dead: bool, after_s: float) -> None:
    clock = FakeClock()
    left = list(contacts)

    async def probe(address: Address) -> Contact:
        assert address == SOMEWHERE
        return left.pop(0)

    asking = asyncio.create_task(is_dead(SOMEWHERE, probe, clock, attempts=KNOCKS_AFTER_BREAK))
    await clock.advance(after_s - 0.005)
    assert not asking.done()
    await clock.advance(0.01)
    assert await within(asking) is dead
    assert not left


async def test_a_listener_answers_and_a_free_port_refuses() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", unused_port())
    address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    async with server:
        assert await connect(address) is YES
    assert await connect(Address(host="127.0.0.1", port=unused_port())) is NO


@pytest.mark.parametrize("host", ["no.such.host.invalid", "..", "a" * 100, "a\0b"])
async def test_a_host_that_is_none_proves_nothing(host: str) -> None:
    assert await connect(Address(host=host, port=1)) is SILENT


async def test_a_process_that_stops_listening_is_found_dead_and_not_before() -> None:
    server = GrpcServer(Address(host="127.0.0.1", port=unused_port()), [], supervisor=Supervisor("other"))
    await server.start()
    contacts: list[Contact] = []

    async def probe(address: Address) -> Contact:
        contacts.append(await connect(address))
        return contacts[-1]

    detector = HealthWatchDetector(SystemClock(), probe)
    assert not await is_dead(server.address, probe, SystemClock(), attempts=2)
    assert set(contacts) == {YES}
    watching = asyncio.create_task(detector.wait_dead(server.address))
    await settle()
    assert not watching.done()
    await server.stop(0)
    await within(watching)
    assert contacts[-2:] == [NO, NO]
