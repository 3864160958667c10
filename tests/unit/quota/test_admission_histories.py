"""Requests, repeats, changes, take-overs and crashes in any order: admitted is never more than quotas allow."""

from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from regnum_model.bucket import Bucket, Limit
from regnum_model.quota_matching import BucketKey, limits_on
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_quota.admission import Admission, Ledger, Mode
from regnum_testing.admissions import ANN, ledger, request

CLUSTER = QuotaEntity()


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
