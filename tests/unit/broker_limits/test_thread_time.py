"""What threads do for a call is its caller's time (KIP-124), also when the caller has left."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.throttling import TIME_WAIT_S_MAX, Throttling
from regnum_broker.storage import Storage
from regnum_model.quotas import REQUEST_PERCENTAGE, QuotaEntity, QuotaTable
from regnum_service.limits.call import Call
from regnum_testing.clock import FakeClock
from regnum_testing.log_directories import ReopenedDirectory
from regnum_testing.waiting import within

CLIENT = "c"


def paid_by(throttling: Throttling) -> Call:
    """What its budget makes of it."""
    return Call(peer="ipv4:1.2.3.4:5", client_id=CLIENT, charge=throttling.charge_thread)


class Broker:
    """Threads, and a quota of time for one client: one hundredth."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        quotas = ClientQuotas()
        quotas.take_up(QuotaTable(client_rates={REQUEST_PERCENTAGE: {QuotaEntity(client_id=CLIENT): 1.0}}))
        self.throttling = Throttling(quotas, clock=self.clock)
        self.storage = Storage(ReopenedDirectory(path).open(), clock=self.clock)

    def work(self) -> str:
        """Half a second of a thread."""
        self.clock.skip(0.5)
        return "done"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path)
    made.storage.start()
    yield made
    await made.storage.close(clean=False)


async def test_what_a_reader_does_is_told_with_the_answer_and_holds_the_connection(broker: Broker) -> None:
    async def call() -> log_pb2.FetchResponse:
        who = paid_by(broker.throttling)
        async with broker.storage.turns.turn(who.payer) as turn:
            assert await turn.run(broker.storage.read, broker.work, call=who) == "done"
        return log_pb2.FetchResponse()

    request = log_pb2.FetchRequest()
    request.header.client_id = CLIENT
    answer = await within(broker.throttling.measured(paid_by(broker.throttling), request, call()))
    assert answer.throttle_time_ms == TIME_WAIT_S_MAX * 1000
    assert broker.throttling.time_owed_s(paid_by(broker.throttling)) == TIME_WAIT_S_MAX


async def test_a_stream_is_told_and_waits(broker: Broker) -> None:
    stream = paid_by(broker.throttling)
    stream.named("other").worked(5.0)
    writing, reading = broker.throttling.writing(stream), broker.throttling.reading(stream)
    assert writing.left_ms(0.0) == 0, "it has no quota"
    stream.named(CLIENT).worked(0.5)
    assert writing.left_ms(0.0) == 1000
    waiting = asyncio.create_task(reading.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    await broker.clock.advance(TIME_WAIT_S_MAX)
    await within(waiting)


async def test_without_a_quota_of_time_nothing_is_measured(tmp_path: Path) -> None:
    clock = FakeClock()
    throttling = Throttling(ClientQuotas(), clock=clock)
    paid_by(throttling).named(CLIENT).worked(1e6)
    assert not throttling.time_owed_s(paid_by(throttling))
