"""Quotas of clients at a broker: whose account counts, what changes at run time, and how much is remembered."""

import asyncio
import tracemalloc

import pytest
from regnum.broker.v1 import log_pb2
from regnum_broker.limits.client_quotas import IDLE_S, ClientQuotas
from regnum_broker.limits.rates import WAIT_S_MAX
from regnum_broker.limits.throttling import METHODS, TIME_WAIT_S_MAX, Throttling
from regnum_model.principals import NOBODY, Principal
from regnum_model.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    DEFAULT_WINDOWS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaTable,
)
from regnum_service.access.identity import Caller
from regnum_service.limits.call import Call
from regnum_testing.clock import FakeClock

ANN = "ann"
PRODUCE = "/regnum.broker.v1.LogService/Produce"
FETCH = "/regnum.broker.v1.LogService/Fetch"


def table(rate: str, bounds: dict[QuotaEntity, float]) -> QuotaTable:
    return QuotaTable(client_rates={rate: bounds})


def quotas_with(bounds: dict[QuotaEntity, float], rate: str = PRODUCER_BYTE_RATE) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.take_up(table(rate, bounds))
    return quotas


def user(name: str) -> Caller:
    return Caller(principal=Principal(name))


def wait_s(quotas: ClientQuotas, value: float, *, user: str = ANN, client: str = "c", now_s: float = 0.0) -> float:
    return quotas.wait_s(PRODUCER_BYTE_RATE, user, client, value, now_s)


LEVELS = [
    QuotaEntity(user=ANN, client_id="c"),
    QuotaEntity(user=ANN, client_id=DEFAULT),
    QuotaEntity(user=ANN),
    QuotaEntity(user=DEFAULT, client_id="c"),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity(user=DEFAULT),
    QuotaEntity(client_id="c"),
    QuotaEntity(client_id=DEFAULT),
]


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_quota_counts(level):
    """Each level alone throttles; with a generous one above it, it does not."""
    mean = dict.fromkeys(LEVELS[level:], 1.0)
    assert wait_s(quotas_with(mean), 1_000) == pytest.approx(990.0)
    if level:
        assert wait_s(quotas_with({**mean, LEVELS[level - 1]: 1e9}), 1_000) == 0.0


def test_without_a_quota_nothing_is_measured_or_remembered():
    quotas = ClientQuotas()
    assert wait_s(quotas, 1e15) == 0.0
    assert not quotas.limits(PRODUCER_BYTE_RATE)
    assert quotas.accounts(PRODUCER_BYTE_RATE) == 0


def test_everyone_under_a_default_has_an_account_of_his_own():
    quotas = quotas_with({QuotaEntity(client_id=DEFAULT): 100.0})
    assert wait_s(quotas, 10_000, client="greedy") > 0.0
    assert wait_s(quotas, 500, client="modest") == 0.0


def test_all_client_ids_of_a_user_draw_on_its_quota():
    quotas = quotas_with({QuotaEntity(user=ANN): 100.0})
    assert wait_s(quotas, 900, client="a") == 0.0
    assert wait_s(quotas, 900, client="b") > 0.0
    assert wait_s(quotas, 900, user="ben", client="b") == 0.0


def test_a_quota_that_changes_applies_to_what_was_measured_before():
    quotas = quotas_with({QuotaEntity(user=ANN): 1_000.0})
    assert wait_s(quotas, 5_000) == 0.0
    quotas.take_up(table(PRODUCER_BYTE_RATE, {QuotaEntity(user=ANN): 100.0}))
    assert wait_s(quotas, 0) == pytest.approx(40.0)
    quotas.take_up(QuotaTable())
    assert wait_s(quotas, 1e12) == 0.0
    assert quotas.accounts(PRODUCER_BYTE_RATE) == 0


def test_the_rates_do_not_mix():
    quotas = quotas_with({QuotaEntity(user=ANN): 1.0}, CONSUMER_BYTE_RATE)
    assert wait_s(quotas, 1e12) == 0.0
    assert quotas.wait_s(CONSUMER_BYTE_RATE, ANN, "c", 1e3, 0.0) > 0.0


def test_accounts_that_nobody_uses_are_dropped():
    quotas = quotas_with({QuotaEntity(client_id=DEFAULT): 1e9})
    for number in range(1_000):
        wait_s(quotas, 1, client=f"c{number}", now_s=float(number) / 1_000)
    for number in range(600):
        wait_s(quotas, 1, client=f"d{number}", now_s=2 * IDLE_S)
    assert quotas.accounts(PRODUCER_BYTE_RATE) == 600


@pytest.mark.full
def test_a_hundred_thousand_client_ids_take_bounded_memory():
    quotas = quotas_with({QuotaEntity(client_id=DEFAULT): 1e9})
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100_000):
            wait_s(quotas, 1, client=f"client-{number}", now_s=number / 100)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert quotas.accounts(PRODUCER_BYTE_RATE) == 20_000
    # 1.3 KiB each, as long as each has one window only; eleven windows take 0.9 KiB more.
    assert taken < 40 * 1024 * 1024


def call_at(peer: str = "ipv4:10.0.0.1:1", *, who: str = NOBODY.name) -> Call:
    """A call of the client that is asked about."""
    return Call(peer=peer, client_id="c", principal=Principal(who))


