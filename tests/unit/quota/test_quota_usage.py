"""What is measured of buckets: Kafka's rates over sliding windows, in bounded memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.bucket import Limit, Windows
from regnum_model.quota_matching import BucketKey
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_quota.admission import BUCKETS_MAX, Admission, Ledger, Mode
from regnum_quota.usage import IDLE_S, SAMPLES_MAX, Usage, UsageBook

ANN = BucketKey("ann", None)
BOB = BucketKey("bob", None)
ELEVEN = Windows()


def book(windows: Windows = ELEVEN, *, entries_max: int = 10) -> UsageBook:
    return UsageBook(entries_max=entries_max, windows=windows)


def charge(of: UsageBook, permits: int, now_s: float, *, key: BucketKey = ANN, refused: int = 0, wait: int = 0) -> None:
    of.record(key, charged=permits, refused=refused, throttle_ms=wait, now_s=now_s)


def usage(of: UsageBook, now_s: float, key: BucketKey = ANN) -> Usage:
    found = of.of(key, now_s)
    assert found is not None
    return found


def test_a_peak_after_quiet_is_spread_over_the_windows_and_ends_with_them() -> None:
    """The example in the module's head."""
    of = book()
    charge(of, 30, 100.0)
    assert usage(of, 100.0).rate == 3.0
    assert usage(of, 105.5).rate == pytest.approx(30 / 10.5)
    assert usage(of, 110.9).rate == pytest.approx(30 / 10.9)
    assert usage(of, 111.0).rate == 0.0


def test_a_steady_stream_is_measured_as_what_it_is() -> None:
    of = book()
    for tenth in range(600):
        charge(of, 2, tenth / 10)
    assert usage(of, 60.0).rate == pytest.approx(20.0, rel=0.1)


def test_throttle_times_are_averaged_over_those_who_were_told_to_wait() -> None:
    of = book()
    charge(of, 5, 0.0)
    charge(of, 0, 0.5, refused=8, wait=1_000)
    charge(of, 0, 1.5, refused=2, wait=3_000)
    found = usage(of, 2.0)
    assert (found.throttle_ms, found.refused_rate, found.rate) == (2_000.0, 1.0, 0.5)
    assert usage(of, 20.0).throttle_ms == 0.0


def test_what_nobody_used_for_an_hour_is_dropped() -> None:
    of = book()
    charge(of, 1, 0.0)
    charge(of, 1, 10.0, key=BOB)
    assert of.in_use(IDLE_S) == (BOB, ANN)
    assert of.in_use(IDLE_S + 1.0) == (BOB,)
    assert of.of(ANN, IDLE_S + 1.0) is None
    charge(of, 1, IDLE_S + 1.0, key=BOB)
    assert len(of) == 1


def test_the_least_recently_used_goes_when_there_are_too_many() -> None:
    of = book(entries_max=2)
    for key in (ANN, BOB, ANN, BucketKey("eve", None)):
        charge(of, 1, 0.0, key=key)
    assert of.in_use(0.0) == (BucketKey("eve", None), ANN)


def test_more_windows_than_are_kept_are_measured_over_the_same_time() -> None:
    of = book(Windows(num=100, size_s=2))
    for second in range(400):
        charge(of, 3, float(second))
    assert usage(of, 400.0).rate == pytest.approx(3.0, rel=0.1)
    assert len(of._recorded[ANN].samples) <= SAMPLES_MAX


def test_other_windows_count_from_the_next_look_on() -> None:
    of = book(Windows(num=2, size_s=1))
    charge(of, 8, 0.0)
    assert usage(of, 0.0).rate == 8.0
    of.measure_over(Windows(num=5, size_s=1))
    assert usage(of, 0.0).rate == 2.0


@given(
    st.builds(Windows, num=st.integers(1, 60), size_s=st.integers(1, 20)),
    st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(0, 1_000)), min_size=1, max_size=60),
)
def test_a_rate_never_counts_anything_twice_nor_anything_older_than_the_windows(
    windows: Windows, steps: list[tuple[float, int]]
) -> None:
    of, now_s = book(windows), 0.0
    events: list[tuple[float, int]] = []
    for pause_s, permits in steps:
        now_s += pause_s
        charge(of, permits, now_s)
        events.append((now_s, permits))
        sample_s = windows.span_s / min(windows.num, SAMPLES_MAX)
        within = sum(count for at_s, count in events if now_s - at_s < windows.span_s + sample_s)
        least_s = max(windows.span_s - sample_s, sample_s)
        assert 0 <= usage(of, now_s).rate <= within / least_s * (1 + 1e-9)


def test_a_ledger_measures_what_it_charges_and_what_it_refuses_once() -> None:
    ledger = Ledger({}, active_since_s=0.0)
    ledger.set_limits({QuotaEntity(user="ann"): Limit(rate=10.0, burst=100.0)}, 0.0)
    request = Admission(request_id="r", user="ann", client_id="", mode=Mode.STRICT, permits=(60, 60, 60))
    ledger.judge(request, 0.0)
    found = ledger.usage(ANN, 0.0)
    assert found is not None
    assert (found.usage.rate, found.usage.refused_rate, found.usage.throttle_ms) == (12.0, 6.0, 2_000.0)
    assert (found.bucket.tokens, found.limit.rate) == (-20.0, 10.0)
    ledger.judge(request, 0.0)
    again = ledger.usage(ANN, 0.0)
    assert again is not None
    assert again.usage.rate == 12.0, "a repeat is not charged, and not counted as if it were"
    ledger.set_limits({}, 0.0)
    assert ledger.usage(ANN, 0.0) is None, "a quota that was taken away is not shown"


@pytest.mark.full
def test_a_hundred_thousand_client_ids_fill_no_more_than_what_is_kept_of_them() -> None:
    """Hostile: a new client id of 250 characters in each request, each with a quota and a bucket of its own."""
    ledger = Ledger({}, active_since_s=0.0, windows=Windows(num=100))
    ledger.set_limits({QuotaEntity(client_id=DEFAULT): Limit(rate=1.0, burst=1.0)}, 0.0)
    tracemalloc.start()
    for number in range(100_000):
        client = f"{number:0250}"
        ledger.judge(
            Admission(request_id=client[-20:], user="ann", client_id=client, mode=Mode.STRICT, permits=(1,)),
            number * 0.001,
        )
    filled, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ledger.bucket_count == BUCKETS_MAX
    assert len(ledger.in_use(100.0)) == BUCKETS_MAX
    # 15.5 MiB, and the same after 250,000; all of them would take 80.
    assert filled < 20 * 2**20
