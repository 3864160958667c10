"""The token bucket of KIP-599: its vectors, and what holds for every sequence of requests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.bucket import DEFAULT_BURST_S, Bucket, Limit, charge, empty, full, is_exhausted, refill, wait_ms

FIVE = Limit(rate=5.0, burst=100.0)
TEN = Limit(rate=10.0, burst=100.0)

LIMITS = st.builds(
    lambda rate, burst: Limit(rate=rate, burst=burst),
    st.floats(0.01, 1_000.0),
    st.floats(1.0, 10_000.0),
)
START_S = st.floats(0.0, 100_000.0)
STEPS = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 500)), min_size=1, max_size=40)


@pytest.mark.parametrize("start_s", [0.0, 1_700_000_000.0])
def test_recording(start_s: float) -> None:
    bucket = refill(full(FIVE, start_s), FIVE, start_s)
    assert bucket.tokens == 100
    bucket = charge(bucket, FIVE, 60, start_s)
    assert bucket.tokens == 40
    bucket = charge(bucket, FIVE, 5, start_s + 2)
    assert bucket.tokens == pytest.approx(45)
    bucket = charge(bucket, FIVE, 60, start_s + 4)
    assert bucket.tokens == pytest.approx(-5)


def test_a_burst_above_the_burst_is_paid_for_afterwards() -> None:
    limit = Limit(rate=5.0, burst=500.0)
    bucket = charge(full(limit, 0.0), limit, 560, 0.0)
    assert (bucket.tokens, wait_ms(bucket, limit)) == (-60, 12_000)


@pytest.mark.parametrize(("tokens", "throttle_ms"), [(0.0, 0), (-5.0, 500), (-10.0, 1_000), (7.0, 0)])
def test_the_wait_of_a_debtor(tokens: float, throttle_ms: int) -> None:
    assert wait_ms(Bucket(tokens, 0.0), TEN) == throttle_ms


def test_nothing_left_is_not_a_debt() -> None:
    assert not is_exhausted(Bucket(0.0, 0.0))
    assert is_exhausted(Bucket(-0.01, 0.0))


def test_requests_at_the_rate_are_never_throttled() -> None:
    bucket, now_s = full(TEN, 0.0), 0.0
    for _ in range(10):
        assert wait_ms(bucket, TEN) == 0
        bucket = charge(bucket, TEN, 10, now_s)
        now_s += 1.0
    bucket = charge(bucket, TEN, 110, now_s)
    assert (bucket.tokens, wait_ms(bucket, TEN)) == (pytest.approx(-10), 1_000)
    assert not is_exhausted(refill(bucket, TEN, now_s + 1.0))


def test_a_new_bucket_is_what_it_is_made_as_whatever_the_clock_says() -> None:
    assert full(FIVE, 0.0) == Bucket(100.0, 0.0)
    assert empty(0.0) == Bucket(0.0, 0.0)
    assert refill(empty(3.0), FIVE, 5.0).tokens == 10


def test_the_clock_going_back_gives_nothing_and_takes_nothing() -> None:
    bucket = charge(full(FIVE, 10.0), FIVE, 60, 10.0)
    assert refill(bucket, FIVE, 9.0) == bucket
    assert refill(refill(bucket, FIVE, 9.0), FIVE, 12.0).tokens == pytest.approx(50)


def test_a_smaller_burst_takes_what_is_above_it_at_once() -> None:
    smaller = Limit(rate=5.0, burst=20.0)
    assert refill(full(FIVE, 1.0), smaller, 1.0).tokens == 20


def test_giving_back_stops_at_the_burst() -> None:
    assert charge(full(FIVE, 0.0), FIVE, -30, 0.0).tokens == 100


def test_the_burst_without_one_is_kafkas() -> None:
    assert DEFAULT_BURST_S == 11


@given(LIMITS, START_S, STEPS)
def test_admitted_in_any_window_is_at_most_burst_and_inflow_and_one_request(
    limit: Limit, start_s: float, steps: list[tuple[float, int]]
) -> None:
    bucket, now_s = full(limit, start_s), start_s
    admitted: list[tuple[float, int]] = []
    for pause_s, permits in steps:
        now_s += pause_s
        bucket = refill(bucket, limit, now_s)
        if not is_exhausted(bucket):
            bucket = charge(bucket, limit, permits, now_s)
            admitted.append((now_s, permits))
    largest = max((permits for _, permits in admitted), default=0)
    for first, (since_s, _) in enumerate(admitted):
        taken = 0
        for at_s, permits in admitted[first:]:
            taken += permits
            assert taken <= limit.burst + limit.rate * (at_s - since_s) + largest + 1e-3


@given(LIMITS, START_S, STEPS)
def test_tokens_stay_between_one_request_of_debt_and_the_burst(
    limit: Limit, start_s: float, steps: list[tuple[float, int]]
) -> None:
    bucket, now_s = full(limit, start_s), start_s
    for pause_s, permits in steps:
        now_s += pause_s
        bucket = refill(bucket, limit, now_s)
        if not is_exhausted(bucket):
            bucket = charge(bucket, limit, permits, now_s)
        assert -500 - 1e-3 <= bucket.tokens <= limit.burst


@given(LIMITS, START_S, st.floats(-1e6, -0.01))
def test_who_waits_as_told_is_not_refused_again_and_who_waits_less_is(
    limit: Limit, start_s: float, tokens: float
) -> None:
    debtor = Bucket(tokens, start_s)
    wait = wait_ms(debtor, limit)
    assert not is_exhausted(refill(debtor, limit, start_s + wait / 1000))
    assert wait == math.ceil((-tokens - 5e-7) / limit.rate * 1000)
    assert is_exhausted(refill(debtor, limit, start_s + (wait - 2) / 1000)) or limit.rate * 0.002 > -tokens
