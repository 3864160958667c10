"""Settings of Spark that a run is given."""

from regnum_failover.session import SUBMITTED_SETTINGS, unnamed


def test_what_a_submission_names_stays_as_it_is():
    assert unnamed(lambda _key: False) == SUBMITTED_SETTINGS
    assert unnamed({"spark.sql.shuffle.partitions": "64"}.__contains__) == {}
