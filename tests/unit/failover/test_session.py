"""Settings of Spark that a run is given."""

from regnum_failover.session import SUBMITTED_SETTINGS, unnamed


def test_what_a_submission_names_stays_as_it_is():
    assert unnamed(lambda _key: False, master="spark://a:7077", cores=64) == SUBMITTED_SETTINGS
    named = {"spark.sql.shuffle.partitions": "64"}.__contains__
    assert unnamed(named, master="spark://a:7077", cores=64) == {}
    assert unnamed(named, master="local[2]", cores=2) == {"spark.sql.adaptive.enabled": "false"}


def test_on_one_machine_there_is_a_partition_for_each_core():
    given = unnamed(lambda _key: False, master="local[*]", cores=6)
    assert given == {"spark.sql.shuffle.partitions": "6", "spark.sql.adaptive.enabled": "false"}
