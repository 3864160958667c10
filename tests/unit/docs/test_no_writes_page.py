"""docs/operations/no_writes.md is the declared ways in which nothing can be written, word for word."""

import pytest
from regnum_client import EventKind
from regnum_testing.health_ways import GOES_ON, OF_A_CLIENT, OF_THE_CLUSTER, PAGE, Way, page
from regnum_testing.instant_alerts import Sample, expressions, is_true


def test_the_page_is_in_step_with_the_declaration() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m regnum_testing.health_ways --write"


@pytest.mark.parametrize("way", [*OF_THE_CLUSTER, *GOES_ON], ids=lambda way: way.name)
def test_a_way_names_events_and_alerts_that_there_are(way: Way) -> None:
    assert way.status, "whatever stops the cluster is said"
    kinds = {kind.value for kind in EventKind}
    assert all(one.partition(":")[0] in kinds for one in way.event.split("|") if one)
    is_true(expressions()[way.alert], [])
    assert bool(way.client) is (way in OF_THE_CLUSTER)


def test_there_are_as_many_ways_as_were_asked_for_and_none_twice() -> None:
    assert (len(OF_THE_CLUSTER), len(OF_A_CLIENT)) == (21, 5)
    names = [one.name for one in (*OF_THE_CLUSTER, *GOES_ON, *OF_A_CLIENT)]
    assert len(set(names)) == len(names)


def test_what_is_a_clients_own_is_said_by_its_error_alone() -> None:
    assert all(one.client and not (one.status or one.event or one.alert) for one in OF_A_CLIENT)


def test_an_expression_is_true_of_what_it_says() -> None:
    samples: list[Sample] = [
        ("up", {"instance": "a", "kind": "x"}, 1.0),
        ("up", {"instance": "b", "kind": "y"}, 0.0),
        ("all", {"instance": "a"}, 20.0),
        ("all", {"instance": "b"}, 5.0),
    ]
    assert is_true("min by (instance) (up) == 0", samples)
    assert not is_true("max(up) > 1", samples)
    assert is_true('max(up{kind="x"}) > 0', samples)
    assert not is_true('max(up{kind="z"}) < 1', samples), "of no series nothing is true"
    assert is_true("sum(gone or 0 * up) < 1", samples)
    assert not is_true("sum(up or 0 * all) < 1", samples)
    assert not is_true("sum(gone or 0 * lost) < 1", samples)
    assert is_true("min by (instance) (up / all) < 0.01", samples)
    assert is_true("max(abs(down)) > 4", [("down", {"instance": "a"}, -5.0)])
    assert is_true("sum(gone or 0 * up) < 1 and on (cluster) sum(up) > 0", samples)
    assert not is_true("sum(gone or 0 * up) < 1 and on (cluster) sum(up) > 1", samples)
    with pytest.raises(ValueError, match="history"):
        is_true("rate(up[5m]) > 1", samples)
