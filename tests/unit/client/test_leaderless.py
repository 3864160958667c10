"""Topics of which a partition has no leader are asked about by themselves, soon and then less and less."""

import random
from itertools import pairwise

from regnum_client.cluster.leaderless import Leaderless


def asked_within(seconds: float) -> list[float]:
    """When a topic is asked about that has no leader for so long."""
    leaderless, chance, now_s, moments = Leaderless(), random.Random(1), 100.0, []
    leaderless.lacks("t", now_s)
    while (now_s := max(now_s, leaderless.next_s)) < 100.0 + seconds:
        assert leaderless.take(now_s, still=lambda _: True, chance=chance.random()) == ["t"]
        moments.append(now_s - 100.0)
    return moments


def test_a_partition_without_a_leader_is_asked_about_at_once_and_then_less_and_less() -> None:
    assert asked_within(0.001) == [0.0]
    assert 8 <= len(asked_within(0.2)) <= 13
    # A whole question each 20 ms were 3,000 of them, and 180,000 in an hour.
    assert len(asked_within(60.0)) < 220
    assert len(asked_within(3_600.0)) < 7_500


def test_a_leader_that_comes_back_is_known_soon() -> None:
    moments = asked_within(60.0)
    for before_s, at_s in pairwise(moments):
        assert at_s - before_s <= max(0.024, before_s * 0.06)


def test_a_topic_that_has_its_leaders_again_is_asked_about_no_more() -> None:
    leaderless = Leaderless()
    for topic in ("a", "b"):
        for _ in range(3):
            leaderless.lacks(topic, 100.0)
    assert sorted(leaderless.take(100.0, still=lambda _: True, chance=0.5)) == ["a", "b"]
    assert leaderless.take(101.0, still=lambda topic: topic == "b", chance=0.5) == ["b"]
    assert leaderless.take(102.0, still=lambda _: True, chance=0.5) == ["b"]
    leaderless.take(103.0, still=lambda _: False, chance=0.5)
    assert leaderless.next_s == float("inf")


def test_one_that_loses_its_leader_again_begins_anew() -> None:
    leaderless = Leaderless()
    leaderless.lacks("t", 100.0)
    leaderless.take(200.0, still=lambda _: True, chance=0.5)
    leaderless.take(201.0, still=lambda _: False, chance=0.5)
    leaderless.lacks("t", 300.0)
    assert leaderless.take(300.0, still=lambda _: True, chance=0.5) == ["t"]
    assert leaderless.next_s < 300.1
