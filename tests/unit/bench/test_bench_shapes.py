"""Shapes: what they refuse, what templates make of them, where replicas go."""

from collections import Counter

import pytest
from regnum_bench.benchmarks import ALL
from regnum_bench.shape import Shape, ShapeError, fill, placed
from regnum_bench.sizes import SIZES, jobs


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"brokers": 2}, "3 replicas do not fit 2 brokers"),
        ({"topics": 0}, "topics 0 is too small"),
        ({"affected": 1_001}, "1001 affected partitions do not fit 1000"),
        ({"coordination": "consul"}, "no store 'consul'"),
        ({"rate": -1.0}, "rate -1.0 is too small"),
    ],
)
def test_a_shape_that_cannot_be_measured_is_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        Shape().changed(values)


def test_a_total_is_reached_by_the_number_of_topics() -> None:
    assert Shape().with_total(15_000).topics == 1_500
    with pytest.raises(ShapeError, match="no whole number of topics of 10"):
        Shape().with_total(15_001)


def test_a_template_gets_what_the_shape_has() -> None:
    shape = Shape(topics=500, partitions=4, rate=2.5)
    words = fill("peer storm --topics {topics} --all {partitions_total} --rate {rate} 'a b' {{}}", shape)
    assert words == ("peer", "storm", "--topics", "500", "--all", "2000", "--rate", "2.5", "a b", "{}")


@pytest.mark.parametrize("template", ["peer {topic}", "peer {", "peer {}", "peer 'x", "  "])
def test_a_template_that_names_what_no_shape_has_is_refused(template: str) -> None:
    with pytest.raises(ShapeError):
        fill(template, Shape())


def test_the_victim_leads_exactly_the_affected_partitions() -> None:
    shape = Shape(brokers=4, topics=10, partitions=10, affected=33)
    by_hand = placed(shape, (1, 2, 3, 4), victim=2)
    replicas = [by_hand[name][number] for name in shape.names for number in range(10)]
    assert [brokers[0] == 2 for brokers in replicas] == [True] * 33 + [False] * 67
    assert all(len(set(brokers)) == 3 for brokers in replicas)
    # With a broker to spare, its death is about nothing else.
    assert not any(2 in brokers for brokers in replicas[33:])
    leaders = Counter(brokers[0] for brokers in replicas[33:])
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_without_a_broker_to_spare_the_victim_follows_the_others() -> None:
    by_hand = placed(Shape(topics=2, affected=5), (1, 2, 3), victim=1)
    assert all(sorted(brokers) == [1, 2, 3] for topic in by_hand.values() for brokers in topic.values())


@pytest.mark.parametrize("size", list(SIZES))
def test_every_size_has_every_benchmark_on_both_stores(size: str) -> None:
    found = Counter((job.benchmark, job.shape.coordination) for job in jobs(size, stores=("etcd", "zookeeper")))
    assert set(found) == {(one.name, store) for one in ALL for store in ("etcd", "zookeeper")}


def test_full_shows_every_growth_that_is_promised() -> None:
    grown = {(job.benchmark, job.over): job.sizes for job in jobs("full", stores=("etcd",)) if job.over}
    assert grown["failover", "affected"][-1] == 20_000
    assert grown["failover", "partitions_total"] == (1_000, 15_000, 50_000)
    assert grown["succession", "partitions_total"] == (1_000, 15_000, 50_000)
    assert (grown["storm", "topics"][0], grown["storm", "topics"][-1]) == (500, 5_000)


def test_only_what_is_asked_for_runs() -> None:
    assert {job.benchmark for job in jobs("quick", stores=("etcd",), only=("storm",))} == {"storm"}
