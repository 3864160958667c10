"""Who is admitted, what it costs, and what a quota process may assume about the time before it (safety rule S21)."""

import tracemalloc

import pytest
from regnum_model.bucket import Bucket, Limit
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_quota.admission import Ledger, Mode, Verdict
from regnum_testing.admissions import ANN, TEN, ledger, request

ANN_KEY = BucketKey("ann", None)
CLUSTER = QuotaEntity()


def tokens(of: Ledger, now_s: float, key: BucketKey = ANN_KEY) -> float:
    ((_, bucket),) = of.state([key], now_s)
    return bucket.tokens


def outcome(verdict: Verdict) -> tuple[tuple[bool, ...], int]:
    return verdict.admitted, verdict.throttle_ms


def test_strict_admits_until_in_debt_and_tells_how_long_to_wait() -> None:
    book = ledger()
    assert outcome(book.judge(request(90), 0.0)) == ((True,), 0)
    assert tokens(book, 0.0) == 10
    assert outcome(book.judge(request(90), 0.0)) == ((True,), 0)
    assert outcome(book.judge(request(90), 0.0)) == ((False,), 8_000)
    assert outcome(book.judge(request(90), 5.0)) == ((False,), 3_000)
    assert tokens(book, 0.0) == -30
    assert outcome(book.judge(request(90), 8.0)) == ((True,), 0)
    assert tokens(book, 8.0) == -90


def test_permissive_is_always_admitted_and_always_told() -> None:
    book = ledger()
    assert outcome(book.judge(request(90, mode=Mode.PERMISSIVE), 0.0)) == ((True,), 0)
    assert outcome(book.judge(request(90, mode=Mode.PERMISSIVE), 0.0)) == ((True,), 8_000)
    assert outcome(book.judge(request(90, mode=Mode.PERMISSIVE), 0.0)) == ((True,), 17_000)


def test_requests_at_the_rate_pass_and_the_one_above_waits_a_second() -> None:
    book = ledger()
    for second in range(10):
        assert outcome(book.judge(request(10), float(second))) == ((True,), 0)
    assert outcome(book.judge(request(110), 10.0)) == ((True,), 0)
    assert outcome(book.judge(request(110), 10.0)) == ((False,), 1_000)
    assert outcome(book.judge(request(110), 11.0)) == ((True,), 0)


def test_topics_of_a_request_are_judged_one_by_one() -> None:
    book = ledger({ANN: Limit(rate=5.0, burst=50.0)})
    assert outcome(book.judge(request(30, 30, 30), 0.0)) == ((True, True, False), 2_000)


@pytest.mark.parametrize(
    ("mode", "admitted", "throttle_ms"),
    [(Mode.STRICT, (True, False), 5_000), (Mode.PERMISSIVE, (True, True), 20_000)],
)
def test_two_topics_above_the_burst(mode: Mode, admitted: tuple[bool, ...], throttle_ms: int) -> None:
    book = ledger({ANN: Limit(rate=2.0, burst=20.0)})
    assert outcome(book.judge(request(30, 30, mode=mode), 0.0)) == (admitted, throttle_ms)
    assert outcome(book.judge(request(30), throttle_ms / 1000)) == ((True,), 0)


def test_nothing_limits_those_without_a_quota() -> None:
    book = ledger()
    verdict = book.judge(request(10**9, 10**9, user="bob"), 0.0)
    assert verdict == Verdict(admitted=(True, True), throttle_ms=0, drawn_on=())
    assert book.describe(0.0) == ()


def test_no_quota_applies_to_exempt_users_not_even_the_clusters() -> None:
    book = ledger({ANN: TEN, CLUSTER: TEN}, exempt=["ann"])
    assert outcome(book.judge(request(500), 0.0)) == ((True,), 0)
    assert outcome(book.judge(request(500), 0.0)) == ((True,), 0)
    assert book.describe(0.0) == ()


def test_the_clusters_quota_counts_besides_and_the_longest_wait_is_told() -> None:
    book = ledger({QuotaEntity(user=DEFAULT): Limit(rate=100.0, burst=100.0), CLUSTER: TEN})
    assert outcome(book.judge(request(101, user="ann"), 0.0)) == ((True,), 0)
    # Bob's own bucket is full; the cluster is in debt by 1.
    verdict = book.judge(request(1, user="bob"), 0.0)
    assert (outcome(verdict), set(verdict.drawn_on)) == (((False,), 100), {BucketKey("bob", None), CLUSTER_KEY})
    assert book.state([BucketKey("bob", None)], 0.0) == ()
    assert outcome(book.judge(request(1, user="ann"), 0.0)) == ((False,), 100)


def test_free_mutations_are_refused_to_debtors_all_the_same() -> None:
    book = ledger()
    assert outcome(book.judge(request(0, 110, 0), 0.0)) == ((True, True, False), 1_000)


def test_a_request_of_nothing_is_answered_with_nothing() -> None:
    assert outcome(ledger().judge(request(), 0.0)) == ((), 0)


# Repeats.


