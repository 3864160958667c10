"""Admission while no quota process answers (safety rule S21): decisions only."""

import pytest
from regnum_election.admission.kept_buckets import BUCKETS_MAX, KeptBuckets
from regnum_election.admission.stand_in import Account, QuotaStandIn
from regnum_model.bucket import Bucket, Limit
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey
from regnum_model.quotas import DEFAULT, QuotaEntity

ANN = Account(user="ann", client_id="app", strict=True)
BOB = Account(user="bob", client_id="app", strict=True)
ANN_KEY = BucketKey("ann", None)
BOB_KEY = BucketKey("bob", None)
FIVE = Limit(rate=5.0, burst=50.0)
EACH = {QuotaEntity(user=DEFAULT): FIVE}


def kept(**tokens: float) -> KeptBuckets:
    """Buckets of users, as reported at 0 s."""
    found = KeptBuckets()
    for user, left in tokens.items():
        found.reported(BucketKey(user, None), Bucket(left, 0.0))
    return found


def acting(known: KeptBuckets, *, now_s: float = 0.0, limit: Limit | None = None) -> QuotaStandIn:
    stand_in = QuotaStandIn(known, limit=limit)
    stand_in.begin(EACH, now_s)
    return stand_in


def test_it_begins_where_the_fewest_tokens_are_known() -> None:
    """The example in the module's head."""
    stand_in = acting(kept(ann=20.0), now_s=2.0)
    verdict = stand_in.judge(EACH, ANN, [20, 20, 20], 2.0)
    assert verdict.admitted == (True, True, False)
    assert verdict.throttle_ms == 2_000


def test_it_begins_empty_when_nothing_is_known() -> None:
    stand_in = acting(kept())
    assert stand_in.judge(EACH, ANN, [1, 1], 0.0).admitted == (True, False)
    assert stand_in.judge(EACH, BOB, [1], 0.1).admitted == (False,)
    assert stand_in.judge(EACH, BOB, [1], 0.2).admitted == (True,)


def test_one_bucket_is_for_everybody() -> None:
    stand_in = acting(kept(ann=50.0, bob=50.0))
    assert stand_in.judge(EACH, ANN, [51], 0.0).admitted == (True,)
    refused = stand_in.judge(EACH, BOB, [1], 0.0)
    assert (refused.admitted, refused.throttle_ms) == ((False,), 200)


def test_a_debtor_is_held_up_and_nobody_with_him() -> None:
    stand_in = acting(kept(ann=-1_000.0, bob=50.0))
    assert stand_in.judge(EACH, BOB, [1], 0.0).admitted == (True,)
    refused = stand_in.judge(EACH, ANN, [1], 100.0)
    assert (refused.admitted, refused.throttle_ms) == ((False,), 100_000)


def test_what_is_admitted_is_charged_to_what_is_kept() -> None:
    known = kept(ann=20.0, bob=30.0)
    stand_in = acting(known)
    stand_in.judge(EACH, ANN, [15], 1.0)
    assert known.get(ANN_KEY) == Bucket(10.0, 1.0)
    assert known.get(BOB_KEY) == Bucket(30.0, 0.0)
    assert known.has_charges


def test_what_is_refused_is_charged_to_nobody() -> None:
    known = kept(ann=-5.0)
    stand_in = acting(known)
    assert stand_in.judge(EACH, ANN, [10], 0.5).admitted == (False,)
    assert known.get(ANN_KEY) == Bucket(-5.0, 0.0)
    assert not known.has_charges


def test_whoever_may_not_be_refused_is_charged_and_told() -> None:
    known = kept(ann=0.0)
    stand_in = acting(known)
    old = Account(user="ann", client_id="app", strict=False)
    verdict = stand_in.judge(EACH, old, [30, 30], 0.0)
    assert (verdict.admitted, verdict.throttle_ms) == ((True, True), 12_000)
    assert known.get(ANN_KEY) == Bucket(-60.0, 0.0)


def test_those_without_a_quota_are_admitted() -> None:
    only_ann = {QuotaEntity(user="ann"): FIVE}
    stand_in = QuotaStandIn(kept())
    stand_in.begin(only_ann, 0.0)
    verdict = stand_in.judge(only_ann, BOB, [10_000], 0.0)
    assert (verdict.admitted, verdict.throttle_ms) == ((True,), 0)
    assert stand_in.judge(only_ann, ANN, [1], 0.0).admitted == (True,)


def test_the_common_bucket_is_as_large_as_the_largest_quota_or_as_the_settings_say() -> None:
    limits = {
        QuotaEntity(user="ann"): Limit(rate=1.0, burst=100.0),
        QuotaEntity(user="bob"): Limit(rate=9.0, burst=9.0),
    }
    for limit, after_100_s in ((None, 100), (Limit(rate=1.0, burst=7.0), 7)):
        stand_in = QuotaStandIn(kept(ann=100.0), limit=limit)
        stand_in.begin(limits, 0.0)
        verdict = stand_in.judge(limits, ANN, [1] * 200, 100.0)
        assert sum(verdict.admitted) == after_100_s + 1


