"""Quotas hold those who hang up before they are told to wait, who open one stream after another, and who fail."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.throttling import ReadQuota, Throttling
from regnum_broker.servicers.log import LogServicer
from regnum_broker.serving.fetching.requests import Content, FetchPartition, FetchResult, RecordForm
from regnum_broker.serving.produce_requests import ProduceRequest, ProduceResponse
from regnum_model.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaTable,
)
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.gates import Messages, Sized
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Holding
from regnum_testing.clock import FakeClock
from regnum_testing.served import Caller

MIB = 1024 * 1024


class Silent:
    """Takes what producers send, and acknowledges nothing."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()

    async def produce(self, _request: ProduceRequest, *, waitable_s: float, call: Call) -> ProduceResponse:
        assert waitable_s
        assert call
        self.taken.set()
        return await asyncio.get_running_loop().create_future()

    async def take(self, requests: list[ProduceRequest], _told: Any, *, call: Call) -> dict[int, "Silent"]:
        assert call
        self.taken.set()
        return dict.fromkeys(range(len(requests)), self)

    def give_up(self) -> None:
        """Nothing."""


class Full:
    """Has a mebibyte for everybody, as often as it is asked."""

    async def consume(
        self,
        asked: FetchPartition,
        *,
        form: int,
        make_content: Callable[[], Content],
        waitable_s: float,
        holding: Holding,
        quota: ReadQuota,
    ) -> AsyncIterator[FetchResult]:
        assert waitable_s
        assert form == RecordForm.UNSPECIFIED
        while True:
            await quota.wait()
            holding.become(MIB)
            yield FetchResult(asked.topic, asked.partition, make_content())


class Served:
    """LogService under a quota of one rate for all clients together."""

    def __init__(self, rate: str, bound: float) -> None:
        self.clock = FakeClock()
        self.producing = Silent()
        quotas = ClientQuotas()
        quotas.take_up(QuotaTable(client_rates={rate: {QuotaEntity(client_id=DEFAULT): bound}}))
        self.rate = rate
        self.throttling = Throttling(quotas, clock=self.clock)
        none: Any = None
        held = HeldBytes(Shares(total_max=1 << 40, connection_max=1 << 40))
        producing: Any = self.producing
        fetching: Any = Full()
        self.log = LogServicer(
            producing=producing,
            fetching=fetching,
            offsets=none,
            describing=none,
            deleting=none,
            budget=Budget(held, self.clock),
            throttling=self.throttling,
        )

    @property
    def debt_s(self) -> float:
        return self.throttling.wait_s(self.rate, Call(peer="p"), 0)


def produced(size: int) -> log_pb2.ProduceRequest:
    request = log_pb2.ProduceRequest()
    request.partitions.add(topic="t", record_batch=bytes(size))
    return request


async def test_a_producer_that_hangs_up_has_sent_what_it_sent() -> None:
    served = Served(PRODUCER_BYTE_RATE, 1.0)
    call = asyncio.create_task(served.log.Produce(produced(MIB), Caller()))
    await served.producing.taken.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert served.debt_s > 0.0


async def test_the_same_on_a_stream() -> None:
    served = Served(PRODUCER_BYTE_RATE, 1.0)

    async def requests() -> AsyncIterator[log_pb2.ProduceStreamRequest]:
        yield Sized(MIB, log_pb2.ProduceStreamRequest(request=produced(MIB)))
        await asyncio.get_running_loop().create_future()

    async def at_once() -> None:
        """No gate."""

    answers = served.log.ProduceStream(Messages(requests(), at_once), Caller())
    call = asyncio.ensure_future(anext(answers))
    await served.producing.taken.wait()
    # One turn: the records are taken, and the answer is waited for.
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert served.debt_s > 0.0


async def test_who_opens_one_stream_after_another_reads_no_more_than_on_one() -> None:
    served = Served(CONSUMER_BYTE_RATE, float(MIB))
    read = 0

    async def consume_for_ever() -> None:
        nonlocal read
        while True:
            stream = served.log.Consume(log_pb2.ConsumeRequest(), Caller())
            await anext(stream)
            await stream.aclose()
            read += 1
            # One turn between two streams, or nobody else has one.
            await asyncio.sleep(0)

    reader = asyncio.create_task(consume_for_ever())
    for _ in range(20):
        await served.clock.advance(1.0)
    reader.cancel()
    # 20 MiB in 20 s, and what Kafka's windows let through at the beginning.
    assert 20 <= read <= 20 + 11


async def test_the_time_of_a_call_that_fails_counts() -> None:
    served = Served(REQUEST_PERCENTAGE, 1.0)

    async def call() -> None:
        served.clock.skip(10.0)
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "no")

    with pytest.raises(RegnumError):
        await served.throttling.measured(Call(peer="p"), log_pb2.FetchRequest(), call())
    assert served.debt_s > 0.0


def test_long_client_ids_take_no_more_memory_than_short_ones() -> None:
    served = Served(PRODUCER_BYTE_RATE, 1e9)
    tracemalloc.start()
    try:
        for number in range(200):
            # (A name for it would keep the last one.)
            served.throttling.wait_s(PRODUCER_BYTE_RATE, Call(peer="p", client_id=f"{number:06d}" + "x" * MIB), 1)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < MIB