def test_a_repeat_is_not_charged_again() -> None:
    book = ledger()
    first = book.judge(request(60, 60, 60, id="r"), 0.0)
    assert outcome(first) == ((True, True, False), 2_000)
    again = book.judge(request(60, 60, 60, id="r"), 0.0)
    assert outcome(again) == outcome(first)
    assert tokens(book, 0.0) == -20


def test_a_repeat_charges_what_was_refused_the_first_time_once_it_is_admitted() -> None:
    book = ledger()
    book.judge(request(60, 60, 60, id="r"), 0.0)
    assert outcome(book.judge(request(60, 60, 60, id="r"), 2.0)) == ((True, True, True), 0)
    assert tokens(book, 2.0) == -60
    assert outcome(book.judge(request(60, 60, 60, id="r"), 2.0)) == ((True, True, True), 0)
    assert tokens(book, 2.0) == -60


def test_a_repeat_of_a_permissive_request_is_told_to_wait_again() -> None:
    book = ledger()
    for _ in range(3):
        assert outcome(book.judge(request(120, id="r", mode=Mode.PERMISSIVE), 0.0)) == ((True,), 2_000)


def test_requests_without_an_id_and_with_other_ids_are_charged_each() -> None:
    book = ledger()
    for id in ("", "", "a", "b"):
        book.judge(request(10, id=id), 0.0)
    assert tokens(book, 0.0) == 60


def test_so_many_requests_are_remembered_and_no_more() -> None:
    book = ledger(requests_remembered=2)
    for id in ("a", "b", "a", "c", "a"):
        book.judge(request(10, id=id), 0.0)
    assert tokens(book, 0.0) == 70
    book.judge(request(10, id="b"), 0.0)
    assert tokens(book, 0.0) == 60


def test_large_requests_are_remembered_in_little_room() -> None:
    """50,000 of them are remembered for the life of a term."""
    book = ledger({ANN: Limit(rate=1e9, burst=1e9)})
    tracemalloc.start()
    try:
        for number in range(20):
            book.judge(request(*(1,) * 2_000, id=f"r{number}"), 0.0)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / 20 < 2_000


# Changes at run time.


def test_a_changed_quota_keeps_the_tokens_and_counts_the_time_before_at_the_old_rate() -> None:
    book = ledger()
    book.judge(request(150), 0.0)
    book.set_limits({ANN: Limit(rate=100.0, burst=1_000.0)}, 2.0)
    assert tokens(book, 2.0) == -30
    assert tokens(book, 3.0) == 70
    book.set_limits({ANN: Limit(rate=1.0, burst=1_000.0)}, 3.0)
    # Not asked in between: the rate of the meantime counts all the same.
    assert tokens(book, 13.0) == 80


def test_a_smaller_burst_takes_what_is_above_it() -> None:
    book = ledger()
    book.judge(request(10), 0.0)
    book.set_limits({ANN: Limit(rate=10.0, burst=20.0)}, 0.0)
    assert tokens(book, 0.0) == 20


def test_a_quota_taken_away_limits_nobody_and_is_new_when_set_again() -> None:
    book = Ledger({ANN: TEN}, active_since_s=0.0)
    book.judge(request(500, mode=Mode.PERMISSIVE), 0.0)
    book.set_limits({}, 0.0)
    assert outcome(book.judge(request(500), 0.0)) == ((True,), 0)
    assert book.describe(0.0) == ()
    book.set_limits({ANN: TEN}, 0.0)
    assert outcome(book.judge(request(100), 0.0)) == ((True,), 0)
    assert tokens(book, 0.0) == 0


def test_a_more_specific_quota_for_the_same_bucket_keeps_its_tokens() -> None:
    book = ledger({QuotaEntity(user=DEFAULT): TEN})
    book.judge(request(110), 0.0)
    book.set_limits({QuotaEntity(user=DEFAULT): TEN, ANN: Limit(rate=1.0, burst=5.0)}, 0.0)
    assert outcome(book.judge(request(1), 0.0)) == ((False,), 10_000)


def test_what_is_drawn_on_while_another_quota_is_worked_out_is_not_given_back() -> None:
    book = ledger()
    book.judge(request(50), 0.0)
    other = {ANN: Limit(rate=100.0, burst=1_000.0)}
    converted = book.converted(other, book.keys, 1.0)
    book.judge(request(40), 1.0)
    book.set_limits(other, 2.0, converted)
    # 100 - 50, + 10, - 40, + 10: each second at the rate of its time.
    assert tokens(book, 2.0) == 30


def test_an_unchanged_quota_is_left_alone() -> None:
    book = ledger()
    book.judge(request(50), 0.0)
    book.set_limits({ANN: TEN, CLUSTER: TEN}, 1.0)
    assert tokens(book, 2.0) == 70


# After a crash (safety rule S21).


def test_the_bucket_of_a_quota_that_was_there_before_starts_empty_as_of_then() -> None:
    book = Ledger({ANN: TEN}, active_since_s=50.0)
    assert outcome(book.judge(request(1, 1), 50.0)) == ((True, False), 100)
    later = Ledger({ANN: TEN}, active_since_s=50.0)
    assert tokens_after_first(later, 53.0) == 30 - 1
    much_later = Ledger({ANN: TEN}, active_since_s=50.0)
    assert tokens_after_first(much_later, 500.0) == 100 - 1


