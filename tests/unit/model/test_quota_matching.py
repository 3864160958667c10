"""Which quota counts and which bucket is drawn on: eight levels, and the cluster besides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.bucket import Limit
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey, limit_of, limits_on, match
from regnum_model.quotas import DEFAULT, QuotaEntity

PAIR, USER, CLIENT = BucketKey("u", "c"), BucketKey("u", None), BucketKey(None, "c")

LEVELS = [
    (QuotaEntity(user="u", client_id="c"), PAIR),
    (QuotaEntity(user="u", client_id=DEFAULT), PAIR),
    (QuotaEntity(user="u"), USER),
    (QuotaEntity(user=DEFAULT, client_id="c"), PAIR),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), PAIR),
    (QuotaEntity(user=DEFAULT), USER),
    (QuotaEntity(client_id="c"), CLIENT),
    (QuotaEntity(client_id=DEFAULT), CLIENT),
]
"""From the most to the least specific."""

ALL = {entity: Limit(rate=float(level), burst=1.0) for level, (entity, _) in enumerate(LEVELS, start=1)}
OTHERS = {
    QuotaEntity(user="x", client_id="c"): Limit(rate=91.0, burst=1.0),
    QuotaEntity(user="x"): Limit(rate=92.0, burst=1.0),
    QuotaEntity(client_id="x"): Limit(rate=93.0, burst=1.0),
}
TABLES = st.dictionaries(
    st.sampled_from([*ALL, *OTHERS, QuotaEntity()]), st.builds(Limit, rate=st.floats(1, 9), burst=st.just(1.0))
)


@pytest.mark.parametrize("level", range(1, 9))
def test_the_most_specific_quota_counts(level: int) -> None:
    entity, key = LEVELS[level - 1]
    left = {other: limit for other, limit in ALL.items() if limit.rate >= level}
    found = match({**OTHERS, **left}, "u", "c")
    assert found is not None
    assert (found.entity, found.key, found.limit.rate) == (entity, key, level)


def test_everyone_under_a_default_has_a_bucket_of_his_own() -> None:
    by_user = {QuotaEntity(user=DEFAULT): Limit(rate=1.0, burst=1.0)}
    assert [found.key for user in "ab" for found in limits_on(by_user, user, "c")] == [
        BucketKey("a", None),
        BucketKey("b", None),
    ]
    by_client = {QuotaEntity(client_id=DEFAULT): Limit(rate=1.0, burst=1.0)}
    assert [found.key for user in "ab" for found in limits_on(by_client, user, "c")] == [CLIENT, CLIENT]


def test_without_a_quota_nothing_counts() -> None:
    assert match(OTHERS, "u", "c") is None
    assert limits_on(OTHERS, "u", "c") == ()


def test_the_cluster_counts_besides() -> None:
    cluster = Limit(rate=50.0, burst=50.0)
    assert [found.key for found in limits_on({QuotaEntity(): cluster}, "u", "c")] == [CLUSTER_KEY]
    assert [found.key for found in limits_on({**ALL, QuotaEntity(): cluster}, "u", "c")] == [PAIR, CLUSTER_KEY]


def test_a_caller_without_a_client_id_falls_under_the_defaults() -> None:
    found = match(ALL, "u", "")
    assert found is not None
    assert (found.entity, found.key) == (QuotaEntity(user="u", client_id=DEFAULT), BucketKey("u", ""))


@given(TABLES, st.sampled_from("ux"), st.sampled_from("cx"))
def test_a_bucket_is_held_to_the_limit_of_whoever_draws_on_it(
    limits: dict[QuotaEntity, Limit], user: str, client_id: str
) -> None:
    for found in limits_on(limits, user, client_id):
        assert limit_of(limits, found.key) == found.limit


def test_a_bucket_whose_quotas_are_gone_has_no_limit() -> None:
    for key in (PAIR, USER, CLIENT, CLUSTER_KEY):
        assert limit_of({}, key) is None
        assert limit_of(OTHERS, key) is None
