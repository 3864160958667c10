"""Who is admitted, what it costs, and what a quota process may assume about the time before it (safety rule S21)."""

import tracemalloc
from collections.abc import Mapping, Sequence
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from regnum_model.bucket import Bucket, Limit
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey, limits_on
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_quota.admission import Admission, Ledger, Mode, Verdict

ANN = QuotaEntity(user="ann")
ANN_KEY = BucketKey("ann", None)
CLUSTER = QuotaEntity()
TEN = Limit(rate=10.0, burst=100.0)


def request(*permits: int, id: str = "", user: str = "ann", client: str = "app", mode: Mode = Mode.STRICT) -> Admission:
    return Admission(request_id=id, user=user, client_id=client, mode=mode, permits=permits)


def ledger(
    limits: Mapping[QuotaEntity, Limit] | None = None,
    *,
    exempt: Sequence[str] = (),
    buckets_max: int = 1_000,
    requests_remembered: int = 1_000,
) -> Ledger:
    """One whose quotas were set after it became active at 0 s, so that its buckets start full."""
    fresh = Ledger(
        {},
        active_since_s=0.0,
        exempt=frozenset(exempt),
        buckets_max=buckets_max,
        requests_remembered=requests_remembered,
    )
    fresh.set_limits({ANN: TEN} if limits is None else limits, 0.0)
    return fresh


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


ENTITIES = (
    CLUSTER,
    ANN,
    QuotaEntity(user=DEFAULT),
    QuotaEntity(user="ann", client_id="app"),
    QuotaEntity(client_id=DEFAULT),
)
USERS = ("ann", "bob")
CLIENTS = ("app", "other")