def tokens_after_first(book: Ledger, now_s: float) -> float:
    book.judge(request(1), now_s)
    return tokens(book, now_s)


def test_the_bucket_of_a_quota_set_afterwards_starts_full() -> None:
    book = Ledger({CLUSTER: TEN}, active_since_s=50.0)
    book.set_limits({CLUSTER: TEN, ANN: TEN}, 60.0)
    book.judge(request(1), 50.0)
    assert (tokens(book, 50.0), tokens(book, 50.0, CLUSTER_KEY)) == (99, -1)


def test_a_bucket_that_somebody_knows_goes_on_where_it_was() -> None:
    book = Ledger({ANN: TEN}, active_since_s=50.0)
    book.take_over(ANN_KEY, Bucket(-80.0, 49.0), 50.0)
    assert outcome(book.judge(request(1), 50.0)) == ((False,), 7_000)


def test_what_this_process_has_counted_itself_wins() -> None:
    book = Ledger({ANN: TEN}, active_since_s=50.0)
    book.take_over(ANN_KEY, Bucket(40.0, 50.0), 50.0)
    book.take_over(ANN_KEY, Bucket(90.0, 50.0), 50.0)
    book.judge(request(10), 50.0)
    book.take_over(ANN_KEY, Bucket(90.0, 50.0), 50.0)
    assert tokens(book, 50.0) == 30


def test_what_the_controller_admitted_alone_counts_when_it_tells() -> None:
    """The same process, away for a while: its own count knows nothing of the meantime."""
    book = Ledger({ANN: TEN}, active_since_s=0.0)
    book.judge(request(30), 10.0)
    book.take_over(ANN_KEY, Bucket(-60.0, 12.0), 13.0)
    assert tokens(book, 13.0) == -50
    book.take_over(ANN_KEY, Bucket(-60.0, 12.0), 13.0)
    assert tokens(book, 13.0) == -50


def test_an_answer_that_comes_back_changes_nothing() -> None:
    book = ledger()
    book.judge(request(30), 1.0)
    ((key, told),) = book.state([ANN_KEY], 1.0)
    book.judge(request(30), 2.0)
    book.take_over(key, told, 3.0)
    assert tokens(book, 3.0) == 60


def test_a_question_about_nothing_does_not_keep_a_bucket_from_being_handed_over() -> None:
    book = Ledger({ANN: TEN}, active_since_s=50.0)
    assert outcome(book.judge(request(), 50.0)) == ((), 0)
    book.take_over(ANN_KEY, Bucket(-80.0, 50.0), 50.0)
    assert tokens(book, 50.0) == -80


def test_a_bucket_that_is_handed_over_is_held_to_the_quota_of_now() -> None:
    book = Ledger({ANN: TEN}, active_since_s=50.0)
    book.take_over(ANN_KEY, Bucket(1e9, 0.0), 50.0)
    book.take_over(BucketKey("bob", None), Bucket(-5.0, 0.0), 50.0)
    assert tokens(book, 50.0) == 100
    assert book.state([BucketKey("bob", None)], 50.0) == ()


def test_a_bucket_handed_over_and_never_drawn_on_counts_the_time_before_a_change_at_the_old_rate() -> None:
    book = Ledger({ANN: TEN}, active_since_s=0.0)
    book.take_over(ANN_KEY, Bucket(-50.0, 0.0), 0.0)
    book.set_limits({ANN: Limit(rate=1.0, burst=100.0)}, 3.0)
    assert tokens(book, 3.0) == -20


def test_so_many_buckets_are_kept_and_no_more() -> None:
    book = ledger({QuotaEntity(user=DEFAULT): TEN, CLUSTER: Limit(rate=1.0, burst=100_000.0)}, buckets_max=3)
    for number in range(50):
        book.judge(request(1, user="ann"), 0.0)
        book.judge(request(1, user=f"user-{number}"), 0.0)
        book.take_over(BucketKey(f"other-{number}", None), Bucket(1.0, 0.0), 0.0)
        assert len(book.describe(0.0)) <= 3
    # Those that are drawn on again and again stay: the cluster's to the end.
    assert tokens(book, 0.0, CLUSTER_KEY) == 100_000 - 100


def test_a_debt_is_not_forgotten_because_others_come_along() -> None:
    book = ledger({QuotaEntity(user=DEFAULT): TEN}, buckets_max=3)
    book.judge(request(1_000), 0.0)
    for number in range(50):
        book.judge(request(1, user=f"user-{number}"), 1.0)
    assert len(book.describe(1.0)) == 3
    assert book.judge(request(1), 1.0).admitted == (False,)
    # Whoever has only debtors in his books forgets one all the same.
    for number in range(200):
        book.judge(request(1_000, user=f"debtor-{number}"), 1.0)
        assert len(book.describe(1.0)) == 3
