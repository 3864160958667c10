"""Traffic of single topics in the metrics: as many as there are places, whatever topics there are."""

import tracemalloc

import pytest
from regnum_broker.serving.topic_traffic import IDLE_S, LOOK_S, TopicTraffic
from regnum_telemetry.exposition import Exposition
from regnum_telemetry.instruments import topics as instruments
from regnum_telemetry.metrics import OTHER, Metrics
from regnum_testing.clock import FakeClock


class Shown:
    """Traffic, and what metrics show of it."""

    def __init__(self, topics_max: int) -> None:
        self.clock, self.metrics = FakeClock(), Metrics()
        self.traffic = TopicTraffic(topics_max=topics_max, clock=self.clock, metrics=self.metrics)

    def records_in(self) -> dict[str, float]:
        found = [one for one in self.metrics.read() if one.instrument is instruments.TOPIC_RECORDS_IN]
        return {labels[0]: value for reading in found for labels, value in reading.numbers}


def test_the_first_topics_have_series_of_their_own_and_all_others_one_together() -> None:
    shown = Shown(2)
    for topic in ("a", "b", "c", "d", "a"):
        shown.traffic.of(topic).appended(3, 100)
    shown.traffic.of("a").sent(5, 60)
    assert shown.records_in() == {OTHER: 6, "a": 6, "b": 3}
    found = {one.instrument: dict(one.numbers) for one in shown.metrics.read()}
    assert found[instruments.TOPIC_BYTES_IN] == {(OTHER,): 200, ("a",): 200, ("b",): 100}
    assert found[instruments.TOPIC_BYTES_OUT] == {(OTHER,): 0, ("a",): 60, ("b",): 0}
    assert found[instruments.TOPIC_RECORDS_OUT] == {(OTHER,): 0, ("a",): 5, ("b",): 0}


def test_a_topic_without_traffic_for_an_hour_gives_its_place_away_and_one_with_traffic_keeps_it() -> None:
    shown = Shown(2)
    shown.traffic.of("gone").appended(1, 1)
    shown.traffic.of("busy").appended(1, 1)
    waited_s = 0.0
    while "new" not in shown.traffic:
        assert waited_s <= IDLE_S + 2 * LOOK_S
        shown.traffic.of("busy").appended(1, 1)
        shown.traffic.of("new").appended(1, 1)
        shown.clock.skip(LOOK_S)
        waited_s += LOOK_S
    assert waited_s >= IDLE_S
    assert "gone" not in shown.traffic
    assert "busy" in shown.traffic
    assert shown.records_in()["new"] == 1, "what came before it had a place stays with the others"


def test_fetches_alone_keep_a_place() -> None:
    shown = Shown(1)
    shown.traffic.of("read").appended(1, 1)
    for _ in range(round(2 * IDLE_S / LOOK_S)):
        shown.traffic.of("read").sent(1, 1)
        shown.traffic.of("new").appended(1, 1)
        shown.clock.skip(LOOK_S)
    assert "read" in shown.traffic


def test_a_hundred_thousand_topics_cost_as_much_as_there_are_places() -> None:
    shown = Shown(100)
    names = [f"topic-{number:06d}-{'x' * 200}" for number in range(100_000)]
    tracemalloc.start()
    try:
        for name in names:
            shown.traffic.of(name).appended(1, 1)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000, "one kilobyte for each place"
    seen = shown.records_in()
    assert len(seen) == 101
    assert sum(seen.values()) == 100_000
    page, _ = Exposition("regnum-broker", "1", shown.metrics).render("")
    assert len(page) < 300_000


def test_those_who_find_no_place_do_not_look_for_one_each_time() -> None:
    shown = Shown(1_000)

    class Counted(dict[str, object]):
        looks = 0

        def items(self) -> object:  # type: ignore[override]
            type(self).looks += 1
            return super().items()

    for number in range(1_000):
        shown.traffic.of(f"t{number}").appended(1, 1)
    shown.traffic._known = Counted(shown.traffic._known)  # type: ignore[misc, assignment]
    for number in range(5_000):
        shown.traffic.of(f"other-{number}").appended(1, 1)
    assert Counted.looks == 1


@pytest.mark.parametrize("topics_max", [0, 3])
def test_a_topic_that_is_called_as_the_rest_is_counted_with_it(topics_max: int) -> None:
    shown = Shown(topics_max)
    shown.traffic.of(OTHER).appended(1, 1)
    assert shown.records_in() == ({OTHER: 1} if topics_max else {}), "without places, no names are shown"
