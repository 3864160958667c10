"""Rates over sliding windows: Kafka's own examples, and what odd clocks and windows do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.limits.rates import WAIT_S_MAX, SampledRate
from regnum_model.bucket import Windows

WINDOWS = Windows(num=11, size_s=1)


def waits(rate: SampledRate, value: float, bound: float, now_s: float) -> float:
    rate.record(value, now_s, WINDOWS)
    return rate.wait_s(bound, now_s, WINDOWS)


def test_a_spike_after_ten_seconds_below_the_bound_waits_as_in_kafka():
    """ClientQuotaManagerTest.testQuotaViolation."""
    now_s = 1_000.0
    rate = SampledRate(now_s)
    for _ in range(10):
        assert waits(rate, 400, 500, now_s) == 0.0
        now_s += 1.0
    now_s += 0.5
    assert waits(rate, 2_300, 500, now_s) == pytest.approx(2.1)
    # It goes on being above, until the spike has left the windows.
    now_s += 2.1
    for _ in range(10):
        waits(rate, 400, 500, now_s)
        now_s += 1.0
    assert waits(rate, 0, 500, now_s) == 0.0


def test_a_share_of_the_time_waits_as_in_kafka():
    """ClientQuotaManagerTest.testRequestPercentageQuotaViolation: 1 % is 10 ms in each second."""
    now_s = 1_000.0
    rate = SampledRate(now_s)
    for _ in range(10):
        assert waits(rate, 0.4, 1, now_s) == 0.0
        now_s += 1.0
    now_s += 0.5
    assert waits(rate, 6.71, 1, now_s) == pytest.approx(0.210)


def test_the_first_burst_is_measured_over_all_but_one_window():
    rate = SampledRate(5.0)
    assert waits(rate, 10_000, 100, 5.0) == pytest.approx(90.0)


def test_whoever_did_nothing_for_all_windows_begins_anew():
    rate = SampledRate(5.0)
    rate.record(1e12, 5.0, WINDOWS)
    assert rate.measure(16.0, WINDOWS) == 0.0
    assert rate.wait_s(1.0, 16.0, WINDOWS) == 0.0


def test_nobody_waits_for_longer_than_an_hour():
    rate = SampledRate(5.0)
    assert waits(rate, 1e18, 1e-6, 5.0) == WAIT_S_MAX


@given(
    st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 10_000)), min_size=1, max_size=100),
    st.integers(2, 20),
    st.integers(1, 5),
)
def test_a_client_that_waits_as_told_does_at_most_twice_its_bound_in_the_long_run(steps, num, size_s):
    """Twice, because windows forget: a burst of almost two spans is owed for one span only, as in Kafka."""
    windows = Windows(num=num, size_s=size_s)
    rate, now_s, bound, total = SampledRate(100.0), 100.0, 500.0, 0
    for pause_s, value in steps:
        now_s += pause_s
        rate.record(value, now_s, windows)
        before, total = total, total + value
        now_s += rate.wait_s(bound, now_s, windows)
        assert before <= 2 * bound * (now_s - 100.0 + windows.span_s)


def test_a_burst_that_its_windows_forget_is_paid_for_by_half_as_in_kafka():
    """The worst case of the property above, so that it is known and not discovered."""
    windows = Windows(num=11, size_s=1)
    rate, now_s, bound, total = SampledRate(0.0), 0.0, 500.0, 0
    for _ in range(100):
        rate.record(bound * 21, now_s, windows)
        total += int(bound * 21)
        now_s += rate.wait_s(bound, now_s, windows)
    assert total / now_s == pytest.approx(bound * 21 / 11)


def test_it_holds_no_more_than_its_windows_whatever_comes():
    rate = SampledRate(0.0)
    for number in range(100_000):
        rate.record(1, number * 0.7, WINDOWS)
    assert len(rate._samples) <= WINDOWS.num
