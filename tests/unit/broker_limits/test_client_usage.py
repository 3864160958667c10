"""Who uses quotas of bytes and of time at a broker, as it says when it is asked."""

from typing import Any

import pytest
from regnum.broker.v1 import figures_pb2
from regnum_broker.limits.client_quotas import ACCOUNTS_MAX, ClientQuotas
from regnum_broker.servicers.figures import USAGES_MAX, FiguresServicer
from regnum_model.ids import BrokerId
from regnum_model.quotas import (
    CLIENT_RATES,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    DEFAULT_WINDOWS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaTable,
)
from regnum_model.wire_times import seconds_of
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured

BOUND = 100.0


def servicer(quotas: ClientQuotas, clock: FakeClock) -> FiguresServicer:
    others = ("rates", "sizing", "replicas", "storage", "cache", "loop_lag", "readiness", "strays", "lifeline_open")
    nothing: Any = dict.fromkeys((*others, "client_port", "disk", "contact"))
    return FiguresServicer(BrokerId(3), clock=clock, quotas=quotas, **nothing)


def limited(rates: tuple[str, ...]) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.take_up(QuotaTable(client_rates={rate: {QuotaEntity(client_id=DEFAULT): BOUND} for rate in rates}))
    return quotas


async def asked(quotas: ClientQuotas, clock: FakeClock, limit: int = 0) -> figures_pb2.DescribeClientUsageResponse:
    return await servicer(quotas, clock).DescribeClientUsage(figures_pb2.DescribeClientUsageRequest(limit=limit), None)


async def test_a_client_that_has_to_wait_is_named_with_rate_limit_and_wait() -> None:
    clock, quotas = FakeClock(), limited((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE))
    told_s = quotas.wait_s(PRODUCER_BYTE_RATE, "ann", "loader", 3_000.0, clock.monotonic())
    quotas.wait_s(CONSUMER_BYTE_RATE, "ann", "reader", 10.0, clock.monotonic())
    assert told_s > 10
    await clock.advance(4.0)
    answer = await asked(quotas, clock)
    loader, reader = answer.usages
    assert (answer.broker_id, answer.accounts) == (3, 2)
    assert (loader.quota, loader.client_id, loader.limit) == (PRODUCER_BYTE_RATE, "loader", BOUND)
    assert not loader.HasField("user")
    assert seconds_of(loader.wait) == told_s - 4.0
    assert seconds_of(loader.idle) == 4.0
    assert loader.rate > BOUND > reader.rate > 0
    assert (reader.quota, seconds_of(reader.wait)) == (CONSUMER_BYTE_RATE, 0.0)
    await clock.advance(told_s)
    assert not seconds_of((await asked(quotas, clock)).usages[0].wait), "the time is over"


async def test_time_of_the_loop_counts_as_well_and_those_who_came_last_stand_first() -> None:
    clock, quotas = FakeClock(), limited((REQUEST_PERCENTAGE,))
    for name in ("a", "b", "c"):
        quotas.wait_s(REQUEST_PERCENTAGE, "ann", name, 5_000.0, clock.monotonic())
        await clock.advance(0.1)
    answer = await asked(quotas, clock, limit=2)
    assert [one.client_id for one in answer.usages] == ["c", "b"]
    assert answer.accounts == 3
    assert all(seconds_of(one.wait) > 0 for one in answer.usages)


async def test_no_more_are_looked_at_than_are_answered() -> None:
    clock, quotas = FakeClock(), limited((PRODUCER_BYTE_RATE,))
    for number in range(USAGES_MAX + 1):
        quotas.wait_s(PRODUCER_BYTE_RATE, "ann", f"c{number}", 1.0, clock.monotonic())
    answer = await asked(quotas, clock, limit=10**6)
    assert (len(answer.usages), answer.accounts) == (USAGES_MAX, USAGES_MAX + 1)


@pytest.mark.full
@pytest.mark.alone
def test_as_many_accounts_as_there_may_be_hold_no_loop() -> None:
    async def scenario(held: HeldLoop) -> None:
        clock, quotas = FakeClock(), limited(tuple(CLIENT_RATES))
        for _ in range(DEFAULT_WINDOWS.num):
            for rate in CLIENT_RATES:
                for number in range(ACCOUNTS_MAX):
                    quotas.wait_s(rate, "ann", f"c{number}", 1.0, clock.monotonic())
            await clock.advance(DEFAULT_WINDOWS.size_s)
        with held.measuring("usages"):
            answer = await asked(quotas, clock)
        assert len(answer.usages) == USAGES_MAX * len(CLIENT_RATES)

    run_measured(scenario).assert_free()