class Quotas(RuleBasedStateMachine):
    """Requests, repeats, changes and take-overs in any order, beside a second book-keeping that is slow and plain."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.limits: dict[QuotaEntity, Limit] = {}
        self.book = Ledger({}, active_since_s=0.0)
        self.expected: dict[BucketKey, float] = {}
        """Tokens of every bucket, moved along with time."""
        self.charged: dict[str, set[int]] = {}
        self.sent: list[Admission] = []
        self.counter = 0

    def limit_of(self, key: BucketKey) -> Limit | None:
        """By looking who would draw on it."""
        for user in USERS:
            for client in CLIENTS:
                for found in limits_on(self.limits, user, client):
                    if found.key == key:
                        return found.limit
        return None

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        for key, had in self.expected.items():
            limit = self.limit_of(key)
            assert limit is not None
            self.expected[key] = min(limit.burst, had + limit.rate * seconds)

    @rule(entity=st.sampled_from(ENTITIES), rate=st.integers(1, 8), burst=st.integers(1, 60))
    def a_quota_is_set(self, entity: QuotaEntity, rate: int, burst: int) -> None:
        self.limits[entity] = Limit(rate=float(rate), burst=float(burst))
        self._changed()

    @precondition(lambda self: self.limits)
    @rule(data=st.data())
    def a_quota_is_taken_away(self, data: st.DataObject) -> None:
        del self.limits[data.draw(st.sampled_from(sorted(self.limits, key=str)))]
        self._changed()

    def _changed(self) -> None:
        self.book.set_limits(dict(self.limits), self.now_s)
        known = {key for key, _, _ in self.book.describe(self.now_s)}
        for key in tuple(self.expected):
            limit = self.limit_of(key)
            if limit is not None:
                self.expected[key] = min(limit.burst, self.expected[key])
            if key not in known or limit is None:
                # Nobody draws on it: whether it is kept for later is its own affair, but then it is not forgotten here.
                assert limit is None
                del self.expected[key]

    @rule(
        user=st.sampled_from(USERS),
        client=st.sampled_from(CLIENTS),
        permits=st.lists(st.integers(0, 30), max_size=4),
        mode=st.sampled_from(Mode),
        named=st.booleans(),
    )
    def a_request_comes(self, user: str, client: str, permits: list[int], mode: Mode, named: bool) -> None:
        self.counter += 1
        made = request(*permits, id=f"r{self.counter}" if named else "", user=user, client=client, mode=mode)
        if named:
            self.sent.append(made)
        self._judge(made)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_request_is_repeated(self, data: st.DataObject) -> None:
        self._judge(data.draw(st.sampled_from(self.sent)))

    def _judge(self, made: Admission) -> None:
        matches = limits_on(self.limits, made.user, made.client_id)
        new: list[BucketKey] = []
        had = dict(self.book.state([found.key for found in matches], self.now_s))
        for found in matches:
            if found.key in had and found.key not in self.expected:
                # Was out of use for a while, see _changed.
                self.expected[found.key] = had[found.key].tokens
            if found.key not in self.expected:
                self.expected[found.key] = found.limit.burst
                new.append(found.key)
        charged = self.charged.setdefault(made.request_id, set()) if made.request_id and matches else set()
        admitted = []
        for index, permits in enumerate(made.permits):
            in_debt = any(self.expected[found.key] < -1e-6 for found in matches)
            yes = index in charged or made.mode is Mode.PERMISSIVE or not in_debt
            if yes and index not in charged:
                charged.add(index)
                for found in matches:
                    self.expected[found.key] -= permits
            admitted.append(yes)
        verdict = self.book.judge(made, self.now_s)
        assert verdict.admitted == tuple(admitted)
        debts = [-self.expected[found.key] / found.limit.rate for found in matches]
        tells = made.mode is Mode.PERMISSIVE or not all(admitted)
        longest_ms = max([0.0, *debts]) * 1000 if tells else 0.0
        assert longest_ms - 0.01 <= verdict.throttle_ms <= longest_ms + 1.0
        for key in () if any(admitted) else new:
            # Nothing was drawn: it is as good as new.
            del self.expected[key]

    @invariant()
    def the_books_agree(self) -> None:
        for key, bucket in self.book.state(self.expected, self.now_s):
            assert bucket.tokens == pytest.approx(self.expected[key], abs=1e-6)
        assert len(self.book.state(self.expected, self.now_s)) == len(self.expected)


class TestQuotas(Quotas.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


REQUESTS = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.lists(st.integers(0, 40), max_size=4), st.booleans()), min_size=1, max_size=30
)


@given(st.floats(0.1, 50.0), st.floats(1.0, 100.0), REQUESTS)
def test_admitted_in_any_window_is_at_most_burst_and_inflow_and_one_topic(
    rate: float, burst: float, steps: list[tuple[float, list[int], bool]]
) -> None:
    """Whoever asks, in requests of several topics, some of them repeated."""
    book = ledger({CLUSTER: Limit(rate=rate, burst=burst)})
    now_s = 0.0
    admitted: list[tuple[float, int]] = []
    for number, (pause_s, permits, repeated) in enumerate(steps):
        now_s += pause_s
        made = request(*permits, id=f"r{number}", user=f"user-{number % 3}")
        verdict = book.judge(made, now_s)
        admitted += [(now_s, cost) for cost, yes in zip(permits, verdict.admitted, strict=True) if yes]
        if repeated:
            again = book.judge(made, now_s)
            newly = [late and not early for early, late in zip(verdict.admitted, again.admitted, strict=True)]
            admitted += [(now_s, cost) for cost, yes in zip(permits, newly, strict=True) if yes]
    largest = max((cost for _, cost in admitted), default=0)
    for first, (since_s, _) in enumerate(admitted):
        taken = 0
        for at_s, cost in admitted[first:]:
            taken += cost
            assert taken <= burst + rate * (at_s - since_s) + largest + 1e-3


class End(Enum):
    """What becomes of a request and of those who deal with it."""

    ANSWERED = "answered"
    ANSWER_LOST = "the answer is lost, and the request repeated"
    JUDGE_DIES = "the quota process dies without an answer, and the next one gets the request"
    JUDGE_DIES_AFTERWARDS = "it answers, and dies then"
    ALL_DIE_AFTERWARDS = "it answers, and dies with the controller, who remembered the buckets"


@given(
    st.floats(0.1, 50.0),
    st.floats(1.0, 100.0),
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.lists(st.integers(0, 40), max_size=4), st.sampled_from(End)),
        min_size=1,
        max_size=30,
    ),
)
def test_no_crash_hands_out_more_than_one_topic(
    rate: float, burst: float, steps: list[tuple[float, list[int], End]]
) -> None:
    """Admitted as the controller heard it (safety rule S21).

    A bucket of which nobody knows begins with no tokens, and no tokens admit one topic: that much a crash of all costs.
    """
    limits = {CLUSTER: Limit(rate=rate, burst=burst)}
    book, kept = ledger(limits), dict[BucketKey, Bucket]()
    now_s = 0.0
    admitted: list[tuple[float, int, int]] = []
    crashes = 0

    def ask(made: Admission) -> tuple[bool, ...]:
        for key, bucket in kept.items():
            book.take_over(key, bucket, now_s)
        verdict = book.judge(made, now_s)
        answers.update(book.state(verdict.drawn_on, now_s))
        return verdict.admitted

    for number, (pause_s, permits, end) in enumerate(steps):
        now_s += pause_s
        made, answers = request(*permits, id=f"r{number}"), dict[BucketKey, Bucket]()
        yes = ask(made)
        if end is End.ANSWER_LOST:
            yes = ask(made)
        elif end is End.JUDGE_DIES:
            answers.clear()
            book = Ledger(limits, active_since_s=now_s)
            yes = ask(made)
        kept.update(answers)
        admitted += [(now_s, cost, crashes) for cost, it_is in zip(permits, yes, strict=True) if it_is]
        if end is End.ALL_DIE_AFTERWARDS:
            kept.clear()
            crashes += 1
        if end in {End.JUDGE_DIES_AFTERWARDS, End.ALL_DIE_AFTERWARDS}:
            book = Ledger(limits, active_since_s=now_s)
    largest = max((cost for _, cost, _ in admitted), default=0)
    for first, (since_s, _, before) in enumerate(admitted):
        taken = 0
        for at_s, cost, crashed in admitted[first:]:
            taken += cost
            assert taken <= burst + rate * (at_s - since_s) + largest * (1 + crashed - before) + 1e-3