def test_the_cluster_quota_counts_besides() -> None:
    limits = {**EACH, QuotaEntity(): Limit(rate=1.0, burst=10.0)}
    known = kept(ann=50.0, bob=50.0)
    known.reported(CLUSTER_KEY, Bucket(5.0, 0.0))
    stand_in = QuotaStandIn(known, limit=Limit(rate=1_000.0, burst=1_000.0))
    stand_in.begin(limits, 0.0)
    assert sum(stand_in.judge(limits, ANN, [1] * 20, 0.0).admitted) == 6
    assert stand_in.judge(limits, BOB, [1], 0.0).admitted == (False,)


def test_a_quota_set_meanwhile_begins_full() -> None:
    stand_in = acting(kept(ann=50.0), limit=Limit(rate=1_000.0, burst=1_000.0))
    limits = {**EACH, QuotaEntity(user="bob"): FIVE}
    assert sum(stand_in.judge(limits, BOB, [1] * 100, 1.0).admitted) == 51


def test_a_second_absence_does_not_hand_out_the_burst_again() -> None:
    known = kept(ann=50.0, bob=50.0)
    stand_in = acting(known)
    stand_in.judge(EACH, ANN, [60], 0.0)
    report = stand_in.end(2.0)
    assert (report.absent_s, report.admitted, report.refused) == (2.0, 1, 0)
    known.reported(ANN_KEY, Bucket(50.0, 2.0))
    stand_in.begin(EACH, 2.0)
    # -10 + 2 s x 5: nothing is left for anybody.
    assert stand_in.judge(EACH, BOB, [1, 1], 2.0).admitted == (True, False)


def test_it_judges_only_while_nobody_else_does() -> None:
    stand_in = QuotaStandIn(kept())
    assert not stand_in.is_acting
    with pytest.raises(AssertionError):
        stand_in.judge(EACH, ANN, [1], 0.0)
    stand_in.begin(EACH, 0.0)
    assert stand_in.is_acting
    stand_in.end(1.0)
    with pytest.raises(AssertionError):
        stand_in.end(1.0)


@pytest.mark.parametrize("step_s", [0.01, 0.1, 0.7])
def test_rate_times_time_and_one_burst_and_one_request_is_the_most(step_s: float) -> None:
    stand_in = acting(kept(ann=50.0))
    now_s, admitted = 0.0, 0
    while now_s < 60.0:
        admitted += sum(stand_in.judge(EACH, ANN, [3] * 5, now_s).admitted) * 3
        now_s += step_s
    assert 50 + 5 * 59 <= admitted <= 50 + 5 * 60 + 3


def test_what_was_charged_after_the_snapshot_is_still_to_be_told() -> None:
    known = kept(ann=50.0, bob=50.0)
    known.charged(ANN_KEY, Bucket(40.0, 0.0))
    known.charged(BOB_KEY, Bucket(40.0, 0.0))
    snapshot = known.all()
    known.charged(ANN_KEY, Bucket(30.0, 0.0))
    known.handed_over(snapshot)
    assert known.has_charges
    known.handed_over(known.all())
    assert not known.has_charges


def test_so_many_buckets_are_kept_and_no_more() -> None:
    known = KeptBuckets()
    known.charged(BucketKey("first", None), Bucket(0.0, 0.0))
    for number in range(BUCKETS_MAX):
        known.reported(BucketKey(f"user-{number}", None), Bucket(0.0, 0.0))
    assert len(known) == BUCKETS_MAX
    assert known.get(BucketKey("first", None)) is None
    assert not known.has_charges


def test_a_changed_quota_fills_what_is_kept_from_then_on() -> None:
    known = kept(ann=-100.0, bob=10.0)
    known.charged(BOB_KEY, Bucket(10.0, 0.0))
    faster = {QuotaEntity(user=DEFAULT): Limit(rate=100.0, burst=1_000.0)}
    known.limits_changed(EACH, faster, 10.0)
    assert known.get(ANN_KEY) == Bucket(-50.0, 10.0)
    assert known.get(BOB_KEY) == Bucket(50.0, 10.0)
    known.limits_changed(faster, dict(faster), 20.0)
    assert known.get(ANN_KEY) == Bucket(-50.0, 10.0)
    known.limits_changed(faster, {QuotaEntity(user="ann"): Limit(rate=100.0, burst=20.0)}, 20.0)
    assert known.get(ANN_KEY) == Bucket(20.0, 20.0)
    assert known.get(BOB_KEY) is None
    assert not known.has_charges


def test_exempt_users_pass_and_are_not_charged() -> None:
    known = kept(ann=-50.0, bob=0.0)
    stand_in = QuotaStandIn(known, exempt={"ann"})
    stand_in.begin(EACH, 0.0)
    verdict = stand_in.judge(EACH, ANN, [1_000, 1_000], 0.0)
    assert (verdict.admitted, verdict.throttle_ms) == ((True, True), 0)
    assert known.get(ANN_KEY) == Bucket(-50.0, 0.0)
    assert not known.has_charges
    assert stand_in.judge(EACH, BOB, [1, 1], 0.0).admitted == (True, False), "and nobody else is"