async def held(throttling: Throttling, call: Call, method: str, clock: FakeClock) -> float:
    """How long a call of that connection would be held."""
    began_s = clock.monotonic()
    found: list[float] = []

    async def enter() -> None:
        for gate in throttling.gates:
            passed = await gate.enter(method, call)
            if passed is not None:
                passed.leave()
        found.append(clock.monotonic() - began_s)

    task = asyncio.create_task(enter())
    await clock.advance(10_000.0)
    await task
    return found[0]


async def test_who_is_over_its_quota_is_told_and_held_and_others_and_other_calls_are_not():
    clock = FakeClock()
    quotas = quotas_with({QuotaEntity(user=ANN): 100.0})
    throttling = Throttling(quotas, clock=clock)
    assert throttling.note(PRODUCER_BYTE_RATE, call_at(who=ANN), 1_200) == 2_000
    assert await held(throttling, call_at(who=ANN), FETCH, clock) == 0.0
    throttling.note(PRODUCER_BYTE_RATE, call_at(who=ANN), 1_200)
    assert await held(throttling, call_at("ipv4:10.0.0.2:1", who=ANN), PRODUCE, clock) == 0.0
    told_ms = throttling.note(PRODUCER_BYTE_RATE, call_at(who=ANN), 1_200)
    assert await held(throttling, call_at(), PRODUCE, clock) == pytest.approx(told_ms / 1000, abs=0.001)
    assert quotas.throttled[PRODUCER_BYTE_RATE] == 3


async def test_users_are_told_apart_by_their_principals():
    clock = FakeClock()
    quotas = quotas_with({QuotaEntity(user="ben"): 1.0})
    throttling = Throttling(quotas, clock=clock)
    assert throttling.note(PRODUCER_BYTE_RATE, call_at(who=ANN), 1_000) == 0
    assert throttling.note(PRODUCER_BYTE_RATE, call_at("other", who="ben"), 1_000) > 0


async def test_a_user_is_anonymous_as_long_as_nobody_is_asked():
    throttling = Throttling(quotas_with({QuotaEntity(user="ANONYMOUS"): 1.0}), clock=FakeClock())
    assert throttling.note(PRODUCER_BYTE_RATE, call_at(), 1_000) > 0


async def test_too_much_of_the_loops_time_is_waited_for_a_window_at_a_time_by_all_calls():
    clock = FakeClock()
    throttling = Throttling(quotas_with({QuotaEntity(user="ANONYMOUS"): 1.0}, REQUEST_PERCENTAGE), clock=clock)
    assert throttling.note(REQUEST_PERCENTAGE, call_at(), 1e6) == TIME_WAIT_S_MAX * 1000
    method = "/regnum.metadata.v1.MetadataService/GetMetadata"
    assert await held(throttling, call_at(), method, clock) == TIME_WAIT_S_MAX


async def test_the_turns_of_a_call_count_and_its_answer_says_how_long_to_wait():
    clock = FakeClock()
    quotas = quotas_with({QuotaEntity(client_id="c"): 1.0}, REQUEST_PERCENTAGE)
    throttling = Throttling(quotas, clock=clock)
    assert throttling.is_on
    request = log_pb2.FetchRequest()
    request.header.client_id = "c"

    async def call(seconds: float, told_ms: int = 0) -> log_pb2.FetchResponse:
        clock.skip(seconds)
        return log_pb2.FetchResponse(throttle_time_ms=told_ms)

    # 1 % of ten seconds are 100 ms.
    assert (await throttling.measured(call_at(), request, call(0.09))).throttle_time_ms == 0
    assert (await throttling.measured(call_at(), request, call(0.03))).throttle_time_ms == TIME_WAIT_S_MAX * 1000
    assert (await throttling.measured(call_at(), request, call(0.03, 5_000))).throttle_time_ms == 5_000
    assert (await throttling.measured(call_at(), log_pb2.FetchRequest(), call(0.5))).throttle_time_ms == 0


def test_each_rate_of_bytes_holds_its_own_calls():
    assert not METHODS[PRODUCER_BYTE_RATE] & METHODS[CONSUMER_BYTE_RATE]


@pytest.mark.parametrize("size", [5.0, 30.0, 300.0])
def test_who_sends_as_soon_as_his_debt_is_no_larger_than_a_message_gets_no_more_than_his_quota(size: float) -> None:
    quotas = quotas_with({QuotaEntity(user=ANN): 1.0})
    sent, now_s, lasts_s = 0.0, 0.0, 3_000.0
    while now_s < lasts_s:
        if quotas.debt(PRODUCER_BYTE_RATE, ANN, "c", now_s).value <= size:
            quotas.wait_s(PRODUCER_BYTE_RATE, ANN, "c", size, now_s)
            sent += size
        now_s += 0.5
    # Two messages may be beyond it, and what fits into the windows.
    assert lasts_s - size <= sent <= lasts_s + 2 * size + DEFAULT_WINDOWS.span_s


def test_nobody_owes_for_longer_than_he_is_ever_told_to_wait() -> None:
    quotas = quotas_with({QuotaEntity(user=ANN): 0.001})
    for _ in range(10):
        quotas.wait_s(PRODUCER_BYTE_RATE, ANN, "c", 1e9, 5.0)
    assert quotas.debt(PRODUCER_BYTE_RATE, ANN, "c", 5.0).wait_s == WAIT_S_MAX
