"""Where partitions wait for their departure. What is looked at is counted."""

from types import MappingProxyType

import pytest
from regnum_client.cluster.view import ClusterView, TopicView
from regnum_client.producer.departures import Alarms, Departures
from regnum_client.producer.route import Route
from regnum_client.records import TopicPartition
from regnum_model.ids import BrokerId, TopicId

ONE, OTHER = BrokerId(1), BrokerId(2)
MANY = 1_000


def topic(name: str) -> TopicView:
    return TopicView(name=name, topic_id=TopicId(name), partitions=MappingProxyType({}))


def picture(*topics: TopicView, as_of_s: float = 1.0) -> ClusterView:
    return ClusterView(topics={view.name: view for view in topics}, as_of_s=as_of_s)


def at(name: str, number: int = 0) -> TopicPartition:
    return TopicPartition(name, number)


def look(
    departures: Departures, view: ClusterView, *, now_s: float = 0.0, identity: bool = True
) -> list[TopicPartition]:
    """What is looked at; all of it lines up at ``ONE``."""
    seen = []
    for partition, route in departures.look_at(view, now_s, identity=identity):
        seen.append(partition)
        departures.line_up(partition, route, ONE)
    return seen


@pytest.fixture
def route() -> Route:
    return Route(idempotent=True)


def test_a_long_line_is_looked_at_once_and_then_only_where_something_happened(route: Route) -> None:
    """A leader that takes no call keeps a thousand partitions waiting, while others come and go."""
    departures, old, new = Departures[Route](), topic("busy"), topic("free")
    view = picture(old, new)
    for number in range(MANY):
        departures.enter(at("busy", number), route)
    assert len(look(departures, view)) == MANY
    assert look(departures, view) == []
    departures.enter(at("busy", 7), route)
    assert look(departures, view) == [], "it stands in line, whatever joins it"
    departures.enter(at("free"), route)
    assert look(departures, view) == [at("free")]
    assert look(departures, picture(old, topic("free"), as_of_s=2.0)) == [at("free")], "another picture of that topic"
    assert [(leader, len(line)) for leader, line in departures.lines()] == [(ONE, MANY + 1)]
    assert len(look(departures, picture(topic("busy"), as_of_s=2.0))) == MANY + 1, "both topics are others now"


def test_lines_are_first_come_first_served(route: Route) -> None:
    departures = Departures[Route]()
    for number in range(3):
        departures.enter(at("t", number), route)
    look(departures, picture())
    ((_, line),) = departures.lines()
    first = next(iter(line))
    departures.line_up(first, route, ONE)
    assert list(line) == [at("t", 1), at("t", 2), at("t", 0)], "whoever has sent goes to the end"
    departures.line_up(at("t", 1), route, OTHER)
    assert {leader: list(line) for leader, line in departures.lines()} == {
        ONE: [at("t", 2), at("t", 0)],
        OTHER: [at("t", 1)],
    }


def test_each_waits_for_what_it_lacks_and_for_nothing_else(route: Route) -> None:
    departures, known = Departures[Route](), topic("known")
    names = ["pause", "news", "picture", "identity", "answer"]
    for name in names:
        departures.enter(at(name), route)
    before = picture(known)
    for partition, _ in departures.look_at(before, 0.0, identity=True):
        match partition.topic:
            case "pause":
                departures.wait_for_pause(partition, route, 5.0)
            case "news":
                departures.wait_for_news(partition, route)
            case "picture":
                departures.wait_for_picture(partition, route)
            case "identity":
                departures.wait_for_identity(partition, route)
            case _:
                departures.wait_for_answer(partition, route)
    assert departures.lack_picture
    assert [name for name in names if departures.lacks_news(name)] == ["news"]
    assert departures.next_pause_s == 5.0
    assert look(departures, before, now_s=4.9, identity=False) == []
    partial = picture(known, topic("other"))
    assert look(departures, partial, identity=False) == [], "an answer about other topics, as of the same moment"
    assert look(departures, partial, now_s=5.0, identity=False) == [at("pause")]
    assert departures.next_pause_s == float("inf")
    assert look(departures, partial) == [at("identity")]
    later = picture(known, topic("other"), as_of_s=2.0)
    assert look(departures, later) == [at("picture")]
    assert look(departures, picture(known, topic("news"), topic("answer"), as_of_s=2.0)) == [at("news")]
    assert not departures.lack_picture
    assert not departures.lacks_news("news")
    departures.enter(at("answer"), route)
    assert look(departures, later)[-1:] == [at("answer")], "another batch has joined; it may be a full one"


def test_news_of_a_topic_end_pauses_and_an_end_of_a_batch_does_too(route: Route) -> None:
    departures = Departures[Route]()
    for name in ("a", "b"):
        departures.enter(at(name), route)
    view = picture()
    for partition, _ in departures.look_at(view, 0.0, identity=True):
        departures.wait_for_pause(partition, route, 5.0)
    departures.enter(at("a"), route)
    assert look(departures, view) == []
    departures.enter(at("a"), route, answered=True)
    assert look(departures, view) == [at("a")]
    view = picture(topic("b"))
    assert look(departures, view) == [at("b")]
    assert look(departures, view, now_s=6.0) == [], "pauses that nobody waits for any more"


def test_a_line_that_was_emptied_comes_after_those_that_were_not(route: Route) -> None:
    """With room for one call only, every leader has its turn."""
    departures = Departures[Route]()
    for leader in (ONE, OTHER):
        departures.line_up(at("t", leader), route, leader)
    departures.wait_for_answer(at("t", ONE), route)
    departures.line_up(at("t", ONE), route, ONE)
    assert [leader for leader, _ in departures.lines()] == [OTHER, ONE]


def test_who_leaves_is_nowhere(route: Route) -> None:
    departures = Departures[Route]()
    departures.enter(at("t"), route)
    assert len(departures) == 1
    departures.leave(at("t"))
    departures.leave(at("t"))
    assert len(departures) == 0
    assert look(departures, picture(topic("t"))) == []
    assert departures.lines() == []


def test_alarms_have_one_moment_for_each() -> None:
    alarms = Alarms()
    for moment in (3.0, 1.0, 2.0):
        alarms.set(at("a"), moment)
    alarms.set(at("b"), 2.5)
    assert alarms.next_s == 2.0
    assert list(alarms.take(1.9)) == []
    assert list(alarms.take(2.5)) == [at("a"), at("b")]
    assert at("a") not in alarms
    assert alarms.next_s == float("inf")
    alarms.set(at("a"), 9.0)
    alarms.set(at("a"), float("inf"))
    assert at("a") not in alarms
    assert alarms.next_s == float("inf")
